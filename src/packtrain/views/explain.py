"""The story of a job in sentences: what happened, the evidence, whose fault, what was done, what comes next, what to
do. What comes next is what the policies themselves say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packtrain import formatting
from packtrain.engines.api import Amendment
from packtrain.events import FAILURE_KINDS, Failure
from packtrain.events.failure import MORE_MEMORY
from packtrain.plan import RunFolder
from packtrain.state import Attempt, JobState, JobStatus, RunState
from packtrain.state.outcomes import Finding, signature
from packtrain.state.timing import site_of
from packtrain.supervise.policies.config import Rules
from packtrain.supervise.policies.holds import answer_for
from packtrain.supervise.policies.overrides import amendment
from packtrain.supervise.policies.queue_timeout import gives_up_at, is_idle
from packtrain.supervise.policies.site_avoidance import avoided, everywhere
from packtrain.supervise.policies.stop_run import has_begun, why_halted
from packtrain.supervise.policies.submit import wait_of

_LAST_LINES, _MOST_ATTEMPTS = 5, 3
_NOT_STARTED = ("run_stopped", "budget_spent")
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
    next: str = ""
    remedy: str = ""
    exit_code: int | None = None

    @property
    def story(self) -> tuple[str, ...]:
        return (self.what, self.fault, self.done, self.next, self.remedy)

    def lines(self) -> Iterator[tuple[str, str]]:
        yield "what", self.what
        for line in self.evidence:
            yield "evidence", line
        told = (("fault", self.fault), ("done", self.done), ("next", self.next), ("to do", self.remedy))
        yield from (pair for pair in told if pair[1])

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Setting:
    """What is known besides the job itself."""

    state: RunState
    folder: RunFolder
    attended: bool  # a supervisor lives
    rules: Rules = field(default_factory=Rules)
    now: float = 0.0  # by the store's clock
    known_bad: Mapping[str, str] = field(default_factory=dict)  # places that earlier runs learned to avoid, and why

    @cached_property
    def places(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Sites and machines that are avoided."""
        return avoided(self.state, self.rules, self.now)


def explain_run(setting: Setting) -> list[str]:
    """What concerns the whole run: why it was stopped, which places it avoids."""
    state, rules = setting.state, setting.rules
    _, reason = why_halted(state, rules)
    ended = (job for job in state.jobs.values() if job.verdict and _kind(job.verdict.failure) in _NOT_STARTED)
    idle = sum(not has_begun(job) for job in ended)
    told = [f"{reason}; {_count(idle, 'job')} {'was' if idle == 1 else 'were'} not started"] if reason and idle else []
    sites, machines = ((), ()) if state.finished else setting.places
    for kind, names in (("sites", sites), ("machines", machines)):
        if names:
            told.append(f"{kind} that are avoided for now, since attempts failed there: {', '.join(names)}")
    if not state.finished:
        told += [f"{name} is avoided because of earlier runs: {reason}" for name, reason in setting.known_bad.items()]
    return told


def explain_job(job: JobState, setting: Setting) -> Explanation:
    failure = _failure(job)
    if failure is None:
        return Explanation(
            job.id, False, _calm(job, setting.now), tuple(_earlier(job)), done=_done(job), next=_next(job, setting)
        )
    last = next(iter(reversed(_failed(job))), None)
    row = FAILURE_KINDS.get(failure.kind)
    return Explanation(
        job.id,
        failed=True,
        what=f"{failure.detail} ({failure.kind}, in the stage {failure.stage})",
        evidence=tuple(_evidence(job, setting)),
        fault=_fault(failure, last, setting),
        done=_done(job),
        next=_next(job, setting),
        remedy=row.remedy if row else "",
        exit_code=last.exit_code if last else failure.exit_code,
    )


def _kind(failure: Failure | None) -> str:
    return failure.kind if failure else ""


