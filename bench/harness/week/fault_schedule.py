"""What the week does to whoever runs in it, drawn from the published table with a seed. Pure.

Each published job that got further than a 404 becomes one machine: with the time that it took to compute, the time of
its one good transfer, how long its nearest cache stalled, how often it was taken away, and what else was wrong with it.
The machines come up one after another, in an order that the seed decides; the sixteen jobs that met the 404 have
machines drawn from all others, which come up while the director is away.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE_PATH = Path(__file__).resolve().parents[3] / "tests/data/study/ospool-imagenet-100-jobs.csv"
HOUR_S = 3600.0
CACHES_PER_SITE = 4  # of each site, as many as a director names
EXECUTE_LIMIT_S = 20 * HOUR_S  # of executing
TRANSFER_TIMEOUT_S = 62 / 60 * HOUR_S  # of a transfer by HTCondor itself: what a stall cost at least
SETUP_FRACTION = 977 / 14846  # of computing: what passed before the program wanted its weights, at PDX

_NODE_INTERVAL_S = HOUR_S / 33  # about one a second, if an hour takes 30
_DIRECTOR_OUTAGE_S = HOUR_S / 5
_IDLE_BEFORE_OUTAGE_S = HOUR_S / 6  # before it: machines that came up are at work by then
_UNFINISHED_FACTOR = 1.25  # jobs that were stopped at the limit would have taken so much longer
_SMALL_OUTAGE_POSITION, _LARGE_OUTAGE_POSITION = (
    49 / 84,
    63 / 84,
)  # where among the machines the director was away: for one job, and for fifteen
_EVICTION_OUTAGE_S = HOUR_S  # how long a machine is gone after an eviction


@dataclass(frozen=True)
class PublishedJob:
    """A published job, as far as it tells of a machine."""

    site: str
    outcome: str
    execute_s: float
    transfer_s: float
    stalled_s: float
    n_evictions: int
    note: str
    changed_site: bool

    @property
    def has_speed(self) -> bool:
        return self.outcome in ("success", "held_compute") and not self.changed_site


@dataclass(frozen=True)
class ReplayNode:
    """All times in the replay's seconds; moments since its beginning."""

    number: int
    site: str
    opens_at: float
    compute_s: float  # one whole training
    transfer_s: float  # the data set, over its line
    cache_stalls_until: tuple[float, ...]  # by cache of the site, its nearest first; 0: that one is well
    evicted_periods: tuple[tuple[float, float], ...]  # taken back by its owner, from and until
    has_outbound_network: bool  # whether programs get an answer from hosts of the world
    has_damaged_cache: bool  # what its nearest cache holds

    @property
    def name(self) -> str:
        return f"m{self.number:03}.{self.site.split('-')[0].lower()}.test"


@dataclass(frozen=True)
class ReplayWeek:
    hour_s: float  # seconds that an hour takes
    nodes: tuple[ReplayNode, ...]
    director_outages: tuple[tuple[float, float], ...]  # when the director is

    @property
    def execute_limit_s(self) -> int:
        return round(EXECUTE_LIMIT_S / HOUR_S * self.hour_s)

    @property
    def transfer_timeout_s(self) -> int:
        """With a second for what it takes to start a transfer, which is no part of what was scaled."""
        return 1 + round(TRANSFER_TIMEOUT_S / HOUR_S * self.hour_s)


def read_published_jobs(table: Path = TABLE_PATH) -> list[PublishedJob]:
    """Of jobs that got as far as a machine."""
    with open(table, newline="") as file:
        return [_parse_published_job(told) for told in csv.DictReader(file) if told["outcome"] != "held_transfer"]


def _parse_published_job(record: dict[str, str]) -> PublishedJob:
    sites = record["sites"].split(";")
    last, busy = float(record["transfer_last_s"]), float(record["transfer_busy_s"])
    stalled = int(record["stalls"]) or int(record["holds"])
    return PublishedJob(
        site=sites[0],
        outcome=record["outcome"],
        execute_s=float(record["execute_s"]) * (_UNFINISHED_FACTOR if record["outcome"] == "held_compute" else 1.0),
        transfer_s=last,
        stalled_s=busy - last if stalled else 0.0,
        n_evictions=int(record["evictions"]),
        note=record["note"],
        changed_site=len(set(sites)) > 1,
    )


def generate_week(
    seed: int, n_jobs: int = 100, hour_s: float = 30.0, published_jobs: Sequence[PublishedJob] = ()
) -> ReplayWeek:
    """A week for so many jobs: a machine for each."""
    dice = random.Random(seed)
    known = list(published_jobs or read_published_jobs())
    unlucky = max(1, round(n_jobs * 16 / 100))
    chosen = _sample_evenly(dice, known, n_jobs - unlucky)
    lucky_ones, late = iter(chosen), [dice.choice(known) for _ in range(unlucky)]
    made: list[ReplayNode] = []
    away: list[tuple[float, float]] = []
    scale = hour_s / HOUR_S
    now = 0.0
    for group in _arrival_groups(len(chosen), unlucky):
        if group == 1:
            now += _NODE_INTERVAL_S
            made.append(_make_node(dice, len(made), next(lucky_ones), known, now, scale))
            continue
        now += _IDLE_BEFORE_OUTAGE_S
        away.append((now * scale, (now + _DIRECTOR_OUTAGE_S) * scale))
        for row in (late.pop() for _ in range(-group)):
            made.append(_make_node(dice, len(made), row, known, now, scale))
        now += _DIRECTOR_OUTAGE_S
    return ReplayWeek(hour_s, tuple(made), tuple(away))


def _sample_evenly(rng: random.Random, published_jobs: Sequence[PublishedJob], count: int) -> list[PublishedJob]:
    """All of them before any comes again."""
    chosen: list[PublishedJob] = []
    while len(chosen) < count:
        chosen += rng.sample(published_jobs, min(len(published_jobs), count - len(chosen)))
    return chosen


def _arrival_groups(n_regular: int, n_during_outage: int) -> Iterator[int]:
    """1: a machine comes up; -n: so many do at once, while the director is away."""
    lone, many = int(n_regular * _SMALL_OUTAGE_POSITION), int(n_regular * _LARGE_OUTAGE_POSITION)
    for place in range(n_regular):
        if place == lone:
            yield -1
        if place == many and n_during_outage > 1:
            yield -(n_during_outage - 1)
        yield 1


def _make_node(
    rng: random.Random,
    number: int,
    published_job: PublishedJob,
    published_jobs: Sequence[PublishedJob],
    opens_at: float,
    scale: float,
) -> ReplayNode:
    there = [other for other in published_jobs if other.site == published_job.site]
    steady = [other for other in there if other.has_speed]
    like = published_job if published_job.has_speed else rng.choice(steady)
    others = [rng.choice(there).stalled_s for _ in range(CACHES_PER_SITE - 1)]
    stalls = [(opens_at + span) * scale if span else 0.0 for span in (published_job.stalled_s, *others)]
    lifetime = like.transfer_s + like.execute_s
    ends = sorted(opens_at + rng.uniform(0.2, 0.95) * lifetime for _ in range(published_job.n_evictions))
    return ReplayNode(
        number=number,
        site=published_job.site,
        opens_at=opens_at * scale,
        compute_s=like.execute_s * scale,
        transfer_s=like.transfer_s * scale,
        cache_stalls_until=tuple(stalls),
        evicted_periods=tuple((end * scale, (end + _EVICTION_OUTAGE_S) * scale) for end in ends),
        has_outbound_network="network unreachable" not in published_job.note,
        has_damaged_cache="not a valid tar" in published_job.note,
    )
