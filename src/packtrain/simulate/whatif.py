"""Another world than the one that was seen: more jobs or slots, another mix of sites, a site or a cache less. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from packtrain.errors import UsageError
from packtrain.simulate.pool_model import PoolModel, SiteModel

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(x?)")
MAX_AMOUNT = 10_000_000


def parse_amount(text: str, base_amount: int, noun: str) -> int:
    """`500`, or `10x` of what is usual."""
    found = _AMOUNT.fullmatch(text.strip())
    number = round(float(found[1]) * (base_amount if found[2] else 1)) if found else 0
    if not 1 <= number <= MAX_AMOUNT:
        raise UsageError(
            f"{text!r} is no number of {noun}; write one such as 500, or 10x for ten times as many as seen"
        )
    return number


def with_slots(model: PoolModel, n_slots: int) -> PoolModel:
    """As many as that, in the mix of sites that was seen; caches grow with their sites."""
    factor = n_slots / model.n_slots
    sizes = ((site, max(1, round(site.n_slots * factor)), round(site.max_streams * factor)) for site in model.sites)
    sites = tuple(replace(site, n_slots=size, max_streams=max(1, served)) for site, size, served in sizes)
    return replace(model, sites=sites, max_running=max(model.max_running, n_slots))


def with_site_mix(model: PoolModel, mix: Sequence[str]) -> PoolModel:
    """`SITE=SHARE …`: the slots, divided anew; a site that is not named keeps nothing."""
    shares: dict[str, float] = {}
    for one in mix:
        name, _, share = one.rpartition("=")
        _find_site(model, name)
        shares[name] = _parse_share(one, share)
    total = sum(shares.values())
    if not total:
        raise UsageError("a mix of sites needs a share above zero")
    sites = [(site, round(model.n_slots * shares.get(site.name, 0.0) / total)) for site in model.sites]
    return replace(model, sites=tuple(replace(site, n_slots=slots) for site, slots in sites if slots))


def _parse_share(entry: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1e9:
        raise UsageError(f"{entry!r} is no share of a site; write SITE=SHARE, e.g. PDX=0.5")
    return share


def without_site(model: PoolModel, name: str) -> PoolModel:
    _find_site(model, name)
    left = tuple(site for site in model.sites if site.name != name)
    if not left:
        raise UsageError(f"without {name} no site is left")
    return replace(model, sites=left)


def without_cache(model: PoolModel, name: str) -> PoolModel:
    """Its site's data come from the cache of the site with the most streams: farther away, and shared."""
    site = _find_site(model, name)
    others = [one for one in model.sites if one.name != name]
    if not others:
        raise UsageError(f"without the cache of {name} there is none left")
    other = max(others, key=lambda one: (one.max_streams, one.name))
    far = max(site.cold_transfer_s, other.cold_transfer_s, key=lambda fitted: fitted.mean)
    moved = replace(
        site,
        cache_name=other.cache_name or other.name,
        max_streams=other.max_streams,
        cold_transfer_s=far,
        warm_transfer_s=far,
    )
    return replace(model, sites=tuple(moved if one is site else one for one in model.sites))


def _find_site(model: PoolModel, name: str) -> SiteModel:
    site = next((site for site in model.sites if site.name == name), None)
    if site is None:
        raise UsageError(f"there is no site {name!r}; there are {', '.join(site.name for site in model.sites)}")
    return site
