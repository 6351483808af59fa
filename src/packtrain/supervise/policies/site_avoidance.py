"""Which machines and sites are avoided for a while, from what failed there. What is avoided comes back by itself: a
machine after `recovery.avoidFor`, a site when its failures have lost their weight or attempts end well there again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from packtrain.state import ExecutionOutcome, OutcomeIndex, RunState
from packtrain.state.outcomes import FailureSignature, LocationOutcomes, failure_signature
from packtrain.supervise.policies.config import PolicyConfig

_MIN_COMMON_SITES = 2  # sites: what fails at them alike is not theirs
_MIN_FAULT_WEIGHT = 1.5  # two fresh failures
_MAX_AGE_HALF_LIVES = 20.0  # spans: after them a failure counts a millionth
_MAX_AVOIDED_NODES, _MAX_AVOIDED_SITES = 20, 10


def find_avoided_locations(
    state: RunState, config: PolicyConfig, now: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sites and machines. Only what there is an alternative to: a run that avoids every place never ends."""
    if not config.can_move:
        return (), ()
    record, span, common = state.stats_stale_ok, config.recovery.avoid_for_s, find_common_faults(state, now)
    spoiled_sites = _faulty_locations(record, record.sites, common)
    bad_sites = [name for name in _rank_by_faults(spoiled_sites, now, span) if _is_bad(spoiled_sites[name], now, span)]
    bad_machines = list(_rank_by_faults(_faulty_locations(record, record.nodes, common), now, span))
    sites = _unless_all_bad(bad_sites[:_MAX_AVOIDED_SITES], record.sites)
    machines = _unless_all_bad(_nodes_outside(bad_machines, sites, record)[:_MAX_AVOIDED_NODES], record.nodes)
    return tuple(sorted(sites)), tuple(sorted(machines))


def find_common_faults(state: RunState, now: float) -> set[FailureSignature]:
    """Failures that look like those of a place, but came from several sites before anything ended well: an image is
    broken, or a server gone. Unless an attempt at another site has outlived them."""
    record = state.stats_stale_ok
    if record.n_successes:
        return set()
    return {like for like, found in record.site_faults.items() if _is_common_fault(state, found, now)}


def _is_common_fault(state: RunState, outcomes: Collection[ExecutionOutcome], now: float) -> bool:
    sites = {one.site for one in outcomes if one.site}
    if len(sites) < _MIN_COMMON_SITES:
        return False
    took = max(_execution_duration_s(state, one) for one in outcomes)
    others = (under for under in state.stats.timing.running_jobs.values() if under and under.site not in sites)
    return not any(now - under.execution.started_at > took for under in others)


def _execution_duration_s(state: RunState, outcome: ExecutionOutcome) -> float:
    attempts = state.jobs[outcome.job].executions if outcome.job in state.jobs else ()
    return next((attempt.agent_duration_s for attempt in attempts if attempt.number == outcome.number), 0.0)


def _faulty_locations(
    index: OutcomeIndex, locations: Mapping[str, LocationOutcomes], common_faults: set[FailureSignature]
) -> dict[str, LocationOutcomes]:
    """A few of thousands."""
    spoiled = {name: locations[name] for name in index.faulty_locations & locations.keys()}
    return (
        {name: _exclude_faults(place, common_faults) for name, place in spoiled.items()} if common_faults else spoiled
    )


def _exclude_faults(location: LocationOutcomes, common_faults: set[FailureSignature]) -> LocationOutcomes:
    own = [
        fault for fault in location.faults if fault.failure and failure_signature(fault.failure) not in common_faults
    ]
    return LocationOutcomes(location.success_times, own)


def fault_weight(faults: Collection[ExecutionOutcome], now: float, half_life_s: float) -> float:
    """How many failures, where one counts half after each span."""
    return float(sum(0.5 ** (max(0.0, now - fault.ended_at) / half_life_s) for fault in faults))


def _recent_faults(location: LocationOutcomes, now: float, half_life_s: float) -> list[ExecutionOutcome]:
    """The failures that still count; of a place there may be thousands."""
    return location.faults_since(now - _MAX_AGE_HALF_LIVES * half_life_s)


def _rank_by_faults(locations: Mapping[str, LocationOutcomes], now: float, half_life_s: float) -> Iterator[str]:
    """Those with a failure that is not older than the span, the heaviest first."""
    fresh = {name: place for name, place in locations.items() if now < place.last_fault_at + half_life_s}
    yield from sorted(
        fresh, key=lambda name: (-fault_weight(_recent_faults(fresh[name], now, half_life_s), now, half_life_s), name)
    )


def _is_bad(location: LocationOutcomes, now: float, half_life_s: float) -> bool:
    """Several failures, of several jobs or machines, that outweigh what ended well there meanwhile."""
    faults = _recent_faults(location, now, half_life_s)
    heavy, several = fault_weight(faults, now, half_life_s), len({fault.node or fault.job for fault in faults}) > 1
    return several and heavy >= _MIN_FAULT_WEIGHT and heavy > location.count_successes_since(now - 2 * half_life_s)


def _nodes_outside(nodes: list[str], sites: Collection[str], index: OutcomeIndex) -> list[str]:
    """A machine of a site that is avoided need not be named."""
    return [name for name in nodes if not all(fault.site in sites for fault in index.nodes[name].faults)]


def _unless_all_bad(bad: list[str], all_locations: Mapping[str, LocationOutcomes]) -> list[str]:
    return bad if any(name not in bad for name in all_locations) else []
