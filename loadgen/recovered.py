"""What the recovery check found, and what it means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SLOWER, MORE = 1.5, 0.05  # a probe may take so many times as long, and so many seconds more


@dataclass(frozen=True, slots=True)
class Recovery:
    """`gauges_*`: the server's own, None where it shows none. `took`: seconds after the load until
    they were back, None: not within `within`. `probe_*`: seconds of a small request alone, None
    where it was not answered."""

    gauges_before: Mapping[str, float] | None
    gauges_after: Mapping[str, float] | None
    took: float | None
    within: float
    probe_before: float | None
    probe_after: float | None

    @property
    def by_gauges(self) -> bool | None:
        return None if self.gauges_before is None else self.took is not None

    @property
    def by_contrast(self) -> bool | None:
        """None where there is nothing to hold it against."""
        if self.probe_before is None:
            return None
        if self.probe_after is None:
            return False
        return self.probe_after <= SLOWER * self.probe_before + MORE

    @property
    def recovered(self) -> bool | None:
        """None: nobody can tell."""
        known = [each for each in (self.by_gauges, self.by_contrast) if each is not None]
        return all(known) if known else None

    def __str__(self) -> str:
        word = {True: "recovered", False: "not recovered", None: "recovery unknown"}
        return f"{word[self.recovered]}: {self._gauges()}, {self._contrast()}"

    def _gauges(self) -> str:
        if self.gauges_before is None:
            return "no gauges"
        if self.took is not None:
            return f"its gauges were back after {self.took:.2f} s"
        now = ", ".join(f"{k} {v:g}" for k, v in (self.gauges_after or {}).items()) or "gone"
        was = ", ".join(f"{k} {v:g}" for k, v in self.gauges_before.items())
        return f"its gauges were {was} and are {now} after {self.within:g} s"

    def _contrast(self) -> str:
        if self.probe_before is None:
            return "a small request alone was not answered before"
        before = f"{self.probe_before * 1e3:.0f} ms before"
        if self.probe_after is None:
            return f"a small request alone took {before} and is not answered now"
        return f"a small request alone took {before} and {self.probe_after * 1e3:.0f} ms after"
