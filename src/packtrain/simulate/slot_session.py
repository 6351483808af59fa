"""One stay on a slot, and a job's way through the pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.report.history import Attempt, Move, Outcome, Phase, Span
from packtrain.report.spans import joined
from packtrain.simulate.job_behaviour import Course, Ending, saved
from packtrain.simulate.pool_model import Site


@dataclass(slots=True, eq=False)
class Stay:
    site: Site
    machine: str
    began: float
    course: Course
    done: float  # of the job, when it began
    every: float | None  # seconds between checkpoints
    ended: float = 0.0  # 0: it lasts
    ending: Ending | None = None
    kept_s: float = 0.0  # of its computing, that another stay went on from
    computes_at: float = 0.0  # when its program begins
    computes_s: float = 0.0  # how long it runs, if nothing ends it

    def __post_init__(self) -> None:
        self.computes_at = self.began + self.course.before_computing
        self.computes_s = sum(piece.seconds for piece in self.course.pieces if piece.phase is Phase.EXECUTE)

    def computed(self, now: float) -> float:
        """Seconds that its program has run."""
        passed = (self.ended if 0.0 < self.ended < now else now) - self.computes_at
        return 0.0 if passed <= 0.0 else min(passed, self.computes_s)

    def progress(self, now: float) -> float:
        """Of the job, 0 to 1."""
        return min(1.0, self.done + self.computed(now) / self.course.computing)

    def checkpoint(self, now: float) -> tuple[float, float]:
        """How much of the job its newest checkpoint has, and how many seconds of its computing that took."""
        computed = self.computed(now)
        left = self.ending is not None and self.ending.outcome is Outcome.CONTINUES
        kept = computed if left else saved(computed, self.every)
        return (self.done + kept / self.course.computing, kept) if kept else (0.0, 0.0)

    def drawn(self, number: int, now: float) -> Attempt:
        """As reports have it."""
        spans, moves = self._spans(self.ended or now)
        ending = self.ending or Ending(Outcome.RUNNING)
        told = (ending.outcome, self.site.name, self.machine, ending.reason, ending.category)
        kept = self.computed(now) if ending.outcome is Outcome.SUCCEEDED else self.kept_s
        return Attempt(number, joined(spans), *told, moves=tuple(moves), kept_s=kept)

    def _spans(self, until: float) -> tuple[list[Span], list[Move]]:
        """Of its course, what happened before it ended."""
        spans, moves, at = [], [], self.began
        for piece in self.course.pieces:
            end = min(at + piece.seconds, until)
            if end <= at:
                break
            spans.append(Span(piece.phase, at, end))
            if piece.phase is Phase.TRANSFER_IN:
                whole = piece.whole and at + piece.seconds <= until
                moves.append(Move(at, end - at, whole=whole))
            at = end
        return spans or [Span(Phase.START, self.began, until)], moves


@dataclass(slots=True, eq=False)
class Task:
    """A job in the queue or on a slot: for HTCondor, one submission, which may be started several times."""

    name: str  # of the decision that asked for it
    job: str
    queued: float
    sites: frozenset[str] = frozenset()  # to be avoided
    machines: frozenset[str] = frozenset()
    stay: Stay | None = None
    starts: int = 0
    status: str = "queued"  # queued, matched, running, held, gone
    version: int = 0  # what was planned for an older one does not happen
    serial: int = 0  # of what was told
    spoken: int = 0  # of what its agent said
    emitter: str = ""  # of its agent

    @property
    def picky(self) -> bool:
        return bool(self.sites or self.machines)


@dataclass(slots=True, eq=False)
class JobTruth:
    """What really happened to one job."""

    stays: list[Stay] = field(default_factory=list)
    submitted: float = 0.0
    waits: list[Span] = field(default_factory=list)

    def newest_checkpoint(self, now: float) -> tuple[float, Stay | None, float]:
        """The furthest: how much of the job it has, whose it is, and what it took."""
        best: tuple[float, Stay | None, float] = (0.0, None, 0.0)
        for stay in self.stays:
            done, kept = stay.checkpoint(now)
            if done > best[0]:
                best = (done, stay, kept)
        return best