def _failure(job: JobState) -> Failure | None:
    """What stands between the job and its end: the verdict's, or that of the attempt before now."""
    if job.verdict:
        return job.verdict.failure
    return job.latest.failure if job.latest and not job.latest.live else None


def _calm(job: JobState, now: float) -> str:
    last = job.latest
    if job.status is JobStatus.SUCCEEDED and last:
        return f"it succeeded: attempt {last.number} took {formatting.duration(last.seconds)} and passed its checks"
    if job.status is JobStatus.CANCELLED and job.verdict:
        return f"it was cancelled: {job.verdict.reason}"
    if job.status is JobStatus.RUNNING and last:
        return f"it runs on {last.host or last.site}, in the stage {last.stage or 'start'}"
    if last and last.hold:
        return str(last.hold.event.data.get("detail", "the pool holds it"))
    if last and last.live and (why := job.glimpse(last.decision)[0].get("waits")):
        return f"it is not in the pool's queue yet: {why}"
    if job.status is JobStatus.QUEUED and last and last.site == "htcondor":
        long = formatting.waited(job.waits_since, now)
        return (
            f"it waits for a machine of the pool{long}{_again(job)}; `condor_q -better-analyze {last.native}` says more"
        )
    if job.status is JobStatus.QUEUED:
        return "it waits for room: the CPUs, memory or GPUs it asks for are taken by other jobs"
    return "its turn has not come"


def _again(job: JobState) -> str:
    before = job.attempts[-2] if len(job.attempts) > 1 else None
    return f", again: {before.failure.detail}" if before and before.failure else ""


def _fault(failure: Failure, last: Attempt | None, setting: Setting) -> str:
    """With the places that say so."""
    record, like = setting.state.record, signature(failure)
    if failure.action == MORE_MEMORY:
        return "what the workflow asks for: its program needs more memory"
    if failure.blame == "user":
        return f"{_FAULTS['user']}{_alike(record.mistakes.get(like, ()))}"
    if like in everywhere(setting.state, setting.now):
        return f"most likely the workflow or a service, not the machines{_alike(record.faults[like])}"
    if failure.blame != "site":
        return _FAULTS.get(failure.blame, failure.blame)
    where = _place(last) if last else ""
    return f"{_FAULTS['site']}: {where}" if where else "the pool or a machine of it, before the job ran"


def _alike(found: Collection[Finding]) -> str:
    sites = sorted({one.site for one in found if one.site})
    return f": it failed alike at {', '.join(sites)}" if len(sites) > 1 else ""


def _place(attempt: Attempt) -> str:
    site, machine = site_of(attempt), attempt.machine
    return f"{machine} at {site}" if machine and site and site != "local" else machine or site


# What was done, and what comes next


def _done(job: JobState) -> str:
    failed = [a for a in _failed(job) if a in job.recent]
    released = sum(job.releases(decision) for decision in {a.decision for a in job.recent})
    told = [f"{_count(len(failed), 'attempt')} failed"] if failed else []
    told += [f"it was let go {_count(released, 'time')}"] if released else []
    told += [amended for a in job.recent[1:] if (amended := amended_words(Amendment.from_data(a.amendment), a.number))][
        -1:
    ]
    told += _elsewhere(job)
    if job.verdict and job.verdict.status is JobStatus.FAILED:
        told.append(job.verdict.reason)
    return "; ".join(told)


def _elsewhere(job: JobState) -> Iterator[str]:
    """What was done about attempts that were late."""
    numbers = {attempt.decision: attempt.number for attempt in job.attempts}
    for decision, moved in job.moves.items():
        yield f"attempt {numbers[decision]} was moved: {moved.get('reason', '')}"
    for copy in {a.decision: a for a in job.recent if a.copy_of}.values():
        first = numbers.get(copy.copy_of, 1)
        yield f"attempt {copy.number} was started beside attempt {first}: {job.reason_of(copy.decision)}"
        ended = job.cancel_reason(copy.decision) or job.cancel_reason(copy.copy_of)
        if ended:
            yield ended


