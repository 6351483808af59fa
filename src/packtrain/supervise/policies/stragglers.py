"""Move or copy executions that are slow and would end sooner somewhere else.

If agents write to storage that other attempts can reach, the job is moved: the attempt saves a checkpoint and exits,
and the next attempt resumes from it at another site. If outputs are staged per attempt, a second copy of the job is
started. The first copy that succeeds is accepted (`accept_first_success`), and the other one is ended.
`recovery.stragglerBudget` limits the cost.

This policy checks all running jobs, not only those that changed, so the supervisor calls it less often than others
(`check_interval_s`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from packtrain.engines.api import Overrides
from packtrain.formatting import format_duration, format_percent
from packtrain.state import Execution, JobState, RunState
from packtrain.state.timing import TrainingRuntime, compute_redone_s, execution_site
from packtrain.supervise.decisions import Accept, Cancel, ChangedJobs, Decision, Move, Policy, Submit
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.forecast import Forecast
from packtrain.supervise.policies.job_result import exhausted_budget
from packtrain.supervise.policies.overrides import make_overrides
from packtrain.supervise.policies.site_avoidance import find_avoided_locations
from packtrain.supervise.policies.stop_run import find_stop_reason

_MIN_GAIN_SHARE = 0.25  # of a training's run time: how much sooner it has to end elsewhere
_MAX_MOVES = 2  # per job, in case the forecast is wrong
_MIN_CHECK_INTERVAL_S, _MAX_CHECK_INTERVAL_S = 1.0, 60.0


def check_interval_s(config: PolicyConfig) -> float:
    """Return the minimum time between two checks for stragglers, in seconds."""
    return min(_MAX_CHECK_INTERVAL_S, max(_MIN_CHECK_INTERVAL_S, config.recovery.min_gain_s / 10))


@dataclass(frozen=True)
class Straggler:
    """An execution that would end sooner elsewhere."""

    job: str
    execution: Execution
    remaining_s: float
    elsewhere_s: float  # run time elsewhere, without the wait for a node
    min_gain_s: float  # how much sooner it has to end elsewhere
    cost_s: float  # time of the work that is done twice
    can_move: bool  # if not, it is copied
    previous_sites: frozenset[str]  # sites that the job was moved away from before
    forecast: Forecast

    @property
    def gain_s(self) -> float:
        """How much sooner the job would end elsewhere, without the wait for a node."""
        return self.remaining_s - self.elsewhere_s


def straggler_policy(config: PolicyConfig) -> Policy:
    """Return the policy that moves or copies slow executions."""

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        if not config.handles_stragglers or _is_saturated(state) or not state.stats.timing.running_jobs:
            return []
        forecast = Forecast.from_state(state, now)
        groups = _split_comparable(state, forecast)
        stragglers = [straggler for group in groups for straggler in _find_stragglers(state, config, group)]
        if not stragglers and not state.stats.timing.copied_jobs:
            return []
        budget_s = config.recovery.straggler_budget * _total_slot_s(state, forecast) - _spent_s(state, forecast)
        if budget_s < 0:
            return list(_cancel_copies(state, config))
        if not stragglers or find_stop_reason(state, config)[1]:  # a run that is being stopped starts nothing
            return []
        return list(_respond(state, config, stragglers, budget_s - _committed_cost_s(state, forecast)))

    return policy


def accept_first_success(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
    """Accept the first attempt of a job that succeeded, permanently, and end the others."""
    jobs = (state.jobs[job_id] for job_id in changed_jobs)
    return [decision for job in jobs if job.n_attempts > 1 for decision in _accept_decisions(job)]


def _accept_decisions(job: JobState) -> Iterator[Decision]:
    winner = job.winning_execution
    if winner is None:
        return
    reason = f"attempt {winner.attempt_id} succeeded first"
    if not job.accepted_attempt_id and not job.result:
        yield Accept(job.id, winner.attempt_id, reason, winner.emitter)
    for execution in job.live_executions:
        if execution.attempt_id != winner.attempt_id and not job.has_cancel_decision(execution.attempt_id):
            yield Cancel(job.id, execution.attempt_id, reason)


def _is_saturated(state: RunState) -> bool:
    """Return whether all nodes are in use and jobs wait for them, so that moving does not help.

    Copies have to be checked even then.
    """
    timing = state.stats_stale_ok.timing
    return bool(timing.waiting_jobs and not timing.copied_jobs and not timing.estimate_free_nodes())


# Finding stragglers


def _split_comparable(state: RunState, forecast: Forecast) -> list[Forecast]:
    jobs = (*forecast.runtimes, *forecast.running)
    return forecast.split_comparable({job: state.jobs[job].point for job in jobs}) if state.has_matrix else [forecast]


def _find_stragglers(state: RunState, config: PolicyConfig, forecast: Forecast) -> Iterator[Straggler]:
    sites = {running.site for running in forecast.running.values()}
    elsewhere = {site: runtime for site in sites if (runtime := forecast.runtime_elsewhere(site))}
    min_gains_s = {
        site: max(config.recovery.min_gain_s, _MIN_GAIN_SHARE * runtime.total_s) for site, runtime in elsewhere.items()
    }
    for job, remaining_s in forecast.remaining_s.items() if elsewhere else ():
        running = forecast.running[job]
        runtime, min_gain_s = elsewhere[running.site], min_gains_s[running.site]
        # An upper bound of the gain, which does not depend on the newest checkpoint, rules out most jobs.
        max_saved = running.fraction if running.is_in_steps else 1.0
        if remaining_s - runtime.overhead_s - (1.0 - max_saved) * runtime.steps_s >= min_gain_s:
            straggler = _check_straggler(state.jobs[job], config, forecast, runtime, min_gain_s)
            if straggler:
                yield straggler


def _check_straggler(
    job: JobState, config: PolicyConfig, forecast: Forecast, elsewhere: TrainingRuntime, min_gain_s: float
) -> Straggler | None:
    """Return the job's execution as a straggler, or None if moving or copying is not possible or not worth it."""
    running, remaining_s = forecast.running[job.id], forecast.remaining_s[job.id]
    execution = next((e for e in job.live_executions if e.number == running.execution.number), running.execution)
    checkpoint, can_move = execution.checkpoint or execution.restored_checkpoint, config.can_move_job(job.id)
    is_certain = bool(checkpoint) or running.has_estimate or not forecast.has_reached_steps(job.id)
    if not (_can_move(job, is_certain) if can_move else _can_copy(job, config)):
        return None
    saved_fraction = execution.training.checkpoint_fraction(checkpoint if can_move else {})
    elsewhere_s = elsewhere.overhead_s + (1 - saved_fraction) * elsewhere.steps_s
    if can_move:
        cost_s = compute_redone_s(execution, forecast.now) + (elsewhere.overhead_s if checkpoint else 0.0)
    else:
        cost_s = min(remaining_s, elsewhere_s)
    previous_sites = frozenset(execution_site(e) for e in job.executions if e.attempt_id in job.moves)
    straggler = Straggler(
        job.id, execution, remaining_s, elsewhere_s, min_gain_s, cost_s, can_move, previous_sites, forecast
    )
    return straggler if straggler.gain_s >= min_gain_s else None


