"""A run, several, or a comparison as one self-contained HTML page: no script, nothing from
elsewhere, all text escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.report.escape import excerpt, html
from loadgen import asked, console, provenance, strata
from loadgen.compare import Change
from loadgen.compare_console import Comparison, legend, shown_row
from loadgen.formulas import METRICS
from loadgen.groups import bands
from loadgen.looking import judged_failures
from loadgen.plots import figures
from loadgen.quantiles import label
from loadgen.result import Result
from loadgen.summary import QUANTILES

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
STYLE = """<style>
:root { --ink: #1c2430; --dim: #5d6878; --paper: #fff; --line: #d9dee5; --good: #2a8a4a;
  --bad: #c0362c; --a: #2563b0; --b: #d9730d; --c: #2a8a4a; --d: #8447b5; --wait: #e3a62f;
  --grey: #9aa4b1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --dim: #9aa5b4; --paper: #14181f;
  --line: #323a46; --good: #55b877; --bad: #ef7468; --a: #6ea8f0; --b: #f0a050; --c: #55b877;
  --d: #b98be0; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1500px; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .2rem 0; color: var(--dim); overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); } .verdict { font-weight: 600; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .15rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; } th { color: var(--dim); font-weight: 500; }
th:first-child, td:first-child, .words { text-align: left; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 560px), 1fr));
  gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; margin: .4rem 0 0; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--dim); }
