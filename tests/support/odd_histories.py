"""Unusual random histories from a seed, fast enough to generate thousands."""

from __future__ import annotations

import random

from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
    ReadProblem,
)

_DURATIONS_S = (0.0, 1e-7, 4e-7, 0.3, 1.0, 59.6, 3600.0, 72000.123457, 1e7)
_NAMES = ("", "", "SITE-A", "SITE-B", "a b", "[bold]x[/]", "{{figures}}", "Ω\n")
_SLOT_PHASES = tuple(phase for phase in Phase if phase not in (Phase.QUEUED, Phase.HELD))


def make_odd_history(seed: int, max_jobs: int = 8) -> JobHistory:
    rng = random.Random(seed)
    absolute = rng.random() < 0.5
    start = 1.79e9 + rng.random() if absolute else 0.0
    jobs = tuple(_random_job(rng, number, start) for number in range(rng.randint(0, max_jobs)))
    problems = (ReadProblem("a.log", 3, "odd"),) if rng.random() < 0.2 else ()
    kind = rng.choice(("run", "log", "table"))
    return JobHistory(rng.choice(_NAMES), kind, jobs, problems, len(problems), has_timestamps=absolute)


def _random_job(rng: random.Random, number: int, start: float) -> JobRecord:
    executions: list[ExecutionRecord] = []
    waits: list[PhaseSpan] = []
    now = start
    for _ in range(rng.randint(0, 4)):
        wait = _random_duration_s(rng)
        waits.append(PhaseSpan(rng.choice((Phase.QUEUED, Phase.HELD)), now, now + wait))
        executions.append(_random_execution(rng, len(executions) + 1, now + wait))
        now = max(now + wait, executions[-1].end)
    outcome = rng.choice((*Outcome, Outcome.SUCCEEDED, Outcome.SUCCEEDED))
    return JobRecord(
        rng.choice((f"12.{number}", f"job {number}")), tuple(executions), outcome, rng.choice((None, start)),
        rng.choice((None, now)), tuple(waits), rng.choice((None, True, False)), rng.choice(tuple(FailureCategory)),
        rng.choice(_NAMES), rng.choice((None, *Phase)), rng.choice(({}, {"lr": "0.1"})),
    )  # fmt: skip


def _random_execution(rng: random.Random, number: int, start: float) -> ExecutionRecord:
    spans, now = [], start
    for _ in range(rng.randint(0, 6)):
        seconds = _random_duration_s(rng)
        spans.append(PhaseSpan(rng.choice(_SLOT_PHASES), now, now + seconds))
        now += seconds
    transfers = tuple(_random_transfer(rng, start, now) for _ in range(rng.choice((0, 0, 1, 2, 5))))
    return ExecutionRecord(
        number, tuple(spans), rng.choice((*Outcome, Outcome.SUCCEEDED)), rng.choice(_NAMES),
        rng.choice(_NAMES), rng.choice(_NAMES), rng.choice(tuple(FailureCategory)), rng.choice((0.0, 0.5, 8.0)),
        transfers, _random_bytes(rng), _random_bytes(rng), rng.choice((0.0, _random_duration_s(rng))),
    )  # fmt: skip


def _random_transfer(rng: random.Random, start: float, end: float) -> InputTransfer:
    seconds, complete = _random_duration_s(rng), rng.random() < 0.6
    return InputTransfer(rng.uniform(start, end), seconds, _random_bytes(rng), rng.choice(("", "cache-1")), complete)


def _random_duration_s(rng: random.Random) -> float:
    return rng.choice((*_DURATIONS_S, rng.random(), rng.uniform(0, 1e5)))


def _random_bytes(rng: random.Random) -> int | None:
    return rng.choice((None, 0, rng.randrange(10**13)))