def _has_one_wanted_execution(job: JobState) -> bool:
    return (
        len(job.live_executions) == 1
        and not job.open_requests
        and not job.has_cancel_decision(job.live_executions[0].attempt_id)
    )


def _can_move(job: JobState, is_certain: bool) -> bool:
    """Return whether a job may be moved.

    Args:
        job: The job.
        is_certain: Little work would be lost, or the job's own progress shows that it is slow. Its age alone is no
            reason to end a training.
    """
    return is_certain and _has_one_wanted_execution(job) and len(job.moves) < _MAX_MOVES


def _can_copy(job: JobState, config: PolicyConfig) -> bool:
    """Return whether a job may be copied: only once, and only if its budget allows for two more failures."""
    is_first_copy = _has_one_wanted_execution(job) and not any(e.copy_of for e in job.recent_executions)
    has_budget = len(job.counted_failures) + 2 <= config.limits(job.id).max_attempts
    return is_first_copy and config.can_copy_job(job.id) and has_budget and not exhausted_budget(job, config)


# Moving and copying


def _respond(
    state: RunState, config: PolicyConfig, stragglers: list[Straggler], budget_s: float
) -> Iterator[Submit | Move]:
    """Yield moves and copies as far as the budget and the free nodes allow, the largest gain first."""
    waits_s = _expected_waits_s(state, len(stragglers))
    for straggler in sorted(stragglers, key=lambda s: (-s.gain_s, s.job)):
        is_worth_it = bool(waits_s) and straggler.gain_s >= waits_s[0] + straggler.min_gain_s
        if is_worth_it and straggler.cost_s <= budget_s:
            budget_s -= straggler.cost_s
            waits_s.pop(0)
            yield _make_move(straggler) if straggler.can_move else _make_copy(state, config, straggler)


def _expected_waits_s(state: RunState, n_stragglers: int) -> list[float]:
    """Return how long each new attempt has to wait for a node, in seconds.

    If no node is free but no job waits either, that is the median queue time.
    """
    timing = state.stats.timing
    n_free = timing.estimate_free_nodes()
    if n_free or timing.waiting_jobs:
        return [0.0] * n_free
    return [timing.median_queue_s()] * n_stragglers


def _make_move(straggler: Straggler) -> Move:
    overrides = _avoid_current_location(Overrides(), straggler)
    attempt_id = straggler.execution.attempt_id
    return Move(straggler.job, attempt_id, _reason(straggler), overrides.avoid_sites, overrides.avoid_nodes)


