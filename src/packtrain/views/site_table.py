"""What is known of places, as rows for a table and for --json. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packtrain.state.site_history import SiteObservation, SiteStats, fetch_bytes_per_s

_SPARK_CHARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class SiteRow:
    name: str
    executions: int
    failure_rate: float  # the share of failures that are the place's own, recent ones weighing more
    relative_duration: float | None  # times the usual of the same runs
    compute_s: float | None  # medians, recent ones weighing more
    transfer_s: float | None
    bytes_per_s: float | None  # bytes a second
    score_percent: int  # percent above what is usual
    avoid_reason: str  # why; "": it is not
    last_seen_at: float  # when something was last heard of it
    outcome_sparkline: str  # of the newest attempts: well, or not
    speed_sparkline: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def build_site_rows(sites: Mapping[str, SiteStats], avoid_reasons: Mapping[str, str]) -> list[SiteRow]:
    """The best first."""
    rows = [_site_row(place, avoid_reasons.get(place.name, "")) for place in sites.values()]
    return sorted(rows, key=lambda row: (-row.score_percent, -row.executions, row.name))


def _site_row(site: SiteStats, avoid_reason: str) -> SiteRow:
    return SiteRow(
        name=site.name,
        executions=len(site.observations),
        failure_rate=site.failure_rate,
        relative_duration=site.slowdown,
        compute_s=site.weighted_median_of(lambda visit: visit.steps_s),
        transfer_s=site.weighted_median_of(lambda visit: visit.fetch_s),
        bytes_per_s=site.weighted_median_of(fetch_bytes_per_s),
        score_percent=round(100 * (site.score - 1)),
        avoid_reason=avoid_reason,
        last_seen_at=site.observations[-1].ended_at,
        outcome_sparkline="".join(_outcome_char(visit) for visit in site.recent_observations),
        speed_sparkline=sparkline(
            [fetch_bytes_per_s(visit) for visit in site.recent_observations if fetch_bytes_per_s(visit) > 0]
        ),
    )


def _outcome_char(observation: SiteObservation) -> str:
    """A full bar for what ended well, a low one for the place's own failures, a middle one for others'."""
    return (
        _SPARK_CHARS[-1]
        if not observation.failure_kind
        else _SPARK_CHARS[0]
        if observation.is_site_fault
        else _SPARK_CHARS[3]
    )


def sparkline(values: Sequence[float]) -> str:
    """From nothing to the largest."""
    most = max(values, default=0.0)
    return "".join(_SPARK_CHARS[min(7, int(8 * value / most))] for value in values) if most > 0 else ""
