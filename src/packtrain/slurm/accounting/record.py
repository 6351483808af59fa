"""The record of one execution, which both formats are converted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class UnreadableRow(NamedTuple):
    """A part of the output that could not be read."""

    line: int  # 1, 2, …
    message: str


@dataclass(frozen=True)
class AccountingRecord:
    """One execution of a job, or a job that waits for its first one. None and "" mean that it is not recorded.

    Attributes:
        job_id: As users name it: 12, 12_3 (array), 12+1 (heterogeneous job).
        state: Slurm's word, without details, e.g. CANCELLED.
        exit_code: Exit code of the batch script; minus the signal that killed it.
        submitted_at: Unix time; of a requeued job, when it was requeued.
        started_at: Unix time; None if it did not start.
        ended_at: Unix time; None if it has not ended.
        elapsed_s: Run time until its end, or until now, without the time in which it was suspended.
        suspended_s: How long it was suspended.
        time_limit_s: The job's time limit.
        nodes: The nodes as one expression, e.g. `n[1-4]`.
        cpus: Allocated CPUs.
        gpus: Allocated GPUs; None if the output has no column that lists them.
        cpu_s: CPU time of all steps.
        memory_bytes: Requested memory, on all nodes.
        peak_memory_bytes: As `seff` estimates it: of one step, the largest memory of a task times the number of tasks.
        restarts: How often Slurm had restarted the job before.
        cluster: Name of the cluster.
    """

    job_id: str
    state: str
    name: str = ""
    user: str = ""
    partition: str = ""
    reason: str = ""
    exit_code: int | None = None
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    elapsed_s: float | None = None
    suspended_s: float = 0.0
    time_limit_s: float | None = None
    nodes: str = ""
    cpus: float | None = None
    gpus: float | None = None
    cpu_s: float | None = None
    memory_bytes: float | None = None
    peak_memory_bytes: float | None = None
    restarts: int = 0
    cluster: str = ""


@dataclass(frozen=True)
class AccountingTable:
    """Everything that one output contains.

    Attributes:
        records: In the order of the output.
        unreadable: Rows that could not be read.
        has_steps: Whether it lists job steps, without which the memory that jobs used is unknown.
    """

    records: Sequence[AccountingRecord]
    unreadable: Sequence[UnreadableRow] = ()
    has_steps: bool = True
