"""Builds a report from a history and writes it: the page with its charts, report.json, jobs.csv and executions.csv."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.errors import UsageError
from packtrain.fileutil import atomic_write
from packtrain.report.analysis.compare import comparison_to_json
from packtrain.report.analysis.findings import Finding, collect_findings
from packtrain.report.analysis.statistics import ReportStats, compute_stats
from packtrain.report.export import executions_to_csv, jobs_to_csv, report_to_json
from packtrain.report.history import JobHistory
from packtrain.report.readers.training_curves import TrainingCurves

REPORT_JSON, JOBS_CSV, EXECUTIONS_CSV = "report.json", "jobs.csv", "executions.csv"
_MAX_JOBS_INDENTED = 500


@dataclass(frozen=True)
class Report:
    """A history with its statistics and findings."""

    history: JobHistory
    stats: ReportStats
    findings: tuple[Finding, ...]
    baseline: ReportStats | None = None  # the statistics of another history to compare with

    @property
    def to_json(self) -> dict[str, Any]:
        comparison = {"comparison": comparison_to_json(self.stats, self.baseline)} if self.baseline else {}
        return {**report_to_json(self.history, self.stats, self.findings), **comparison}


def build_report(history: JobHistory, baseline: ReportStats | None = None) -> Report:
    stats = compute_stats(history)
    return Report(history, stats, collect_findings(history, stats), baseline)


def write_report(
    report: Report, output_dir: Path, *, curves: TrainingCurves | None = None, write_pngs: bool = True
) -> Path:
    """Write all files of a report and return the path of the page. Each file is either complete or absent.

    Args:
        report: The report.
        output_dir: The folder to write to; it is created if it does not exist.
        curves: The training curves to plot on the page.
        write_pngs: Whether to also save each chart as a PNG file.

    Raises:
        UsageError: The folder cannot be written.
    """
    from packtrain.report.page import write_page  # the chart modules are slow to import

    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        indent = 1 if report.stats.jobs <= _MAX_JOBS_INDENTED else None  # indented output takes ten times as long
        files = {
            REPORT_JSON: json.dumps(report.to_json, ensure_ascii=False, indent=indent),
            JOBS_CSV: jobs_to_csv(report.stats),
            EXECUTIONS_CSV: executions_to_csv(report.stats.job_time_use),
        }
        for name, text in files.items():
            atomic_write(output_dir / name, text.encode(errors="replace"))
        return write_page(
            report.history,
            report.stats,
            report.findings,
            output_dir,
            curves=curves,
            write_pngs=write_pngs,
            baseline=report.baseline,
        )
    except OSError as error:
        raise UsageError(f"the report cannot be written to {output_dir}: {error.strerror or error}") from error