def _make_copy(state: RunState, config: PolicyConfig, straggler: Straggler) -> Submit:
    job = state.jobs[straggler.job]
    usual = make_overrides(job, config, find_avoided_locations(state, config, straggler.forecast.now))
    overrides = _avoid_current_location(usual, straggler)
    attempt_id = f"{job.id}-{job.n_attempts + 1}"
    return Submit(job.id, attempt_id, _reason(straggler), overrides, straggler.execution.attempt_id)


def _reason(straggler: Straggler) -> str:
    node, site = straggler.execution.node or "its node", execution_site(straggler.execution) or "its site"
    here, elsewhere = format_duration(straggler.remaining_s), format_duration(straggler.elsewhere_s)
    return f"it needs about {here} more on {node} at {site}, but about {elsewhere} elsewhere"


def _avoid_current_location(overrides: Overrides, straggler: Straggler) -> Overrides:
    """Return overrides that avoid the site if it is slow and there is another one, or else the node."""
    site, node = execution_site(straggler.execution), straggler.execution.node
    is_bad_site = straggler.forecast.is_slow_site(site) or site in straggler.previous_sites
    if site and is_bad_site and straggler.forecast.sites - {site, *overrides.avoid_sites}:
        return replace(overrides, avoid_sites=tuple(sorted({*overrides.avoid_sites, site})))
    return replace(overrides, avoid_nodes=tuple(sorted({*overrides.avoid_nodes, node} - {""})))


# The cost: the time during which two attempts of a job run at once, and the work that is repeated after a move


def _total_slot_s(state: RunState, forecast: Forecast) -> float:
    """Return the estimated slot time of the whole run, in seconds."""
    timing = state.stats.timing
    typical_s = median(forecast.sorted_totals_s) if forecast.sorted_totals_s else 0.0
    running_s = sum(map(forecast.elapsed_s, forecast.running)) + sum(forecast.remaining_s.values())
    return timing.slot_s + running_s + typical_s * len(timing.waiting_jobs)


def _spent_s(state: RunState, forecast: Forecast) -> float:
    """Return the cost of all moves and copies so far, in seconds."""
    timing = state.stats.timing
    overhead_s = median(peer.overhead_s for peer in forecast.peers.values()) if forecast.peers else 0.0
    moves_s = sum(cost.redone_s + overhead_s * cost.n_resumes for cost in timing.move_costs.values())
    return moves_s + sum(_overlap_s(state.jobs[job_id], forecast.now) for job_id in timing.copied_jobs)


def _overlap_s(job: JobState, now: float) -> float:
    copies = [execution for execution in job.recent_executions if execution.copy_of and execution.started_at]
    return sum(max(0.0, _overlap_end_at(job, copy, now) - copy.started_at) for copy in copies)


def _overlap_end_at(job: JobState, copy: Execution, now: float) -> float:
    """Return when the copy or the original ended, whichever was first; the current time if both are live."""
    originals = [execution for execution in job.recent_executions if execution.attempt_id == copy.copy_of]
    is_live = any(execution.is_live for execution in originals)
    ends = [] if is_live else [max((execution.ended_at for execution in originals), default=now)]
    return min([*ends, copy.ended_at or now])


def _committed_cost_s(state: RunState, forecast: Forecast) -> float:
    """Return the estimated further cost of live copies, in seconds."""
    jobs = [state.jobs[job_id] for job_id in state.stats.timing.copied_jobs]
    return sum(_remaining_overlap_s(job, copy, forecast) for job in jobs for copy in _live_copies(job))


def _live_copies(job: JobState) -> list[Execution]:
    """Return live copies whose original is live, too."""
    return [execution for execution in job.live_executions if execution.copy_of and len(job.live_executions) > 1]


def _remaining_overlap_s(job: JobState, copy: Execution, forecast: Forecast) -> float:
    runtime = forecast.runtime_elsewhere("")
    elapsed_s = forecast.now - copy.started_at if copy.started_at else 0.0
    remaining_s = max(0.0, runtime.total_s - elapsed_s) if runtime else 0.0
    return min(remaining_s, forecast.remaining_s.get(job.id, remaining_s))


def _cancel_copies(state: RunState, config: PolicyConfig) -> Iterator[Decision]:
    budget = format_percent(config.recovery.straggler_budget)
    reason = f"copies have used up the straggler budget ({budget} of the run's slot time)"
    for job in (state.jobs[job_id] for job_id in sorted(state.stats.timing.copied_jobs)):
        copies = (copy for copy in _live_copies(job) if not job.has_cancel_decision(copy.attempt_id))
        yield from (Cancel(job.id, copy.attempt_id, reason) for copy in copies)
