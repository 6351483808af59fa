"""What happened to jobs, in one form, wherever it was read: from packtrain's store, an HTCondor log, a table of jobs.

A job has attempts; an attempt is one stay on a slot, and its spans say what the slot was doing, in order, without gaps
and without overlaps. What happened between attempts (queued, held) are spans of the job. Readers make histories,
`accounts` judges their seconds, `figures` and the pictures show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Phase(str, Enum):
    """What a job or its slot was doing."""

    QUEUED = "queued"  # waiting for a slot (of the job)
    HELD = "held"  # kept back (of the job)
    SETUP = "start"  # the slot is taken, nothing else is known of it: setting up, cleaning
    TRANSFER_IN = "transfer in"
    UNPACK = "unpack"
    EXECUTE = "execute"  # the program runs, or whatever a log calls executing
    CHECKPOINT = "checkpoint"  # fetched back, or carried away while the program waits for it
    TRANSFER_OUT = "transfer out"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"  # nobody knows whether the program ran


class Outcome(str, Enum):
    """How an attempt ended, or a job."""

    SUCCEEDED = "succeeded"
    CHECKPOINTED = "continues"  # it left with a checkpoint that its successor went on from
    WRONG_OUTPUT = "wrong output"  # it said that it had succeeded, but what it should have made is not there
    FAILED = "failed"
    EVICTED = "evicted"
    TIME_LIMIT = "time limit"
    HELD = "held"  # ended by a hold of another kind than those above
    REMOVED = "removed"
    LOST = "lost"  # nobody knows how it ended
    RUNNING = "running"  # or queued: it has not ended


class FailureCategory(str, Enum):
    """The kind of a failure, as in the published study. NONE where nothing failed."""

    NONE = ""
    TRANSFER = "transfer"
    WRONG_OUTPUT = "wrong output"
    TIME_LIMIT = "time limit"
    EVICTION = "eviction"
    PROGRAM = "program"
    NODE = "machine"
    POOL = "pool"
    USER = "person"  # who held or removed it
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    phase: Phase
    start: float  # seconds since 1970; of a table without times, since the job's beginning
    end: float

    @property
    def duration_s(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class InputTransfer:
    """One transfer of inputs, as far as it is known."""

    start: float
    duration_s: float
    size_bytes: int | None = None
    source: str = ""  # the host of a cache or server
    complete: bool = True  # False: it was killed, stalled or failed


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    number: int  # 1, 2, … within the job
    spans: tuple[PhaseSpan, ...]
    outcome: Outcome
    site: str = ""
    node: str = ""
    reason: str = ""  # in the words of whoever told it
    category: FailureCategory = FailureCategory.NONE
    gpus: float = 0.0
    input_transfers: tuple[InputTransfer, ...] = ()
    input_bytes: int | None = None
    output_bytes: int | None = None
    retained_compute_s: float = (
        0.0  # compute that a later attempt went on from (or its own end); of EXECUTE, from its beginning
    )

    @property
    def start(self) -> float:
        return self.spans[0].start if self.spans else 0.0

    @property
    def end(self) -> float:
        return self.spans[-1].end if self.spans else 0.0

    @property
    def duration_s(self) -> float:
        """Of the slot; the sum of its spans."""
        return sum(span.duration_s for span in self.spans)

    def seconds_in(self, phase: Phase) -> float:
        return sum(span.duration_s for span in self.spans if span.phase is phase)


@dataclass(frozen=True, slots=True)
class JobRecord:
    id: str
    executions: tuple[ExecutionRecord, ...]
    outcome: Outcome
    submitted_at: float | None = None
    ended_at: float | None = None
    waits: tuple[PhaseSpan, ...] = ()  # QUEUED and HELD, outside of attempts
    outputs_checked: bool | None = None  # whether somebody looked at its outputs; None: nobody can know
    category: FailureCategory = FailureCategory.NONE
    reason: str = ""
    held_in_phase: Phase | None = None  # in which phase it was when it was held for good
    point: Mapping[str, str] = field(default_factory=dict)  # of a matrix


@dataclass(frozen=True)
class ReadProblem:
    """What could not be read, and where."""

    path: str
    line: int
    message: str


@dataclass(frozen=True)
class JobHistory:
    name: str  # for titles
    kind: str  # run, log, table, simulation
    jobs: tuple[JobRecord, ...]
    problems: tuple[ReadProblem, ...] = ()  # the first ones
    n_skipped: int = 0  # how many there were
    limitations: tuple[str, ...] = ()  # sentences: what this source cannot tell
    has_timestamps: bool = True  # whether times are since 1970

    def executions(self) -> Iterator[ExecutionRecord]:
        return (attempt for job in self.jobs for attempt in job.executions)
