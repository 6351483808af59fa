"""Builds job records from Slurm's accounting.

The accounting has a record of each execution. Their order in time gives the events of a job, which `state.slot_time`
folds to waits and sessions as it does for an HTCondor log. The partition is the site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    JobHistory,
    JobRecord,
    Outcome,
    ReadProblem,
    ResourceUse,
)
from packtrain.report.readers.agent_timeline import record_from_session
from packtrain.report.readers.end_status import QUEUED, RUNNING, UNLOGGED_END, EndStatus, classify_failure_kind
from packtrain.slurm.accounting.record import AccountingRecord, AccountingTable
from packtrain.slurm.job_states import JobPhase, state_meaning
from packtrain.state.slot_time import PoolEvent, PoolEventKind, SlotTimeline

_MAX_PROBLEMS = 100
_UNCHECKED_NOTE = "Slurm's accounting does not record whether the outputs of the jobs were checked."
_TRANSFERS_NOTE = "Slurm's accounting does not record transfers: all time on a node counts as compute."
_CHECKPOINTS_NOTE = (
    "Slurm's accounting does not record checkpoints: of a job that was requeued, only the last execution counts as "
    "useful."
)
_NO_DUPLICATES_NOTE = (
    "Each job has one record. If jobs were requeued, their earlier executions are missing; `sacct -D` lists them."
)
_NO_STEPS_NOTE = "There are no job steps (`sacct -X`), so the memory that the jobs used is unknown."
_NO_GPUS_NOTE = "There is no column AllocTRES, so GPU hours are unknown."
_SUSPENDED_NOTE = "Slurm's accounting records how long a job was suspended, not when; it is shown at the end."


def read_slurm_accounting(tables: Sequence[tuple[str, AccountingTable]], name: str = "") -> JobHistory:
    """Build a history.

    Args:
        tables: The outputs of sacct, with the names of their files. Records that several of them have count once.
        name: The name of the history; by default, that of the file.
    """
    records: dict[tuple[str, str, float | None, float | None], AccountingRecord] = {}
    for _, table in tables:
        for record in table.records:
            records[record.cluster, record.job_id, record.submitted_at, record.started_at] = record
    by_job: dict[tuple[str, str], list[AccountingRecord]] = {}
    for record in records.values():
        by_job.setdefault((record.cluster, record.job_id), []).append(record)
    now = max((time for record in records.values() for time in _known_times(record)), default=0.0)
    has_several_clusters = len({cluster for cluster, _ in by_job}) > 1
    jobs = tuple(
        _build_job(f"{job_id}@{cluster}" if has_several_clusters and cluster else job_id, group, now)
        for (cluster, job_id), group in by_job.items()
    )
    problems = [ReadProblem(path, *row) for path, table in tables for row in table.unreadable]
    return JobHistory(
        name or (PurePath(tables[0][0]).stem if len(tables) == 1 else f"{len(tables)} accounting files"),
        "accounting",
        jobs,
        tuple(problems[:_MAX_PROBLEMS]),
        len(problems),
        tuple(_limitations([table for _, table in tables], list(records.values()), jobs)),
    )


def _limitations(
    tables: Sequence[AccountingTable], records: Sequence[AccountingRecord], jobs: Sequence[JobRecord]
) -> Iterator[str]:
    yield _UNCHECKED_NOTE
    yield _TRANSFERS_NOTE
    if any(len(job.executions) > 1 for job in jobs):
        yield _CHECKPOINTS_NOTE
    elif jobs:
        yield _NO_DUPLICATES_NOTE
    if records and not any(table.has_steps for table in tables):
        yield _NO_STEPS_NOTE
    if any(record.gpus is None for record in records):
        yield _NO_GPUS_NOTE
    if any(record.suspended_s for record in records):
        yield _SUSPENDED_NOTE


def _known_times(record: AccountingRecord) -> Iterator[float]:
    yield from (time for time in (record.submitted_at, record.started_at, record.ended_at) if time is not None)
    if record.started_at is not None and record.ended_at is None:
        yield record.started_at + (record.elapsed_s or 0.0) + record.suspended_s


def _build_job(job_id: str, records: Sequence[AccountingRecord], now: float) -> JobRecord:
    """Build the record of a job from its executions."""
    ordered = sorted(records, key=_start_order)
    last = ordered[-1]
    timeline = SlotTimeline(_pool_events(ordered))
    started = [record for record in ordered if record.started_at is not None]
    executions = tuple(_build_execution(number, timeline, record, now) for number, record in enumerate(started, 1))
    is_running = last.started_at is not None and last.ended_at is None
    status = _classify(last) if _is_final(last) else RUNNING if is_running else QUEUED
    return JobRecord(
        job_id,
        executions,
        status.outcome,
        timeline.submitted_at,
        timeline.last_event_at if _is_final(last) else None,
        timeline.waits(now),
        category=status.category,
        reason=status.reason,
        point={key: value for key, value in (("name", last.name), ("user", last.user)) if value},
    )


def _start_order(record: AccountingRecord) -> tuple[float, float, int]:
    return record.submitted_at or record.started_at or 0.0, record.started_at or 0.0, record.restarts


def _is_final(record: AccountingRecord) -> bool:
    return state_meaning(record.state).phase is JobPhase.ENDED


def _pool_events(records: Sequence[AccountingRecord]) -> Iterator[PoolEvent]:
    """Yield the events of a job in the order in which they happened."""
    execution = 0
    for record in records:
        is_last = record is records[-1]
        if record.submitted_at is not None:
            yield PoolEvent(PoolEventKind.SUBMITTED, record.submitted_at)
        if record.started_at is not None:
            execution += 1
            yield PoolEvent(PoolEventKind.STARTED, record.started_at, execution)
        if record.ended_at is not None and (record.started_at is not None or is_last):
            if record.suspended_s:
                started_at = record.started_at or record.ended_at
                yield PoolEvent(PoolEventKind.SUSPENDED, max(started_at, record.ended_at - record.suspended_s))
            end = PoolEventKind.GONE if is_last and _is_final(record) else PoolEventKind.INTERRUPTED
            yield PoolEvent(end, record.ended_at, cause=_classify(record))


def _build_execution(number: int, timeline: SlotTimeline, record: AccountingRecord, now: float) -> ExecutionRecord:
    session = timeline.sessions[number - 1]
    execution = record_from_session(session, number, now, session.end_cause or UNLOGGED_END)
    is_resized = record.state == "RESIZING"
    return replace(
        execution,
        site=record.partition,
        node=record.nodes,
        gpus=record.gpus or 0.0,
        pool_state=record.state,
        retained_compute_s=execution.duration_s if is_resized else execution.retained_compute_s,
        resource_use=ResourceUse(
            record.cpus, record.cpu_s, record.memory_bytes, record.peak_memory_bytes, record.time_limit_s
        ),
    )


def _classify(record: AccountingRecord) -> EndStatus:
    """Classify the end of an execution. With a state that is not final, the job was requeued or resized."""
    meaning = state_meaning(record.state)
    if meaning.phase is JobPhase.PENDING:
        return EndStatus(Outcome.EVICTED, FailureCategory.EVICTION, "Slurm requeued the job")
    if meaning.phase is not JobPhase.ENDED:
        return EndStatus(Outcome.CHECKPOINTED, FailureCategory.NONE, "the job was resized")
    if record.state == "COMPLETED":
        return EndStatus(Outcome.SUCCEEDED, FailureCategory.NONE)
    if record.state == "CANCELLED":
        return EndStatus(Outcome.REMOVED, FailureCategory.USER, meaning.message)
    if record.state == "NODE_FAIL":
        return EndStatus(Outcome.LOST, FailureCategory.POOL, meaning.message)
    if meaning.failure_kind:
        return classify_failure_kind(meaning.failure_kind, meaning.message, Outcome.FAILED)
    return EndStatus(Outcome.FAILED, FailureCategory.PROGRAM, _exit_message(record.exit_code))


def _exit_message(exit_code: int | None) -> str:
    if exit_code is None:
        return "the job failed"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
