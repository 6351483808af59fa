"""What is known of places, as rows for a table and for --json. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packtrain.state.site_history import Standing, Visit, speed

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class PlaceRow:
    name: str
    attempts: int
    failed: float  # the share of failures that are the place's own, recent ones weighing more
    slowness: float | None  # times the usual of the same runs
    compute_s: float | None  # medians, recent ones weighing more
    transfer_s: float | None
    speed: float | None  # bytes a second
    rank: int  # percent above what is usual
    avoided: str  # why; "": it is not
    last: float  # when something was last heard of it
    outcomes: str  # of the newest attempts: well, or not
    speeds: str

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def rows_of(places: Mapping[str, Standing], avoided: Mapping[str, str]) -> list[PlaceRow]:
    """The best first."""
    rows = [_row(place, avoided.get(place.name, "")) for place in places.values()]
    return sorted(rows, key=lambda row: (-row.rank, -row.attempts, row.name))


def _row(place: Standing, avoided: str) -> PlaceRow:
    return PlaceRow(
        name=place.name,
        attempts=len(place.visits),
        failed=place.failed,
        slowness=place.slowness,
        compute_s=place.middle(lambda visit: visit.steps_s),
        transfer_s=place.middle(lambda visit: visit.fetch_s),
        speed=place.middle(speed),
        rank=round(100 * (place.score - 1)),
        avoided=avoided,
        last=place.visits[-1].at,
        outcomes="".join(_mark(visit) for visit in place.recent),
        speeds=sparkline([speed(visit) for visit in place.recent if speed(visit) > 0]),
    )


def _mark(visit: Visit) -> str:
    """A full bar for what ended well, a low one for the place's own failures, a middle one for others'."""
    return _BARS[-1] if not visit.kind else _BARS[0] if visit.fault else _BARS[3]


def sparkline(values: Sequence[float]) -> str:
    """From nothing to the largest."""
    most = max(values, default=0.0)
    return "".join(_BARS[min(7, int(8 * value / most))] for value in values) if most > 0 else ""
