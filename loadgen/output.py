"""Where reports go. Files are opened before anything is sent: a path that cannot be written is an
error at once, not after the work. Stdout may close early (`| head`) and have any encoding."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TextIO

from conformance.errors import UsageError

STDOUT = "-"


class Outputs:
    """The report files of one command, by form. A context manager."""

    def __init__(self, wanted: Mapping[str, Sequence[str]]) -> None:
        names = [name for each in wanted.values() for name in each]
        if names.count(STDOUT) > 1:
            raise UsageError("only one report can go to stdout (-)")
        self._on_stdout = STDOUT in names
        self._stack = ExitStack()
        self._files: dict[str, list[TextIO]] = {}
        for form, files in wanted.items():
            self._files[form] = [self._opened(name) for name in files]

    def _opened(self, name: str) -> TextIO:
        if name == STDOUT:
            return sys.stdout
        try:
            file = open(name, "w", encoding="utf-8", errors="backslashreplace", newline="")  # noqa: SIM115
        except (OSError, ValueError) as error:
            self._stack.close()
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{name}: cannot be written: {reason}") from None
        return self._stack.enter_context(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def write(self, form: str, parts: Iterator[str]) -> None:
        """One report, to every file that wants this form."""
        files = self._files.get(form, [])
        for part in parts if files else ():
            for file in files:
                _put(file, part)

    def tell(self, text: str) -> None:
        """The table: to stderr where stdout holds a report."""
        _put(sys.stderr if self._on_stdout else sys.stdout, text)


def _put(file: TextIO, text: str) -> None:
    try:
        file.write(text)
        file.flush()
    except BrokenPipeError:
        return  # the reader has seen enough
    except UnicodeEncodeError:
        encoding = file.encoding or "ascii"
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        raise UsageError(f"{file.name}: cannot be written: {error.strerror}") from None
