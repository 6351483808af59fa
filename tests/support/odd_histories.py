"""Histories as odd as readers may make them, from a seed: quick enough to look at thousands of them."""

from __future__ import annotations

import random

from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase, Problem, Span

_SECONDS = (0.0, 1e-7, 4e-7, 0.3, 1.0, 59.6, 3600.0, 72000.123457, 1e7)
_NAMES = ("", "", "SITE-A", "SITE-B", "a b", "[bold]x[/]", "{{figures}}", "Ω\n")
_IN_SLOTS = tuple(phase for phase in Phase if phase not in (Phase.QUEUED, Phase.HELD))


def odd_history(seed: int, most: int = 8) -> History:
    chance = random.Random(seed)
    absolute = chance.random() < 0.5
    begin = 1.79e9 + chance.random() if absolute else 0.0
    jobs = tuple(_job(chance, number, begin) for number in range(chance.randint(0, most)))
    problems = (Problem("a.log", 3, "odd"),) if chance.random() < 0.2 else ()
    kind = chance.choice(("run", "log", "table"))
    return History(chance.choice(_NAMES), kind, jobs, problems, len(problems), absolute=absolute)


def _job(chance: random.Random, number: int, begin: float) -> Job:
    attempts: list[Attempt] = []
    waits: list[Span] = []
    now = begin
    for _ in range(chance.randint(0, 4)):
        wait = _seconds(chance)
        waits.append(Span(chance.choice((Phase.QUEUED, Phase.HELD)), now, now + wait))
        attempts.append(_attempt(chance, len(attempts) + 1, now + wait))
        now = max(now + wait, attempts[-1].end)
    outcome = chance.choice((*Outcome, Outcome.SUCCEEDED, Outcome.SUCCEEDED))
    return Job(
        chance.choice((f"12.{number}", f"job {number}")), tuple(attempts), outcome, chance.choice((None, begin)),
        chance.choice((None, now)), tuple(waits), chance.choice((None, True, False)), chance.choice(tuple(Category)),
        chance.choice(_NAMES), chance.choice((None, *Phase)), chance.choice(({}, {"lr": "0.1"})),
    )  # fmt: skip


def _attempt(chance: random.Random, number: int, start: float) -> Attempt:
    spans, now = [], start
    for _ in range(chance.randint(0, 6)):
        seconds = _seconds(chance)
        spans.append(Span(chance.choice(_IN_SLOTS), now, now + seconds))
        now += seconds
    moves = tuple(_move(chance, start, now) for _ in range(chance.choice((0, 0, 1, 2, 5))))
    return Attempt(
        number, tuple(spans), chance.choice((*Outcome, Outcome.SUCCEEDED)), chance.choice(_NAMES),
        chance.choice(_NAMES), chance.choice(_NAMES), chance.choice(tuple(Category)), chance.choice((0.0, 0.5, 8.0)),
        moves, _bytes(chance), _bytes(chance), chance.choice((0.0, _seconds(chance))),
    )  # fmt: skip


def _move(chance: random.Random, start: float, end: float) -> Move:
    seconds, whole = _seconds(chance), chance.random() < 0.6
    return Move(chance.uniform(start, end), seconds, _bytes(chance), chance.choice(("", "cache-1")), whole)


def _seconds(chance: random.Random) -> float:
    return chance.choice((*_SECONDS, chance.random(), chance.uniform(0, 1e5)))


def _bytes(chance: random.Random) -> int | None:
    return chance.choice((None, 0, chance.randrange(10**13)))
