"""Services that sessions share: caches that warm up and queue transfers, and services that restart."""

from __future__ import annotations

from heapq import heappush, heapreplace
from random import Random

from packtrain.simulate.event_queue import EventQueue
from packtrain.simulate.pool_model import PoolModel, SiteModel


class SimulatedCache:
    """A cache that serves up to `max_streams` transfers at once, first come, first served."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._streams_free_at: list[float] = []  # when each used stream becomes free

    def wait_s(self, now: float) -> float:
        return (
            max(0.0, self._streams_free_at[0] - now)
            if self._max_streams and len(self._streams_free_at) == self._max_streams
            else 0.0
        )

    def record_transfer(self, start_at: float, duration_s: float) -> None:
        if len(self._streams_free_at) < self._max_streams:
            heappush(self._streams_free_at, start_at + duration_s)
        elif self._max_streams:
            heapreplace(self._streams_free_at, start_at + duration_s)


class SimulatedServices:
    """Implements `job_behaviour.SharedServices` for one simulated run."""

    def __init__(self, model: PoolModel, event_queue: EventQueue, seed: int) -> None:
        self.model, self._event_queue = model, event_queue
        self._rng = Random(seed)  # noqa: S311
        self._caches: dict[str, SimulatedCache] = {}
        for site in model.sites:
            self._caches.setdefault(site.cache_name or site.name, SimulatedCache(site.max_streams))
        self._warm_at: dict[str, float] = {}
        self._n_outage_transfers, self._outage_ends_at = 0, 0.0

    # Outages

    def outage_remaining_s(self, delay_s: float) -> float:
        now, outages = self._event_queue.now + delay_s, self.model.outages
        if now >= self._outage_ends_at or self._n_outage_transfers <= 0:
            self._n_outage_transfers = 0
            if self._rng.random() >= outages.start_probability:
                return 0.0
            self._n_outage_transfers = max(1, round(outages.n_transfers.sample(self._rng)))
            self._outage_ends_at = now + max(1.0, outages.duration_s.sample(self._rng))
        self._n_outage_transfers -= 1
        return self._outage_ends_at - now

    # Caches

    def _cache(self, site: SiteModel) -> SimulatedCache:
        return self._caches[site.cache_name or site.name]

    def cache_wait_s(self, site: SiteModel, delay_s: float) -> float:
        return self._cache(site).wait_s(self._event_queue.now + delay_s)

    def min_cache_wait_s(self, delay_s: float) -> float:
        return min(cache.wait_s(self._event_queue.now + delay_s) for cache in self._caches.values())

    def record_transfer(
        self, site: SiteModel, delay_s: float, duration_s: float, via_other_cache: bool = False
    ) -> None:
        start_at = self._event_queue.now + delay_s
        cache = (
            min(self._caches.values(), key=lambda one: one.wait_s(start_at)) if via_other_cache else self._cache(site)
        )
        cache.record_transfer(start_at, duration_s)
        if not via_other_cache:
            name = site.cache_name or site.name
            self._warm_at[name] = min(self._warm_at.get(name, start_at + duration_s), start_at + duration_s)

    def is_warm(self, site: SiteModel) -> bool:
        return self._warm_at.get(site.cache_name or site.name, float("inf")) <= self._event_queue.now
