"""May two runs be compared at all? Only where they were asked the same. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadgen.result import Result

# What may differ: it changes which requests are drawn, not what kind they are.
# Nor do clients that are not ordinary count: what they cost the others can be compared.
# What words cost is the endpoint's: with another tokenizer as many tokens are other words.
SPELLED = frozenset({"tokens_a_word", "tokens_of_template_and_mark"})
FREE = SPELLED | frozenset(
    {"seed", "max_requests", "leave", "read", "clock_because", "clock_jumps", "unstamped_reads"}
    | {"read_delay", "packets"}
    | {"retry", "tokens_checked"}
)


def unlike(first: Sequence[Result], second: Sequence[Result]) -> str | None:
    """In one line what was not asked alike; None: nothing. URL, model and checks may differ."""
    runs = (*first, *second)
    for other in runs[1:]:
        if found := list(_differing(runs[0], other)):
            return "; ".join(found)
    return _prompts(first[0], second[0])


def _differing(one: Result, other: Result) -> Iterator[str]:
    if one.target.api != other.target.api:
        yield f"api {one.target.api} and {other.target.api}"
    for key in sorted((set(one.load) | set(other.load)) - FREE):
        if one.load.get(key) != other.load.get(key):
            yield f"{key} {_said(one, key)} and {_said(other, key)}"


def _said(run: Result, key: str) -> str:
    value = run.load.get(key)
    return "unsaid" if value is None else str(value)[:60]


def _prompts(one: Result, other: Result) -> str | None:
    """With one seed, request i asks the same in both: another file under the same name does not."""
    if any(one.load.get(key) != other.load.get(key) for key in ("seed", *SPELLED)):
        return None
    asked = {row.index: row.prompt_hash for row in one.rows}
    apart = sum(asked.get(row.index, row.prompt_hash) != row.prompt_hash for row in other.rows)
    return f"{apart} requests of the same number ask another prompt" if apart else None
