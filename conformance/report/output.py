"""Where reports go: the console, and the files of `--json`, `--junit` and `--markdown`.

Reports are written as they come, so that a long file of samples needs no more memory than a short
one. Files are opened before anything is judged or sent: a path that cannot be written is an error
at once, not after the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TextIO

from conformance.errors import UsageError
from conformance.report import json_report, junit, markdown, story
from conformance.report.model import Report


@dataclass(frozen=True, slots=True)
class _Form:
    one: Callable[[Report, story.Context], str]
    head: str = ""
    tail: str = ""


def _json(report: Report, context: story.Context) -> str:
    return json_report.dumps(report, line=report.sample is not None)


_FORMS: Mapping[str, _Form] = {
    "json": _Form(_json),
    "junit": _Form(junit.suite, junit.HEAD, junit.TAIL),
    "markdown": _Form(markdown.render),
}


@dataclass(slots=True)
class Console:
    """Stdout that survives a reader who went away (`| head`), and any locale."""

    gone: bool = field(default=False)

    def write(self, text: str) -> None:
        if self.gone:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.gone = True
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding or "ascii"
            self.write(text.encode(encoding, "backslashreplace").decode(encoding))


class Outputs:
    """The report files of one command. A context manager; `add` each report in order."""

    def __init__(self, wanted: Mapping[str, Sequence[str]], console: Console) -> None:
        names = [name for each in wanted.values() for name in each]
        if names.count("-") > 1:
            raise UsageError("only one report can go to stdout (-)")
        self.on_stdout = "-" in names
        self._console = console
        self._stack = ExitStack()
        self._writers: list[tuple[_Form, Callable[[str], object]]] = []
        for form, files in wanted.items():
            for name in files:
                self._open(_FORMS[form], name)

    def _open(self, form: _Form, name: str) -> None:
        write: Callable[[str], object] = self._console.write
        if name != "-":
            try:
                file: TextIO = open(name, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            except OSError as error:
                self._stack.close()
                raise UsageError(f"{name}: cannot be written: {error.strerror}") from None
            write = self._stack.enter_context(file).write
        self._writers.append((form, write))

    def __enter__(self) -> Self:
        for form, write in self._writers:
            write(form.head)
        return self

    def add(self, report: Report, context: story.Context) -> None:
        for form, write in self._writers:
            write(form.one(report, context))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            for form, write in self._writers:
                write(form.tail)
