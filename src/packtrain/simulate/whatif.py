"""Another world than the one that was seen: more jobs or slots, another mix of sites, a site or a cache less. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from packtrain.errors import UsageError
from packtrain.simulate.pool_model import Site, World

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(x?)")
MOST = 10_000_000


def amount(text: str, usual: int, what: str) -> int:
    """`500`, or `10x` of what is usual."""
    found = _AMOUNT.fullmatch(text.strip())
    number = round(float(found[1]) * (usual if found[2] else 1)) if found else 0
    if not 1 <= number <= MOST:
        raise UsageError(
            f"{text!r} is no number of {what}; write one such as 500, or 10x for ten times as many as seen"
        )
    return number


def with_slots(world: World, slots: int) -> World:
    """As many as that, in the mix of sites that was seen; caches grow with their sites."""
    factor = slots / world.slots
    sizes = ((site, max(1, round(site.slots * factor)), round(site.streams * factor)) for site in world.sites)
    sites = tuple(replace(site, slots=size, streams=max(1, served)) for site, size, served in sizes)
    return replace(world, sites=sites, most_running=max(world.most_running, slots))


def with_mix(world: World, mix: Sequence[str]) -> World:
    """`SITE=SHARE …`: the slots, divided anew; a site that is not named keeps nothing."""
    shares: dict[str, float] = {}
    for one in mix:
        name, _, share = one.rpartition("=")
        _known(world, name)
        shares[name] = _share(one, share)
    total = sum(shares.values())
    if not total:
        raise UsageError("a mix of sites needs a share above zero")
    sites = [(site, round(world.slots * shares.get(site.name, 0.0) / total)) for site in world.sites]
    return replace(world, sites=tuple(replace(site, slots=slots) for site, slots in sites if slots))


def _share(told: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1e9:
        raise UsageError(f"{told!r} is no share of a site; write SITE=SHARE, e.g. PDX=0.5")
    return share


def without_site(world: World, name: str) -> World:
    _known(world, name)
    left = tuple(site for site in world.sites if site.name != name)
    if not left:
        raise UsageError(f"without {name} no site is left")
    return replace(world, sites=left)


def without_cache(world: World, name: str) -> World:
    """Its site's data come from the cache of the site with the most streams: farther away, and shared."""
    site = _known(world, name)
    others = [one for one in world.sites if one.name != name]
    if not others:
        raise UsageError(f"without the cache of {name} there is none left")
    other = max(others, key=lambda one: (one.streams, one.name))
    far = max(site.cold, other.cold, key=lambda fitted: fitted.mean)
    moved = replace(site, cache=other.cache or other.name, streams=other.streams, cold=far, warm=far)
    return replace(world, sites=tuple(moved if one is site else one for one in world.sites))


def _known(world: World, name: str) -> Site:
    site = next((site for site in world.sites if site.name == name), None)
    if site is None:
        raise UsageError(f"there is no site {name!r}; there are {', '.join(site.name for site in world.sites)}")
    return site
