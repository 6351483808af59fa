"""Two histories side by side: every figure of both, the ratio, and which is better. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packtrain.report.analysis.measures import MEASURES, Better, Measure
from packtrain.report.analysis.statistics import ReportStats

_SAME_TOLERANCE = 0.005  # a difference that small is none


@dataclass(frozen=True)
class MeasureComparison:
    measure: Measure
    current: float | None
    baseline: float | None

    @property
    def ratio(self) -> float | None:
        """Ours / theirs."""
        return self.current / self.baseline if self.current is not None and self.baseline else None

    @property
    def change(self) -> str:
        """better, worse, alike; empty where neither is."""
        if self.current is None or self.baseline is None or self.measure.better is Better.NEITHER:
            return ""
        if abs(self.current - self.baseline) <= _SAME_TOLERANCE * max(abs(self.current), abs(self.baseline)):
            return "alike"
        return "better" if (self.current > self.baseline) == (self.measure.better is Better.HIGHER) else "worse"


def compare_stats(current: ReportStats, baseline: ReportStats) -> tuple[MeasureComparison, ...]:
    """Figures that one of them has."""
    found = (MeasureComparison(measure, measure.compute(current), measure.compute(baseline)) for measure in MEASURES)
    return tuple(one for one in found if one.current or one.baseline)


def comparison_to_json(current: ReportStats, baseline: ReportStats) -> dict[str, Any]:
    """For --json."""
    rows = {
        one.measure.key: {"a": one.current, "b": one.baseline, "ratio": one.ratio, "verdict": one.change or None}
        for one in compare_stats(current, baseline)
    }
    return {"a": current.name, "b": baseline.name, "figures": rows}
