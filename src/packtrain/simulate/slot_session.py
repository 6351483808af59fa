"""One session on a slot, an attempt in the queue or on a slot, and the record of a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.report.history import ExecutionRecord, InputTransfer, Outcome, Phase, PhaseSpan
from packtrain.simulate.job_behaviour import SessionEnd, SessionTimeline, checkpointed_s
from packtrain.simulate.pool_model import SiteModel
from packtrain.state.slot_time import SlotTimeline, merge_spans


@dataclass(slots=True, eq=False)
class SimulatedSession:
    """One execution of an attempt on a slot."""

    site: SiteModel
    node: str
    started_at: float
    timeline: SessionTimeline
    start_fraction: float  # completed share of the job at the start
    checkpoint_interval_s: float | None
    ended_at: float = 0.0  # 0: still running
    end: SessionEnd | None = None
    reused_compute_s: float = 0.0  # compute time that a later session resumed from
    compute_starts_at: float = 0.0  # when the program starts
    compute_s: float = 0.0  # run time of the program if nothing interrupts it

    def __post_init__(self) -> None:
        self.compute_starts_at = self.started_at + self.timeline.setup_s
        self.compute_s = sum(one.duration_s for one in self.timeline.phases if one.phase is Phase.EXECUTE)

    def computed_s(self, now: float) -> float:
        """Return how long the program has run."""
        elapsed = (self.ended_at if 0.0 < self.ended_at < now else now) - self.compute_starts_at
        return 0.0 if elapsed <= 0.0 else min(elapsed, self.compute_s)

    def progress(self, now: float) -> float:
        """Return the completed share of the job, 0 to 1."""
        return min(1.0, self.start_fraction + self.computed_s(now) / self.timeline.full_compute_s)

    def newest_checkpoint(self, now: float) -> tuple[float, float]:
        """Return the share of the job in the newest checkpoint and the compute time of this session in it."""
        computed = self.computed_s(now)
        saved_at_exit = self.end is not None and self.end.outcome is Outcome.CHECKPOINTED
        saved_s = computed if saved_at_exit else checkpointed_s(computed, self.checkpoint_interval_s)
        return (self.start_fraction + saved_s / self.timeline.full_compute_s, saved_s) if saved_s else (0.0, 0.0)

    def to_history(self, number: int, now: float) -> ExecutionRecord:
        """Return the session as reports represent it."""
        spans, transfers = self._spans(self.ended_at or now)
        end = self.end or SessionEnd(Outcome.RUNNING)
        return ExecutionRecord(
            number,
            merge_spans(spans),
            end.outcome,
            self.site.name,
            self.node,
            end.reason,
            end.category,
            input_transfers=tuple(transfers),
            retained_compute_s=self.computed_s(now) if end.outcome is Outcome.SUCCEEDED else self.reused_compute_s,
        )

    def _spans(self, until: float) -> tuple[list[PhaseSpan], list[InputTransfer]]:
        """Return the phases and input transfers that took place before `until`."""
        spans, transfers, start = [], [], self.started_at
        for phase in self.timeline.phases:
            end = min(start + phase.duration_s, until)
            if end <= start:
                break
            spans.append(PhaseSpan(phase.phase, start, end))
            if phase.phase is Phase.TRANSFER_IN:
                is_complete = phase.is_complete and start + phase.duration_s <= until
                transfers.append(InputTransfer(start, end - start, complete=is_complete))
            start = end
        return spans or [PhaseSpan(Phase.SETUP, self.started_at, until)], transfers


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """An attempt in the queue or on a slot; the pool may execute it several times."""

    attempt_id: str
    job_id: str
    avoid_sites: frozenset[str] = frozenset()
    avoid_nodes: frozenset[str] = frozenset()
    session: SimulatedSession | None = None
    n_executions: int = 0
    status: str = "queued"  # queued, matched, running, held, gone
    version: int = 0  # callbacks scheduled for an older version are ignored
    n_updates: int = 0
    n_agent_events: int = 0
    emitter: str = ""  # of the current agent
    timeline: SlotTimeline = field(default_factory=SlotTimeline)

    @property
    def is_constrained(self) -> bool:
        return bool(self.avoid_sites or self.avoid_nodes)


@dataclass(slots=True, eq=False)
class SimulatedJobRecord:
    """The sessions of one job, and the timelines of its attempts."""

    sessions: list[SimulatedSession] = field(default_factory=list)
    submitted_at: float = 0.0
    timelines: list[SlotTimeline] = field(default_factory=list)

    def newest_checkpoint(self, now: float) -> tuple[float, SimulatedSession | None, float]:
        """Return the furthest checkpoint: the share of the job in it, its session and its compute time."""
        best: tuple[float, SimulatedSession | None, float] = (0.0, None, 0.0)
        for session in self.sessions:
            done_fraction, saved_s = session.newest_checkpoint(now)
            if done_fraction > best[0]:
                best = (done_fraction, session, saved_s)
        return best
