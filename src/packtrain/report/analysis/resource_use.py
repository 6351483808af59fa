"""How much of the requested CPUs, memory and time executions used, defined as in Slurm's `seff`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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
    ended = [e for e in executions if e.resource_use is not None and e.outcome is not Outcome.RUNNING]
    cpu = [(e, e.resource_use or _NO_RESOURCE_USE) for e in ended if cpu_efficiency(e) is not None]
    memory = [(ratio, e.duration_s) for e in ended if (ratio := memory_efficiency(e)) is not None and e.duration_s]
    succeeded = [e for e in ended if e.outcome is Outcome.SUCCEEDED and e.resource_use and e.resource_use.time_limit_s]
    n_known = sum(cpu_efficiency(e) is not None or memory_efficiency(e) is not None for e in ended)
    if not n_known:
        return None
    limit_s = sum((e.resource_use or _NO_RESOURCE_USE).time_limit_s or 0.0 for e in succeeded)
    return Efficiency(
        cpu=_ratio(sum(use.cpu_s or 0.0 for _, use in cpu), sum((use.cpus or 0.0) * e.duration_s for e, use in cpu)),
        memory=_ratio(sum(ratio * slot_s for ratio, slot_s in memory), sum(slot_s for _, slot_s in memory)),
        time_limit=_ratio(sum(e.duration_s for e in succeeded), limit_s),
        executions=n_known,
    )


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


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None
