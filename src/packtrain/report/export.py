"""Exports a report as data: report.json (see docs/formats/report.md), and jobs and executions as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from packtrain import __version__
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.resource_use import cpu_efficiency, memory_efficiency
from packtrain.report.analysis.statistics import JobSummary, ReportStats
from packtrain.report.analysis.time_accounting import US_PER_S, ExecutionTimeUse, JobTimeUse, TimeUse
from packtrain.report.history import JobHistory, Phase

FORMAT, VERSION = "packtrain-report", 2
_EXCLUDED_FIELDS = frozenset({"name", "kind", "job_summaries", "job_time_use"})  # exported under other keys, or not
_SLOT_PHASES = tuple(phase for phase in Phase if phase not in (Phase.QUEUED, Phase.HELD))


def json_key(member: Enum) -> str:
    """Return the JSON key of an enum member: useful compute → useful_compute."""
    return str(member.value).replace(" ", "_")


def report_to_json(history: JobHistory, stats: ReportStats, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "packtrain": __version__,
        "name": stats.name,
        "kind": stats.kind,
        "findings": [finding.text for finding in findings],
        "statistics": stats_to_json(stats),
        "jobs": [_to_json(row) for row in stats.job_summaries],
        "limitations": list(history.limitations),
        "problems": [_to_json(problem) for problem in history.problems],
        "n_skipped": history.n_skipped,
    }


def stats_to_json(stats: ReportStats) -> dict[str, Any]:
    """Return all statistics except the job summaries."""
    names = (field.name for field in dataclasses.fields(stats) if field.name not in _EXCLUDED_FIELDS)
    return {name: _to_json(getattr(stats, name)) for name in names}


def _to_json(value: Any) -> Any:
    """Convert a value to JSON types. Times are rounded to microseconds."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {json_key(key) if isinstance(key, Enum) else str(key): _to_json(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return value


# CSV tables


def jobs_to_csv(stats: ReportStats) -> str:
    time_uses = [f"{json_key(use)}_s" for use in TimeUse]
    header = (
        "job", "outcome", "category", "sites", "executions", "failed_transfers",
        "completion_s", "queued_s", "held_s", "slot_s", *time_uses, "outputs_checked", "reason",
    )  # fmt: skip
    return _to_csv(header, (_job_row(row) for row in stats.job_summaries))


def _job_row(row: JobSummary) -> Iterator[Any]:
    yield from (
        row.job,
        row.outcome.value,
        row.category.value,
        ";".join(row.sites),
        row.executions,
        row.failed_transfers,
    )
    yield from (_format_seconds(value) for value in (row.completion_s, row.queued_s, row.held_s, row.slot_s))
    yield from (_format_seconds(row.time_use_s.get(use, 0.0)) for use in TimeUse)
    yield from ("" if row.outputs_checked is None else str(row.outputs_checked).lower(), row.reason)


def executions_to_csv(jobs: Iterable[JobTimeUse]) -> str:
    phases = [f"{json_key(phase)}_s" for phase in _SLOT_PHASES]
    time_uses = [f"{json_key(use)}_s" for use in TimeUse]
    header = (
        "job", "execution", "outcome", "category", "site", "node", "started_at", "duration_s", "gpus",
        "input_bytes", "output_bytes", "pool_state", "cpu_efficiency", "memory_efficiency", *phases, *time_uses,
        "reason",
    )  # fmt: skip
    return _to_csv(header, (_execution_row(job, execution) for job in jobs for execution in job.executions))


def _execution_row(job: JobTimeUse, execution_time: ExecutionTimeUse) -> Iterator[Any]:
    record = execution_time.execution
    yield from (job.job.id, record.number, record.outcome.value, record.category.value, record.site)
    yield from (record.node, _format_seconds(record.start), _format_seconds(record.duration_s), f"{record.gpus:g}")
    yield from ("" if size is None else size for size in (record.input_bytes, record.output_bytes))
    efficiencies = (cpu_efficiency(record), memory_efficiency(record))
    yield from (record.pool_state, *("" if ratio is None else f"{ratio:.4f}" for ratio in efficiencies))
    yield from (_format_seconds(record.seconds_in(phase)) for phase in _SLOT_PHASES)
    yield from (_format_seconds(execution_time.time_use_us.get(use, 0) / US_PER_S) for use in TimeUse)
    yield record.reason


def _format_seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def _to_csv(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    return text.getvalue()
