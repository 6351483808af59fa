"""The report as data: report.json (docs/formats/report.md), and tables of jobs and attempts as CSV. Pure."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from packtrain import __version__
from packtrain.report.analysis.findings import Insight
from packtrain.report.analysis.statistics import JobSummary, ReportStats
from packtrain.report.analysis.time_accounting import US_PER_S, ExecutionTimeUse, JobTimeUse, TimeUse
from packtrain.report.history import JobHistory, Phase

FORMAT, VERSION = "packtrain-report", 1
_EXCLUDED_FIELDS = frozenset({"name", "kind", "rows", "accounts"})  # of Figures: not among the figures
_SLOT_PHASES = tuple(phase for phase in Phase if phase not in (Phase.QUEUED, Phase.HELD))  # of slots


def json_key(member: Enum) -> str:
    """useful compute → useful_compute"""
    return str(member.value).replace(" ", "_")


def report_to_json(history: JobHistory, stats: ReportStats, insights: Sequence[Insight]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "packtrain": __version__,
        "name": stats.name,
        "kind": stats.kind,
        "findings": [finding.text for finding in insights],
        "figures": stats_to_json(stats),
        "jobs": [_to_json(row) for row in stats.job_summaries],
        "untold": list(history.limitations),
        "problems": [_to_json(problem) for problem in history.problems],
        "skipped": history.n_skipped,
    }


def stats_to_json(stats: ReportStats) -> dict[str, Any]:
    """Every figure but the rows of jobs."""
    names = (field.name for field in dataclasses.fields(stats) if field.name not in _EXCLUDED_FIELDS)
    return {name: _to_json(getattr(stats, name)) for name in names}


def _to_json(value: Any) -> Any:
    """As JSON has it; times to the microsecond."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {json_key(key) if isinstance(key, Enum) else str(key): _to_json(found) for key, found in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_to_json(one) for one in value]
    return value


# Tables


def jobs_to_csv(stats: ReportStats) -> str:
    shares = [f"{json_key(share)}_s" for share in TimeUse]
    head = (
        "job", "outcome", "category", "sites", "attempts", "stalls", "completion_s", "queued_s", "held_s", "seconds",
        *shares, "checked", "reason",
    )  # fmt: skip
    return _to_csv(head, (_job_row(row) for row in stats.job_summaries))


def _job_row(row: JobSummary) -> Iterator[Any]:
    yield from (
        row.job,
        row.outcome.value,
        row.category.value,
        ";".join(row.sites),
        row.executions,
        row.failed_transfers,
    )
    yield from (_format_seconds(one) for one in (row.completion_s, row.queued_s, row.held_s, row.slot_s))
    yield from (_format_seconds(row.time_use_s.get(share, 0.0)) for share in TimeUse)
    yield from ("" if row.outputs_checked is None else str(row.outputs_checked).lower(), row.reason)


def executions_to_csv(jobs: Iterable[JobTimeUse]) -> str:
    phases = [f"{json_key(phase)}_s" for phase in _SLOT_PHASES]
    shares = [f"{json_key(share)}_s" for share in TimeUse]
    head = (
        "job", "attempt", "outcome", "category", "site", "machine", "start", "seconds", "gpus", "bytes_in", "bytes_out",
        *phases, *shares, "reason",
    )  # fmt: skip
    return _to_csv(head, (_execution_row(account, stay) for account in jobs for stay in account.executions))


def _execution_row(job: JobTimeUse, execution_time: ExecutionTimeUse) -> Iterator[Any]:
    attempt = execution_time.execution
    yield from (job.job.id, attempt.number, attempt.outcome.value, attempt.category.value, attempt.site)
    yield from (attempt.node, _format_seconds(attempt.start), _format_seconds(attempt.duration_s), f"{attempt.gpus:g}")
    yield from ("" if size is None else size for size in (attempt.input_bytes, attempt.output_bytes))
    yield from (_format_seconds(attempt.seconds_in(phase)) for phase in _SLOT_PHASES)
    yield from (_format_seconds(execution_time.time_use_us.get(share, 0) / US_PER_S) for share in TimeUse)
    yield attempt.reason


def _format_seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def _to_csv(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    return text.getvalue()
