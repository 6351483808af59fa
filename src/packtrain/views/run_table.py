"""A run rendered for a terminal: one row per job, with a progress bar or the result."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.state import Execution, ExecutionStatus, JobState, JobStatus, RunState
from packtrain.state.execution import stage_fraction
from packtrain.state.run import run_status
from packtrain.state.transitions import FINAL_STATUSES
from packtrain.views.event_lines import format_stage, is_empty_stage

STATUS_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "cancelled": "yellow",
    "interrupted": "yellow",
    "orphaned": "yellow",
    "running": "cyan",
    "held": "yellow",
    "queued": "blue",
    "submitting": "blue",
    "waiting": "dim",
}
_STATUS_SYMBOLS = {
    "succeeded": "✓",
    "failed": "✗",
    "cancelled": "–",
    "running": "▸",
    "held": "‖",
    "queued": "·",
    "waiting": "·",
}
_BAR_WIDTH = 24
_STATUS_ORDER = (JobStatus.RUNNING, JobStatus.HELD, JobStatus.FAILED, JobStatus.QUEUED)
_STATUS_RANK = {status: rank for rank, status in enumerate(_STATUS_ORDER)}


def styled_status(status: str) -> Text:
    """Return a status word in its color."""
    return Text(status, STATUS_STYLES.get(status, ""))


def render_run(state: RunState, has_live_supervisor: bool, width: int, max_rows: int = 20) -> RenderableType:
    """Render a run: a headline, and one row per job, running jobs first.

    Args:
        state: The run.
        has_live_supervisor: Whether a supervisor is alive.
        width: Width of the terminal in columns.
        max_rows: Maximum number of jobs to show.
    """
    jobs = sorted(state.jobs.values(), key=lambda job: (_STATUS_RANK.get(job.status, 9), _job_sort_key(job.id)))
    parts: list[RenderableType] = [_headline(state, has_live_supervisor)]
    if len(jobs) == 1 and jobs[0].latest_execution:
        parts += _finished_stages(jobs[0].latest_execution)
    parts.append(render_job_table(jobs[:max_rows], width))
    if len(jobs) > max_rows:
        parts.append(Text(f"  … and {len(jobs) - max_rows} more", "dim"))
    return Group(*parts)


def _headline(state: RunState, has_live_supervisor: bool) -> Text:
    line = Text.assemble((state.run, "bold"), "  ", str(state.metadata.get("engine", "")), " · ")
    line.append_text(styled_status(run_status(state, has_live_supervisor)))
    if len(state.jobs) > 1:
        counts = ((status, state.count_jobs(status)) for status in JobStatus)
        text = ", ".join(f"{count} {status.value}" for status, count in counts if count)
        line.append(f" · {len(state.jobs)} jobs: {text}")
    if state.created_event:
        line.append(f" · {formatting.format_duration(time.time() - state.created_event.wall)}", "dim")
    return line


def _finished_stages(execution: Execution) -> list[RenderableType]:
    finished = (stage for stage in execution.stages if stage.duration_s is not None and not stage.data.get("failure"))
    lines = (format_stage(stage.data) for stage in finished if not is_empty_stage(stage.data))
    return [Text.assemble("  ", ("✓ ", "green"), (line, "dim")) for line in lines]


def render_job_table(jobs: Iterable[JobState], width: int) -> Table:
    """Render one row per job. A reason that is too long is wrapped; the end of a long progress text is cut off."""
    jobs = list(jobs)
    rows = [_job_row(job) for job in jobs]
    column_widths = [
        max((cell.cell_len if isinstance(cell, Text) else _BAR_WIDTH for cell in column), default=0)
        for column in zip(*rows, strict=True)
    ]
    last_width = max(10, width - sum(column_widths[:-1]) - 2 * len(column_widths))
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    for can_wrap in (False, True, False, False, True):
        table.add_column(no_wrap=not can_wrap, overflow="fold")
    for job, row in zip(jobs, rows, strict=True):
        if _is_in_progress(job.latest_execution):
            row[-1].truncate(last_width, overflow="ellipsis")
        table.add_row(*row)
    return table


def _is_in_progress(execution: Execution | None) -> bool:
    return execution is not None and execution.is_live and not execution.hold


def _job_row(job: JobState) -> tuple[Text, Text, Text, Text | ProgressBar, Text]:
    status = job.status.value
    symbol = Text(f" {_STATUS_SYMBOLS.get(status, ' ')}", STATUS_STYLES.get(status, ""))
    label = Text(" ".join([job.id, *(f"{key}={value}" for key, value in job.point.items())]))
    return (symbol, label, styled_status(status), *_progress_cells(job, job.latest_execution))


def _progress_cells(job: JobState, execution: Execution | None) -> tuple[Text | ProgressBar, Text]:
    if execution is None:
        return Text(""), Text("")
    if not execution.is_live:
        has_nonfinite = any(value in formatting.NONFINITE_VALUES for value in execution.metrics.values())
        style = "bold red" if job.status is JobStatus.SUCCEEDED and has_nonfinite else "dim"
        return Text(""), Text(_result_text(job, execution), style)
    if execution.hold:
        return Text(""), Text(str(execution.hold.event.data.get("detail", "")), "yellow")
    if execution.status in (ExecutionStatus.QUEUED, ExecutionStatus.SUBMITTING):
        return Text(""), Text(_queue_text(job), "dim")
    fraction = stage_fraction(execution)
    detail = _training_text(execution) if execution.stage == "steps" else Text(_transfer_text(execution), "dim")
    if fraction is None:
        return Text(execution.stage or "starting", "cyan"), detail
    return ProgressBar(1.0, fraction, _BAR_WIDTH, complete_style="cyan", finished_style="green"), detail


def _queue_text(job: JobState) -> str:
    """Return how long a job has been waiting, and after which failure if it ran before."""
    previous = job.executions[-2] if len(job.executions) > 1 else None
    retry = f"again, after {previous.failure.kind}" if previous and previous.failure else ""
    return f"{retry}{formatting.format_wait(job.waiting_since, time.time())}".removeprefix(", ")


def _result_text(job: JobState, execution: Execution) -> str:
    if job.status is JobStatus.SUCCEEDED:
        duration = formatting.format_duration(execution.agent_duration_s)
        return formatting.format_final_metrics(execution.metrics) or f"in {duration}"
    prefix = f"execution {execution.number}: " if execution.number > 1 else ""
    failure = (job.result.failure if job.result else None) or execution.failure
    if failure:
        return f"{prefix}{failure.kind}: {failure.detail}"
    return "" if job.status in FINAL_STATUSES else "waiting for the next attempt"


def _training_text(execution: Execution) -> Text:
    """Return, for example, `40% · 3 min 20 s left · train · epoch 2/5 · loss 1.234`.

    The most important parts come first, because the end may be cut off.
    """
    progress = formatting.format_progress(execution.training.fraction, execution.training.remaining_s)
    parts = [Text(progress, "cyan"), Text(execution.step_name, "dim")]
    metrics = formatting.format_metric_list(execution.metrics)
    parts += [Text(text, "dim" if is_finite else "bold red") for text, is_finite in metrics]
    line = Text()
    for part in filter(None, parts):
        line.append(" · " if line else "", "dim").append_text(part)
    return line


def _transfer_text(execution: Execution) -> str:
    done, total = execution.progress.get("done"), execution.progress.get("total")
    amount = formatting.format_size(done) if done is not None else ""
    if amount and total:
        amount = f"{amount} of {formatting.format_size(total)}"
    return " · ".join(part for part in (execution.stage, amount, _site_text(execution)) if part)


def _site_text(execution: Execution) -> str:
    """Return the site of an execution on a pool."""
    return f"at {execution.site}" if execution.execution_number and execution.site else ""


def _job_sort_key(job_id: str) -> tuple[int, str]:
    return (int(job_id), "") if job_id.isdigit() else (1 << 60, job_id)
