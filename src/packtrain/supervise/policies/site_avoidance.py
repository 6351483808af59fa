"""Which machines and sites are avoided for a while, from what failed there. What is avoided comes back by itself: a
machine after `recovery.avoid`, a site when its failures have lost their weight or attempts end well there again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from packtrain.state import Finding, Record, RunState
from packtrain.state.outcomes import Place, Signature, signature
from packtrain.supervise.policies.config import Rules

_SEVERAL = 2  # sites: what fails at them alike is not theirs
_ENOUGH = 1.5  # two fresh failures
_FORGOTTEN = 20.0  # spans: after them a failure counts a millionth
_MOST_MACHINES, _MOST_SITES = 20, 10


def avoided(state: RunState, rules: Rules, now: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sites and machines. Only what there is an alternative to: a run that avoids every place never ends."""
    if not rules.can_move:
        return (), ()
    record, span, common = state.outcomes, rules.recovery.avoid_s, everywhere(state, now)
    spoiled_sites = _spoiled(record, record.sites, common)
    bad_sites = [name for name in _worst(spoiled_sites, now, span) if _is_bad(spoiled_sites[name], now, span)]
    bad_machines = list(_worst(_spoiled(record, record.machines, common), now, span))
    sites = _with_alternative(bad_sites[:_MOST_SITES], record.sites)
    machines = _with_alternative(_outside(bad_machines, sites, record)[:_MOST_MACHINES], record.machines)
    return tuple(sorted(sites)), tuple(sorted(machines))


def everywhere(state: RunState, now: float) -> set[Signature]:
    """Failures that look like those of a place, but came from several sites before anything ended well: an image is
    broken, or a server gone. Unless an attempt at another site has outlived them."""
    record = state.outcomes
    if record.successes:
        return set()
    return {like for like, found in record.faults.items() if _is_everywhere(state, found, now)}


def _is_everywhere(state: RunState, found: Collection[Finding], now: float) -> bool:
    sites = {one.site for one in found if one.site}
    if len(sites) < _SEVERAL:
        return False
    took = max(_seconds(state, one) for one in found)
    others = (under for under in state.record.pace.running.values() if under and under.site not in sites)
    return not any(now - under.attempt.began_at > took for under in others)


def _seconds(state: RunState, finding: Finding) -> float:
    attempts = state.jobs[finding.job].attempts if finding.job in state.jobs else ()
    return next((attempt.seconds for attempt in attempts if attempt.number == finding.number), 0.0)


def _spoiled(record: Record, places: Mapping[str, Place], common: set[Signature]) -> dict[str, Place]:
    """A few of thousands."""
    spoiled = {name: places[name] for name in record.spoiled & places.keys()}
    return {name: _without(place, common) for name, place in spoiled.items()} if common else spoiled


def _without(place: Place, common: set[Signature]) -> Place:
    own = [fault for fault in place.faults if fault.failure and signature(fault.failure) not in common]
    return Place(place.good, own)


def weight(faults: Collection[Finding], now: float, span: float) -> float:
    """How many failures, where one counts half after each span."""
    return float(sum(0.5 ** (max(0.0, now - fault.at) / span) for fault in faults))


def _lately(place: Place, now: float, span: float) -> list[Finding]:
    """The failures that still count; of a place there may be thousands."""
    return place.faults_since(now - _FORGOTTEN * span)


def _worst(places: Mapping[str, Place], now: float, span: float) -> Iterator[str]:
    """Those with a failure that is not older than the span, the heaviest first."""
    fresh = {name: place for name, place in places.items() if now < place.newest + span}
    yield from sorted(fresh, key=lambda name: (-weight(_lately(fresh[name], now, span), now, span), name))


def _is_bad(place: Place, now: float, span: float) -> bool:
    """Several failures, of several jobs or machines, that outweigh what ended well there meanwhile."""
    faults = _lately(place, now, span)
    heavy, several = weight(faults, now, span), len({fault.machine or fault.job for fault in faults}) > 1
    return several and heavy >= _ENOUGH and heavy > place.good_since(now - 2 * span)


def _outside(machines: list[str], sites: Collection[str], record: Record) -> list[str]:
    """A machine of a site that is avoided need not be named."""
    return [name for name in machines if not all(fault.site in sites for fault in record.machines[name].faults)]


def _with_alternative(bad: list[str], known: Mapping[str, Place]) -> list[str]:
    return bad if any(name not in bad for name in known) else []
