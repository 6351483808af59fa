"""A hypothesis strategy for arbitrary histories, including unusual ones."""

from __future__ import annotations

from hypothesis import strategies as st

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

HOSTILE_TEXT = "</svg></script><script>alert('x')</script><img src=x onerror=alert(1)>{{script}}&amp;\"'\x00\x1b[31m"
_TEXTS = st.sampled_from(["", "site", "a b", "Ω" * 40, "x" * 300, HOSTILE_TEXT]) | st.text(max_size=12)
# No log has a finer resolution than a microsecond.
_DURATIONS = st.sampled_from([0.0, 1e-6, 0.5, 59.6, 3600.0, 1e7]) | st.integers(0, 10**12).map(lambda n: n / 1e6)
_SLOT_PHASES = [phase for phase in Phase if phase not in (Phase.QUEUED, Phase.HELD)]


@st.composite
def _executions(draw: st.DrawFn, number: int, start: float) -> ExecutionRecord:
    spans, now = [], start
    for phase, seconds in draw(st.lists(st.tuples(st.sampled_from(_SLOT_PHASES), _DURATIONS), max_size=5)):
        spans.append(PhaseSpan(phase, now, now + seconds))
        now += seconds
    sizes = st.none() | st.integers(0, 10**13)
    transfers = st.builds(
        InputTransfer,
        st.floats(start, now) if now > start else st.just(start),
        _DURATIONS,
        sizes,
        _TEXTS,
        st.booleans(),
    )
    return ExecutionRecord(
        number, tuple(spans), draw(st.sampled_from(Outcome)), draw(_TEXTS), draw(_TEXTS), draw(_TEXTS),
        draw(st.sampled_from(FailureCategory)), draw(st.sampled_from([0.0, 8.0])),
        tuple(draw(st.lists(transfers, max_size=3))), draw(sizes), draw(sizes), draw(_DURATIONS),
    )  # fmt: skip


@st.composite
def _jobs(draw: st.DrawFn, name: str, start: float) -> JobRecord:
    executions: list[ExecutionRecord] = []
    waits: list[PhaseSpan] = []
    now = start
    for number in range(draw(st.integers(0, 3))):
        wait = draw(_DURATIONS)
        waits += [PhaseSpan(draw(st.sampled_from([Phase.QUEUED, Phase.HELD])), now, now + wait)]
        executions.append(draw(_executions(number + 1, now + wait)))
        now = max(now + wait, executions[-1].end)
    return JobRecord(
        name, tuple(executions), draw(st.sampled_from(Outcome)), draw(st.sampled_from([None, start])),
        draw(st.sampled_from([None, now])), tuple(waits), draw(st.sampled_from([None, True, False])),
        draw(st.sampled_from(FailureCategory)), draw(_TEXTS), draw(st.sampled_from([None, *Phase])),
    )  # fmt: skip


@st.composite
def job_histories(draw: st.DrawFn, max_jobs: int = 6) -> JobHistory:
    absolute = draw(st.booleans())
    start = 1.79e9 if absolute else 0.0
    names = draw(st.lists(_TEXTS.filter(bool), max_size=max_jobs, unique=True))
    jobs = tuple(draw(_jobs(name, start)) for name in names)
    problems = tuple(draw(st.lists(st.builds(ReadProblem, _TEXTS, st.integers(0, 10**6), _TEXTS), max_size=2)))
    kind = draw(st.sampled_from(["run", "log", "table"]))
    limitations = tuple(draw(st.lists(_TEXTS, max_size=2)))
    return JobHistory(
        draw(_TEXTS), kind, jobs, problems, len(problems) + draw(st.integers(0, 3)), limitations, absolute
    )
