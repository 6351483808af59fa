"""When attempts will end, from how far they say they are and from how long others take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from statistics import median

from packtrain.state import RunState
from packtrain.state.execution import STAGES
from packtrain.state.timing import Stint, UnderWay

_BEFORE_STEPS = STAGES[: STAGES.index("steps")]
_ENOUGH = 3  # attempts that tell how long one takes
_ALIKE = 1.5  # times: the middle half of durations differs by no more
_CAREFUL = 0.75  # so many of those elsewhere are quicker than what is expected there


@dataclass(frozen=True)
class Forecast:
    """`whole`: how long trainings took; `running`: an attempt of each job that runs. Both by job."""

    whole: Mapping[str, Stint]
    running: Mapping[str, UnderWay]
    now: float
    _elsewhere: dict[str, Stint | None] = field(default_factory=dict)
    _slow: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, state: RunState, now: float) -> Forecast:
        pace = state.record.pace
        return cls(pace.whole, {job: under for job, under in pace.running.items() if under}, now)

    def comparable(self, points: Mapping[str, Mapping[str, str]]) -> list[Forecast]:
        """Of jobs that can be compared: all, if they take about the same; else those of the same point of the matrix,
        since another one may well be more to do."""
        if not any(points.values()):
            return [self]
        jobs = {*self.whole, *self.running}
        keys = {job: tuple(sorted(points.get(job, {}).items())) for job in jobs}
        if len(set(keys.values())) < 2 or self._are_alike:
            return [self]
        return [self._among({job for job in jobs if keys[job] == key}) for key in sorted(set(keys.values()))]

    def _among(self, jobs: set[str]) -> Forecast:
        whole = {job: stint for job, stint in self.whole.items() if job in jobs}
        return Forecast(whole, {job: under for job, under in self.running.items() if job in jobs}, self.now)

    @property
    def _are_alike(self) -> bool:
        totals, last = self.totals, len(self.totals) - 1
        return bool(totals) and totals[int(_CAREFUL * last)] <= _ALIKE * totals[int((1 - _CAREFUL) * last)]

    def elapsed(self, job: str) -> float:
        return self._elapsed(self.running[job])

    def _elapsed(self, under: UnderWay) -> float:
        return max(0.0, self.now - under.attempt.began_at)

    @cached_property
    def left(self) -> dict[str, float]:
        """Seconds until each one's end; those of which nothing can be said are left out."""
        found = ((job, self._left(under)) for job, under in self.running.items())
        return {job: left for job, left in found if left is not None}

    def has_begun(self, job: str) -> bool:
        """Its steps, so that there is something to lose."""
        return self.running[job].attempt.stage not in _BEFORE_STEPS

    def _left(self, under: UnderWay) -> float | None:
        """By its own words, else by what is usual."""
        return under.left(self.now) if under.tells else self._usual(self._elapsed(under))

    def _usual(self, elapsed: float) -> float | None:
        """As others that had run for as long. One that is older than all others will take, as far as anybody knows, as
        long again."""
        totals = self.totals
        if len(totals) < _ENOUGH:
            return None
        longer = bisect_right(totals, elapsed)  # from here on
        middle = longer + len(totals) - 1  # twice the place of their median
        return (totals[middle // 2] + totals[(middle + 1) // 2]) / 2 - elapsed if longer < len(totals) else elapsed

    @cached_property
    def peers(self) -> dict[str, Stint]:
        """How long a whole training takes, by job: seen, or told by those that are under way."""
        return {**dict(self._under_way()), **self.whole}

    def _under_way(self) -> Iterator[tuple[str, Stint]]:
        for job, under in self.running.items():
            if under.tells:
                yield job, Stint(under.site, max(0.0, under.since - under.attempt.began_at), under.takes(self.now))

    @cached_property
    def _ranked(self) -> list[tuple[float, Stint]]:
        """With how long they take, the quickest first."""
        return sorted(((peer.seconds, peer) for peer in self.peers.values()), key=itemgetter(0))

    @cached_property
    def totals(self) -> list[float]:
        return [seconds for seconds, _ in self._ranked]

    @cached_property
    def sites(self) -> set[str]:
        here = {under.site for under in self.running.values()}
        return ({peer.site for peer in self.peers.values()} | here) - {""}

    def elsewhere(self, site: str) -> Stint | None:
        """What a training takes at another site, or on another machine where nothing else is known."""
        if site not in self._elsewhere:
            others = [peer for _, peer in self._ranked if peer.site != site]
            self._elsewhere[site] = _careful(others) or _careful([peer for _, peer in self._ranked])
        return self._elsewhere[site]

    def is_slow(self, site: str) -> bool:
        """Whether it is the whole site, as far as it is known."""
        if site not in self._slow:
            here = [seconds for seconds, peer in self._ranked if peer.site == site]
            usual = self.elsewhere(site)
            self._slow[site] = len(here) < _ENOUGH or usual is None or median(here) > usual.seconds
        return self._slow[site]


def _careful(peers: Sequence[Stint]) -> Stint | None:
    """`peers`: the quickest first."""
    return peers[int(_CAREFUL * (len(peers) - 1))] if len(peers) >= _ENOUGH else None


def words(seconds: float) -> str:
    """41 s, 12 min, 2.1 h"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
