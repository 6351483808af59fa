"""The faults of the replayed week, derived from the published table with a seed. Pure functions.

Each published job that got further than a 404 becomes one node, with its compute time, the time of its one good
transfer, how long its nearest cache stalled, how often it was evicted, and other problems. Nodes come up one after
another, in an order that depends on the seed. The sixteen jobs that got a 404 have nodes sampled from all others, which
come up while the director is down.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE_PATH = Path(__file__).resolve().parents[3] / "tests/data/study/ospool-imagenet-100-jobs.csv"
HOUR_S = 3600.0
CACHES_PER_SITE = 4  # as many as a director lists
EXECUTE_LIMIT_S = 20 * HOUR_S  # maximum execution time
TRANSFER_TIMEOUT_S = 62 / 60 * HOUR_S  # HTCondor's transfer timeout: the minimum cost of a stall
SETUP_FRACTION = 977 / 14846  # share of compute before the program needs its weights, at PDX

_NODE_INTERVAL_S = HOUR_S / 33  # about one per second, if an hour takes 30 s
_DIRECTOR_OUTAGE_S = HOUR_S / 5
_IDLE_BEFORE_OUTAGE_S = HOUR_S / 6  # so that earlier nodes have started before the outage
_UNFINISHED_FACTOR = 1.25  # how much longer jobs would have run that reached the time limit
# Positions of the director's outages among the nodes: one that hit one job, and one that hit fifteen.
_SMALL_OUTAGE_POSITION, _LARGE_OUTAGE_POSITION = 49 / 84, 63 / 84
_EVICTION_OUTAGE_S = HOUR_S  # how long a node is unavailable after an eviction


@dataclass(frozen=True)
class PublishedJob:
    """What a published job reveals about its node."""

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
    """A node. Times are seconds of the replay, since its start."""

    number: int
    site: str
    opens_at: float
    compute_s: float  # of a complete training
    transfer_s: float  # of the dataset over its link
    cache_stalls_until: tuple[float, ...]  # per cache of the site, nearest first; 0: no stall
    evicted_periods: tuple[tuple[float, float], ...]  # (from, until): the owner evicts the job
    has_outbound_network: bool  # False: hosts outside of the site do not respond
    has_damaged_cache: bool  # its nearest cache has a damaged copy

    @property
    def name(self) -> str:
        return f"m{self.number:03}.{self.site.split('-')[0].lower()}.test"


@dataclass(frozen=True)
class ReplayWeek:
    """The nodes and outages of one replay."""

    hour_s: float  # seconds per replayed hour
    nodes: tuple[ReplayNode, ...]
    director_outages: tuple[tuple[float, float], ...]  # (from, until)

    @property
    def execute_limit_s(self) -> int:
        return round(EXECUTE_LIMIT_S / HOUR_S * self.hour_s)

    @property
    def transfer_timeout_s(self) -> int:
        """The scaled transfer timeout, plus a second for the start of a transfer, which is not scaled."""
        return 1 + round(TRANSFER_TIMEOUT_S / HOUR_S * self.hour_s)


def read_published_jobs(table: Path = TABLE_PATH) -> list[PublishedJob]:
    """Return the published jobs that started on a node."""
    with open(table, newline="") as file:
        return [_parse_published_job(record) for record in csv.DictReader(file) if record["outcome"] != "held_transfer"]


def _parse_published_job(record: dict[str, str]) -> PublishedJob:
    sites = record["sites"].split(";")
    last_s, busy_s = float(record["transfer_last_s"]), float(record["transfer_busy_s"])
    has_stalled = int(record["stalls"]) or int(record["holds"])
    return PublishedJob(
        site=sites[0],
        outcome=record["outcome"],
        execute_s=float(record["execute_s"]) * (_UNFINISHED_FACTOR if record["outcome"] == "held_compute" else 1.0),
        transfer_s=last_s,
        stalled_s=busy_s - last_s if has_stalled else 0.0,
        n_evictions=int(record["evictions"]),
        note=record["note"],
        changed_site=len(set(sites)) > 1,
    )


def generate_week(
    seed: int, n_jobs: int = 100, hour_s: float = 30.0, published_jobs: Sequence[PublishedJob] = ()
) -> ReplayWeek:
    """Return a week with one node per job."""
    rng = random.Random(seed)
    all_jobs = list(published_jobs or read_published_jobs())
    n_during_outage = max(1, round(n_jobs * 16 / 100))
    regular_jobs = _sample_evenly(rng, all_jobs, n_jobs - n_during_outage)
    regular, during_outage = iter(regular_jobs), [rng.choice(all_jobs) for _ in range(n_during_outage)]
    nodes: list[ReplayNode] = []
    outages: list[tuple[float, float]] = []
    scale = hour_s / HOUR_S
    now = 0.0
    for group in _arrival_groups(len(regular_jobs), n_during_outage):
        if group == 1:
            now += _NODE_INTERVAL_S
            nodes.append(_make_node(rng, len(nodes), next(regular), all_jobs, now, scale))
            continue
        now += _IDLE_BEFORE_OUTAGE_S
        outages.append((now * scale, (now + _DIRECTOR_OUTAGE_S) * scale))
        for job in (during_outage.pop() for _ in range(-group)):
            nodes.append(_make_node(rng, len(nodes), job, all_jobs, now, scale))
        now += _DIRECTOR_OUTAGE_S
    return ReplayWeek(hour_s, tuple(nodes), tuple(outages))


def _sample_evenly(rng: random.Random, published_jobs: Sequence[PublishedJob], count: int) -> list[PublishedJob]:
    """Sample every job once before any is sampled again."""
    sampled: list[PublishedJob] = []
    while len(sampled) < count:
        sampled += rng.sample(published_jobs, min(len(published_jobs), count - len(sampled)))
    return sampled


def _arrival_groups(n_regular: int, n_during_outage: int) -> Iterator[int]:
    """Yield 1 if one node comes up, and -n if n nodes come up at once during an outage of the director."""
    small_outage, large_outage = int(n_regular * _SMALL_OUTAGE_POSITION), int(n_regular * _LARGE_OUTAGE_POSITION)
    for number in range(n_regular):
        if number == small_outage:
            yield -1
        if number == large_outage and n_during_outage > 1:
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
    same_site = [other for other in published_jobs if other.site == published_job.site]
    with_speed = [other for other in same_site if other.has_speed]
    speed_job = published_job if published_job.has_speed else rng.choice(with_speed)
    other_stalls = [rng.choice(same_site).stalled_s for _ in range(CACHES_PER_SITE - 1)]
    stalls = [
        (opens_at + stalled_s) * scale if stalled_s else 0.0 for stalled_s in (published_job.stalled_s, *other_stalls)
    ]
    lifetime_s = speed_job.transfer_s + speed_job.execute_s
    evictions = sorted(opens_at + rng.uniform(0.2, 0.95) * lifetime_s for _ in range(published_job.n_evictions))
    return ReplayNode(
        number=number,
        site=published_job.site,
        opens_at=opens_at * scale,
        compute_s=speed_job.execute_s * scale,
        transfer_s=speed_job.transfer_s * scale,
        cache_stalls_until=tuple(stalls),
        evicted_periods=tuple((start * scale, (start + _EVICTION_OUTAGE_S) * scale) for start in evictions),
        has_outbound_network="network unreachable" not in published_job.note,
        has_damaged_cache="not a valid tar" in published_job.note,
    )
