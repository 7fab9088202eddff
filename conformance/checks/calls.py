"""Fragments of tool calls joined to calls, as they were streamed, right or wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.chunks import Maybe, Tool
from conformance.lifecycle import ChoiceLife


@dataclass(slots=True)
class Call:
    """One call of one choice, with its first id and name.

    `reused`: it opened on an index that another call had.
    """

    index: Maybe
    reused: bool = False
    id: str | None = None
    name: str | None = None
    fragments: list[tuple[int, Tool]] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The argument text, string fragments only."""
        parts = (tool.arguments for _, tool in self.fragments)
        return "".join(part for part in parts if isinstance(part, str))

    def add(self, at: int, tool: Tool) -> None:
        """One more fragment, of chunk `at`."""
        self.fragments.append((at, tool))
        self.id = self.id or word(tool.id)
        self.name = self.name or word(tool.name)


def word(value: Maybe) -> str | None:
    """The value where it is a non-empty string."""
    return value if isinstance(value, str) and value else None


def calls(life: ChoiceLife) -> list[Call]:
    """Fragments joined by index, or without one by place; another id and a name begin a call."""
    open_calls: dict[tuple[str, int], Call] = {}
    out: list[Call] = []
    for at, choice in life.pieces:
        for position, tool in enumerate(choice.tools):
            key = ("index", tool.index) if type(tool.index) is int else ("place", position)
            call = open_calls.get(key)
            another = word(tool.id) is not None and word(tool.name) is not None
            if call is None or (another and call.id not in (None, tool.id)):
                call = Call(tool.index, reused=call is not None and key[0] == "index")
                open_calls[key] = call
                out.append(call)
            call.add(at, tool)
    return out
