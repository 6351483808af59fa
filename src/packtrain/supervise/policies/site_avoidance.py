"""Find the sites and nodes to avoid for a while, because executions failed there.

A node is avoided for `recovery.avoidFor`. A site is avoided until its failures have lost their weight, or until enough
executions succeed there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from packtrain.state import ExecutionOutcome, OutcomeIndex, RunState
from packtrain.state.outcomes import FailureSignature, LocationOutcomes, failure_signature
from packtrain.supervise.policies.config import PolicyConfig

_MIN_COMMON_SITES = 2  # no site is to blame for a failure that occurs at this many sites
_MIN_FAULT_WEIGHT = 1.5  # a new failure weighs 1
_MAX_AGE_HALF_LIVES = 20.0  # after that a failure weighs a millionth
_MAX_AVOIDED_NODES, _MAX_AVOIDED_SITES = 20, 10


def find_avoided_locations(
    state: RunState, config: PolicyConfig, now: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sites and the nodes to avoid.

    Nothing is returned if there is no alternative: a run that avoids every site never ends.
    """
    if not config.can_move:
        return (), ()
    index, half_life_s = state.stats_stale_ok, config.recovery.avoid_for_s
    common_faults = find_common_faults(state, now)
    faulty_sites = _faulty_locations(index, index.sites, common_faults)
    faulty_nodes = _faulty_locations(index, index.nodes, common_faults)
    ranked_sites = _rank_by_faults(faulty_sites, now, half_life_s)
    bad_sites = [name for name in ranked_sites if _is_bad(faulty_sites[name], now, half_life_s)]
    sites = _unless_all_bad(bad_sites[:_MAX_AVOIDED_SITES], index.sites)
    bad_nodes = _nodes_outside(list(_rank_by_faults(faulty_nodes, now, half_life_s)), sites, index)
    nodes = _unless_all_bad(bad_nodes[:_MAX_AVOIDED_NODES], index.nodes)
    return tuple(sorted(sites)), tuple(sorted(nodes))


def find_common_faults(state: RunState, now: float) -> set[FailureSignature]:
    """Return apparent site faults that occurred at several sites before any execution succeeded.

    Most likely the image is broken or a server is down. A failure is left out if an execution at another site has
    already run for longer than the failed ones.
    """
    index = state.stats_stale_ok
    if index.n_successes:
        return set()
    return {signature for signature, outcomes in index.site_faults.items() if _is_common_fault(state, outcomes, now)}


def _is_common_fault(state: RunState, outcomes: Collection[ExecutionOutcome], now: float) -> bool:
    sites = {outcome.site for outcome in outcomes if outcome.site}
    if len(sites) < _MIN_COMMON_SITES:
        return False
    longest_s = max(_execution_duration_s(state, outcome) for outcome in outcomes)
    running = (r for r in state.stats.timing.running_jobs.values() if r and r.site not in sites)
    return not any(now - r.execution.started_at > longest_s for r in running)


def _execution_duration_s(state: RunState, outcome: ExecutionOutcome) -> float:
    executions = state.jobs[outcome.job].executions if outcome.job in state.jobs else ()
    return next((e.agent_duration_s for e in executions if e.number == outcome.number), 0.0)


def _faulty_locations(
    index: OutcomeIndex, locations: Mapping[str, LocationOutcomes], common_faults: set[FailureSignature]
) -> dict[str, LocationOutcomes]:
    """Return the locations that have faults, usually a few of thousands."""
    faulty = {name: locations[name] for name in index.faulty_locations & locations.keys()}
    if not common_faults:
        return faulty
    return {name: _exclude_faults(location, common_faults) for name, location in faulty.items()}


def _exclude_faults(location: LocationOutcomes, common_faults: set[FailureSignature]) -> LocationOutcomes:
    own_faults = [
        fault for fault in location.faults if fault.failure and failure_signature(fault.failure) not in common_faults
    ]
    return LocationOutcomes(location.success_times, own_faults)


def fault_weight(faults: Collection[ExecutionOutcome], now: float, half_life_s: float) -> float:
    """Return the total weight of faults. A fault weighs 1 at first and half after each half-life."""
    return float(sum(0.5 ** (max(0.0, now - fault.ended_at) / half_life_s) for fault in faults))


def _recent_faults(location: LocationOutcomes, now: float, half_life_s: float) -> list[ExecutionOutcome]:
    """Return the faults that still have a weight. A location may have thousands."""
    return location.faults_since(now - _MAX_AGE_HALF_LIVES * half_life_s)


def _rank_by_faults(locations: Mapping[str, LocationOutcomes], now: float, half_life_s: float) -> Iterator[str]:
    """Yield the locations with a fault that is younger than the half-life, the heaviest first."""
    recent = {name: location for name, location in locations.items() if now < location.last_fault_at + half_life_s}
    weights = {
        name: fault_weight(_recent_faults(location, now, half_life_s), now, half_life_s)
        for name, location in recent.items()
    }
    yield from sorted(weights, key=lambda name: (-weights[name], name))


def _is_bad(location: LocationOutcomes, now: float, half_life_s: float) -> bool:
    """Return whether faults of several jobs or nodes outweigh the successes in the same time."""
    faults = _recent_faults(location, now, half_life_s)
    weight = fault_weight(faults, now, half_life_s)
    n_sources = len({fault.node or fault.job for fault in faults})
    n_successes = location.count_successes_since(now - 2 * half_life_s)
    return n_sources > 1 and weight >= _MIN_FAULT_WEIGHT and weight > n_successes


def _nodes_outside(nodes: list[str], sites: Collection[str], index: OutcomeIndex) -> list[str]:
    """Return the nodes whose site is not avoided as a whole."""
    return [name for name in nodes if not all(fault.site in sites for fault in index.nodes[name].faults)]


def _unless_all_bad(bad: list[str], all_locations: Mapping[str, LocationOutcomes]) -> list[str]:
    return bad if any(name not in bad for name in all_locations) else []
