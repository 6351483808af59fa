"""Collects the transfers of inputs with the site they went to, for statistics of transfer speed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packtrain.report.history import ExecutionRecord, InputTransfer, JobHistory, JobRecord, Outcome, Phase

SiteAndSource = tuple[str, str]  # (site, source)

# Only a complete input transfer is followed by one of these phases.
_PHASES_AFTER_INPUT = frozenset({Phase.UNPACK, Phase.EXECUTE, Phase.TRANSFER_OUT})


@dataclass(frozen=True)
class SiteTransfer:
    """A transfer of inputs to a site."""

    job_id: str
    site: str
    transfer: InputTransfer
    maybe_cached: bool  # whether a cache may already have had the data

    @property
    def bytes_per_s(self) -> float | None:
        if self.transfer.size_bytes is None or self.transfer.duration_s <= 0:
            return None
        return self.transfer.size_bytes / self.transfer.duration_s


def collect_site_transfers(history: JobHistory) -> list[SiteTransfer]:
    cached_since = _first_completed_at(history) if history.has_timestamps else {}
    return [transfer for job in history.jobs for transfer in _job_transfers(job, cached_since)]


def input_transfers_of(execution: ExecutionRecord) -> Iterable[InputTransfer]:
    """Return the recorded input transfers. If there are none, derive one from each TRANSFER_IN span that ended."""
    return execution.input_transfers or _transfers_from_spans(execution)


def count_failed_transfers(job: JobRecord) -> int:
    """Count the input transfers of a job that did not complete."""
    return sum(not transfer.complete for execution in job.executions for transfer in input_transfers_of(execution))


def _transfers_from_spans(execution: ExecutionRecord) -> Iterator[InputTransfer]:
    indexes = [index for index, span in enumerate(execution.spans) if span.phase is Phase.TRANSFER_IN]
    size_bytes = execution.input_bytes if len(indexes) == 1 else None
    for index in indexes:
        span = execution.spans[index]
        complete = any(later.phase in _PHASES_AFTER_INPUT for later in execution.spans[index + 1 :])
        if complete or execution.outcome is not Outcome.RUNNING:
            yield InputTransfer(span.start, span.duration_s, size_bytes if complete else None, complete=complete)


def _first_completed_at(history: JobHistory) -> dict[SiteAndSource, float]:
    """Return when the first transfer from each source to each site completed."""
    ends: dict[SiteAndSource, float] = {}
    for execution in history.executions():
        for transfer in input_transfers_of(execution):
            key, end = (execution.site, transfer.source), transfer.start + transfer.duration_s
            if transfer.complete and end < ends.get(key, end + 1):
                ends[key] = end
    return ends


def _job_transfers(job: JobRecord, cached_since: dict[SiteAndSource, float]) -> Iterator[SiteTransfer]:
    """Yield the transfers of a job.

    Without timestamps, transfers of different jobs cannot be ordered. Then only an earlier transfer of the same job
    may have filled the cache.
    """
    n_previous: defaultdict[SiteAndSource, int] = defaultdict(int)
    for execution in job.executions:
        for transfer in input_transfers_of(execution):
            key = (execution.site, transfer.source)
            if key in cached_since:
                maybe_cached = transfer.start >= cached_since[key]
            else:
                maybe_cached = not cached_since and n_previous[key] > 0
            n_previous[key] += 1
            yield SiteTransfer(job.id, execution.site, transfer, maybe_cached)
