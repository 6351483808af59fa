"""The end of a run in words and figures: verdicts, the metric, where the time went, where the outputs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from packtrain import formatting, services
from packtrain.cli.ui.output import count, error_console, say_next
from packtrain.cli.ui.report_summary import key_words, show_findings
from packtrain.errors import EXIT_INTERRUPTED
from packtrain.plan import Plan, RunFolder, read_plan
from packtrain.report.build import Report
from packtrain.state import JobStatus, RunState
from packtrain.store import RunRow
from packtrain.views.run_table import STYLES, job_table
from packtrain.views.summary import Times, job_data, run_status, times_of

_MOST_JOBS = 20
_SMALLEST_SHARE = 0.005
_MOST_FINDINGS = 4
_WORTH_TELLING_S = 60.0


def exit_code_of(state: RunState) -> int:
    """0 if every job succeeded; else that of the first failure; 130 when interrupted."""
    verdicts = [job.verdict for job in state.jobs.values()]
    failures = (verdict.failure for verdict in verdicts if verdict and verdict.failure)
    first = next(failures, None)
    if first:
        return first.exit_code
    if all(verdict and verdict.status is JobStatus.SUCCEEDED for verdict in verdicts):
        return 0
    return EXIT_INTERRUPTED


@dataclass(frozen=True)
class Pictures:
    """What was made of a run at its end."""

    training: Path | None = None
    page: Path | None = None
    report: Report | None = None


def made_of(row: RunRow, state: RunState) -> Pictures:
    """Draw and write it; what cannot be is told, and spoils nothing."""
    store = services.open_store()
    training, *troubles = services.draw_picture(store, row, state)
    report, page, trouble = services.report_on_run(store, row, state)
    for text in (*troubles, trouble):
        if text:
            error_console().print(text, style="yellow", markup=False)
    return Pictures(training, page, report)


def summary_data(row: RunRow, state: RunState, made: Pictures) -> dict[str, Any]:
    times = times_of(state)
    return {
        "run": row.run,
        "status": run_status(state, attended=False),
        "folder": str(row.folder),
        "jobs": [job_data(job) for job in state.jobs.values()],
        "seconds": {**times.by_stage, "lost": times.lost},
        "outputs": destinations(read_plan(RunFolder(row.folder).plan)),
        "picture": str(made.training) if made.training else None,
        "report": str(made.page) if made.page else None,
        "exit_code": exit_code_of(state),
    }


def destinations(plan: Plan) -> dict[str, str]:
    return {job.id: job.output.ref.url for job in plan.jobs if job.output}


def show_summary(out: Console, row: RunRow, state: RunState, made: Pictures) -> None:
    status = run_status(state, attended=False)
    out.print()
    out.print(f"[bold]{row.run}[/] [{STYLES.get(status, '')}]{status}[/]  {_counts(state)}")
    out.print(job_table(list(state.jobs.values())[:_MOST_JOBS], out.width))
    _show_times(out, times_of(state))
    if made.report:
        _show_report(out, made.report)
    places = destinations(read_plan(RunFolder(row.folder).plan))
    shown = sorted(set(places.values()))
    if state.count(JobStatus.SUCCEEDED):
        out.print(
            f"\noutputs: {shown[0].removeprefix('file://')}" + (f" (and {len(shown) - 1} more)" if shown[1:] else "")
        )
    for name, path in (("training", made.training), ("report", made.page)):
        if path:
            out.print(f"{name}: {path}", markup=False)
    _say_what_next(row, state)


def _counts(state: RunState) -> str:
    told = (f"{state.count(status)} {status.value}" for status in JobStatus if state.count(status))
    return f"[dim]{count(len(state.jobs), 'job')}: {', '.join(told)}[/]" if len(state.jobs) > 1 else ""


def _show_times(out: Console, times: Times) -> None:
    if not times.total:
        return
    table = Table(box=None, padding=(0, 1), show_header=False)
    for name, seconds in [*times.by_stage.items(), ("lost", times.lost)]:
        share = seconds / times.total
        if share >= _SMALLEST_SHARE:
            style = "red" if name == "lost" else "cyan"
            bar = "█" * max(1, round(30 * share))
            table.add_row(f"[dim]{name}[/]", f"[{style}]{bar}[/]", formatting.duration(seconds), f"[dim]{share:.0%}[/]")
    out.print(f"\nwhere the time went ({formatting.duration(times.total)}):")
    out.print(table)


def _show_report(out: Console, report: Report) -> None:
    """How much of it was of use, and what a person should know of it; a run that took no time has taught nothing."""
    told = key_words(report.figures)
    if told:
        out.print(f"\n{told}")
    if report.figures.wallclock_s >= _WORTH_TELLING_S:
        show_findings(out, [finding.text for finding in report.findings][:_MOST_FINDINGS])


def _say_what_next(row: RunRow, state: RunState) -> None:
    outputs = (f"packtrain outputs {row.run}", "what came home")
    logs = (f"packtrain logs {row.run}", "what the steps wrote")
    if state.finished and not state.count(JobStatus.FAILED) and not state.count(JobStatus.CANCELLED):
        say_next(outputs, logs)
        return
    why = (f"packtrain why {row.run}", "what happened and what to do")
    say_next(*([why] if state.count(JobStatus.FAILED) else []), logs, (f"packtrain resume {row.run}", "go on with it"))
