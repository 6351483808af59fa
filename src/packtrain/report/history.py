"""The data model of a report: what happened to each job, independent of the source it was read from.

A job has executions. An execution is one session on a slot; its spans state what the slot was doing, in order, without
gaps or overlaps. Time between executions (queued, held) is stored as spans of the job. The readers build a
`JobHistory`, `analysis.time_accounting` classifies its seconds, `analysis.statistics` and the charts summarize them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from packtrain.state.slot_time import Phase as Phase
from packtrain.state.slot_time import PhaseSpan as PhaseSpan


class Outcome(str, Enum):
    """The way in which an execution or a job ended."""

    SUCCEEDED = "succeeded"
    CHECKPOINTED = "checkpointed"  # it exited with a checkpoint from which a later execution resumes
    WRONG_OUTPUT = "wrong output"  # it reported success, but the expected outputs are missing or invalid
    FAILED = "failed"
    EVICTED = "evicted"
    TIME_LIMIT = "time limit"
    HELD = "held"  # ended by a hold that fits none of the above
    REMOVED = "removed"
    LOST = "lost"  # the end was not recorded
    RUNNING = "running"  # on a slot
    QUEUED = "queued"  # it has not ended, and waits for a slot


class FailureCategory(str, Enum):
    """The kind of a failure, with the categories of the published study. NONE if nothing failed."""

    NONE = ""
    TRANSFER = "transfer"
    WRONG_OUTPUT = "wrong output"
    TIME_LIMIT = "time limit"
    EVICTION = "eviction"
    PROGRAM = "program"
    NODE = "node"
    POOL = "pool"
    USER = "user"  # a user held or removed the job
    POLICY = "policy"  # a condition of the submit file, such as periodic_hold, held or removed the job
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class InputTransfer:
    """One transfer of a job's inputs."""

    start: float
    duration_s: float
    size_bytes: int | None = None  # None if unknown
    source: str = ""  # host of the cache or server
    complete: bool = True  # False if it was killed, stalled or failed


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What an execution requested and what it used. None means unknown."""

    cpus: float | None = None
    cpu_s: float | None = None  # CPU time
    memory_bytes: float | None = None  # requested
    peak_memory_bytes: float | None = None
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One session of a job on a slot."""

    number: int  # 1, 2, … within the job
    spans: tuple[PhaseSpan, ...]
    outcome: Outcome
    site: str = ""
    node: str = ""
    reason: str = ""  # the message of the source, unchanged
    category: FailureCategory = FailureCategory.NONE
    gpus: float = 0.0
    input_transfers: tuple[InputTransfer, ...] = ()
    input_bytes: int | None = None
    output_bytes: int | None = None
    # Seconds of EXECUTE, from its beginning, from which a later execution resumed or with which the job succeeded.
    retained_compute_s: float = 0.0
    pool_state: str = ""  # the pool's own word for how it ended, e.g. Slurm's TIMEOUT
    resource_use: ResourceUse | None = None

    @property
    def start(self) -> float:
        return self.spans[0].start if self.spans else 0.0

    @property
    def end(self) -> float:
        return self.spans[-1].end if self.spans else 0.0

    @property
    def duration_s(self) -> float:
        """Slot time: the sum of the spans."""
        return sum(span.duration_s for span in self.spans)

    def seconds_in(self, phase: Phase) -> float:
        return sum(span.duration_s for span in self.spans if span.phase is phase)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job with all its executions."""

    id: str
    executions: tuple[ExecutionRecord, ...]
    outcome: Outcome
    submitted_at: float | None = None
    ended_at: float | None = None
    waits: tuple[PhaseSpan, ...] = ()  # QUEUED and HELD, between executions
    outputs_checked: bool | None = None  # whether the outputs were checked; None if unknown
    category: FailureCategory = FailureCategory.NONE
    reason: str = ""
    held_in_phase: Phase | None = None  # the phase in which it was held and never released
    point: Mapping[str, str] = field(default_factory=dict)  # its matrix parameters


@dataclass(frozen=True)
class ReadProblem:
    """An entry of a source that could not be read."""

    path: str
    line: int
    message: str


@dataclass(frozen=True)
class JobHistory:
    """All jobs of one source, and what is missing from that source."""

    name: str  # shown in titles
    kind: str  # run, log, accounting, table, simulation
    jobs: tuple[JobRecord, ...]
    problems: tuple[ReadProblem, ...] = ()  # the first ones
    n_skipped: int = 0  # number of unreadable entries in total
    limitations: tuple[str, ...] = ()  # one sentence for each thing the source does not record
    has_timestamps: bool = True  # False if times are durations since the beginning of each job

    def executions(self) -> Iterator[ExecutionRecord]:
        return (execution for job in self.jobs for execution in job.executions)
