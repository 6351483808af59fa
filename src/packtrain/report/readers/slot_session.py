"""One stay on a slot, drawn as its events come: when what began, and how it ended. Pure.

What HTCondor writes is not always what happened: see `tests/data/condor-logs/README.md` for the quirks that are
mended here.
"""

from __future__ import annotations

from itertools import pairwise

from packtrain.report.history import ExecutionRecord, FailureCategory, InputTransfer, Outcome, Phase, PhaseSpan
from packtrain.report.readers.agent_timeline import AgentTimeline, add_agent_timelines
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.spans import merge_spans

_ROUNDING_S = 1.0  # logs tell whole seconds
_LOST_STATUS = EndStatus(Outcome.LOST, FailureCategory.UNKNOWN, "the log does not say how it ended")
_HOLD_OR_REMOVE_CODES = (1009, 1023)  # evicted, since somebody held or removed the job
_SAME_EVENT_S = 2.0
_CONTAINER_START_FAILED = 45  # a code of holds, but the job goes back to the queue


class SlotSession:
    """`place` is where: site and machine."""

    __slots__ = (
        "_checkpointed_s",
        "_finished_output_index",
        "_input_times",
        "_interrupted_phase",
        "_phase_starts",
        "agent_timelines",
        "end_status",
        "ended_at",
        "eviction_code",
        "execute_s",
        "gpus",
        "has_executed",
        "has_reconnected",
        "location",
        "received_bytes",
        "sent_bytes",
        "slot_busy_s",
    )

    def __init__(self, started_at: float) -> None:
        self._phase_starts: list[tuple[float, Phase]] = [(started_at, Phase.SETUP)]
        self._input_times: list[tuple[float, float | None]] = []
        self._finished_output_index = (
            -1
        )  # the mark of an output that has arrived, while nobody knows whether the program goes on
        self._interrupted_phase = Phase.EXECUTE  # what was going on when it was suspended or disconnected
        self._checkpointed_s = 0.0
        self.ended_at: float | None = None
        self.end_status: EndStatus = _LOST_STATUS
        self.eviction_code = 0  # of its eviction
        self.has_executed = self.has_reconnected = False
        self.location = ("", "")
        self.gpus = 0.0
        self.received_bytes: int | None = None
        self.sent_bytes: int | None = None
        self.slot_busy_s: float | None = None  # as HTCondor itself says: of the slot,
        self.execute_s: float | None = None  # and of the program
        self.agent_timelines: dict[str, AgentTimeline] = {}  # of packtrain, if it is one of its jobs

    # What happens

    def _enter_phase(self, event_at: float, phase: Phase) -> None:
        if self._finished_output_index >= 0:
            self._mark_output_as_checkpoint()
        self._phase_starts.append((event_at, phase))

    def on_input_queued(self, event_at: float) -> None:
        self._enter_phase(event_at, Phase.SETUP)

    def on_input_started(self, event_at: float) -> None:
        self._input_times.append((event_at, None))
        self._enter_phase(event_at, Phase.TRANSFER_IN)

    def on_input_finished(self, event_at: float) -> None:
        """It may be told after the program has begun, which it cannot have."""
        if not self._input_times or self._input_times[-1][1] is not None:
            return
        self._input_times[-1] = (self._input_times[-1][0], event_at)
        if self._phase_starts[-1][1] is Phase.EXECUTE:
            self._phase_starts[-1] = (event_at, Phase.EXECUTE)
        elif self._phase_starts[-1][1] is Phase.TRANSFER_IN:
            self._enter_phase(event_at, Phase.SETUP)

    def on_execute(self, event_at: float) -> None:
        self.has_executed = True
        self._enter_phase(event_at, Phase.EXECUTE)

    def on_output_queued(self, event_at: float) -> None:
        self._enter_phase(event_at, Phase.SETUP)

    def on_output_started(self, event_at: float) -> None:
        """After a failed input HTCondor says so, too; nothing is there to be sent."""
        self._enter_phase(event_at, Phase.TRANSFER_OUT if self.has_executed else Phase.SETUP)

    def on_output_finished(self, event_at: float) -> None:
        """Either the program had ended, or it saved a checkpoint and goes on: what follows tells."""
        if self._phase_starts[-1][1] is Phase.TRANSFER_OUT:
            self._enter_phase(event_at, Phase.SETUP)
            self._finished_output_index = len(self._phase_starts) - 2

    def on_paused(self, event_at: float, phase: Phase) -> None:
        if self._finished_output_index >= 0:
            self._mark_output_as_checkpoint()
        if self._phase_starts[-1][1] not in (Phase.SUSPENDED, Phase.DISCONNECTED):
            self._interrupted_phase = self._phase_starts[-1][1]
        self._enter_phase(event_at, phase)

    def on_resumed(self, event_at: float) -> None:
        if self._phase_starts[-1][1] in (Phase.SUSPENDED, Phase.DISCONNECTED):
            self._enter_phase(event_at, self._interrupted_phase)

    def on_checkpoint(self, event_at: float) -> None:
        """A checkpoint that HTCondor itself calls one."""
        self._checkpointed_s = self._executed_s(len(self._phase_starts), event_at)

    def close(self, event_at: float, end_status: EndStatus, interrupted: bool) -> None:
        """`running`: it was no end of the program's own."""
        if self.ended_at is None:
            if interrupted and self._finished_output_index >= 0:
                self._mark_output_as_checkpoint()
            self.ended_at, self.end_status = event_at, end_status

    def update_cause(self, event_at: float, end_status: EndStatus) -> bool:
        """A hold or a removal that follows: was it why the stay ended?"""
        at_once = self.ended_at is not None and event_at - self.ended_at <= _SAME_EVENT_S
        by_hold = 0 < self.eviction_code < 1000 and self.eviction_code != _CONTAINER_START_FAILED
        why = (
            by_hold
            or self.eviction_code in _HOLD_OR_REMOVE_CODES
            or (self.eviction_code in (0, _CONTAINER_START_FAILED) and at_once)
        )
        if why:
            self.end_status = end_status
        return why

    def _mark_output_as_checkpoint(self) -> None:
        at, self._finished_output_index = self._finished_output_index, -1
        self._checkpointed_s = self._executed_s(at, self._phase_starts[at][0])
        self._phase_starts[at] = (self._phase_starts[at][0], Phase.CHECKPOINT)
        self._phase_starts[at + 1] = (self._phase_starts[at + 1][0], Phase.EXECUTE)

    def _executed_s(self, count: int, until: float) -> float:
        """Of the first marks."""
        marks = [*self._phase_starts[:count], (until, Phase.SETUP)]
        return sum(b[0] - a[0] for a, b in pairwise(marks) if a[1] is Phase.EXECUTE)

    # What it was

    @property
    def started_at(self) -> float:
        return self._phase_starts[0][0]

    @property
    def has_input_transfer(self) -> bool:
        return bool(self._input_times)

    @property
    def current_phase(self) -> Phase:
        """For a person who asks in what it was held."""
        last = self._phase_starts[-1][1]
        if not self.has_executed:
            return Phase.TRANSFER_IN if self._input_times else Phase.SETUP
        return (
            Phase.TRANSFER_OUT if self._finished_output_index >= 0 else Phase.EXECUTE if last is Phase.SETUP else last
        )

    def mark_lost(self, event_at: float, last_event_at: float) -> None:
        """Another one began and nothing ended this: from its last sign of life on nobody knows."""
        if self.ended_at is None:
            self.on_paused(max(last_event_at, self._phase_starts[-1][0]), Phase.DISCONNECTED)
            self.close(event_at, _LOST_STATUS, interrupted=False)

    def to_execution_record(self, number: int, earliest_start: float, now: float) -> ExecutionRecord:
        """`floor`: it cannot have begun before; `now`: until then one that has not ended is known."""
        until = now if self.ended_at is None else self.ended_at
        end = self.end_status if self.ended_at is not None else EndStatus(Outcome.RUNNING, FailureCategory.NONE)
        spans = self._build_spans(earliest_start, until)
        whole = sum(span.duration_s for span in spans if span.phase is Phase.EXECUTE)
        made = ExecutionRecord(
            number,
            spans,
            end.outcome,
            *self.location,
            end.reason,
            end.category,
            self.gpus,
            self._build_input_transfers(until),
            None if self.has_reconnected else self.received_bytes,
            None if self.has_reconnected else self.sent_bytes,
            whole if end.outcome is Outcome.SUCCEEDED else min(self._checkpointed_s, whole),
        )
        return add_agent_timelines(made, list(self.agent_timelines.values()))

    def _build_spans(self, earliest_start: float, until: float) -> tuple[PhaseSpan, ...]:
        marks = list(self._phase_starts)
        until = self._slot_released_at(until)
        if (
            self.eviction_code == _CONTAINER_START_FAILED
        ):  # the container never came up; HTCondor says "executing" before it tries
            marks = [(when, Phase.SETUP if phase is Phase.EXECUTE else phase) for when, phase in marks]
        marks += self._unlogged_output(until)
        began = self._slot_claimed_at(earliest_start, until)
        if began < marks[0][0]:
            marks.insert(0, (began, Phase.SETUP))
        ends = [when for when, _ in marks[1:]] + [until]
        return merge_spans(
            PhaseSpan(phase, min(start, until), min(end, until))
            for (start, phase), end in zip(marks, ends, strict=True)
        )

    def _unlogged_output(self, until: float) -> list[tuple[float, Phase]]:
        """After a reconnect HTCondor does not tell of outputs; how long the program ran it does."""
        if not self.has_reconnected or self.execute_s is None or self._phase_starts[-1][1] is not Phase.EXECUTE:
            return []
        began = next(when for when, phase in self._phase_starts if phase is Phase.EXECUTE)
        ended = max(began + self.execute_s, self._phase_starts[-1][0])
        return [(ended, Phase.TRANSFER_OUT)] if ended + _ROUNDING_S < until else []

    def _slot_released_at(self, until: float) -> float:
        """The slot may be free long before the log says that the stay ended: shadows linger after an error."""
        if (
            self.ended_at is None
            or self.slot_busy_s is None
            or until - self.started_at <= self.slot_busy_s + _ROUNDING_S
        ):
            return until
        return self.started_at + self.slot_busy_s

    def _slot_claimed_at(self, earliest_start: float, until: float) -> float:
        """The slot was taken before the log says so: where file transfers are not logged, or wait for their turn."""
        if self.ended_at is None or self.slot_busy_s is None:
            return self.started_at
        return min(self.started_at, max(earliest_start, until - self.slot_busy_s))

    def _build_input_transfers(self, until: float) -> tuple[InputTransfer, ...]:
        found = []
        for number, (start, told) in enumerate(self._input_times, 1):
            last = number == len(self._input_times)
            end = min(until, told if told is not None else self._implied_input_end(start, until))
            known = self.received_bytes if last and number == 1 and not self.has_reconnected else None
            whole = last and (self.has_executed or (self.ended_at is None and told is not None))
            found.append(InputTransfer(start, max(0.0, end - start), known, "", whole))
        return tuple(found)

    def _implied_input_end(self, start: float, until: float) -> float:
        """Nothing says that this input ended: where the next thing began."""
        return next((when for when, _ in self._phase_starts if when > start), until)
