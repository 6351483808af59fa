"""Transfers of inputs, each with the place where it arrived: what speeds are measured on. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packtrain.report.history import ExecutionRecord, InputTransfer, JobHistory, JobRecord, Outcome, Phase

SiteAndSource = tuple[str, str]  # the site, the source

_PHASES_AFTER_INPUT = frozenset(
    {Phase.UNPACK, Phase.EXECUTE, Phase.TRANSFER_OUT}
)  # only what came whole is followed by these


@dataclass(frozen=True)
class SiteTransfer:
    job_id: str
    site: str
    transfer: InputTransfer
    maybe_cached: bool  # whether the cache may have had it already

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes a second."""
        if self.transfer.size_bytes is None or self.transfer.duration_s <= 0:
            return None
        return self.transfer.size_bytes / self.transfer.duration_s


def collect_site_transfers(history: JobHistory) -> list[SiteTransfer]:
    warm_from = _first_completed_at(history) if history.has_timestamps else {}
    return [arrival for job in history.jobs for arrival in _job_transfers(job, warm_from)]


def input_transfers_of(execution: ExecutionRecord) -> Iterable[InputTransfer]:
    """As told; else one for each span of a transfer that ended."""
    return execution.input_transfers or _transfers_from_spans(execution)


def count_failed_transfers(job: JobRecord) -> int:
    """How often a transfer of its inputs came to nothing."""
    return sum(not move.complete for attempt in job.executions for move in input_transfers_of(attempt))


def _transfers_from_spans(execution: ExecutionRecord) -> Iterator[InputTransfer]:
    places = [place for place, span in enumerate(execution.spans) if span.phase is Phase.TRANSFER_IN]
    size = execution.input_bytes if len(places) == 1 else None
    for place in places:
        span = execution.spans[place]
        whole = any(after.phase in _PHASES_AFTER_INPUT for after in execution.spans[place + 1 :])
        if whole or execution.outcome is not Outcome.RUNNING:
            yield InputTransfer(span.start, span.duration_s, size if whole else None, complete=whole)


def _first_completed_at(history: JobHistory) -> dict[SiteAndSource, float]:
    """When the first transfer from each place to each site had come whole."""
    ends: dict[SiteAndSource, float] = {}
    for attempt in history.executions():
        for move in input_transfers_of(attempt):
            place, end = (attempt.site, move.source), move.start + move.duration_s
            if move.complete and end < ends.get(place, end + 1):
                ends[place] = end
    return ends


def _job_transfers(job: JobRecord, cached_since: dict[SiteAndSource, float]) -> Iterator[SiteTransfer]:
    """Where times of different jobs cannot be compared, only the job's own transfers before are known."""
    tried: defaultdict[SiteAndSource, int] = defaultdict(int)
    for attempt in job.executions:
        for move in input_transfers_of(attempt):
            place = (attempt.site, move.source)
            later = (
                move.start >= cached_since[place] if place in cached_since else not cached_since and tried[place] > 0
            )
            tried[place] += 1
            yield SiteTransfer(job.id, attempt.site, move, later)
