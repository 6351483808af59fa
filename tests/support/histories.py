"""Histories as a pool would have made them, from a seed: for pictures, pages and benches of any size."""

from __future__ import annotations

import random

from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase, Span

SITES = {"CHTC-Spark-CE1": 11200, "PDX-Coeus-CE1": 14800, "GP-ARGO-ksu-backfill": 19000, "SDSC-PRP-CE1": 12500,
         "UColorado_HEP": 16000}  # fmt: skip
_SIZE = 137_000_000_000
_START = 1_790_000_000.0


def random_history(jobs: int, seed: int = 0, *, name: str = "a week on the pool", absolute: bool = True) -> History:
    chance = random.Random(seed)
    made = tuple(_job(chance, number, absolute) for number in range(jobs))
    return History(
        name, "log" if absolute else "table", made, untold=("Nobody looked at the outputs.",), absolute=absolute
    )


def _job(chance: random.Random, number: int, absolute: bool) -> Job:
    now = submitted = (_START + number * chance.uniform(0, 60)) if absolute else 0.0
    waits: list[Span] = []
    attempts: list[Attempt] = []
    ends = chance.choices(_ENDS, _ODDS)[0]
    for end in ends:
        wait = chance.expovariate(1 / 1200) if absolute else 0.0
        waits.append(Span(Phase.QUEUED, now, now + wait))
        attempt = _attempt(chance, len(attempts) + 1, now + wait, end)
        attempts.append(attempt)
        now = attempt.end
    last = attempts[-1]
    held = Phase.TRANSFER_IN if last.category is Category.TRANSFER else None
    return Job(
        f"7945{69 + number // 1000}.{number % 1000:03}", tuple(attempts), last.outcome, submitted, now, tuple(waits),
        category=last.category, reason=last.reason, held_in=held,
    )  # fmt: skip


_GOOD, _STALL, _EVICT, _404, _LIMIT, _OUTPUT = "good", "stall", "evict", "404", "limit", "output"
_ENDS = [(_GOOD,), (_STALL, _GOOD), (_STALL, _STALL, _STALL, _GOOD), (_EVICT, _GOOD), (_404,), (_LIMIT,), (_OUTPUT,)]
_ODDS = [60, 12, 6, 5, 12, 2, 3]
_VERDICTS = {
    _GOOD: (Outcome.SUCCEEDED, Category.NONE, ""),
    _STALL: (Outcome.FAILED, Category.TRANSFER, "transfer stalled: no byte for 60 minutes"),
    _EVICT: (Outcome.EVICTED, Category.EVICTION, "the pool took the machine back"),
    _404: (Outcome.HELD, Category.TRANSFER, "Transfer input files failure: 404 page not found"),
    _LIMIT: (Outcome.TIME_LIMIT, Category.TIME_LIMIT, "the job ran longer than 20 hours"),
    _OUTPUT: (Outcome.WRONG_OUTPUT, Category.OUTPUT, "model.pt is missing"),
}


def _attempt(chance: random.Random, number: int, start: float, end: str) -> Attempt:
    site = chance.choice(list(SITES))
    lengths = [(Phase.START, chance.uniform(5, 60))]
    whole = end not in (_STALL, _404)
    fetched = chance.uniform(400, 3400) if whole else 3700.0 if end == _STALL else chance.uniform(5, 600)
    lengths.append((Phase.TRANSFER_IN, fetched))
    if whole:
        compute = chance.gauss(SITES[site], SITES[site] / 20)
        lengths.append((Phase.EXECUTE, 72000.0 if end == _LIMIT else compute / 3 if end == _EVICT else compute))
    if end in (_GOOD, _OUTPUT):
        lengths.append((Phase.TRANSFER_OUT, chance.uniform(5, 90)))
    spans, now = [], start
    for phase, seconds in lengths:
        spans.append(Span(phase, now, now + seconds))
        now += seconds
    size = _SIZE if whole else round(_SIZE * chance.uniform(0.2, 0.6)) if end == _STALL else None
    move = Move(spans[1].start, fetched, size, f"cache{chance.randrange(3)}.example", whole)
    outcome, category, reason = _VERDICTS[end]
    return Attempt(number, tuple(spans), outcome, site, f"node{chance.randrange(99)}", reason, category, 1.0, (move,))
