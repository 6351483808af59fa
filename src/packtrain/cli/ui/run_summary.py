"""The summary of a run that has ended: job results, times, charts, report, and where the outputs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting, services
from packtrain.cli.ui.output import print_next_commands, print_warning
from packtrain.cli.ui.report_summary import format_headline, print_findings
from packtrain.errors import EXIT_INTERRUPTED
from packtrain.formatting import pluralize
from packtrain.plan import Plan, RunFolder, read_plan
from packtrain.report.build import Report
from packtrain.runs import reports
from packtrain.state import JobStatus, RunState
from packtrain.state.run import run_status
from packtrain.store import RunInfo
from packtrain.views.job_json import job_to_json
from packtrain.views.run_table import render_job_table, styled_status
from packtrain.views.time_summary import TimeSummary, summarize_times

_MAX_JOBS_SHOWN = 20
_MIN_SHARE_SHOWN = 0.005
_MAX_INSIGHTS_SHOWN = 4
_MIN_WALLCLOCK_FOR_INSIGHTS_S = 60.0


def run_exit_code(state: RunState) -> int:
    """Return 0 if every job succeeded, else the exit code of the first failure, or 130 if the run was interrupted."""
    results = [job.result for job in state.jobs.values()]
    first_failure = next((result.failure for result in results if result and result.failure), None)
    if first_failure:
        return first_failure.exit_code
    if all(result and result.status is JobStatus.SUCCEEDED for result in results):
        return 0
    return EXIT_INTERRUPTED


@dataclass(frozen=True)
class RunReport:
    """The files that are written when a run ends, and the report itself."""

    training_chart: Path | None = None
    report_page: Path | None = None
    report: Report | None = None


def write_charts_and_report(run_info: RunInfo, state: RunState) -> RunReport:
    """Write the training chart and the report page; print a warning for what fails."""
    store = services.open_store()
    chart, chart_problem = reports.save_training_chart(store, run_info, state)
    report, page, report_problem = reports.write_run_report(store, run_info, state)
    for problem in filter(None, (chart_problem, report_problem)):
        print_warning(problem)
    return RunReport(chart, page, report)


def summary_data(run_info: RunInfo, state: RunState, run_report: RunReport) -> dict[str, Any]:
    """Return the summary as data for --json."""
    times = summarize_times(state)
    return {
        "run": run_info.run,
        "status": run_status(state, has_live_supervisor=False),
        "folder": str(run_info.folder),
        "jobs": [job_to_json(job) for job in state.jobs.values()],
        "seconds": {**times.seconds_by_stage, "wasted": times.wasted_s},
        "outputs": output_urls(read_plan(RunFolder(run_info.folder).plan)),
        "training_chart": str(run_report.training_chart) if run_report.training_chart else None,
        "report": str(run_report.report_page) if run_report.report_page else None,
        "exit_code": run_exit_code(state),
    }


def output_urls(plan: Plan) -> dict[str, str]:
    """Return where the outputs of each job are, by job id."""
    return {job.id: job.output.location.url for job in plan.jobs if job.output}


def print_run_summary(out: Console, run_info: RunInfo, state: RunState, run_report: RunReport) -> None:
    """Print the summary for a person."""
    status = run_status(state, has_live_supervisor=False)
    out.print()
    counts = _format_status_counts(state)
    out.print(Text.assemble((run_info.run, "bold"), " ", styled_status(status), "  ", (counts, "dim")))
    out.print(render_job_table(list(state.jobs.values())[:_MAX_JOBS_SHOWN], out.width))
    _print_times(out, summarize_times(state))
    if run_report.report:
        _print_report_headline(out, run_report.report)
    urls = sorted(set(output_urls(read_plan(RunFolder(run_info.folder).plan)).values()))
    if state.count_jobs(JobStatus.SUCCEEDED):
        out.print(
            f"\noutputs: {urls[0].removeprefix('file://')}" + (f" (and {len(urls) - 1} more)" if urls[1:] else "")
        )
    for name, path in (("training", run_report.training_chart), ("report", run_report.report_page)):
        if path:
            out.print(f"{name}: {path}")
    _print_next_commands_for(run_info, state)


def _format_status_counts(state: RunState) -> str:
    counts = (f"{state.count_jobs(status)} {status.value}" for status in JobStatus if state.count_jobs(status))
    return f"{pluralize(len(state.jobs), 'job')}: {', '.join(counts)}" if len(state.jobs) > 1 else ""


def _print_times(out: Console, times: TimeSummary) -> None:
    if not times.total_s:
        return
    table = Table(box=None, padding=(0, 1), show_header=False)
    for name, seconds in [*times.seconds_by_stage.items(), ("wasted", times.wasted_s)]:
        share = seconds / times.total_s
        if share >= _MIN_SHARE_SHOWN:
            style = "red" if name == "wasted" else "cyan"
            bar = "█" * max(1, round(30 * share))
            table.add_row(
                Text(name, "dim"),
                Text(bar, style),
                formatting.format_duration(seconds),
                Text(formatting.format_percent(share), "dim"),
            )
    out.print(f"\nwhere the time went ({formatting.format_duration(times.total_s)}):")
    out.print(table)


def _print_report_headline(out: Console, report: Report) -> None:
    """Print the success rate and useful share, and the findings if the run took at least a minute."""
    headline = format_headline(report.stats)
    if headline:
        out.print(f"\n{headline}")
    if report.stats.wallclock_s >= _MIN_WALLCLOCK_FOR_INSIGHTS_S:
        print_findings(out, [insight.text for insight in report.findings][:_MAX_INSIGHTS_SHOWN])


def _print_next_commands_for(run_info: RunInfo, state: RunState) -> None:
    outputs = (f"packtrain outputs {run_info.run}", "list the outputs")
    logs = (f"packtrain logs {run_info.run}", "show the output of the steps")
    if state.is_finished and not state.count_jobs(JobStatus.FAILED) and not state.count_jobs(JobStatus.CANCELLED):
        print_next_commands(outputs, logs)
        return
    why = (f"packtrain why {run_info.run}", "explain what happened and what to do")
    print_next_commands(
        *([why] if state.count_jobs(JobStatus.FAILED) else []),
        logs,
        (f"packtrain resume {run_info.run}", "resume it"),
    )
