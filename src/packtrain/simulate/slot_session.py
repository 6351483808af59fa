"""One stay on a slot, and a job's way through the pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.report.history import ExecutionRecord, InputTransfer, Outcome, Phase, PhaseSpan, merge_spans
from packtrain.simulate.job_behaviour import SessionEnd, SessionTimeline, checkpointed_s
from packtrain.simulate.pool_model import SiteModel


@dataclass(slots=True, eq=False)
class SimulatedSession:
    site: SiteModel
    node: str
    started_at: float
    timeline: SessionTimeline
    start_fraction: float  # of the job, when it began
    checkpoint_interval_s: float | None  # seconds between checkpoints
    ended_at: float = 0.0  # 0: it lasts
    end: SessionEnd | None = None
    reused_compute_s: float = 0.0  # of its computing, that another stay went on from
    compute_starts_at: float = 0.0  # when its program begins
    compute_s: float = 0.0  # how long it runs, if nothing ends it

    def __post_init__(self) -> None:
        self.compute_starts_at = self.started_at + self.timeline.setup_s
        self.compute_s = sum(piece.duration_s for piece in self.timeline.phases if piece.phase is Phase.EXECUTE)

    def computed_s(self, now: float) -> float:
        """Seconds that its program has run."""
        passed = (self.ended_at if 0.0 < self.ended_at < now else now) - self.compute_starts_at
        return 0.0 if passed <= 0.0 else min(passed, self.compute_s)

    def progress(self, now: float) -> float:
        """Of the job, 0 to 1."""
        return min(1.0, self.start_fraction + self.computed_s(now) / self.timeline.full_compute_s)

    def newest_checkpoint(self, now: float) -> tuple[float, float]:
        """How much of the job its newest checkpoint has, and how many seconds of its computing that took."""
        computed = self.computed_s(now)
        left = self.end is not None and self.end.outcome is Outcome.CHECKPOINTED
        kept = computed if left else checkpointed_s(computed, self.checkpoint_interval_s)
        return (self.start_fraction + kept / self.timeline.full_compute_s, kept) if kept else (0.0, 0.0)

    def to_history(self, number: int, now: float) -> ExecutionRecord:
        """As reports have it."""
        spans, moves = self._spans(self.ended_at or now)
        ending = self.end or SessionEnd(Outcome.RUNNING)
        told = (ending.outcome, self.site.name, self.node, ending.reason, ending.category)
        kept = self.computed_s(now) if ending.outcome is Outcome.SUCCEEDED else self.reused_compute_s
        return ExecutionRecord(number, merge_spans(spans), *told, input_transfers=tuple(moves), retained_compute_s=kept)

    def _spans(self, until: float) -> tuple[list[PhaseSpan], list[InputTransfer]]:
        """Of its course, what happened before it ended."""
        spans, moves, at = [], [], self.started_at
        for piece in self.timeline.phases:
            end = min(at + piece.duration_s, until)
            if end <= at:
                break
            spans.append(PhaseSpan(piece.phase, at, end))
            if piece.phase is Phase.TRANSFER_IN:
                whole = piece.is_complete and at + piece.duration_s <= until
                moves.append(InputTransfer(at, end - at, complete=whole))
            at = end
        return spans or [PhaseSpan(Phase.SETUP, self.started_at, until)], moves


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """A job in the queue or on a slot: for HTCondor, one submission, which may be started several times."""

    attempt_id: str  # of the decision that asked for it
    job_id: str
    queued_at: float
    avoid_sites: frozenset[str] = frozenset()  # to be avoided
    avoid_nodes: frozenset[str] = frozenset()
    session: SimulatedSession | None = None
    n_executions: int = 0
    status: str = "queued"  # queued, matched, running, held, gone
    version: int = 0  # what was planned for an older one does not happen
    n_updates: int = 0  # of what was told
    n_agent_events: int = 0  # of what its agent said
    emitter: str = ""  # of its agent

    @property
    def is_constrained(self) -> bool:
        return bool(self.avoid_sites or self.avoid_nodes)


@dataclass(slots=True, eq=False)
class SimulatedJobRecord:
    """What really happened to one job."""

    sessions: list[SimulatedSession] = field(default_factory=list)
    submitted_at: float = 0.0
    waits: list[PhaseSpan] = field(default_factory=list)

    def newest_checkpoint(self, now: float) -> tuple[float, SimulatedSession | None, float]:
        """The furthest: how much of the job it has, whose it is, and what it took."""
        best: tuple[float, SimulatedSession | None, float] = (0.0, None, 0.0)
        for stay in self.sessions:
            done, kept = stay.newest_checkpoint(now)
            if done > best[0]:
                best = (done, stay, kept)
        return best
