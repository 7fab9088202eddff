"""Plots as SVG text, without any script. Pure. Everything that is text is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from conformance.report.escape import html

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 38
MOST_POINTS = 600
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """`kind`: "line", "steps" (a value holds until the next), "dots", or "marked": a line whose
    points are seen. `hue`: a class c0, c1, …"""

    name: str
    points: Sequence[Point]
    hue: int = 0
    kind: str = "line"


@dataclass(frozen=True, slots=True)
class Plot:
    """Axes begin at 0. `top`: what the y axis reaches at least; `most`: where the x axis ends.

    `is_doubling`: the x axis begins at 1, and equal steps of it are times 2.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    top: float = 0.0
    most: float | None = None
    note: str = ""
    is_doubling: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a lane, in the x axis's unit; `hue` names a class of the style sheet."""

    start: float
    end: float
    hue: str


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    bars: Sequence[Bar]
    ticks: Sequence[float] = field(default=())


def ticks(most: float, wanted: int = 6) -> list[float]:
    """Round numbers from 0 to at most `most`."""
    if not (most > 0 and math.isfinite(most)):
        return [0.0]
    raw = most / wanted
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= raw * (1 - 1e-9))
    return [n * step for n in range(int(most / step + 1e-9) + 1)]


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """At most so many, the last among them."""
    step = -(-len(points) // most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def plot(made: Plot) -> str:
    """One figure."""
    shown = [each for each in made.series if each.points]
    xs = [x for each in shown for x, _ in each.points]
    ys = [y for each in shown for _, y in each.points]
    right = made.most if made.most is not None else max(xs, default=1.0)
    frame = _Frame(right or 1.0, max([made.top, *ys]) or 1.0, HEIGHT, made.is_doubling)
    body = [*_axes(made, frame), *(_drawn(each, frame) for each in shown), *_legend(shown)]
    return _figure(made.title, made.note, HEIGHT, body)


@dataclass(frozen=True, slots=True)
class _Frame:
    right: float
    upper: float
    height: int
    is_doubling: bool = False

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, self._share(value)))

    def _share(self, value: float) -> float:
        if not self.is_doubling:
            return value / self.right
        return math.log2(max(1.0, value)) / max(1.0, math.log2(max(1.0, self.right)))

    @property
    def marks(self) -> list[float]:
        """Of the x axis."""
        if not self.is_doubling:
            return ticks(self.right)
        return [2.0**n for n in range(int(math.log2(max(1.0, self.right))) + 1)]

    def y(self, value: float) -> float:
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * min(1.0, value / self.upper)


def _axes(made: Plot, frame: _Frame) -> Iterator[str]:
    yield from _x_axis(made.x, frame)
    for value in ticks(frame.upper, 4):
        y = frame.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 4:.1f}">{value:g}</text>'
    yield f'<text x="{LEFT}" y="{TOP - 10}">{html(made.y)}</text>'


def _x_axis(name: str, frame: _Frame) -> Iterator[str]:
    low = frame.height - BOTTOM
    for value in frame.marks:
        x = frame.x(value)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{low}"/>'
        yield f'<text class="mid" x="{x:.1f}" y="{low + 16}">{value:g}</text>'
    yield f'<text class="end" x="{WIDTH - RIGHT}" y="{low + 32}">{html(name)}</text>'


def _drawn(each: Series, frame: _Frame) -> str:
    points = thin(each.points)
    dots = _dots(points, each.hue, frame) if each.kind in ("dots", "marked") else ""
    if each.kind == "dots":
        return dots
    if each.kind == "steps":
        points = [p for a, b in _neighbours(points) for p in (a, (b[0], a[1]))]
    path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
    return f'<polyline class="curve c{each.hue}" points="{path}"/>{dots}'


def _dots(points: Sequence[Point], hue: int, frame: _Frame) -> str:
    dots = (f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2"/>' for x, y in points)
    return f'<g class="dots c{hue}">{"".join(dots)}</g>'


def _neighbours(points: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    for number, point in enumerate(points):
        yield point, points[min(number + 1, len(points) - 1)]


def _legend(shown: Sequence[Series]) -> Iterator[str]:
    x = float(WIDTH - RIGHT)
    for each in reversed(shown):
        x -= 7.0 * len(each.name) + 24
        yield f'<rect class="key c{each.hue}" x="{x:.0f}" y="{TOP - 19}" width="10" height="10"/>'
        yield f'<text x="{x + 14:.0f}" y="{TOP - 10}">{html(each.name)}</text>'


def lanes(title: str, x: str, shown: Sequence[Lane], right: float, note: str) -> str:
    """A row for each, from the top."""
    tall = 7 if len(shown) > 40 else 14
    height = TOP + BOTTOM + tall * max(1, len(shown))
    frame = _Frame(right or 1.0, 1.0, height)
    body = list(_x_axis(x, frame))
    for number, lane in enumerate(shown):
        y = TOP + number * tall
        bars = "".join(_bar(bar, y, tall, frame) for bar in lane.bars)
        marks = "".join(
            f'<line class="tick" x1="{frame.x(at):.1f}" x2="{frame.x(at):.1f}" '
            f'y1="{y + 1}" y2="{y + tall - 1}"/>'
            for at in lane.ticks
        )
        body.append(f"<g><title>{html(lane.name)}</title>{bars}{marks}</g>")
    return _figure(title, note, height, body)


def _bar(bar: Bar, y: int, tall: int, frame: _Frame) -> str:
    start = frame.x(bar.start)
    width = max(0.5, frame.x(bar.end) - start)
    place = f'x="{start:.1f}" y="{y + 1}" width="{width:.1f}" height="{tall - 2}"'
    return f'<rect class="{bar.hue}" {place}/>'


def _figure(title: str, note: str, height: int, body: Sequence[str]) -> str:
    told = f"<p>{html(note)}</p>" if note else ""
    return (
        f"<figure><figcaption>{html(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html(title)}">'
        f"{''.join(body)}</svg>{told}</figure>\n"
    )
