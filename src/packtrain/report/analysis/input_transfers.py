"""Transfers of inputs, each with the place where it arrived: what speeds are measured on. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packtrain.report.history import Attempt, History, Job, Move, Outcome, Phase

Place = tuple[str, str]  # the site, the source

_AFTER = frozenset({Phase.UNPACK, Phase.EXECUTE, Phase.TRANSFER_OUT})  # only what came whole is followed by these


@dataclass(frozen=True)
class Arrival:
    job: str
    site: str
    move: Move
    later: bool  # whether the cache may have had it already

    @property
    def speed(self) -> float | None:
        """Bytes a second."""
        if self.move.bytes is None or self.move.seconds <= 0:
            return None
        return self.move.bytes / self.move.seconds


def arrivals_of(history: History) -> list[Arrival]:
    warm_from = _first_ends(history) if history.absolute else {}
    return [arrival for job in history.jobs for arrival in _of_job(job, warm_from)]


def moves_of(attempt: Attempt) -> Iterable[Move]:
    """As told; else one for each span of a transfer that ended."""
    return attempt.moves or _from_spans(attempt)


def stalls_of(job: Job) -> int:
    """How often a transfer of its inputs came to nothing."""
    return sum(not move.whole for attempt in job.attempts for move in moves_of(attempt))


def _from_spans(attempt: Attempt) -> Iterator[Move]:
    places = [place for place, span in enumerate(attempt.spans) if span.phase is Phase.TRANSFER_IN]
    size = attempt.bytes_in if len(places) == 1 else None
    for place in places:
        span = attempt.spans[place]
        whole = any(after.phase in _AFTER for after in attempt.spans[place + 1 :])
        if whole or attempt.outcome is not Outcome.RUNNING:
            yield Move(span.start, span.seconds, size if whole else None, whole=whole)


def _first_ends(history: History) -> dict[Place, float]:
    """When the first transfer from each place to each site had come whole."""
    ends: dict[Place, float] = {}
    for attempt in history.attempts():
        for move in moves_of(attempt):
            place, end = (attempt.site, move.source), move.start + move.seconds
            if move.whole and end < ends.get(place, end + 1):
                ends[place] = end
    return ends


def _of_job(job: Job, warm_from: dict[Place, float]) -> Iterator[Arrival]:
    """Where times of different jobs cannot be compared, only the job's own transfers before are known."""
    tried: defaultdict[Place, int] = defaultdict(int)
    for attempt in job.attempts:
        for move in moves_of(attempt):
            place = (attempt.site, move.source)
            later = move.start >= warm_from[place] if place in warm_from else not warm_from and tried[place] > 0
            tried[place] += 1
            yield Arrival(job.id, attempt.site, move, later)
