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

from packtrain.cli.ui.output import console, dry_run_option, error_console, json_option, show
from packtrain.cli.ui.report_summary import show_comparison, show_findings, show_short
from packtrain.errors import NotFoundError
from packtrain.plan import RunFolder
from packtrain.report.analysis.statistics import figures_of
from packtrain.report.build import Report, report_on, write_report
from packtrain.report.export import jobs_csv
from packtrain.report.history import History
from packtrain.report.readers.files import read
from packtrain.report.readers.training_curves import Curves
from packtrain.store import RunRow


@click.command(name="report")
@click.argument("what", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to write the page and its files."
)
@click.option("--against", metavar="B", help="Another run, log or table: both side by side, with ratios.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table of jobs as CSV.")
@dry_run_option
@json_option
def command(
    what: tuple[str, ...], output: Path | None, against: str | None, as_csv: bool, dry_run: bool, as_json: bool
) -> None:
    """Show where every hour went: of a run (the newest, if none is named), of HTCondor's user logs, of a table of jobs.

    WHAT is a run, or files: user logs of any jobs (folders, globs and .gz too), or one CSV with a line for each job.
    Writes a page with pictures, report.json, jobs.csv and attempts.csv: into the folder of the run, else into
    NAME-report here. With --json or --csv, which print, files are written only if -o says where.

    The exit code is 0 if there was something to report, 2 if a file cannot be read or written, 4 if there is none.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be printed at once")
    if as_csv and against and not output:
        raise click.UsageError("--csv prints the jobs of one report; to compare with --against, leave it out or add -o")
    subject = _Subject(what)
    other = figures_of(_Subject((against,)).history) if against else None
    report = report_on(subject.history, other)
    folder = output or (None if as_json or as_csv else subject.folder)
    page = write_report(report, folder, curves=subject.curves) if folder and not dry_run else None
    if as_csv:
        click.echo(jobs_csv(report.figures), nl=False)
        return
    data = {**report.document, "page": str(page) if page else None}
    show(as_json, data, lambda out: show_short(out, report.figures, report.findings))
    if not as_json:
        _show_rest(report, page, folder)


def _show_rest(report: Report, page: Path | None, folder: Path | None) -> None:
    out = console()
    if report.against:
        show_comparison(out, report.figures, report.against)
    if report.history.untold:
        out.print("\nwhat this cannot tell:", style="dim")
        show_findings(out, report.history.untold, "dim")
    told = f"report: {page}" if page else f"would write a report to {folder}"
    out.print(f"\n{told}", markup=False)


def history_of(what: tuple[str, ...]) -> History:
    """Of a run, or of files."""
    return _Subject(what).history


class _Subject:
    """What the report is on."""

    def __init__(self, what: tuple[str, ...]) -> None:
        self.row = _run(what)
        self.curves: Curves | None = None
        self.history = self._of_run(self.row) if self.row else _of_files(what)

    def _of_run(self, row: RunRow) -> History:
        from packtrain import services

        store = services.open_store()
        state = services.refresh(store, row)
        self.curves = services.curves_of_run(store, state)
        return services.history_of(store, row, state)

    @property
    def folder(self) -> Path:
        if self.row:
            return RunFolder(self.row.folder).report
        name = re.sub(r"[^\w.-]+", "-", self.history.name).strip("-.") or "jobs"
        return Path.cwd() / f"{name}-report"


def _run(what: tuple[str, ...]) -> RunRow | None:
    """The run that is meant; None if files are."""
    if what and (len(what) > 1 or _names_files(what[0])):
        return None
    from packtrain import services  # of logs and tables it is not needed, and it takes a while to load

    if not what:
        return services.find_run(services.open_store(), "")
    path = Path(what[0])
    wanted = path.absolute().name if (path / "plan.json").is_file() else what[0]
    try:
        return services.find_run(services.open_store(), wanted)
    except NotFoundError:
        raise NotFoundError(f"there is neither a run nor a file {what[0]!r}; `packtrain ps` lists the runs") from None


def _names_files(name: str) -> bool:
    path = Path(name).expanduser()
    if (path / "plan.json").is_file():
        return False  # the folder of a run
    return path.exists() or "/" in name or glob.has_magic(name)


def _of_files(names: tuple[str, ...]) -> History:
    with _progress() as progress:
        return read(names, progress)


@contextmanager
def _progress() -> Iterator[Any]:
    """How many events were read, for those who wait at a terminal."""
    seen = 0

    def heard(events: int) -> None:
        nonlocal seen
        seen += events
        status.update(f"read {seen:,} events")

    status = Status("reading", console=error_console())
    if not error_console().is_terminal:
        yield lambda events: None
        return
    with status:
        yield heard
