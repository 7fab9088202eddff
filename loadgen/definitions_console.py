"""The table of `--definitions`, and the same as data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from conformance.capture import Json
from loadgen.definitions import QUANTITIES, Line


def render(lines: Sequence[Line]) -> str:
    """A line a tool, then what each of them means by it."""
    head = ["ms: mean / p50 / p99", *(name.upper() for name in QUANTITIES), "tokens/s", "ok"]
    rows = [_row(line) for line in lines]
    align = ("left", *("right",) * (len(head) - 1))
    table = tabulate(rows, headers=head, colalign=align, disable_numparse=True)
    return (
        "\n".join(["the same requests by the definitions of", "", table, "", *_words(lines)]) + "\n"
    )


def _row(line: Line) -> list[str]:
    figures = [" / ".join(map(_ms, line.of.get(name, ()))) or "–" for name in QUANTITIES]
    rate = "–" if line.tokens_a_second is None else f"{line.tokens_a_second:.1f}"
    return [line.tool.name, *figures, rate, f"{line.succeeded} of {line.counted}"]


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f}"


def _words(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        tool = line.tool
        yield f"{tool.name} ({tool.version})"
        for name, quantity in tool.quantities.items():
            yield f"  {name.upper()}: {quantity.formula}"
        yield f"  ok: {tool.success}"
        yield f"  percentiles: {tool.percentile}"
        yield f"  tokens/s: {tool.throughput}"
        yield f"  note: {tool.notes}"


def document(lines: Sequence[Line]) -> list[Json]:
    """Seconds; null is unknown, and a quantity that a tool does not report is absent."""
    return [_tool(line) for line in lines]


def _tool(line: Line) -> dict[str, Json]:
    tool = line.tool
    return {
        "tool": tool.name,
        "version": tool.version,
        "succeeded": line.succeeded,
        "counted": line.counted,
        "success": tool.success,
        "percentile": tool.percentile,
        "output_tokens_a_second": line.tokens_a_second,
        "throughput": tool.throughput,
        "notes": tool.notes,
        **{
            name: {
                "n": line.n[name],
                **dict(zip(("mean", "p50", "p99"), line.of[name], strict=True)),
                "formula": quantity.formula,
            }
            for name, quantity in tool.quantities.items()
        },
    }
