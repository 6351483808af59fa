"""What stays have in common while a pool lives: caches that fill, warm up and queue, and services that restart."""

from __future__ import annotations

from heapq import heappush, heapreplace
from random import Random

from packtrain.simulate.event_queue import Kernel
from packtrain.simulate.pool_model import Site, World


class Cache:
    """Serves so many transfers at once, first come, first served."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._free: list[float] = []  # when each stream that was ever in use is free again

    def wait(self, now: float) -> float:
        return max(0.0, self._free[0] - now) if self._streams and len(self._free) == self._streams else 0.0

    def serve(self, begin: float, seconds: float) -> None:
        if len(self._free) < self._streams:
            heappush(self._free, begin + seconds)
        elif self._streams:
            heapreplace(self._free, begin + seconds)


class Surroundings:
    def __init__(self, world: World, kernel: Kernel, seed: int) -> None:
        self.world, self._kernel = world, kernel
        self._chance = Random(seed)  # noqa: S311
        self._caches: dict[str, Cache] = {}
        for site in world.sites:
            self._caches.setdefault(site.cache or site.name, Cache(site.streams))
        self._warm_from: dict[str, float] = {}
        self._victims, self._until = 0, 0.0

    # Services that restart

    def struck(self, after: float) -> float:
        now, bursts = self._kernel.now + after, self.world.bursts
        if now >= self._until or self._victims <= 0:
            self._victims = 0
            if self._chance.random() >= bursts.chance:
                return 0.0
            self._victims = max(1, round(bursts.victims.draw(self._chance)))
            self._until = now + max(1.0, bursts.seconds.draw(self._chance))
        self._victims -= 1
        return self._until - now

    # Caches

    def _cache(self, site: Site) -> Cache:
        return self._caches[site.cache or site.name]

    def blocked(self, site: Site, after: float) -> float:
        return self._cache(site).wait(self._kernel.now + after)

    def detour(self, after: float) -> float:
        return min(cache.wait(self._kernel.now + after) for cache in self._caches.values())

    def serves(self, site: Site, after: float, seconds: float, detour: bool = False) -> None:
        begin = self._kernel.now + after
        cache = min(self._caches.values(), key=lambda one: one.wait(begin)) if detour else self._cache(site)
        cache.serve(begin, seconds)
        if not detour:
            name = site.cache or site.name
            self._warm_from[name] = min(self._warm_from.get(name, begin + seconds), begin + seconds)

    def is_warm(self, site: Site) -> bool:
        return self._warm_from.get(site.cache or site.name, float("inf")) <= self._kernel.now
