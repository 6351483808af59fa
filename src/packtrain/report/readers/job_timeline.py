"""The course of one job while its events come: waiting, held, on a slot. Pure."""

from __future__ import annotations

from packtrain.report.history import Attempt, Category, Job, Outcome, Phase, Span
from packtrain.report.readers.agent_timeline import Words, kept_by_emitter, with_kept
from packtrain.report.readers.condor_end_status import End
from packtrain.report.readers.slot_session import Stay

_WITH_HOLD = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT, Outcome.REMOVED)
_NO_END = End(Outcome.RUNNING, Category.NONE)


class Course:
    """A job that has not ended. `now` of a method is the moment of which an event tells."""

    __slots__ = (
        "_heard",
        "_held_in",
        "_held_since",
        "_idle_since",
        "attempts",
        "end",
        "host",
        "last",
        "stay",
        "submitted",
        "trouble",
        "waits",
    )

    def __init__(self, now: float) -> None:
        self.submitted: float | None = None  # unknown where the beginning of a log is lost
        self.host = ""  # from which it was submitted
        self._idle_since: float | None = None
        self._held_since: float | None = None
        self._held_in: Phase | None = None
        self._heard: dict[int, list[Words]] = {}  # by the place of an attempt: its agents, if they are packtrain's
        self.end = _NO_END  # what its last stay ended by, or what it is held for
        self.trouble = ""  # what a machine said of its own accord
        self.attempts: list[Attempt] = []
        self.waits: list[Span] = []
        self.stay: Stay | None = None
        self.last = now

    @property
    def on_slot(self) -> Stay | None:
        """The stay that has not ended."""
        return self.stay if self.stay is not None and self.stay.ended is None else None

    @property
    def held(self) -> bool:
        return self._held_since is not None

    @property
    def held_in(self) -> Phase | None:
        return self._held_in if self.held else None

    def settles(self, now: float) -> None:
        """Nothing more is told: what lasts is known until `now`."""
        self._seal(now)
        self._stop_waiting(now)

    def submits(self, now: float, host: str) -> None:
        """The first word of a job, if the log is in order."""
        if self.submitted is None and self.stay is None and not self.attempts and not self.held:
            self.submitted = self._idle_since = now
            self.host = host

    def begins(self, now: float) -> Stay:
        """A stay on a slot; what was before it is over."""
        if self.stay is not None:
            self.stay.lost(now, self.last)
        self._seal(now)
        self._stop_waiting(now)
        self.stay, self.trouble, self._held_in = Stay(now), "", None
        return self.stay

    def leaves(self, now: float, end: End, running: bool = True) -> None:
        """Its slot, for the queue. `running`: not because the program had ended."""
        if self.on_slot is not None:
            self.on_slot.closes(now, end, running)
            self._idle_since, self.end = now, end

    def is_held(self, now: float, end: End, running: bool) -> None:
        self._held_in = self._struck(now, end, running)
        self._seal(now)
        self._stop_waiting(now)
        self._held_since, self.end = now, end

    def _struck(self, now: float, end: End, running: bool) -> Phase:
        """What a hold put an end to: a stay, or waiting for one."""
        if self.stay is None:
            return Phase.QUEUED
        phase = self.stay.phase
        if self.stay.ended is None:
            self.stay.closes(now, end, running)
            return phase
        return phase if self.stay.explains(now, end) else Phase.QUEUED

    def is_released(self, now: float) -> None:
        if self.held:
            self._stop_waiting(now)
            self._idle_since, self._held_in, self.end = now, None, _NO_END

    def finished(self, now: float, end: End) -> None:
        """For good, by itself or by others."""
        if self.held and end.outcome is Outcome.REMOVED:  # people remove what is held: that is not why it failed
            end = End(end.outcome, self.end.category, f"{self.end.reason}; then removed")
        if self.stay is not None and self.stay.ended is None:
            self.stay.closes(now, end, running=False)
        elif self.stay is not None:
            self.stay.explains(now, end)
        self._seal(now)
        self._stop_waiting(now)
        self.end, self.last = end, now

    def drawn(self, id_: str, now: float, over: bool) -> Job:
        """As it is at `now`. One that is held counts as ended: nothing happens by itself any more."""
        ended = self.last if over else self._held_since
        end = self.end if over or self.held else _NO_END._replace(category=self.end.category, reason=self.end.reason)
        if not over:
            self.settles(now)
        self._note_what_was_kept()
        in_phase = self._held_in if end.outcome in _WITH_HOLD else None
        told = (None, end.category, end.reason, in_phase)
        return Job(id_, tuple(self.attempts), end.outcome, self.submitted, ended, tuple(self.waits), *told)

    def _note_what_was_kept(self) -> None:
        kept = kept_by_emitter(words for agents in self._heard.values() for words in agents)
        for place, agents in self._heard.items():
            self.attempts[place] = with_kept(self.attempts[place], agents, kept)

    def _seal(self, now: float) -> None:
        """Nothing more will be told of this stay."""
        if self.stay is None:
            return
        made = self.stay.sealed(len(self.attempts) + 1, self._free_since(), now)
        if self.stay.agents:
            self._heard[len(self.attempts)] = list(self.stay.agents.values())
        self.attempts.append(made)
        self._trim_last_wait(made.start)
        if self.stay.ended is not None and self._idle_since is not None:
            self._idle_since = made.end
        self.stay = None

    def _free_since(self) -> float:
        """Before this it cannot have been on its newest slot."""
        ends = [self.submitted or 0.0, *(a.end for a in self.attempts[-1:])]
        held = [wait.end for wait in self.waits[-2:] if wait.phase is Phase.HELD]
        return max(ends + held)

    def _trim_last_wait(self, until: float) -> None:
        """It was on its slot already, as was told only at the end."""
        if self.waits and self.waits[-1].end > until:
            wait = self.waits.pop()
            self._wait(wait.phase, wait.start, until)

    def _stop_waiting(self, now: float) -> None:
        if self._held_since is not None:
            self._wait(Phase.HELD, self._held_since, now)
        elif self._idle_since is not None:
            self._wait(Phase.QUEUED, self._idle_since, now)
        self._held_since = self._idle_since = None

    def _wait(self, phase: Phase, start: float, end: float) -> None:
        if end > start:
            self.waits.append(Span(phase, start, end))
