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
    START = "start"  # the slot is taken, nothing else is known of it: setting up, cleaning
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
    CONTINUES = "continues"  # it left with a checkpoint that its successor went on from
    WRONG_OUTPUT = "wrong output"  # it said that it had succeeded, but what it should have made is not there
    FAILED = "failed"
    EVICTED = "evicted"
    TIME_LIMIT = "time limit"
    HELD = "held"  # ended by a hold of another kind than those above
    REMOVED = "removed"
    LOST = "lost"  # nobody knows how it ended
    RUNNING = "running"  # or queued: it has not ended


class Category(str, Enum):
    """The kind of a failure, as in the published study. NONE where nothing failed."""

    NONE = ""
    TRANSFER = "transfer"
    OUTPUT = "wrong output"
    TIME_LIMIT = "time limit"
    EVICTION = "eviction"
    PROGRAM = "program"
    MACHINE = "machine"
    POOL = "pool"
    PERSON = "person"  # who held or removed it
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Span:
    phase: Phase
    start: float  # seconds since 1970; of a table without times, since the job's beginning
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Move:
    """One transfer of inputs, as far as it is known."""

    start: float
    seconds: float
    bytes: int | None = None
    source: str = ""  # the host of a cache or server
    whole: bool = True  # False: it was killed, stalled or failed


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int  # 1, 2, … within the job
    spans: tuple[Span, ...]
    outcome: Outcome
    site: str = ""
    machine: str = ""
    reason: str = ""  # in the words of whoever told it
    category: Category = Category.NONE
    gpus: float = 0.0
    moves: tuple[Move, ...] = ()
    bytes_in: int | None = None
    bytes_out: int | None = None
    kept_s: float = 0.0  # compute that a later attempt went on from (or its own end); of EXECUTE, from its beginning

    @property
    def start(self) -> float:
        return self.spans[0].start if self.spans else 0.0

    @property
    def end(self) -> float:
        return self.spans[-1].end if self.spans else 0.0

    @property
    def seconds(self) -> float:
        """Of the slot; the sum of its spans."""
        return sum(span.seconds for span in self.spans)

    def of(self, phase: Phase) -> float:
        return sum(span.seconds for span in self.spans if span.phase is phase)


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    attempts: tuple[Attempt, ...]
    outcome: Outcome
    submitted: float | None = None
    ended: float | None = None
    waits: tuple[Span, ...] = ()  # QUEUED and HELD, outside of attempts
    checked: bool | None = None  # whether somebody looked at its outputs; None: nobody can know
    category: Category = Category.NONE
    reason: str = ""
    held_in: Phase | None = None  # in which phase it was when it was held for good
    point: Mapping[str, str] = field(default_factory=dict)  # of a matrix


@dataclass(frozen=True)
class Problem:
    """What could not be read, and where."""

    where: str
    line: int
    text: str


@dataclass(frozen=True)
class History:
    name: str  # for titles
    kind: str  # run, log, table, simulation
    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...] = ()  # the first ones
    skipped: int = 0  # how many there were
    untold: tuple[str, ...] = ()  # sentences: what this source cannot tell
    absolute: bool = True  # whether times are since 1970

    def attempts(self) -> Iterator[Attempt]:
        return (attempt for job in self.jobs for attempt in job.attempts)
