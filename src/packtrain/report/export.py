"""The report as data: report.json (docs/formats/report.md), and tables of jobs and attempts as CSV. Pure."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from packtrain import __version__
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.statistics import Figures, JobFigures
from packtrain.report.analysis.time_accounting import MICRO, AttemptAccount, JobAccount, Share
from packtrain.report.history import History, Phase

FORMAT, VERSION = "packtrain-report", 1
ELSEWHERE = frozenset({"name", "kind", "rows", "accounts"})  # of Figures: not among the figures
_PHASES = tuple(phase for phase in Phase if phase not in (Phase.QUEUED, Phase.HELD))  # of slots


def key_of(word: Enum) -> str:
    """useful compute → useful_compute"""
    return str(word.value).replace(" ", "_")


def document_of(history: History, figures: Figures, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "packtrain": __version__,
        "name": figures.name,
        "kind": figures.kind,
        "findings": [finding.text for finding in findings],
        "figures": figures_data(figures),
        "jobs": [_plain(row) for row in figures.rows],
        "untold": list(history.untold),
        "problems": [_plain(problem) for problem in history.problems],
        "skipped": history.skipped,
    }


def figures_data(figures: Figures) -> dict[str, Any]:
    """Every figure but the rows of jobs."""
    names = (field.name for field in dataclasses.fields(figures) if field.name not in ELSEWHERE)
    return {name: _plain(getattr(figures, name)) for name in names}


def _plain(value: Any) -> Any:
    """As JSON has it; times to the microsecond."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {key_of(key) if isinstance(key, Enum) else str(key): _plain(found) for key, found in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


# Tables


def jobs_csv(figures: Figures) -> str:
    shares = [f"{key_of(share)}_s" for share in Share]
    head = (
        "job", "outcome", "category", "sites", "attempts", "stalls", "completion_s", "queued_s", "held_s", "seconds",
        *shares, "checked", "reason",
    )  # fmt: skip
    return _csv(head, (_job_cells(row) for row in figures.rows))


def _job_cells(row: JobFigures) -> Iterator[Any]:
    yield from (row.job, row.outcome.value, row.category.value, ";".join(row.sites), row.attempts, row.stalls)
    yield from (_seconds(one) for one in (row.completion_s, row.queued_s, row.held_s, row.seconds))
    yield from (_seconds(row.shares.get(share, 0.0)) for share in Share)
    yield from ("" if row.checked is None else str(row.checked).lower(), row.reason)


def attempts_csv(accounts: Iterable[JobAccount]) -> str:
    phases = [f"{key_of(phase)}_s" for phase in _PHASES]
    shares = [f"{key_of(share)}_s" for share in Share]
    head = (
        "job", "attempt", "outcome", "category", "site", "machine", "start", "seconds", "gpus", "bytes_in", "bytes_out",
        *phases, *shares, "reason",
    )  # fmt: skip
    return _csv(head, (_attempt_cells(account, stay) for account in accounts for stay in account.attempts))


def _attempt_cells(account: JobAccount, stay: AttemptAccount) -> Iterator[Any]:
    attempt = stay.attempt
    yield from (account.job.id, attempt.number, attempt.outcome.value, attempt.category.value, attempt.site)
    yield from (attempt.machine, _seconds(attempt.start), _seconds(attempt.seconds), f"{attempt.gpus:g}")
    yield from ("" if size is None else size for size in (attempt.bytes_in, attempt.bytes_out))
    yield from (_seconds(attempt.of(phase)) for phase in _PHASES)
    yield from (_seconds(stay.micros.get(share, 0) / MICRO) for share in Share)
    yield attempt.reason


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def _csv(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows(rows)
    return text.getvalue()
