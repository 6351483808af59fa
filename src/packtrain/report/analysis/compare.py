"""Compares the statistics of two histories: both values of each measure, their ratio, and which is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packtrain.report.analysis.measures import MEASURES, Better, Measure
from packtrain.report.analysis.statistics import ReportStats

_SAME_TOLERANCE = 0.005  # a smaller relative difference counts as the same


@dataclass(frozen=True)
class MeasureComparison:
    """One measure of two histories."""

    measure: Measure
    current: float | None
    baseline: float | None

    @property
    def ratio(self) -> float | None:
        """Current / baseline."""
        return self.current / self.baseline if self.current is not None and self.baseline else None

    @property
    def change(self) -> str:
        """better, worse or same; empty if the measure cannot be better or worse."""
        if self.current is None or self.baseline is None or self.measure.better is Better.NEITHER:
            return ""
        if abs(self.current - self.baseline) <= _SAME_TOLERANCE * max(abs(self.current), abs(self.baseline)):
            return "same"
        return "better" if (self.current > self.baseline) == (self.measure.better is Better.HIGHER) else "worse"


def compare_stats(current: ReportStats, baseline: ReportStats) -> tuple[MeasureComparison, ...]:
    """Compare all measures that at least one of the histories has."""
    rows = (MeasureComparison(measure, measure.compute(current), measure.compute(baseline)) for measure in MEASURES)
    return tuple(row for row in rows if row.current or row.baseline)


def comparison_to_json(current: ReportStats, baseline: ReportStats) -> dict[str, Any]:
    """Return the comparison as JSON data, by the key of each measure."""
    rows = {
        row.measure.key: {
            "current": row.current,
            "baseline": row.baseline,
            "ratio": row.ratio,
            "change": row.change or None,
        }
        for row in compare_stats(current, baseline)
    }
    return {"current": current.name, "baseline": baseline.name, "statistics": rows}
