"""One stay on a slot, drawn as its events come: when what began, and how it ended. Pure.

What HTCondor writes is not always what happened: see `tests/data/condor-logs/README.md` for the quirks that are
mended here.
"""

from __future__ import annotations

from itertools import pairwise

from packtrain.report.history import Attempt, Category, Move, Outcome, Phase, Span
from packtrain.report.readers.agent_timeline import Words, with_words
from packtrain.report.readers.condor_end_status import End
from packtrain.report.spans import joined

_ROUNDING_S = 1.0  # logs tell whole seconds
_LOST = End(Outcome.LOST, Category.UNKNOWN, "the log does not say how it ended")
_ASKED_FOR = (1009, 1023)  # evicted, since somebody held or removed the job
_ONE_MOMENT_S = 2.0
_NO_CONTAINER = 45  # a code of holds, but the job goes back to the queue


class Stay:
    """`place` is where: site and machine."""

    __slots__ = (
        "_before",
        "_inputs",
        "_kept_s",
        "_marks",
        "_output",
        "agents",
        "busy_s",
        "code",
        "end",
        "ended",
        "execute_s",
        "executed",
        "gpus",
        "place",
        "received",
        "reconnected",
        "sent",
    )

    def __init__(self, when: float) -> None:
        self._marks: list[tuple[float, Phase]] = [(when, Phase.START)]
        self._inputs: list[tuple[float, float | None]] = []
        self._output = -1  # the mark of an output that has arrived, while nobody knows whether the program goes on
        self._before = Phase.EXECUTE  # what was going on when it was suspended or disconnected
        self._kept_s = 0.0
        self.ended: float | None = None
        self.end: End = _LOST
        self.code = 0  # of its eviction
        self.executed = self.reconnected = False
        self.place = ("", "")
        self.gpus = 0.0
        self.received: int | None = None
        self.sent: int | None = None
        self.busy_s: float | None = None  # as HTCondor itself says: of the slot,
        self.execute_s: float | None = None  # and of the program
        self.agents: dict[str, Words] = {}  # of packtrain, if it is one of its jobs

    # What happens

    def _turn(self, when: float, phase: Phase) -> None:
        if self._output >= 0:
            self._note_checkpoint()
        self._marks.append((when, phase))

    def input_waits(self, when: float) -> None:
        self._turn(when, Phase.START)

    def input_starts(self, when: float) -> None:
        self._inputs.append((when, None))
        self._turn(when, Phase.TRANSFER_IN)

    def input_ends(self, when: float) -> None:
        """It may be told after the program has begun, which it cannot have."""
        if not self._inputs or self._inputs[-1][1] is not None:
            return
        self._inputs[-1] = (self._inputs[-1][0], when)
        if self._marks[-1][1] is Phase.EXECUTE:
            self._marks[-1] = (when, Phase.EXECUTE)
        elif self._marks[-1][1] is Phase.TRANSFER_IN:
            self._turn(when, Phase.START)

    def executes(self, when: float) -> None:
        self.executed = True
        self._turn(when, Phase.EXECUTE)

    def output_waits(self, when: float) -> None:
        self._turn(when, Phase.START)

    def output_starts(self, when: float) -> None:
        """After a failed input HTCondor says so, too; nothing is there to be sent."""
        self._turn(when, Phase.TRANSFER_OUT if self.executed else Phase.START)

    def output_ends(self, when: float) -> None:
        """Either the program had ended, or it saved a checkpoint and goes on: what follows tells."""
        if self._marks[-1][1] is Phase.TRANSFER_OUT:
            self._turn(when, Phase.START)
            self._output = len(self._marks) - 2

    def pauses(self, when: float, phase: Phase) -> None:
        if self._output >= 0:
            self._note_checkpoint()
        if self._marks[-1][1] not in (Phase.SUSPENDED, Phase.DISCONNECTED):
            self._before = self._marks[-1][1]
        self._turn(when, phase)

    def goes_on(self, when: float) -> None:
        if self._marks[-1][1] in (Phase.SUSPENDED, Phase.DISCONNECTED):
            self._turn(when, self._before)

    def saved(self, when: float) -> None:
        """A checkpoint that HTCondor itself calls one."""
        self._kept_s = self._executed_s(len(self._marks), when)

    def closes(self, when: float, end: End, running: bool) -> None:
        """`running`: it was no end of the program's own."""
        if self.ended is None:
            if running and self._output >= 0:
                self._note_checkpoint()
            self.ended, self.end = when, end

    def explains(self, when: float, end: End) -> bool:
        """A hold or a removal that follows: was it why the stay ended?"""
        at_once = self.ended is not None and when - self.ended <= _ONE_MOMENT_S
        by_hold = 0 < self.code < 1000 and self.code != _NO_CONTAINER
        why = by_hold or self.code in _ASKED_FOR or (self.code in (0, _NO_CONTAINER) and at_once)
        if why:
            self.end = end
        return why

    def _note_checkpoint(self) -> None:
        at, self._output = self._output, -1
        self._kept_s = self._executed_s(at, self._marks[at][0])
        self._marks[at] = (self._marks[at][0], Phase.CHECKPOINT)
        self._marks[at + 1] = (self._marks[at + 1][0], Phase.EXECUTE)

    def _executed_s(self, count: int, until: float) -> float:
        """Of the first marks."""
        marks = [*self._marks[:count], (until, Phase.START)]
        return sum(b[0] - a[0] for a, b in pairwise(marks) if a[1] is Phase.EXECUTE)

    # What it was

    @property
    def began(self) -> float:
        return self._marks[0][0]

    @property
    def receiving(self) -> bool:
        return bool(self._inputs)

    @property
    def phase(self) -> Phase:
        """For a person who asks in what it was held."""
        last = self._marks[-1][1]
        if not self.executed:
            return Phase.TRANSFER_IN if self._inputs else Phase.START
        return Phase.TRANSFER_OUT if self._output >= 0 else Phase.EXECUTE if last is Phase.START else last

    def lost(self, when: float, last: float) -> None:
        """Another one began and nothing ended this: from its last sign of life on nobody knows."""
        if self.ended is None:
            self.pauses(max(last, self._marks[-1][0]), Phase.DISCONNECTED)
            self.closes(when, _LOST, running=False)

    def sealed(self, number: int, floor: float, now: float) -> Attempt:
        """`floor`: it cannot have begun before; `now`: until then one that has not ended is known."""
        until = now if self.ended is None else self.ended
        end = self.end if self.ended is not None else End(Outcome.RUNNING, Category.NONE)
        spans = self._spans(floor, until)
        whole = sum(span.seconds for span in spans if span.phase is Phase.EXECUTE)
        made = Attempt(
            number,
            spans,
            end.outcome,
            *self.place,
            end.reason,
            end.category,
            self.gpus,
            self._moves(until),
            None if self.reconnected else self.received,
            None if self.reconnected else self.sent,
            whole if end.outcome is Outcome.SUCCEEDED else min(self._kept_s, whole),
        )
        return with_words(made, list(self.agents.values()))

    def _spans(self, floor: float, until: float) -> tuple[Span, ...]:
        marks = list(self._marks)
        until = self._freed_at(until)
        if self.code == _NO_CONTAINER:  # the container never came up; HTCondor says "executing" before it tries
            marks = [(when, Phase.START if phase is Phase.EXECUTE else phase) for when, phase in marks]
        marks += self._untold_output(until)
        began = self._taken_at(floor, until)
        if began < marks[0][0]:
            marks.insert(0, (began, Phase.START))
        ends = [when for when, _ in marks[1:]] + [until]
        return joined(
            Span(phase, min(start, until), min(end, until)) for (start, phase), end in zip(marks, ends, strict=True)
        )

    def _untold_output(self, until: float) -> list[tuple[float, Phase]]:
        """After a reconnect HTCondor does not tell of outputs; how long the program ran it does."""
        if not self.reconnected or self.execute_s is None or self._marks[-1][1] is not Phase.EXECUTE:
            return []
        began = next(when for when, phase in self._marks if phase is Phase.EXECUTE)
        ended = max(began + self.execute_s, self._marks[-1][0])
        return [(ended, Phase.TRANSFER_OUT)] if ended + _ROUNDING_S < until else []

    def _freed_at(self, until: float) -> float:
        """The slot may be free long before the log says that the stay ended: shadows linger after an error."""
        if self.ended is None or self.busy_s is None or until - self.began <= self.busy_s + _ROUNDING_S:
            return until
        return self.began + self.busy_s

    def _taken_at(self, floor: float, until: float) -> float:
        """The slot was taken before the log says so: where file transfers are not logged, or wait for their turn."""
        if self.ended is None or self.busy_s is None:
            return self.began
        return min(self.began, max(floor, until - self.busy_s))

    def _moves(self, until: float) -> tuple[Move, ...]:
        found = []
        for number, (start, told) in enumerate(self._inputs, 1):
            last = number == len(self._inputs)
            end = min(until, told if told is not None else self._input_cut(start, until))
            known = self.received if last and number == 1 and not self.reconnected else None
            whole = last and (self.executed or (self.ended is None and told is not None))
            found.append(Move(start, max(0.0, end - start), known, "", whole))
        return tuple(found)

    def _input_cut(self, start: float, until: float) -> float:
        """Nothing says that this input ended: where the next thing began."""
        return next((when for when, _ in self._marks if when > start), until)
