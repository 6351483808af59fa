"""Writes a report into a folder: the page with its pictures, report.json, jobs.csv and attempts.csv."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.errors import UsageError
from packtrain.report.analysis.compare import comparison_data
from packtrain.report.analysis.findings import Finding, findings_of
from packtrain.report.analysis.statistics import Figures, figures_of
from packtrain.report.export import attempts_csv, document_of, jobs_csv
from packtrain.report.gc_pause import no_garbage
from packtrain.report.history import History
from packtrain.report.readers.training_curves import Curves

DOCUMENT, JOBS, ATTEMPTS = "report.json", "jobs.csv", "attempts.csv"
_FEW_JOBS = 500


@dataclass(frozen=True)
class Report:
    """A history, and what can be said of it."""

    history: History
    figures: Figures
    findings: tuple[Finding, ...]
    against: Figures | None = None  # of another one, to compare with

    @property
    def document(self) -> dict[str, Any]:
        compared = {"against": comparison_data(self.figures, self.against)} if self.against else {}
        return {**document_of(self.history, self.figures, self.findings), **compared}


def report_on(history: History, against: Figures | None = None) -> Report:
    with no_garbage():
        figures = figures_of(history)
        return Report(history, figures, findings_of(history, figures), against)


def write_report(report: Report, folder: Path, *, curves: Curves | None = None, pngs: bool = True) -> Path:
    """The path of the page. Each file is complete or absent. Raises UsageError if the folder cannot be written."""
    from packtrain.report.page import write_page  # its pictures take a while to load

    try:
        folder.mkdir(parents=True, exist_ok=True)
        indent = 1 if report.figures.jobs <= _FEW_JOBS else None  # it takes ten times as long
        _write(folder / DOCUMENT, json.dumps(report.document, ensure_ascii=False, indent=indent))
        _write(folder / JOBS, jobs_csv(report.figures))
        _write(folder / ATTEMPTS, attempts_csv(report.figures.accounts))
        told = (report.history, report.figures, report.findings)
        return write_page(*told, folder, curves=curves, pngs=pngs, against=report.against)
    except OSError as error:
        raise UsageError(f"the report cannot be written to {folder}: {error.strerror or error}") from error


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8", errors="replace", newline="")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
