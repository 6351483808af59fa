"""Ending a whole run early: the same mistake again and again, or a budget that is used up. What runs goes on to its own
end; what has not been started is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM, KINDS, STOP
from packtrain.state import AttemptStatus, Finding, JobState, JobStatus, Record, RunState
from packtrain.state.timing import UnderWay
from packtrain.supervise.decisions import Cancel, Changed, Decision, End, Policy
from packtrain.supervise.policies.config import Rules

# What a broken image or a mistyped address causes at every site.
_MAYBE_THE_USERS = frozenset({"container_failed", "host_unknown", "python_missing", "certificate_refused"})


def halt(rules: Rules) -> Policy:
    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        if all(state.jobs[name].live for name in changed):  # nothing failed, and nothing is about to be started
            return []
        kind, reason = why_halted(state, rules)
        if not reason:
            return []
        left = (job for job in state.jobs.values() if not job.verdict and not job.open_requests)
        return [decision for job in left for decision in _ended(job, kind, reason)]

    return policy


def why_halted(state: RunState, rules: Rules) -> tuple[str, str]:
    """The kind of failure and the reason, or nothing."""
    record, recovery = state.outcomes, rules.recovery
    alike = _common_mistake(state, rules)
    if alike:
        return "run_stopped", f"stopped after {len(alike)} identical failures {_where(alike, rules)}"
    if recovery.failures is not None and record.failures >= recovery.failures:
        return "budget_spent", f"{record.failures} of the {recovery.failures} failures that the run may have"
    if recovery.wasted_s is not None and record.wasted_s >= recovery.wasted_s:
        spent, allowed = record.wasted_s / 3600, recovery.wasted_s / 3600
        return "budget_spent", f"failed attempts took {spent:.1f} h of the {allowed:.1f} h that they may in this run"
    return "", ""


def _common_mistake(state: RunState, rules: Rules) -> set[Finding]:
    """Failures that are alike, of enough jobs at enough sites, where no job got past that point."""
    enough = rules.recovery.stop_after
    if not enough or state.outcomes.successes:
        return set()
    for found in (*_mistakes(state.outcomes), *_lost_everywhere(state)):
        jobs, sites = {one.job for one in found}, _sites(found)
        if len(jobs) >= enough and len(sites) >= rules.places and not _is_passed(state.record, jobs):
            return found
    return set()


def _sites(found: Collection[Finding]) -> set[str]:
    """Without those that never ran anywhere."""
    return {one.site for one in found if one.site}


def _mistakes(record: Record) -> Iterator[set[Finding]]:
    for (kind, _, _), found in record.mistakes.items():
        if kind in KINDS and KINDS[kind].action in (CONFIRM, STOP):
            yield found


def _lost_everywhere(state: RunState) -> Iterator[set[Finding]]:
    """What looked like a fault of places, of jobs that used up their attempts so, while no other got to its steps."""
    for (kind, _, _), found in state.outcomes.faults.items():
        lost = {one for one in found if _has_failed(state.jobs[one.job])} if kind in _MAYBE_THE_USERS else set()
        if lost and not any(under.in_steps for under in _elsewhere(state, _sites(lost))):
            yield lost


def _elsewhere(state: RunState, sites: set[str]) -> Iterator[UnderWay]:
    return (under for under in state.record.pace.running.values() if under and under.site not in sites)


def _has_failed(job: JobState) -> bool:
    return job.verdict is not None and job.verdict.status is JobStatus.FAILED


def _is_passed(record: Record, failed: set[str]) -> bool:
    """Whether the training of another job is further than that of any that failed so."""
    furthest = max(record.progress.get(job, -1) for job in failed)
    return any(step > furthest for job, step in record.progress.items() if job not in failed)


def _where(alike: set[Finding], rules: Rules) -> str:
    return f"on {len(_sites(alike))} sites" if rules.many_sites else "on this machine"


def _ended(job: JobState, kind: str, reason: str) -> Iterator[Decision]:
    """An attempt that starts just when it is cancelled was not given its chance: it tells nothing of the job."""
    own = [a for a in job.recent if (a.emitter or a.start) and not job.cancel_decided(a.decision)]
    ran = {attempt.decision for attempt in own}  # what the pool itself starts again goes on, too
    for attempt in job.live:
        idle = attempt.status is not AttemptStatus.RUNNING and attempt.decision not in ran
        if idle and not job.cancel_decided(attempt.decision):
            yield Cancel(job.id, attempt.decision, reason)
    if not job.live:
        last = next((a.failure for a in reversed(own) if a.failure), None)
        detail = f"{reason}; this job was not {'started' if not has_begun(job) else 'brought to its end'}"
        yield End(job.id, JobStatus.FAILED, reason, failure=last or Failure.of(kind, "start", detail))


def has_begun(job: JobState) -> bool:
    """Whether an attempt of it ever ran."""
    return any(attempt.emitter or attempt.start for attempt in job.recent)
