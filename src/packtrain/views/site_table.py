"""Statistics of sites, nodes or caches, as rows of a table and for --json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packtrain.state.site_history import HALF_LIFE_S, SiteHistory, SiteObservation, SiteStats, fetch_bytes_per_s

__all__ = ["HALF_LIFE_S", "SiteRow", "build_site_rows", "sparkline"]

_SPARK_CHARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class SiteRow:
    """The statistics of one site, node or cache."""

    name: str
    executions: int
    failure_rate: float  # 0 to 1; only failures that it is to blame for, newer ones weigh more
    relative_duration: float | None  # ratio to the typical duration in the same runs
    compute_s: float | None  # median duration of the steps; newer executions weigh more
    transfer_s: float | None  # median duration of the downloads
    bytes_per_s: float | None  # median download speed
    score_percent: int  # 0: typical; above 0: better than typical
    avoid_reason: str  # "": not avoided
    last_seen_at: float  # end of the newest execution (Unix time)
    outcome_sparkline: str  # one bar per recent execution: full if it did not fail
    speed_sparkline: str

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self)


def build_site_rows(history: SiteHistory, kind: str = "site") -> list[SiteRow]:
    """Return one row per site, node or cache, the best first.

    Args:
        history: What earlier runs measured.
        kind: `site`, `node` or `cache`.
    """
    avoid_reasons: Mapping[str, str] = {}
    stats: Mapping[str, SiteStats] = history.caches
    if kind != "cache":
        stats, avoid_reasons = (
            (history.nodes, history.avoided_nodes) if kind == "node" else (history.sites, history.avoided_sites)
        )
    rows = [_site_row(site, avoid_reasons.get(site.name, "")) for site in stats.values()]
    return sorted(rows, key=lambda row: (-row.score_percent, -row.executions, row.name))


def _site_row(site: SiteStats, avoid_reason: str) -> SiteRow:
    speeds = map(fetch_bytes_per_s, site.recent_observations)
    return SiteRow(
        name=site.name,
        executions=len(site.observations),
        failure_rate=site.failure_rate,
        relative_duration=site.slowdown,
        compute_s=site.weighted_median_of(lambda observation: observation.steps_s),
        transfer_s=site.weighted_median_of(lambda observation: observation.fetch_s),
        bytes_per_s=site.weighted_median_of(fetch_bytes_per_s),
        score_percent=round(100 * (site.score - 1)),
        avoid_reason=avoid_reason,
        last_seen_at=site.observations[-1].ended_at,
        outcome_sparkline="".join(map(_outcome_char, site.recent_observations)),
        speed_sparkline=sparkline([speed for speed in speeds if speed > 0]),
    )


def _outcome_char(observation: SiteObservation) -> str:
    """Return a full bar for an execution without a failure, a low bar if the site is to blame, else a middle one."""
    if not observation.failure_kind:
        return _SPARK_CHARS[-1]
    return _SPARK_CHARS[0] if observation.is_site_fault else _SPARK_CHARS[3]


def sparkline(values: Sequence[float]) -> str:
    """Return one bar per value, scaled from 0 to the largest value."""
    largest = max(values, default=0.0)
    return "".join(_SPARK_CHARS[min(7, int(8 * value / largest))] for value in values) if largest > 0 else ""
