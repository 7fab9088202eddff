"""Faults: for every check one defect that this check must catch.

A fault is named after the check; a variant (`ID:VARIANT`) reaches it by another way. See `table`.
"""
