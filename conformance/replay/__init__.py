"""Replay: the exchanges of a dossier sent again, and one check judged on what comes back."""
