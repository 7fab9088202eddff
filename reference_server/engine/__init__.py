"""Engines: step-driven, no I/O, no trio. `interface` says what an engine is."""