.mid { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--line); stroke-width: 1; }
.curve { fill: none; stroke-width: 1.8; } .dots { opacity: .6; }
.c0 { stroke: var(--a); fill: var(--a); } .c1 { stroke: var(--b); fill: var(--b); }
.c2 { stroke: var(--c); fill: var(--c); } .c3 { stroke: var(--d); fill: var(--d); }
polyline.c0, polyline.c1, polyline.c2, polyline.c3 { fill: none; }
.late { fill: var(--grey); } .wait { fill: var(--wait); } .fine { fill: var(--good); }
.lost { fill: var(--bad); } .left { fill: var(--d); }
.tick { stroke: var(--paper); stroke-width: .6; opacity: .55; }
</style>
"""
END = "</body></html>\n"
OVERLAID = 4  # runs in one plot


def numbered(results: Sequence[Result]) -> list[str]:
    """Names for the runs of one command."""
    return [f"run {number}" for number in range(1, len(results) + 1)]


def parts(
    results: Sequence[Result], names: Sequence[str], comparison: Comparison | None = None
) -> Iterator[str]:
    """The page in parts. `names`: of the runs, for the legends."""
    yield beginning(f"loadgen: {results[0].target.model} at {results[0].target.url}")
    if comparison is not None:
        yield from _compared(comparison)
    for result, name in zip(results, names, strict=True):
        yield from _run(result, name if len(results) > 1 else "")
    shown = list(results[:OVERLAID])
    plots = "".join(figures(shown, names[:OVERLAID]))
    yield plotted(plots)
    if len(results) > OVERLAID:
        yield f"<p>Plots of the first {OVERLAID} of {len(results)} runs.</p>\n"
    yield END


def beginning(title: str) -> str:
    """Up to the first line below the heading."""
    return f"{HEAD}<title>{html(title)}</title>\n{STYLE}</head><body>\n<h1>{html(title)}</h1>\n"


def plotted(plots: str) -> str:
    return f'<h2>Plots</h2>\n<div class="plots">\n{plots}</div>\n'


def _run(result: Result, name: str) -> Iterator[str]:
    if name:
        yield f"<h2>{html(name)}: {html(result.target.url)}</h2>\n"
    hue = "good" if result.exit == 0 else "bad"
    yield f'<p class="verdict {hue}">{html(console.verdict(result))}</p>\n'
    for line in _lines(result):
        yield f"<p>{html(line)}</p>\n"
    yield _latencies(result)
    yield table(strata.HEAD, strata.table(result.strata, console.marked(result)))
    yield table(["clients", "sent", "whole", "left", "failed"], _clients(result))
    yield table(["failed", "", "", "told"], _failures(result), words=(2, 3))
    yield table(["check", "verdict", "in", "first"], _checks(result), words=(1, 3))


def _lines(result: Result) -> Iterator[str]:
    yield " · ".join(f"{k} {v}" for k, v in result.load.items() if v is not None and v != [])
    books = result.summary.books
    outcomes = ", ".join(f"{fate.value} {count}" for fate, count in books.of.items())
    sums = f"{books.sent} sent + {books.dropped} dropped + {books.cancelled} cancelled"
    yield f"{books.scheduled} scheduled = {sums}; {outcomes}"
    yield from (f"not valid: {each.reason}: {each.detail}" for each in result.doubts)
    yield from (console.objective(each) for each in result.judged)
    yield from console.rates(result)
    yield from asked.lines(result.lengths, result.load.get("input_tokens_by"))
    yield from provenance.lines(result)
    if result.served is not None:
        yield from console.by_server(result, result.served)
    if result.recovery is not None:
        yield str(result.recovery)
    if result.solo is not None:
        yield str(result.solo)


def _latencies(result: Result) -> str:
    known = {name: found for name, found in result.summary.metrics.items() if found.n}
    statistics = ["mean", *(label(q) for q in QUANTILES), "max"]
    head = ["ms", "n", *statistics]
    between = result.summary.between
    rows = [
        [name, str(found.n), *(console.cell(found, s, between.get(name)) for s in statistics)]
        for name, found in known.items()
    ]
    signs = "".join(
        f"<p>{html(each)}</p>\n" for each in console.signs(result, [*known], statistics)
    )
    return table(head, rows, {name: METRICS[name].formula for name in known}) + signs


def _clients(result: Result) -> list[list[str]]:
    out = []
    for each in bands(result.measured):
        b = each.books
        left = b.sent - b.succeeded - b.failed
        out.append([each.name, str(b.sent), str(b.succeeded), str(left), str(b.failed)])
    return out


def _failures(result: Result) -> list[list[str]]:
    return [
        [each.fate.value, str(each.count), " ".join(map(str, console.reasons(each))),
         excerpt(each.told)]
        for each in result.failures
    ]  # fmt: skip


def _checks(result: Result) -> list[list[str]]:
    crossed = [
        ["cross-talk", "fail", "1", f"request {each.index} has the mark of request {each.other}"]
        for each in result.tally.crossed
    ]
    return crossed + [
        [told.breach.id, told.breach.verdict.value, str(told.bad),
         f"request {told.index}: {told.breach.message}"]
        for told in judged_failures(result.tally)
    ]  # fmt: skip


def _compared(comparison: Comparison) -> Iterator[str]:
    hue = "good" if comparison.exit == 0 else "bad"
    changed = [
        f"{each.measure.name} {each.change.value}"
        for each in comparison.found
        if each.change in (Change.WORSE, Change.BETTER)
    ]
    told = ", ".join(changed) or "no difference"
    yield f'<p class="verdict {hue}">{html(told)} · exit {comparison.exit}</p>\n'
    for name, side in zip(comparison.names, "AB", strict=True):
        yield f"<p>{side}: {html(name)}</p>\n"
    yield "".join(f"<p>not valid: {html(reason)}</p>\n" for reason in comparison.reasons)
    if comparison.by_reads:
        yield f"<p>{html(comparison.by_reads)}</p>\n"
    rows = [shown_row(each) for each in comparison.found]
    yield table(["", "A", "B", "difference", "noise", "p", ""], rows, words=(6,))
    yield "".join(f"<p>{html(line)}</p>\n" for line in legend(comparison.found) if rows)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    said: Mapping[str, str] | None = None,
    words: Sequence[int] = (),
) -> str:
    """Markup; nothing where there is no row. `said`: first cell → what it says when pointed at.
    `words`: columns that are to be read, not added up."""
    if not rows:
        return ""
    top = "".join(_cells("th", head, words))
    body = "".join(
        f"<tr{_hint(row[0], said)}>{''.join(_cells('td', row, words))}</tr>\n" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table>\n"


def _hint(name: str, said: Mapping[str, str] | None) -> str:
    return f' title="{html(said[name])}"' if said and name in said else ""


def _cells(tag: str, texts: Sequence[str], words: Sequence[int]) -> Iterator[str]:
    for number, text in enumerate(texts):
        kind = ' class="words"' if number in words else ""
        yield f"<{tag}{kind}>{html(text)}</{tag}>"
