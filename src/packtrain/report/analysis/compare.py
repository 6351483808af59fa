"""Two histories side by side: every figure of both, the ratio, and which is better. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packtrain.report.analysis.measures import MEASURES, Better, Measure
from packtrain.report.analysis.statistics import Figures

_ALIKE = 0.005  # a difference that small is none


@dataclass(frozen=True)
class Compared:
    measure: Measure
    ours: float | None
    theirs: float | None

    @property
    def ratio(self) -> float | None:
        """Ours / theirs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def verdict(self) -> str:
        """better, worse, alike; empty where neither is."""
        if self.ours is None or self.theirs is None or self.measure.better is Better.NEITHER:
            return ""
        if abs(self.ours - self.theirs) <= _ALIKE * max(abs(self.ours), abs(self.theirs)):
            return "alike"
        return "better" if (self.ours > self.theirs) == (self.measure.better is Better.MORE) else "worse"


def compare(ours: Figures, theirs: Figures) -> tuple[Compared, ...]:
    """Figures that one of them has."""
    found = (Compared(measure, measure.of(ours), measure.of(theirs)) for measure in MEASURES)
    return tuple(one for one in found if one.ours or one.theirs)


def comparison_data(ours: Figures, theirs: Figures) -> dict[str, Any]:
    """For --json."""
    rows = {
        one.measure.key: {"a": one.ours, "b": one.theirs, "ratio": one.ratio, "verdict": one.verdict or None}
        for one in compare(ours, theirs)
    }
    return {"a": ours.name, "b": theirs.name, "figures": rows}
