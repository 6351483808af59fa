"""Attempts that are late, and would end sooner elsewhere. Where a job's agents write to a place of the user's, which
other attempts reach, it moves: it saves, leaves, and goes on elsewhere. Where what attempts make comes home apart, a
second copy is started beside it; the first that succeeds is accepted (`settle`), the other is ended. What this may cost
is bounded by `recovery.stragglerBudget`.

Looks at all that run, not only at what changed: the supervisor asks seldom (`pause_of`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from packtrain.engines.api import Overrides
from packtrain.state import Execution, JobState, RunState
from packtrain.state.timing import TrainingRuntime, compute_redone_s, execution_site
from packtrain.supervise.decisions import Accept, Cancel, ChangedJobs, Decision, Move, Policy, Submit
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.forecast import Forecast, format_duration
from packtrain.supervise.policies.job_result import exhausted_budget
from packtrain.supervise.policies.overrides import make_overrides
from packtrain.supervise.policies.site_avoidance import find_avoided_locations
from packtrain.supervise.policies.stop_run import find_stop_reason

_MIN_GAIN_SHARE = 0.25  # of what a training takes: so much sooner it has to end elsewhere
_MAX_MOVES = 2  # of one job: a wrong forecast must not make it wander
_MIN_CHECK_INTERVAL_S, _MAX_CHECK_INTERVAL_S = 1.0, 60.0


def check_interval_s(config: PolicyConfig) -> float:
    """Between two looks."""
    return min(_MAX_CHECK_INTERVAL_S, max(_MIN_CHECK_INTERVAL_S, config.recovery.min_gain_s / 10))


@dataclass(frozen=True)
class Straggler:
    """An attempt that would end sooner elsewhere."""

    job: str
    execution: Execution
    remaining_s: float
    elsewhere_s: float  # elsewhere, once it has a machine there
    min_gain_s: float  # so much sooner it has to end there
    cost_s: float  # what is done twice
    can_move: bool
    previous_sites: frozenset[str]  # that it was moved away from before
    forecast: Forecast

    @property
    def gain_s(self) -> float:
        return self.remaining_s - self.elsewhere_s


def straggler_policy(config: PolicyConfig) -> Policy:
    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        if not config.handles_stragglers or _is_saturated(state) or not state.stats.timing.running_jobs:
            return []
        forecast = Forecast.from_state(state, now)
        late = [one for some in _split_comparable(state, forecast) for one in _find_stragglers(state, config, some)]
        if not late and not state.stats.timing.copied_jobs:
            return []
        budget = config.recovery.straggler_budget * _total_slot_s(state, forecast) - _spent_s(state, forecast)
        if budget < 0:
            return list(_cancel_copies(state, config))
        if not late or find_stop_reason(state, config)[1]:  # a run that is to end starts nothing
            return []
        return list(_respond(state, config, late, budget - _committed_cost_s(state, forecast)))

    return policy


def accept_first_success(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
    """Of a job with several attempts, one that succeeded is chosen for ever, and the others are ended."""
    jobs = (state.jobs[name] for name in changed_jobs)
    return [decision for job in jobs if job.n_attempts > 1 for decision in _accept_decisions(job)]


def _accept_decisions(job: JobState) -> Iterator[Decision]:
    winner = job.winning_execution
    if winner is None:
        return
    if not job.accepted_attempt_id and not job.result:
        yield Accept(job.id, winner.attempt_id, f"attempt {winner.number} succeeded first")
    for attempt in job.live_executions:
        if attempt.attempt_id != winner.attempt_id and not job.has_cancel_decision(attempt.attempt_id):
            yield Cancel(job.id, attempt.attempt_id, f"attempt {winner.number} succeeded first")


def _is_saturated(state: RunState) -> bool:
    """All machines are taken, and others wait for them: those that are late stay. A copy has to be watched even so."""
    if state.stats_stale_ok.timing.copied_jobs:
        return False
    return state.is_saturated or bool(state.stats.timing.waiting_jobs and not state.stats.timing.estimate_free_nodes())


# Who is late


def _split_comparable(state: RunState, forecast: Forecast) -> list[Forecast]:
    jobs = (*forecast.runtimes, *forecast.running)
    return forecast.split_comparable({job: state.jobs[job].point for job in jobs}) if state.has_matrix else [forecast]


def _find_stragglers(state: RunState, config: PolicyConfig, forecast: Forecast) -> Iterator[Straggler]:
    here = {under.site for under in forecast.running.values()}
    there = {site: stint for site in here if (stint := forecast.runtime_elsewhere(site))}
    least = {site: max(config.recovery.min_gain_s, _MIN_GAIN_SHARE * stint.total_s) for site, stint in there.items()}
    for job, left in forecast.remaining_s.items() if there else ():
        under = forecast.running[job]
        best = there[under.site]
        saved_most = under.fraction if under.is_in_steps else 1.0
        if left - best.overhead_s - (1.0 - saved_most) * best.steps_s >= least[under.site]:  # whatever it saved
            late = _check_straggler(state.jobs[job], config, forecast, best, least[under.site])
            if late:
                yield late


def _check_straggler(
    job: JobState, config: PolicyConfig, forecast: Forecast, elsewhere: TrainingRuntime, min_gain_s: float
) -> Straggler | None:
    under, left = forecast.running[job.id], forecast.remaining_s[job.id]
    attempt = next((one for one in job.live_executions if one.number == under.execution.number), under.execution)
    saved, moves = attempt.checkpoint or attempt.restored_checkpoint, config.can_move_job(job.id)
    sure = bool(saved) or under.has_estimate or not forecast.has_reached_steps(job.id)
    if not (_can_move(job, sure) if moves else _can_copy(job, config)):
        return None
    takes = (
        elsewhere.overhead_s + (1 - attempt.training.checkpoint_fraction(saved if moves else {})) * elsewhere.steps_s
    )
    cost = (
        compute_redone_s(attempt, forecast.now) + (elsewhere.overhead_s if saved else 0.0)
        if moves
        else min(left, takes)
    )
    before = frozenset(execution_site(one) for one in job.executions if one.attempt_id in job.moves)
    late = Straggler(job.id, attempt, left, takes, min_gain_s, cost, moves, before, forecast)
    return late if late.gain_s >= min_gain_s else None


def _has_one_wanted_execution(job: JobState) -> bool:
    return (
        len(job.live_executions) == 1
        and not job.open_requests
        and not job.has_cancel_decision(job.live_executions[0].attempt_id)
    )


def _can_move(job: JobState, is_certain: bool) -> bool:
    """`sure`: it loses little, or says itself that it is late; the age of a training alone is no reason to end it."""
    return is_certain and _has_one_wanted_execution(job) and len(job.moves) < _MAX_MOVES


def _can_copy(job: JobState, config: PolicyConfig) -> bool:
    """Once, if its attempts suffice for both, and what they may waste is not used up."""
    once = _has_one_wanted_execution(job) and not any(attempt.copy_of for attempt in job.recent_executions)
    enough = len(job.counted_failures) + 2 <= config.limits(job.id).max_attempts and not exhausted_budget(job, config)
    return once and config.can_copy_job(job.id) and enough


# What is done about it


def _respond(
    state: RunState, config: PolicyConfig, straggling: list[Straggler], budget_s: float
) -> Iterator[Submit | Move]:
    """The worst first."""
    waits = _expected_waits_s(state, len(straggling))
    for one in sorted(straggling, key=lambda one: (-one.gain_s, one.job)):
        if waits and one.gain_s >= waits[0] + one.min_gain_s and one.cost_s <= budget_s:
            budget_s -= one.cost_s
            waits.pop(0)
            yield _make_move(one) if one.can_move else _make_copy(state, config, one)


def _expected_waits_s(state: RunState, n_stragglers: int) -> list[float]:
    """For how long each has to wait for its machine; where none is free, but all that wanted one have one, as long as
    it usually took."""
    pace = state.stats.timing
    free = pace.estimate_free_nodes()
    if free or pace.waiting_jobs:
        return [0.0] * free
    return [pace.median_queue_s()] * n_stragglers


def _make_move(straggler: Straggler) -> Move:
    given = _avoid_current_location(Overrides(), straggler)
    return Move(straggler.job, straggler.execution.attempt_id, _reason(straggler), given.avoid_sites, given.avoid_nodes)


def _make_copy(state: RunState, config: PolicyConfig, straggler: Straggler) -> Submit:
    job = state.jobs[straggler.job]
    usual = make_overrides(job, config, find_avoided_locations(state, config, straggler.forecast.now))
    given = _avoid_current_location(usual, straggler)
    return Submit(job.id, f"{job.id}-{job.n_attempts + 1}", _reason(straggler), given, straggler.execution.attempt_id)


def _reason(straggler: Straggler) -> str:
    where = f"{straggler.execution.node or 'its machine'} at {execution_site(straggler.execution) or 'its site'}"
    return f"on {where} it needs about {format_duration(straggler.remaining_s)} more, elsewhere about {format_duration(straggler.elsewhere_s)}"


def _avoid_current_location(overrides: Overrides, straggler: Straggler) -> Overrides:
    """At another site if this one is slow, or was left before, and there is another; else on another machine."""
    site, machine = execution_site(straggler.execution), straggler.execution.node
    bad = straggler.forecast.is_slow_site(site) or site in straggler.previous_sites
    if site and bad and straggler.forecast.sites - {site, *overrides.avoid_sites}:
        return replace(overrides, avoid_sites=tuple(sorted({*overrides.avoid_sites, site})))
    return replace(overrides, avoid_nodes=tuple(sorted({*overrides.avoid_nodes, machine} - {""})))


# What it costs: the time that two attempts of a job are on machines at once, and what is done again after a move


def _total_slot_s(state: RunState, forecast: Forecast) -> float:
    """Of the whole run, as far as it can be foreseen."""
    pace = state.stats.timing
    usual = median(forecast.sorted_totals_s) if forecast.sorted_totals_s else 0.0
    under_way = sum(map(forecast.elapsed_s, forecast.running)) + sum(forecast.remaining_s.values())
    return pace.slot_s + under_way + usual * len(pace.waiting_jobs)


def _spent_s(state: RunState, forecast: Forecast) -> float:
    pace = state.stats.timing
    around = median(peer.overhead_s for peer in forecast.peers.values()) if forecast.peers else 0.0
    moved = sum(one.redone_s + around * one.n_resumes for one in pace.move_costs.values())
    return moved + sum(_overlap_s(state.jobs[name], forecast.now) for name in pace.copied_jobs)


def _overlap_s(job: JobState, now: float) -> float:
    copies = [attempt for attempt in job.recent_executions if attempt.copy_of and attempt.started_at]
    return sum(max(0.0, _overlap_end_at(job, copy, now) - copy.started_at) for copy in copies)


def _overlap_end_at(job: JobState, copy: Execution, now: float) -> float:
    """When either of the two was over."""
    first = [attempt for attempt in job.recent_executions if attempt.attempt_id == copy.copy_of]
    over = [] if any(attempt.is_live for attempt in first) else [max((a.ended_at for a in first), default=now)]
    return min([*over, copy.ended_at or now])


def _committed_cost_s(state: RunState, forecast: Forecast) -> float:
    """What copies that live are still going to cost."""
    jobs = [state.jobs[name] for name in state.stats.timing.copied_jobs]
    return sum(_remaining_overlap_s(job, copy, forecast) for job in jobs for copy in _live_copies(job))


def _live_copies(job: JobState) -> list[Execution]:
    """Those that live beside the attempt that is late."""
    return [attempt for attempt in job.live_executions if attempt.copy_of and len(job.live_executions) > 1]


def _remaining_overlap_s(job: JobState, copy: Execution, forecast: Forecast) -> float:
    usual = forecast.runtime_elsewhere("")
    elapsed = forecast.now - copy.started_at if copy.started_at else 0.0
    rest = max(0.0, usual.total_s - elapsed) if usual else 0.0
    return min(rest, forecast.remaining_s.get(job.id, rest))


def _cancel_copies(state: RunState, config: PolicyConfig) -> Iterator[Decision]:
    reason = f"second copies have taken the {config.recovery.straggler_budget:.0%} of the run's time that they may"
    for job in (state.jobs[name] for name in sorted(state.stats.timing.copied_jobs)):
        alive = (copy for copy in _live_copies(job) if not job.has_cancel_decision(copy.attempt_id))
        yield from (Cancel(job.id, copy.attempt_id, reason) for copy in alive)
