"""One session of a job on a slot, built from the events of a log: its phases, its transfers and its end.

HTCondor logs are not always accurate. `tests/data/condor-logs/README.md` lists the quirks that are corrected here.
"""

from __future__ import annotations

from itertools import pairwise

from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    Outcome,
    Phase,
    PhaseSpan,
    merge_spans,
)
from packtrain.report.readers.agent_timeline import AgentTimeline, add_agent_timelines
from packtrain.report.readers.condor_end_status import EndStatus

_ROUNDING_S = 1.0  # logs have whole seconds
_LOST_STATUS = EndStatus(Outcome.LOST, FailureCategory.UNKNOWN, "the log does not record how it ended")
_HOLD_OR_REMOVE_CODES = (1009, 1023)  # evicted because a user held or removed the job
_SAME_EVENT_S = 2.0
_CONTAINER_START_FAILED = 45  # a hold code, but the job is queued again


class SlotSession:
    """The time from claiming a slot to releasing it. `location` is (site, node)."""

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
        # Index in `_phase_starts` of a finished output transfer that may turn out to be a checkpoint; -1 for none.
        self._finished_output_index = -1
        self._interrupted_phase = Phase.EXECUTE  # the phase before it was suspended or disconnected
        self._checkpointed_s = 0.0
        self.ended_at: float | None = None
        self.end_status: EndStatus = _LOST_STATUS
        self.eviction_code = 0  # VacateReasonCode
        self.has_executed = self.has_reconnected = False
        self.location = ("", "")
        self.gpus = 0.0
        self.received_bytes: int | None = None
        self.sent_bytes: int | None = None
        self.slot_busy_s: float | None = None  # HTCondor's own measure of the slot time
        self.execute_s: float | None = None  # HTCondor's own measure of the execution time
        self.agent_timelines: dict[str, AgentTimeline] = {}  # by emitter, if it is a packtrain job

    # Events

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
        """End the input transfer. The event may follow that of the program's start, which is then moved."""
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
        """Start the output transfer. HTCondor also logs it after a failed input, when there is nothing to send."""
        self._enter_phase(event_at, Phase.TRANSFER_OUT if self.has_executed else Phase.SETUP)

    def on_output_finished(self, event_at: float) -> None:
        """End the output transfer. A later event shows whether it was a checkpoint and the program continued."""
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
        """Record a checkpoint that the log names as such."""
        self._checkpointed_s = self._executed_s(len(self._phase_starts), event_at)

    def close(self, event_at: float, end_status: EndStatus, interrupted: bool) -> None:
        """End the session. `interrupted`: the program had not ended by itself."""
        if self.ended_at is None:
            if interrupted and self._finished_output_index >= 0:
                self._mark_output_as_checkpoint()
            self.ended_at, self.end_status = event_at, end_status

    def update_cause(self, event_at: float, end_status: EndStatus) -> bool:
        """Replace the end status if the hold or removal that followed caused the end. Return whether it did."""
        simultaneous = self.ended_at is not None and event_at - self.ended_at <= _SAME_EVENT_S
        by_hold = 0 < self.eviction_code < 1000 and self.eviction_code != _CONTAINER_START_FAILED
        is_cause = (
            by_hold
            or self.eviction_code in _HOLD_OR_REMOVE_CODES
            or (self.eviction_code in (0, _CONTAINER_START_FAILED) and simultaneous)
        )
        if is_cause:
            self.end_status = end_status
        return is_cause

    def _mark_output_as_checkpoint(self) -> None:
        index, self._finished_output_index = self._finished_output_index, -1
        self._checkpointed_s = self._executed_s(index, self._phase_starts[index][0])
        self._phase_starts[index] = (self._phase_starts[index][0], Phase.CHECKPOINT)
        self._phase_starts[index + 1] = (self._phase_starts[index + 1][0], Phase.EXECUTE)

    def _executed_s(self, count: int, until: float) -> float:
        """Return the execution time in the first `count` phases."""
        starts = [*self._phase_starts[:count], (until, Phase.SETUP)]
        return sum(end - start for (start, phase), (end, _) in pairwise(starts) if phase is Phase.EXECUTE)

    # Results

    @property
    def started_at(self) -> float:
        return self._phase_starts[0][0]

    @property
    def has_input_transfer(self) -> bool:
        return bool(self._input_times)

    @property
    def current_phase(self) -> Phase:
        """The phase in which a hold at this moment would be reported."""
        last = self._phase_starts[-1][1]
        if not self.has_executed:
            return Phase.TRANSFER_IN if self._input_times else Phase.SETUP
        return (
            Phase.TRANSFER_OUT if self._finished_output_index >= 0 else Phase.EXECUTE if last is Phase.SETUP else last
        )

    def mark_lost(self, event_at: float, last_event_at: float) -> None:
        """End the session without an end event, because another one began. It was disconnected since its last event."""
        if self.ended_at is None:
            self.on_paused(max(last_event_at, self._phase_starts[-1][0]), Phase.DISCONNECTED)
            self.close(event_at, _LOST_STATUS, interrupted=False)

    def to_execution_record(self, number: int, earliest_start: float, now: float) -> ExecutionRecord:
        """Build the record.

        Args:
            number: The number of the execution within the job.
            earliest_start: The time before which the session cannot have begun.
            now: The end of a session that has not ended.
        """
        until = now if self.ended_at is None else self.ended_at
        status = self.end_status if self.ended_at is not None else EndStatus(Outcome.RUNNING, FailureCategory.NONE)
        spans = self._build_spans(earliest_start, until)
        executed_s = sum(span.duration_s for span in spans if span.phase is Phase.EXECUTE)
        succeeded = status.outcome is Outcome.SUCCEEDED
        record = ExecutionRecord(
            number,
            spans,
            status.outcome,
            *self.location,
            reason=status.reason,
            category=status.category,
            gpus=self.gpus,
            input_transfers=self._build_input_transfers(until),
            input_bytes=None if self.has_reconnected else self.received_bytes,
            output_bytes=None if self.has_reconnected else self.sent_bytes,
            retained_compute_s=executed_s if succeeded else min(self._checkpointed_s, executed_s),
        )
        return add_agent_timelines(record, list(self.agent_timelines.values()))

    def _build_spans(self, earliest_start: float, until: float) -> tuple[PhaseSpan, ...]:
        starts = list(self._phase_starts)
        until = self._slot_released_at(until)
        if self.eviction_code == _CONTAINER_START_FAILED:
            # HTCondor logs "executing" before it tries to start the container.
            starts = [(start, Phase.SETUP if phase is Phase.EXECUTE else phase) for start, phase in starts]
        starts += self._unlogged_output(until)
        claimed_at = self._slot_claimed_at(earliest_start, until)
        if claimed_at < starts[0][0]:
            starts.insert(0, (claimed_at, Phase.SETUP))
        ends = [start for start, _ in starts[1:]] + [until]
        return merge_spans(
            PhaseSpan(phase, min(start, until), min(end, until))
            for (start, phase), end in zip(starts, ends, strict=True)
        )

    def _unlogged_output(self, until: float) -> list[tuple[float, Phase]]:
        """Return the output transfer after a reconnect: HTCondor does not log it, but logs the execution time."""
        if not self.has_reconnected or self.execute_s is None or self._phase_starts[-1][1] is not Phase.EXECUTE:
            return []
        execute_started_at = next(start for start, phase in self._phase_starts if phase is Phase.EXECUTE)
        execute_ended_at = max(execute_started_at + self.execute_s, self._phase_starts[-1][0])
        return [(execute_ended_at, Phase.TRANSFER_OUT)] if execute_ended_at + _ROUNDING_S < until else []

    def _slot_released_at(self, until: float) -> float:
        """Return when the slot was released. After an error, the shadow logs the end of the session much later."""
        if (
            self.ended_at is None
            or self.slot_busy_s is None
            or until - self.started_at <= self.slot_busy_s + _ROUNDING_S
        ):
            return until
        return self.started_at + self.slot_busy_s

    def _slot_claimed_at(self, earliest_start: float, until: float) -> float:
        """Return when the slot was claimed: before the first event if transfers are queued or not logged."""
        if self.ended_at is None or self.slot_busy_s is None:
            return self.started_at
        return min(self.started_at, max(earliest_start, until - self.slot_busy_s))

    def _build_input_transfers(self, until: float) -> tuple[InputTransfer, ...]:
        transfers = []
        for number, (start, finished_at) in enumerate(self._input_times, 1):
            is_last = number == len(self._input_times)
            end = min(until, finished_at if finished_at is not None else self._implied_input_end(start, until))
            size_bytes = self.received_bytes if is_last and number == 1 and not self.has_reconnected else None
            complete = is_last and (self.has_executed or (self.ended_at is None and finished_at is not None))
            transfers.append(InputTransfer(start, max(0.0, end - start), size_bytes, complete=complete))
        return tuple(transfers)

    def _implied_input_end(self, start: float, until: float) -> float:
        """Return the start of the next phase, because the log has no end of this input transfer."""
        return next((phase_start for phase_start, _ in self._phase_starts if phase_start > start), until)
