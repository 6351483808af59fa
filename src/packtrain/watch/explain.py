"""The story of a job in sentences: what happened, the evidence, whose fault, what was done, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packtrain.events import FAILURE_KINDS, Failure
from packtrain.plan import RunFolder
from packtrain.state import Attempt, JobState, JobStatus
from packtrain.watch import figures

_LAST_LINES = 5
_FAULTS = {
    "user": "the workflow or its program",
    "data": "the data or the service that gives it",
    "site": "the machine it ran on",
    "pool": "nobody: that is how pools are",
    "packtrain": "packtrain itself",
}


@dataclass(frozen=True)
class Explanation:
    job: str
    failed: bool
    what: str
    evidence: tuple[str, ...] = ()
    fault: str = ""
    done: str = ""
    remedy: str = ""
    exit_code: int | None = None

    @property
    def story(self) -> tuple[str, ...]:
        return (self.what, self.fault, self.done, self.remedy)

    def lines(self) -> Iterator[tuple[str, str]]:
        yield "what", self.what
        for line in self.evidence:
            yield "evidence", line
        yield from (pair for pair in (("fault", self.fault), ("done", self.done), ("to do", self.remedy)) if pair[1])

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def explain_job(job: JobState, folder: RunFolder, attended: bool) -> Explanation:
    failure = _failure(job)
    if failure is None:
        return Explanation(job.id, False, _calm(job, attended), done=_done(job))
    last = next((a for a in reversed(job.attempts) if a.failure), job.attempts[-1])
    row = FAILURE_KINDS.get(failure.kind)
    return Explanation(
        job.id,
        failed=True,
        what=f"{failure.detail} ({failure.kind}, in the stage {failure.stage})",
        evidence=tuple(_evidence(last, folder.attempt(job.id, last.decision).logs)),
        fault=_FAULTS.get(failure.blame, failure.blame),
        done=_done(job, attended),
        remedy=row.remedy if row else "",
        exit_code=last.exit_code,
    )


def _failure(job: JobState) -> Failure | None:
    """What stands between the job and its end: the verdict's, or that of the attempt before now."""
    if job.verdict:
        return job.verdict.failure
    return job.latest.failure if job.latest and not job.latest.live else None


def _calm(job: JobState, attended: bool) -> str:
    last = job.latest
    if job.status is JobStatus.SUCCEEDED and last:
        return f"it succeeded: attempt {last.number} took {figures.duration(last.seconds)} and passed its checks"
    if job.status is JobStatus.CANCELLED and job.verdict:
        return f"it was cancelled: {job.verdict.reason}"
    if job.status is JobStatus.RUNNING and last:
        return f"it runs on {last.host or last.site}, in the stage {last.stage or 'start'}"
    if last and last.hold:
        return f"{last.hold.event.data.get('detail', 'the pool holds it')}; {_HOLD_ANSWERS[job.answer_to(last.hold)]}"
    if job.status is JobStatus.QUEUED and last and last.site == "htcondor":
        return f"it waits for a machine of the pool{_again(job)}; `condor_q -better-analyze {last.native}` says more"
    if job.status is JobStatus.QUEUED:
        return "it waits for room: the CPUs, memory or GPUs it asks for are taken by other jobs"
    return "its turn has not come" if attended else "nobody supervises the run; `packtrain resume` goes on"


_HOLD_ANSWERS = {
    "": "what is to be done about it has not been decided yet",
    "release": "packtrain has asked for its release",
    "give_up": "packtrain has given it up",
}


def _again(job: JobState) -> str:
    before = job.attempts[-2] if len(job.attempts) > 1 else None
    return f", again: {before.failure.detail}" if before and before.failure else ""


def _done(job: JobState, attended: bool = True) -> str:
    failed = [a for a in job.attempts if a.failure]
    if not failed:
        return ""
    tried = f"{len(failed)} attempt{'' if len(failed) == 1 else 's'} failed"
    if job.verdict:
        return f"{tried}; {job.verdict.reason}"
    return f"{tried}; another one follows" if attended else f"{tried}; `packtrain resume` makes another one"


def _evidence(attempt: Attempt, logs: Path) -> Iterator[str]:
    where = f" on {attempt.host}" if attempt.host else ""
    yield f"attempt {attempt.number}{where}, {figures.duration(attempt.seconds)}, exit code {attempt.exit_code}"
    if attempt.failure and attempt.failure.kind in ("step_failed", "out_of_memory") and attempt.step:
        yield from last_words(logs, attempt.step)


def last_words(logs: Path, step: str) -> list[str]:
    """The end of what the step wrote to its error stream."""
    path = logs / (step.replace("/", ".") + ".err")
    try:
        text = path.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_LAST_LINES:]
