"""Change a pool model: more jobs or slots, another mix of sites, without a site or a cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from packtrain.errors import UsageError
from packtrain.simulate.pool_model import PoolModel, SiteModel

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(x?)")
MAX_AMOUNT = 10_000_000


def parse_amount(text: str, base_amount: int, noun: str) -> int:
    """Parse `500`, or `10x` as a multiple of `base_amount`. Raises UsageError."""
    match = _AMOUNT.fullmatch(text.strip())
    number = round(float(match[1]) * (base_amount if match[2] else 1)) if match else 0
    if not 1 <= number <= MAX_AMOUNT:
        raise UsageError(
            f"{text!r} is not a number of {noun}; write a number such as 500, or 10x for ten times the observed number"
        )
    return number


def with_slots(model: PoolModel, n_slots: int) -> PoolModel:
    """Return the model with `n_slots` slots in the same mix of sites; caches grow with their sites."""
    factor = n_slots / model.n_slots
    sizes = ((site, max(1, round(site.n_slots * factor)), round(site.max_streams * factor)) for site in model.sites)
    sites = tuple(replace(site, n_slots=slots, max_streams=max(1, streams)) for site, slots, streams in sizes)
    return replace(model, sites=sites, max_running=max(model.max_running, n_slots))


def with_site_mix(model: PoolModel, mix: Sequence[str]) -> PoolModel:
    """Return the model with its slots redistributed by `SITE=SHARE` entries; other sites get none."""
    shares: dict[str, float] = {}
    for entry in mix:
        name, _, share = entry.rpartition("=")
        _find_site(model, name)
        shares[name] = _parse_share(entry, share)
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
        raise UsageError(f"{entry!r} is not a share of a site; write SITE=SHARE, e.g. PDX=0.5")
    return share


def without_site(model: PoolModel, name: str) -> PoolModel:
    """Return the model without one site. Raises UsageError if no site remains."""
    _find_site(model, name)
    remaining = tuple(site for site in model.sites if site.name != name)
    if not remaining:
        raise UsageError(f"without {name} no site remains")
    return replace(model, sites=remaining)


def without_cache(model: PoolModel, name: str) -> PoolModel:
    """Return the model with the site served by the largest other cache: farther away, and shared."""
    site = _find_site(model, name)
    others = [one for one in model.sites if one.name != name]
    if not others:
        raise UsageError(f"without the cache of {name} no cache remains")
    other = max(others, key=lambda one: (one.max_streams, one.name))
    far = max(site.cold_transfer_s, other.cold_transfer_s, key=lambda distribution: distribution.mean)
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
