"""A run drawn for a terminal: one row a job with a bar, the stages that are done, the newest metric."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.state import Attempt, AttemptStatus, JobState, JobStatus, RunState
from packtrain.state.execution import fraction_of
from packtrain.views.plain import is_idle, stage_line
from packtrain.views.summary import FINAL, run_status

STYLES = {
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "cancelled": "yellow",
    "interrupted": "yellow",
    "unattended": "yellow",
    "running": "cyan",
    "held": "yellow",
    "queued": "blue",
    "decided": "blue",
    "waiting": "dim",
}
_MARKS = {"succeeded": "✓", "failed": "✗", "cancelled": "–", "running": "▸", "held": "‖", "queued": "·", "waiting": "·"}
_BAR = 24
_FIRST = (JobStatus.RUNNING, JobStatus.HELD, JobStatus.FAILED, JobStatus.QUEUED)
_ORDER = {status: rank for rank, status in enumerate(_FIRST)}


def styled(status: str) -> Text:
    return Text(status, STYLES.get(status, ""))


def draw(state: RunState, attended: bool, width: int, rows: int = 20) -> RenderableType:
    """The whole picture, at most so many rows of jobs: those that run first."""
    jobs = sorted(state.jobs.values(), key=lambda job: (_ORDER.get(job.status, 9), _number(job.id)))
    parts: list[RenderableType] = [_headline(state, attended)]
    if len(jobs) == 1 and jobs[0].latest:
        parts += _stages_done(jobs[0].latest)
    parts.append(job_table(jobs[:rows], width))
    if len(jobs) > rows:
        parts.append(Text(f"  … and {len(jobs) - rows} more", "dim"))
    return Group(*parts)


def _headline(state: RunState, attended: bool) -> Text:
    line = Text.assemble((state.run, "bold"), "  ", str(state.about.get("engine", "")), " · ")
    line.append_text(styled(run_status(state, attended)))
    counts = ((status, state.count(status)) for status in JobStatus)
    told = ", ".join(f"{count} {status.value}" for status, count in counts if count)
    line.append(f" · {len(state.jobs)} job{'' if len(state.jobs) == 1 else 's'}: {told}" if len(state.jobs) > 1 else "")
    if state.created:
        line.append(f" · {formatting.duration(time.time() - state.created.wall)}", "dim")
    return line


def _stages_done(attempt: Attempt) -> list[RenderableType]:
    done = (stage for stage in attempt.stages if stage.seconds is not None and not stage.data.get("failure"))
    told = (stage_line(stage.data) for stage in done if not is_idle(stage.data))
    return [Text.assemble("  ", ("✓ ", "green"), (line, "dim")) for line in told]


def job_table(jobs: Iterable[JobState], width: int) -> Table:
    """One line a job: what does not fit is cut at the end of the last column, nowhere else."""
    rows = [_row(job) for job in jobs]
    taken = [
        max((cell.cell_len if isinstance(cell, Text) else _BAR for cell in column), default=0)
        for column in zip(*rows, strict=True)
    ]
    room = max(10, width - sum(taken[:-1]) - 2 * len(taken))
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    for row in rows:
        row[-1].truncate(room, overflow="ellipsis")
        table.add_row(*row)
    return table


def _row(job: JobState) -> tuple[Text, Text, Text, Text | ProgressBar, Text]:
    status, last = job.status.value, job.latest
    mark = Text(f" {_MARKS.get(status, ' ')}", STYLES.get(status, ""))
    label = Text(" ".join([job.id, *(f"{key}={value}" for key, value in job.point.items())]))
    return (mark, label, styled(status), *_progress(job, last))


def _progress(job: JobState, last: Attempt | None) -> tuple[Text | ProgressBar, Text]:
    if last is None:
        return Text(""), Text("")
    if not last.live:
        well = job.status is not JobStatus.SUCCEEDED or not any(
            v in formatting.NOT_FINITE for v in last.metric.values()
        )
        return Text(""), Text(_last_word(job, last), "dim" if well else "bold red")
    if last.hold:
        return Text(""), Text(str(last.hold.event.data.get("detail", "")), "yellow")
    if last.status in (AttemptStatus.QUEUED, AttemptStatus.DECIDED):
        return Text(""), Text(_queued(job), "dim")
    fraction = fraction_of(last)
    detail = _training(last) if last.stage == "steps" else Text(_moved(last), "dim")
    if fraction is None:
        return Text(last.stage or "starting", "cyan"), detail
    return ProgressBar(1.0, fraction, _BAR, complete_style="cyan", finished_style="green"), detail


def _queued(job: JobState) -> str:
    """For how long, and why again, if it ran before."""
    before = job.attempts[-2] if len(job.attempts) > 1 else None
    again = f"again, after {before.failure.kind}" if before and before.failure else ""
    return f"{again}{formatting.waited(job.waits_since, time.time())}".removeprefix(", ")


def _last_word(job: JobState, last: Attempt) -> str:
    if job.status is JobStatus.SUCCEEDED:
        return formatting.result(last.metric) or f"in {formatting.duration(last.seconds)}"
    tries = f"attempt {last.number}: " if last.number > 1 else ""
    failure = (job.verdict.failure if job.verdict else None) or last.failure
    if failure:
        return f"{tries}{failure.kind}: {failure.detail}"
    return "" if job.status in FINAL else "waits for its next attempt"


def _training(attempt: Attempt) -> Text:
    """40% · 3 min 20 s left · train · epoch 2/5 · loss 1.234: what matters most is not cut off."""
    ahead = formatting.ahead(attempt.training.fraction, attempt.training.left_s)
    parts = [Text(ahead, "cyan"), Text(attempt.step, "dim")]
    parts += [Text(words, "dim" if well else "bold red") for words, well in formatting.metrics(attempt.metric)]
    line = Text()
    for part in filter(None, parts):
        line.append(" · " if line else "", "dim").append_text(part)
    return line


def _moved(attempt: Attempt) -> str:
    done, total = attempt.progress.get("done"), attempt.progress.get("total")
    amount = f"{formatting.size(done)} of {formatting.size(total)}" if total else formatting.size(done)
    return " · ".join(part for part in (attempt.stage, amount if done is not None else "", _where(attempt)) if part)


def _where(attempt: Attempt) -> str:
    """The site, where there is more than one."""
    return f"at {attempt.site}" if attempt.start and attempt.site else ""


def _number(job: str) -> tuple[int, str]:
    return (int(job), "") if job.isdigit() else (1 << 60, job)
