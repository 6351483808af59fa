"""packtrain report"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.status import Status

from packtrain.cli.ui.output import console, dry_run_option, error_console, json_option, print_result
from packtrain.cli.ui.report_summary import print_comparison, print_insights, print_report_summary
from packtrain.errors import NotFoundError
from packtrain.plan import RunFolder
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.build import Report, build_report, write_report
from packtrain.report.export import jobs_to_csv
from packtrain.report.history import JobHistory
from packtrain.report.readers.files import read_history
from packtrain.report.readers.training_curves import TrainingCurves
from packtrain.store import RunInfo


@click.command(name="report")
@click.argument("what", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to write the page and its files."
)
@click.option("--compare", metavar="B", help="Another run, log or table: both side by side, with ratios.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table of jobs as CSV.")
@dry_run_option
@json_option
def command(
    sources: tuple[str, ...], output: Path | None, compare: str | None, as_csv: bool, dry_run: bool, as_json: bool
) -> None:
    """Show where every hour went: of a run (the newest, if none is named), of HTCondor's user logs, of a table of jobs.

    WHAT is a run, or files: user logs of any jobs (folders, globs and .gz too), or one CSV with a line for each job.
    Writes a page with pictures, report.json, jobs.csv and attempts.csv: into the folder of the run, else into
    NAME-report here. With --json or --csv, which print, files are written only if -o says where.

    The exit code is 0 if there was something to report, 2 if a file cannot be read or written, 4 if there is none.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be printed at once")
    if as_csv and compare and not output:
        raise click.UsageError("--csv prints the jobs of one report; to compare with --compare, leave it out or add -o")
    subject = _ReportSource(sources)
    other = compute_stats(_ReportSource((compare,)).history) if compare else None
    report = build_report(subject.history, other)
    folder = output or (None if as_json or as_csv else subject.folder)
    page = write_report(report, folder, curves=subject.curves) if folder and not dry_run else None
    if as_csv:
        click.echo(jobs_to_csv(report.stats), nl=False)
        return
    data = {**report.to_json, "page": str(page) if page else None}
    print_result(as_json, data, lambda out: print_report_summary(out, report.stats, report.insights))
    if not as_json:
        _print_details(report, page, folder)


def _print_details(report: Report, page: Path | None, folder: Path | None) -> None:
    out = console()
    if report.baseline:
        print_comparison(out, report.stats, report.baseline)
    if report.history.limitations:
        out.print("\nwhat this cannot tell:", style="dim")
        print_insights(out, report.history.limitations, "dim")
    told = f"report: {page}" if page else f"would write a report to {folder}"
    out.print(f"\n{told}", markup=False)


def load_history(sources: tuple[str, ...]) -> JobHistory:
    """Of a run, or of files."""
    return _ReportSource(sources).history


class _ReportSource:
    """What the report is on."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        self.run_info = _find_run(sources)
        self.curves: TrainingCurves | None = None
        self.history = self._load_run_history(self.run_info) if self.run_info else _read_files(sources)

    def _load_run_history(self, run_info: RunInfo) -> JobHistory:
        from packtrain import services

        store = services.open_store()
        state = services.refresh_state(store, run_info)
        self.curves = services.load_training_curves(store, state)
        return services.load_job_history(store, run_info, state)

    @property
    def folder(self) -> Path:
        if self.run_info:
            return RunFolder(self.run_info.folder).report
        name = re.sub(r"[^\w.-]+", "-", self.history.name).strip("-.") or "jobs"
        return Path.cwd() / f"{name}-report"


def _find_run(sources: tuple[str, ...]) -> RunInfo | None:
    """The run that is meant; None if files are."""
    if sources and (len(sources) > 1 or _is_file_argument(sources[0])):
        return None
    from packtrain import services  # of logs and tables it is not needed, and it takes a while to load

    if not sources:
        return services.find_run(services.open_store(), "")
    path = Path(sources[0])
    wanted = path.absolute().name if (path / "plan.json").is_file() else sources[0]
    try:
        return services.find_run(services.open_store(), wanted)
    except NotFoundError:
        raise NotFoundError(
            f"there is neither a run nor a file {sources[0]!r}; `packtrain ps` lists the runs"
        ) from None


def _is_file_argument(argument: str) -> bool:
    path = Path(argument).expanduser()
    if (path / "plan.json").is_file():
        return False  # the folder of a run
    return path.exists() or "/" in argument or glob.has_magic(argument)


def _read_files(names: tuple[str, ...]) -> JobHistory:
    with _reading_progress() as progress:
        return read_history(names, progress)


@contextmanager
def _reading_progress() -> Iterator[Any]:
    """How many events were read, for those who wait at a terminal."""
    seen = 0

    def on_events_read(n_events: int) -> None:
        nonlocal seen
        seen += n_events
        status.update(f"read {seen:,} events")

    status = Status("reading", console=error_console())
    if not error_console().is_terminal:
        yield lambda events: None
        return
    with status:
        yield on_events_read
