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

TABLE = Path(__file__).resolve().parents[3] / "tests/data/study/ospool-imagenet-100-jobs.csv"
HOUR_S = 3600.0
CACHES = 4  # of each site, as many as a director names
LIMIT_S = 20 * HOUR_S  # of executing
TIMER_S = 62 / 60 * HOUR_S  # of a transfer by HTCondor itself: what a stall cost at least
SETUP_SHARE = 977 / 14846  # of computing: what passed before the program wanted its weights, at PDX

_BETWEEN_MACHINES_S = HOUR_S / 33  # about one a second, if an hour takes 30
_AWAY_S = HOUR_S / 5
_QUIET_S = HOUR_S / 6  # before it: machines that came up are at work by then
_UNFINISHED = 1.25  # jobs that were stopped at the limit would have taken so much longer
_LONE, _MANY = 49 / 84, 63 / 84  # where among the machines the director was away: for one job, and for fifteen
_TAKEN_BACK_S = HOUR_S  # how long a machine is gone after an eviction


@dataclass(frozen=True)
class Row:
    """A published job, as far as it tells of a machine."""

    site: str
    outcome: str
    execute_s: float
    transfer_s: float
    stalls_s: float
    evictions: int
    note: str
    moved: bool

    @property
    def tells_speed(self) -> bool:
        return self.outcome in ("success", "held_compute") and not self.moved


@dataclass(frozen=True)
class Machine:
    """All times in the replay's seconds; moments since its beginning."""

    number: int
    site: str
    opens: float
    compute_s: float  # one whole training
    transfer_s: float  # the data set, over its line
    stalls_until: tuple[float, ...]  # by cache of the site, its nearest first; 0: that one is well
    closed: tuple[tuple[float, float], ...]  # taken back by its owner, from and until
    reaches_outside: bool  # whether programs get an answer from hosts of the world
    damaged: bool  # what its nearest cache holds

    @property
    def name(self) -> str:
        return f"m{self.number:03}.{self.site.split('-')[0].lower()}.test"


@dataclass(frozen=True)
class Week:
    hour: float  # seconds that an hour takes
    machines: tuple[Machine, ...]
    away: tuple[tuple[float, float], ...]  # when the director is

    @property
    def limit_s(self) -> int:
        return round(LIMIT_S / HOUR_S * self.hour)

    @property
    def timer_s(self) -> int:
        """With a second for what it takes to start a transfer, which is no part of what was scaled."""
        return 1 + round(TIMER_S / HOUR_S * self.hour)


def rows(table: Path = TABLE) -> list[Row]:
    """Of jobs that got as far as a machine."""
    with open(table, newline="") as file:
        return [_row(told) for told in csv.DictReader(file) if told["outcome"] != "held_transfer"]


def _row(told: dict[str, str]) -> Row:
    sites = told["sites"].split(";")
    last, busy = float(told["transfer_last_s"]), float(told["transfer_busy_s"])
    stalled = int(told["stalls"]) or int(told["holds"])
    return Row(
        site=sites[0],
        outcome=told["outcome"],
        execute_s=float(told["execute_s"]) * (_UNFINISHED if told["outcome"] == "held_compute" else 1.0),
        transfer_s=last,
        stalls_s=busy - last if stalled else 0.0,
        evictions=int(told["evictions"]),
        note=told["note"],
        moved=len(set(sites)) > 1,
    )


def draw(seed: int, jobs: int = 100, hour: float = 30.0, table: Sequence[Row] = ()) -> Week:
    """A week for so many jobs: a machine for each."""
    dice = random.Random(seed)
    known = list(table or rows())
    unlucky = max(1, round(jobs * 16 / 100))
    chosen = _without_repeating(dice, known, jobs - unlucky)
    lucky_ones, late = iter(chosen), [dice.choice(known) for _ in range(unlucky)]
    made: list[Machine] = []
    away: list[tuple[float, float]] = []
    scale = hour / HOUR_S
    now = 0.0
    for group in _order(len(chosen), unlucky):
        if group == 1:
            now += _BETWEEN_MACHINES_S
            made.append(_machine(dice, len(made), next(lucky_ones), known, now, scale))
            continue
        now += _QUIET_S
        away.append((now * scale, (now + _AWAY_S) * scale))
        for row in (late.pop() for _ in range(-group)):
            made.append(_machine(dice, len(made), row, known, now, scale))
        now += _AWAY_S
    return Week(hour, tuple(made), tuple(away))


def _without_repeating(dice: random.Random, known: Sequence[Row], count: int) -> list[Row]:
    """All of them before any comes again."""
    chosen: list[Row] = []
    while len(chosen) < count:
        chosen += dice.sample(known, min(len(known), count - len(chosen)))
    return chosen


def _order(lucky: int, unlucky: int) -> Iterator[int]:
    """1: a machine comes up; -n: so many do at once, while the director is away."""
    lone, many = int(lucky * _LONE), int(lucky * _MANY)
    for place in range(lucky):
        if place == lone:
            yield -1
        if place == many and unlucky > 1:
            yield -(unlucky - 1)
        yield 1


def _machine(dice: random.Random, number: int, row: Row, known: Sequence[Row], opens: float, scale: float) -> Machine:
    there = [other for other in known if other.site == row.site]
    steady = [other for other in there if other.tells_speed]
    like = row if row.tells_speed else dice.choice(steady)
    others = [dice.choice(there).stalls_s for _ in range(CACHES - 1)]
    stalls = [(opens + span) * scale if span else 0.0 for span in (row.stalls_s, *others)]
    lifetime = like.transfer_s + like.execute_s
    ends = sorted(opens + dice.uniform(0.2, 0.95) * lifetime for _ in range(row.evictions))
    return Machine(
        number=number,
        site=row.site,
        opens=opens * scale,
        compute_s=like.execute_s * scale,
        transfer_s=like.transfer_s * scale,
        stalls_until=tuple(stalls),
        closed=tuple((end * scale, (end + _TAKEN_BACK_S) * scale) for end in ends),
        reaches_outside="network unreachable" not in row.note,
        damaged="not a valid tar" in row.note,
    )
