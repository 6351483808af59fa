"""The end of a run in words and figures: verdicts, the metric, where the time went, where the outputs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from packtrain import formatting, services
from packtrain.cli.ui.output import error_console, pluralize, print_next_commands
from packtrain.cli.ui.report_summary import format_headline, print_insights
from packtrain.errors import EXIT_INTERRUPTED
from packtrain.plan import Plan, RunFolder, read_plan
from packtrain.report.build import Report
from packtrain.state import JobStatus, RunState
from packtrain.state.run import run_status
from packtrain.store import RunInfo
from packtrain.views.job_json import job_to_json
from packtrain.views.run_table import STATUS_STYLES, render_job_table
from packtrain.views.time_summary import TimeSummary, summarize_times

_MAX_JOBS_SHOWN = 20
_MIN_SHARE_SHOWN = 0.005
_MAX_INSIGHTS_SHOWN = 4
_MIN_WALLCLOCK_FOR_INSIGHTS_S = 60.0


def run_exit_code(state: RunState) -> int:
    """0 if every job succeeded; else that of the first failure; 130 when interrupted."""
    verdicts = [job.result for job in state.jobs.values()]
    failures = (verdict.failure for verdict in verdicts if verdict and verdict.failure)
    first = next(failures, None)
    if first:
        return first.exit_code
    if all(verdict and verdict.status is JobStatus.SUCCEEDED for verdict in verdicts):
        return 0
    return EXIT_INTERRUPTED


@dataclass(frozen=True)
class RunReport:
    """What was made of a run at its end."""

    training_chart: Path | None = None
    report_page: Path | None = None
    report: Report | None = None


def write_charts_and_report(run_info: RunInfo, state: RunState) -> RunReport:
    """Draw and write it; what cannot be is told, and spoils nothing."""
    store = services.open_store()
    training, *troubles = services.save_training_chart(store, run_info, state)
    report, page, trouble = services.write_run_report(store, run_info, state)
    for text in (*troubles, trouble):
        if text:
            error_console().print(text, style="yellow", markup=False)
    return RunReport(training, page, report)


def summary_data(run_info: RunInfo, state: RunState, run_report: RunReport) -> dict[str, Any]:
    times = summarize_times(state)
    return {
        "run": run_info.run,
        "status": run_status(state, has_live_supervisor=False),
        "folder": str(run_info.folder),
        "jobs": [job_to_json(job) for job in state.jobs.values()],
        "seconds": {**times.seconds_by_stage, "lost": times.wasted_s},
        "outputs": output_urls(read_plan(RunFolder(run_info.folder).plan)),
        "picture": str(run_report.training_chart) if run_report.training_chart else None,
        "report": str(run_report.report_page) if run_report.report_page else None,
        "exit_code": run_exit_code(state),
    }


def output_urls(plan: Plan) -> dict[str, str]:
    return {job.id: job.output.location.url for job in plan.jobs if job.output}


def print_run_summary(out: Console, run_info: RunInfo, state: RunState, run_report: RunReport) -> None:
    status = run_status(state, has_live_supervisor=False)
    out.print()
    out.print(f"[bold]{run_info.run}[/] [{STATUS_STYLES.get(status, '')}]{status}[/]  {_format_status_counts(state)}")
    out.print(render_job_table(list(state.jobs.values())[:_MAX_JOBS_SHOWN], out.width))
    _print_times(out, summarize_times(state))
    if run_report.report:
        _print_report_headline(out, run_report.report)
    places = output_urls(read_plan(RunFolder(run_info.folder).plan))
    shown = sorted(set(places.values()))
    if state.count_jobs(JobStatus.SUCCEEDED):
        out.print(
            f"\noutputs: {shown[0].removeprefix('file://')}" + (f" (and {len(shown) - 1} more)" if shown[1:] else "")
        )
    for name, path in (("training", run_report.training_chart), ("report", run_report.report_page)):
        if path:
            out.print(f"{name}: {path}", markup=False)
    _print_next_commands_for(run_info, state)


def _format_status_counts(state: RunState) -> str:
    told = (f"{state.count_jobs(status)} {status.value}" for status in JobStatus if state.count_jobs(status))
    return f"[dim]{pluralize(len(state.jobs), 'job')}: {', '.join(told)}[/]" if len(state.jobs) > 1 else ""


def _print_times(out: Console, times: TimeSummary) -> None:
    if not times.total_s:
        return
    table = Table(box=None, padding=(0, 1), show_header=False)
    for name, seconds in [*times.seconds_by_stage.items(), ("lost", times.wasted_s)]:
        share = seconds / times.total_s
        if share >= _MIN_SHARE_SHOWN:
            style = "red" if name == "lost" else "cyan"
            bar = "█" * max(1, round(30 * share))
            table.add_row(
                f"[dim]{name}[/]", f"[{style}]{bar}[/]", formatting.format_duration(seconds), f"[dim]{share:.0%}[/]"
            )
    out.print(f"\nwhere the time went ({formatting.format_duration(times.total_s)}):")
    out.print(table)


def _print_report_headline(out: Console, report: Report) -> None:
    """How much of it was of use, and what a person should know of it; a run that took no time has taught nothing."""
    told = format_headline(report.stats)
    if told:
        out.print(f"\n{told}")
    if report.stats.wallclock_s >= _MIN_WALLCLOCK_FOR_INSIGHTS_S:
        print_insights(out, [finding.text for finding in report.insights][:_MAX_INSIGHTS_SHOWN])


def _print_next_commands_for(run_info: RunInfo, state: RunState) -> None:
    outputs = (f"packtrain outputs {run_info.run}", "what came home")
    logs = (f"packtrain logs {run_info.run}", "what the steps wrote")
    if state.is_finished and not state.count_jobs(JobStatus.FAILED) and not state.count_jobs(JobStatus.CANCELLED):
        print_next_commands(outputs, logs)
        return
    why = (f"packtrain why {run_info.run}", "what happened and what to do")
    print_next_commands(
        *([why] if state.count_jobs(JobStatus.FAILED) else []),
        logs,
        (f"packtrain resume {run_info.run}", "go on with it"),
    )
