"""Random but realistic histories of any size, for tests of charts and pages and for benchmarks."""

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
)

COMPUTE_S_BY_SITE = {
    "CHTC-Spark-CE1": 11200,
    "PDX-Coeus-CE1": 14800,
    "GP-ARGO-ksu-backfill": 19000,
    "SDSC-PRP-CE1": 12500,
    "UColorado_HEP": 16000,
}
_DATASET_BYTES = 137_000_000_000
_STARTED_AT = 1_790_000_000.0


def make_random_history(
    n_jobs: int, seed: int = 0, *, name: str = "a week on the pool", absolute: bool = True
) -> JobHistory:
    rng = random.Random(seed)
    jobs = tuple(_random_job(rng, number, absolute) for number in range(n_jobs))
    kind = "log" if absolute else "table"
    return JobHistory(name, kind, jobs, limitations=("The outputs were not checked.",), has_timestamps=absolute)


def _random_job(rng: random.Random, number: int, absolute: bool) -> JobRecord:
    now = submitted_at = (_STARTED_AT + number * rng.uniform(0, 60)) if absolute else 0.0
    waits: list[PhaseSpan] = []
    executions: list[ExecutionRecord] = []
    ends = rng.choices(_END_SEQUENCES, _END_WEIGHTS)[0]
    for end in ends:
        wait = rng.expovariate(1 / 1200) if absolute else 0.0
        waits.append(PhaseSpan(Phase.QUEUED, now, now + wait))
        execution = _random_execution(rng, len(executions) + 1, now + wait, end)
        executions.append(execution)
        now = execution.end
    last = executions[-1]
    held_in_phase = Phase.TRANSFER_IN if last.category is FailureCategory.TRANSFER else None
    return JobRecord(
        f"7945{69 + number // 1000}.{number % 1000:03}", tuple(executions), last.outcome,
        submitted_at, now, tuple(waits), category=last.category, reason=last.reason, held_in_phase=held_in_phase,
    )  # fmt: skip


_GOOD, _STALL, _EVICT, _404, _LIMIT, _OUTPUT = "good", "stall", "evict", "404", "limit", "output"
_END_SEQUENCES = [
    (_GOOD,),
    (_STALL, _GOOD),
    (_STALL, _STALL, _STALL, _GOOD),
    (_EVICT, _GOOD),
    (_404,),
    (_LIMIT,),
    (_OUTPUT,),
]
_END_WEIGHTS = [60, 12, 6, 5, 12, 2, 3]
_OUTCOME_BY_END = {
    _GOOD: (Outcome.SUCCEEDED, FailureCategory.NONE, ""),
    _STALL: (Outcome.FAILED, FailureCategory.TRANSFER, "transfer stalled: no byte for 60 minutes"),
    _EVICT: (Outcome.EVICTED, FailureCategory.EVICTION, "evicted by the pool"),
    _404: (Outcome.HELD, FailureCategory.TRANSFER, "Transfer input files failure: 404 page not found"),
    _LIMIT: (Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, "the job ran longer than 20 hours"),
    _OUTPUT: (Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT, "model.pt is missing"),
}


def _random_execution(rng: random.Random, number: int, start: float, end: str) -> ExecutionRecord:
    site = rng.choice(list(COMPUTE_S_BY_SITE))
    durations = [(Phase.SETUP, rng.uniform(5, 60))]
    complete = end not in (_STALL, _404)
    transfer_s = rng.uniform(400, 3400) if complete else 3700.0 if end == _STALL else rng.uniform(5, 600)
    durations.append((Phase.TRANSFER_IN, transfer_s))
    if complete:
        compute = rng.gauss(COMPUTE_S_BY_SITE[site], COMPUTE_S_BY_SITE[site] / 20)
        durations.append((Phase.EXECUTE, 72000.0 if end == _LIMIT else compute / 3 if end == _EVICT else compute))
    if end in (_GOOD, _OUTPUT):
        durations.append((Phase.TRANSFER_OUT, rng.uniform(5, 90)))
    spans, now = [], start
    for phase, seconds in durations:
        spans.append(PhaseSpan(phase, now, now + seconds))
        now += seconds
    size = _DATASET_BYTES if complete else round(_DATASET_BYTES * rng.uniform(0.2, 0.6)) if end == _STALL else None
    transfer = InputTransfer(spans[1].start, transfer_s, size, f"cache{rng.randrange(3)}.example", complete)
    outcome, category, reason = _OUTCOME_BY_END[end]
    return ExecutionRecord(
        number, tuple(spans), outcome, site, f"node{rng.randrange(99)}", reason, category, 1.0, (transfer,)
    )
