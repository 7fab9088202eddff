"""What can go wrong, named by whose fault it is. Every message is one line that says what to do."""

from __future__ import annotations


class StreamproofError(Exception):
    """Root of the errors a command reports in one line and answers with exit code 2."""


class UsageError(StreamproofError):
    """The caller asked for something impossible: a flag, a filter that matches nothing."""


class TargetError(StreamproofError):
    """The endpoint could not be used at all: unreachable from the start, no model, no API."""


class RecordError(StreamproofError):
    """A recorded file cannot be read: wrong format, damaged, larger than we accept."""


class SpecError(StreamproofError):
    """A YAML or target file breaks its schema. Printed as `file:line: field: expected …`."""

    def __init__(self, file: str, line: int, field: str, expected: str) -> None:
        super().__init__(f"{file}:{line}: {field}: {expected}")
        self.file, self.line, self.field, self.expected = file, line, field, expected
