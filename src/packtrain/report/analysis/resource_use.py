"""How much of the requested CPUs, memory and time executions used, defined as in Slurm's `seff`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packtrain.report.analysis.time_accounting import US_PER_S, WASTED, ExecutionTimeUse
from packtrain.report.history import ExecutionRecord, Outcome, ResourceUse

_NO_RESOURCE_USE = ResourceUse()


@dataclass(frozen=True)
class Efficiency:
    """What executions used, as a fraction of what they requested. Running ones are left out."""

    cpu: float | None  # CPU time / (CPUs times slot time)
    memory: float | None  # peak memory / requested memory, weighted by slot time
    time_limit: float | None  # slot time / time limit, of executions that succeeded
    executions: int  # with a known CPU or memory efficiency


@dataclass(frozen=True)
class StateSummary:
    """The executions that ended in one state of the pool, e.g. Slurm's TIMEOUT."""

    state: str
    executions: int
    slot_s: float
    wasted_s: float  # slot seconds that were wasted
    gpu_s: float  # slot seconds times GPUs


def cpu_efficiency(execution: ExecutionRecord) -> float | None:
    """Return CPU time as a fraction of the CPUs times the slot time."""
    use = execution.resource_use or _NO_RESOURCE_USE
    available_s = (use.cpus or 0.0) * execution.duration_s
    return use.cpu_s / available_s if available_s and use.cpu_s is not None else None


def memory_efficiency(execution: ExecutionRecord) -> float | None:
    """Return the peak memory as a fraction of the requested memory."""
    use = execution.resource_use or _NO_RESOURCE_USE
    return use.peak_memory_bytes / use.memory_bytes if use.memory_bytes and use.peak_memory_bytes is not None else None


def summarize_efficiency(executions: Iterable[ExecutionRecord]) -> Efficiency | None:
    """Summarize executions; None if nothing is known about their resources."""
    cpu: list[tuple[float, float]] = []  # (used, available)
    memory: list[tuple[float, float]] = []
    time_limit: list[tuple[float, float]] = []
    n_known = 0
    for execution in executions:
        use, slot_s = execution.resource_use, execution.duration_s
        if use is None or execution.outcome is Outcome.RUNNING:
            continue
        if use.cpu_s is not None and use.cpus:
            cpu.append((use.cpu_s, use.cpus * slot_s))
        if (fraction := memory_efficiency(execution)) is not None:
            memory.append((fraction * slot_s, slot_s))
        if use.time_limit_s and execution.outcome is Outcome.SUCCEEDED:
            time_limit.append((slot_s, use.time_limit_s))
        n_known += fraction is not None or (use.cpu_s is not None and bool(use.cpus))
    return Efficiency(_total(cpu), _total(memory), _total(time_limit), n_known) if n_known else None


def summarize_states(execution_times: Iterable[ExecutionTimeUse]) -> tuple[StateSummary, ...]:
    """Summarize executions by the state in which they ended, those with the most wasted time first."""
    by_state: defaultdict[str, list[ExecutionTimeUse]] = defaultdict(list)
    for execution_time in execution_times:
        if execution_time.execution.pool_state:
            by_state[execution_time.execution.pool_state].append(execution_time)
    summaries = (_summarize_state(state, group) for state, group in by_state.items())
    return tuple(sorted(summaries, key=lambda summary: (-summary.wasted_s, -summary.slot_s, summary.state)))


def _summarize_state(state: str, group: list[ExecutionTimeUse]) -> StateSummary:
    executions = [execution_time.execution for execution_time in group]
    wasted_us = sum(execution_time.time_use_us.get(use, 0) for execution_time in group for use in WASTED)
    return StateSummary(
        state,
        len(group),
        sum(execution.duration_s for execution in executions),
        wasted_us / US_PER_S,
        sum(execution.gpus * execution.duration_s for execution in executions),
    )


def _total(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return all that was used as a fraction of all that was available."""
    used, available = (sum(values) for values in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    return used / available if available else None