def _next(job: JobState, setting: Setting) -> str:
    """What follows by itself; nothing once there is a verdict."""
    if job.verdict:
        return ""
    if not setting.attended:
        return "nobody supervises the run; `packtrain resume` goes on"
    last = job.latest
    if last and last.hold:
        return _answer(job, last, setting)
    if job.live or not job.recent:
        return _patience(job, setting)
    wait = job.changed_at + wait_of(job, setting.rules) - setting.now
    amended = amended_words(amendment(job, setting.rules, setting.places))
    when = f"in {formatting.duration(wait)}" if wait >= 1 else "now"
    return f"another attempt follows {when}{', ' if amended else ''}{amended}"


def _patience(job: JobState, setting: Setting) -> str:
    """Of one that waits in a pool where nothing of the run runs."""
    if not any(map(is_idle, job.live)) or not setting.rules.many_sites or setting.state.record.pace.running:
        return ""
    left = gives_up_at(setting.state, job, setting.rules) - setting.now
    if left > setting.rules.recovery.longest_queue_s / 2:
        return ""
    return f"it fails in {formatting.duration(max(0.0, left))} if no machine takes anything of the run until then"


def _answer(job: JobState, attempt: Attempt, setting: Setting) -> str:
    assert attempt.hold is not None
    given = job.answer_to(attempt.hold)
    if given:
        return "packtrain has asked for its release" if given == "release" else "packtrain has given it up"
    answer = answer_for(job, attempt, setting.rules)
    wait = answer.at - setting.now
    when = f"in {formatting.duration(wait)}" if wait >= 1 else "now"
    does = "lets it go again" if answer.release else "gives this attempt up"
    return f"packtrain {does} {when}: {answer.reason}"


def amended_words(given: Amendment, number: int = 0) -> str:
    """with twice the memory, not at Slow"""
    told = [f"with {given.memory:g} times the memory"] if given.memory > 1 else []
    told += [f"with {given.disk:g} times the disk"] if given.disk > 1 else []
    told += [f"not at {', '.join(given.avoid_sites)}"] if given.avoid_sites else []
    told += [f"not on {', '.join(given.avoid_machines)}"] if given.avoid_machines else []
    told += ["with its data fetched by the agent"] if given.agent_brings else []
    return (f"attempt {number}: " if told and number else "") + ", ".join(told)


# The evidence


def _evidence(job: JobState, setting: Setting) -> Iterator[str]:
    """The attempts that failed, the last one's own words, and what is saved of the training."""
    yield from _earlier(job)
    last = next(iter(reversed(_failed(job))), None)
    if last and last.failure and last.failure.stage == "steps" and last.step:
        yield from last_words(setting.folder.attempt(job.id, last.decision).logs, last.step)
    saved = max((a.reached for a in job.attempts), default=-1)
    if saved >= 0:
        yield f"its newest checkpoint is that of training step {saved}"


def _failed(job: JobState) -> list[Attempt]:
    """Without those that a supervisor ended."""
    return [a for a in job.attempts if a.failure and not a.live and not job.cancel_decided(a.decision)]


def _earlier(job: JobState) -> Iterator[str]:
    failed = _failed(job)
    if len(failed) > _MOST_ATTEMPTS:
        yield f"{_count(len(failed) - _MOST_ATTEMPTS, 'attempt')} before these failed, too"
    for attempt in failed[-_MOST_ATTEMPTS:]:
        place = _place(attempt)
        code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
        where = f" on {place}" if place else ""
        yield f"attempt {attempt.number}{where}, {formatting.duration(attempt.seconds)}{code}: {_kind(attempt.failure)}"


def last_words(logs: Path, step: str) -> list[str]:
    """The end of what the step wrote to its error stream."""
    path = logs / (step.replace("/", ".") + ".err")
    try:
        text = path.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_LAST_LINES:]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
