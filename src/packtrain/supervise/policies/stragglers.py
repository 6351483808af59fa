"""Attempts that are late, and would end sooner elsewhere. Where a job's agents write to a place of the user's, which
other attempts reach, it moves: it saves, leaves, and goes on elsewhere. Where what attempts make comes home apart, a
second copy is started beside it; the first that succeeds is accepted (`settle`), the other is ended. What this may cost
is bounded by `recovery.copies`.

Looks at all that run, not only at what changed: the supervisor asks seldom (`pause_of`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from packtrain.engines.api import Amendment
from packtrain.state import Attempt, JobState, RunState
from packtrain.state.timing import Stint, redone, site_of
from packtrain.supervise.decisions import Accept, Cancel, Changed, Decision, Move, Policy, Submit
from packtrain.supervise.policies.config import Rules
from packtrain.supervise.policies.forecast import Forecast, words
from packtrain.supervise.policies.job_result import used_up
from packtrain.supervise.policies.overrides import amendment
from packtrain.supervise.policies.site_avoidance import avoided
from packtrain.supervise.policies.stop_run import why_halted

_MARGIN = 0.25  # of what a training takes: so much sooner it has to end elsewhere
_MOST_MOVES = 2  # of one job: a wrong forecast must not make it wander
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


def pause_of(rules: Rules) -> float:
    """Between two looks."""
    return min(_LONGEST_PAUSE_S, max(_LEAST_PAUSE_S, rules.recovery.least_gain_s / 10))


@dataclass(frozen=True)
class Late:
    """An attempt that would end sooner elsewhere."""

    job: str
    attempt: Attempt
    left: float
    takes: float  # elsewhere, once it has a machine there
    least: float  # so much sooner it has to end there
    cost: float  # what is done twice
    moves: bool
    left_sites: frozenset[str]  # that it was moved away from before
    forecast: Forecast

    @property
    def gain(self) -> float:
        return self.left - self.takes


def stragglers(rules: Rules) -> Policy:
    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        if not rules.minds_stragglers or _is_crowded(state) or not state.record.pace.running:
            return []
        forecast = Forecast.of(state, now)
        late = [one for some in _comparable(state, forecast) for one in _all_late(state, rules, some)]
        if not late and not state.record.pace.copied:
            return []
        budget = rules.recovery.copies * _slot_time(state, forecast) - _spent(state, forecast)
        if budget < 0:
            return list(_too_dear(state, rules))
        if not late or why_halted(state, rules)[1]:  # a run that is to end starts nothing
            return []
        return list(_answers(state, rules, late, budget - _promised(state, forecast)))

    return policy


def settle(state: RunState, changed: Changed, now: float) -> list[Decision]:
    """Of a job with several attempts, one that succeeded is chosen for ever, and the others are ended."""
    jobs = (state.jobs[name] for name in changed)
    return [decision for job in jobs if job.submissions > 1 for decision in _settled(job)]


def _settled(job: JobState) -> Iterator[Decision]:
    winner = job.winner
    if winner is None:
        return
    if not job.accepted and not job.verdict:
        yield Accept(job.id, winner.decision, f"attempt {winner.number} succeeded first")
    for attempt in job.live:
        if attempt.decision != winner.decision and not job.cancel_decided(attempt.decision):
            yield Cancel(job.id, attempt.decision, f"attempt {winner.number} succeeded first")


def _is_crowded(state: RunState) -> bool:
    """All machines are taken, and others wait for them: those that are late stay. A copy has to be watched even so."""
    if state.outcomes.pace.copied:
        return False
    return state.is_crowded or bool(state.record.pace.waiting and not state.record.pace.free())


# Who is late


def _comparable(state: RunState, forecast: Forecast) -> list[Forecast]:
    jobs = (*forecast.whole, *forecast.running)
    return forecast.comparable({job: state.jobs[job].point for job in jobs}) if state.has_points else [forecast]


def _all_late(state: RunState, rules: Rules, forecast: Forecast) -> Iterator[Late]:
    here = {under.site for under in forecast.running.values()}
    there = {site: stint for site in here if (stint := forecast.elsewhere(site))}
    least = {site: max(rules.recovery.least_gain_s, _MARGIN * stint.seconds) for site, stint in there.items()}
    for job, left in forecast.left.items() if there else ():
        under = forecast.running[job]
        best = there[under.site]
        saved_most = under.share if under.in_steps else 1.0
        if left - best.around - (1.0 - saved_most) * best.steps >= least[under.site]:  # whatever it saved
            late = _late(state.jobs[job], rules, forecast, best, least[under.site])
            if late:
                yield late


def _late(job: JobState, rules: Rules, forecast: Forecast, there: Stint, least: float) -> Late | None:
    under, left = forecast.running[job.id], forecast.left[job.id]
    attempt = next((one for one in job.live if one.number == under.attempt.number), under.attempt)
    saved, moves = attempt.checkpoint or attempt.restored, rules.may_move(job.id)
    sure = bool(saved) or under.tells or not forecast.has_begun(job.id)
    if not (_may_move(job, sure) if moves else _may_be_copied(job, rules)):
        return None
    takes = there.around + (1 - attempt.training.share_of(saved if moves else {})) * there.steps
    cost = redone(attempt, forecast.now) + (there.around if saved else 0.0) if moves else min(left, takes)
    before = frozenset(site_of(one) for one in job.attempts if one.decision in job.moves)
    late = Late(job.id, attempt, left, takes, least, cost, moves, before, forecast)
    return late if late.gain >= least else None


def _is_wanted(job: JobState) -> bool:
    return len(job.live) == 1 and not job.open_requests and not job.cancel_decided(job.live[0].decision)


def _may_move(job: JobState, sure: bool) -> bool:
    """`sure`: it loses little, or says itself that it is late; the age of a training alone is no reason to end it."""
    return sure and _is_wanted(job) and len(job.moves) < _MOST_MOVES


def _may_be_copied(job: JobState, rules: Rules) -> bool:
    """Once, if its attempts suffice for both, and what they may waste is not used up."""
    once = _is_wanted(job) and not any(attempt.copy_of for attempt in job.recent)
    enough = len(job.spent) + 2 <= rules.limits(job.id).attempts and not used_up(job, rules)
    return once and rules.may_copy(job.id) and enough


# What is done about it


def _answers(state: RunState, rules: Rules, late: list[Late], budget: float) -> Iterator[Submit | Move]:
    """The worst first."""
    waits = _waits(state, len(late))
    for one in sorted(late, key=lambda one: (-one.gain, one.job)):
        if waits and one.gain >= waits[0] + one.least and one.cost <= budget:
            budget -= one.cost
            waits.pop(0)
            yield _moved(one) if one.moves else _copied(state, rules, one)


def _waits(state: RunState, many: int) -> list[float]:
    """For how long each has to wait for its machine; where none is free, but all that wanted one have one, as long as
    it usually took."""
    pace = state.record.pace
    free = pace.free()
    if free or pace.waiting:
        return [0.0] * free
    return [pace.usual_wait()] * many


def _moved(one: Late) -> Move:
    given = _elsewhere(Amendment(), one)
    return Move(one.job, one.attempt.decision, _reason(one), given.avoid_sites, given.avoid_machines)


def _copied(state: RunState, rules: Rules, one: Late) -> Submit:
    job = state.jobs[one.job]
    usual = amendment(job, rules, avoided(state, rules, one.forecast.now))
    given = _elsewhere(usual, one)
    return Submit(job.id, f"{job.id}-{job.submissions + 1}", _reason(one), given, one.attempt.decision)


def _reason(one: Late) -> str:
    where = f"{one.attempt.machine or 'its machine'} at {site_of(one.attempt) or 'its site'}"
    return f"on {where} it needs about {words(one.left)} more, elsewhere about {words(one.takes)}"


def _elsewhere(given: Amendment, one: Late) -> Amendment:
    """At another site if this one is slow, or was left before, and there is another; else on another machine."""
    site, machine = site_of(one.attempt), one.attempt.machine
    bad = one.forecast.is_slow(site) or site in one.left_sites
    if site and bad and one.forecast.sites - {site, *given.avoid_sites}:
        return replace(given, avoid_sites=tuple(sorted({*given.avoid_sites, site})))
    return replace(given, avoid_machines=tuple(sorted({*given.avoid_machines, machine} - {""})))


# What it costs: the time that two attempts of a job are on machines at once, and what is done again after a move


def _slot_time(state: RunState, forecast: Forecast) -> float:
    """Of the whole run, as far as it can be foreseen."""
    pace = state.record.pace
    usual = median(forecast.totals) if forecast.totals else 0.0
    under_way = sum(map(forecast.elapsed, forecast.running)) + sum(forecast.left.values())
    return pace.slot_s + under_way + usual * len(pace.waiting)


def _spent(state: RunState, forecast: Forecast) -> float:
    pace = state.record.pace
    around = median(peer.around for peer in forecast.peers.values()) if forecast.peers else 0.0
    moved = sum(one.redone + around * one.times for one in pace.moved.values())
    return moved + sum(_beside(state.jobs[name], forecast.now) for name in pace.copied)


def _beside(job: JobState, now: float) -> float:
    copies = [attempt for attempt in job.recent if attempt.copy_of and attempt.began_at]
    return sum(max(0.0, _end(job, copy, now) - copy.began_at) for copy in copies)


def _end(job: JobState, copy: Attempt, now: float) -> float:
    """When either of the two was over."""
    first = [attempt for attempt in job.recent if attempt.decision == copy.copy_of]
    over = [] if any(attempt.live for attempt in first) else [max((a.over_at for a in first), default=now)]
    return min([*over, copy.over_at or now])


def _promised(state: RunState, forecast: Forecast) -> float:
    """What copies that live are still going to cost."""
    jobs = [state.jobs[name] for name in state.record.pace.copied]
    return sum(_until_first(job, copy, forecast) for job in jobs for copy in _copies(job))


def _copies(job: JobState) -> list[Attempt]:
    """Those that live beside the attempt that is late."""
    return [attempt for attempt in job.live if attempt.copy_of and len(job.live) > 1]


def _until_first(job: JobState, copy: Attempt, forecast: Forecast) -> float:
    usual = forecast.elsewhere("")
    elapsed = forecast.now - copy.began_at if copy.began_at else 0.0
    rest = max(0.0, usual.seconds - elapsed) if usual else 0.0
    return min(rest, forecast.left.get(job.id, rest))


def _too_dear(state: RunState, rules: Rules) -> Iterator[Decision]:
    reason = f"second copies have taken the {rules.recovery.copies:.0%} of the run's time that they may"
    for job in (state.jobs[name] for name in sorted(state.record.pace.copied)):
        alive = (copy for copy in _copies(job) if not job.cancel_decided(copy.decision))
        yield from (Cancel(job.id, copy.decision, reason) for copy in alive)
