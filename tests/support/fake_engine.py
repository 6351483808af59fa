"""An Engine without processes: it plays agents by a script and writes real journals into the attempts' folders.

What an attempt did lies in its folder (`claim`, `over`), so that a new object finds what an earlier one started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packtrain.engines.api import Capabilities, Sighting, Ticket
from packtrain.events import Event, Failure, JournalReader, kinds
from packtrain.plan import AttemptFolder, RunFolder

SUCCEED, LOST, HANG = "succeed", "lost", "hang"  # every other word of a script is the kind of a failure


class FakeEngine:
    """`script`: by job, how its attempts end, one after the other; the last word holds for all that follow."""

    def __init__(
        self,
        folder: RunFolder,
        script: Mapping[str, Sequence[str]] | None = None,
        capacity: int = 100,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.capabilities = Capabilities("fake", containers=False, cpus=1, memory_mb=1024, gpus=0)
        self._folder, self._capacity, self._between = folder, capacity, between
        self._script = {} if script is None else script
        self._queued: dict[str, Ticket] = {}
        self._running: dict[str, Ticket] = {}
        self._cancelled: set[str] = set()

    def submit(self, tickets: Sequence[Ticket]) -> Mapping[str, str]:
        self._note(tickets)
        for ticket in tickets:
            if ticket.decision not in self._running and not self._attempt(ticket).claim.exists():
                self._queued[ticket.decision] = ticket
        self._start_what_fits()
        return {ticket.decision: "native" for ticket in tickets}

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        known = [ticket for ticket in tickets if self._attempt(ticket).claim.exists()]
        self._running.update({t.decision: t for t in known if not _over(self._attempt(t)).exists()})
        return [self._sighting(ticket) for ticket in known]

    def cancel(self, decisions: Sequence[str]) -> None:
        self._cancelled.update(d for d in decisions if d in self._queued or d in self._running)

    def release(self, decisions: Sequence[str]) -> None:
        self.released = [*getattr(self, "released", []), *decisions]

    def accept(self, tickets: Sequence[Ticket]) -> None:
        self.accepted = [*getattr(self, "accepted", []), *(ticket.decision for ticket in tickets)]

    def poll(self) -> Sequence[Sighting]:
        before_start = [self._queued.pop(d) for d in sorted(self._cancelled & set(self._queued))]
        gone = [Sighting(t.decision, t.job.id, "gone", detail="cancelled before it started") for t in before_start]
        for ticket in self._running.values():
            self._play(ticket)
        seen = [self._sighting(ticket) for ticket in self._running.values()]
        for sighting in seen:
            if sighting.status == "gone":
                del self._running[sighting.decision]
        self._start_what_fits()
        return gone + seen

    def wait(self, timeout: float) -> None:
        self._between()

    def submitted(self) -> list[str]:
        """The decisions of every `submit`, by whichever object and process."""
        path = self._folder.root / "pool.log"
        return path.read_text().split() if path.exists() else []

    def _note(self, tickets: Sequence[Ticket]) -> None:
        self._folder.root.mkdir(parents=True, exist_ok=True)
        with open(self._folder.root / "pool.log", "a") as log:
            log.writelines(f"{ticket.decision}\n" for ticket in tickets)

    def _attempt(self, ticket: Ticket) -> AttemptFolder:
        return self._folder.attempt(ticket.job.id, ticket.decision)

    def _start_what_fits(self) -> None:
        for decision in list(self._queued):
            if len(self._running) >= self._capacity:
                return
            ticket = self._running[decision] = self._queued.pop(decision)
            self._attempt(ticket).root.mkdir(parents=True)
            self._attempt(ticket).claim.touch()
            self._say(ticket, kinds.ATTEMPT_STARTED, decision=decision, host="fake", pid=1, site="fake")

    def _play(self, ticket: Ticket) -> None:
        words = self._script.get(ticket.job.id, (SUCCEED,))
        number = int(ticket.decision.rpartition("-")[2])
        word = words[min(number, len(words)) - 1]
        if ticket.decision in self._cancelled:
            self._end(ticket, "failed", "terminated")
        elif word == SUCCEED:
            self._end(ticket, "succeeded")
        elif word == LOST:
            _over(self._attempt(ticket)).write_text("-9")
        elif word != HANG:
            self._end(ticket, "failed", word)

    def _end(self, ticket: Ticket, outcome: str, kind: str = "") -> None:
        failure = Failure.of(kind, "steps", "by the script") if kind else None
        code = failure.exit_code if failure else 0
        data = failure.to_data() if failure else None
        self._say(ticket, kinds.ATTEMPT_ENDED, outcome=outcome, exit_code=code, failure=data, seconds=1.0)
        _over(self._attempt(ticket)).write_text(str(code))

    def _sighting(self, ticket: Ticket) -> Sighting:
        over = _over(self._attempt(ticket))
        if not over.exists():
            return Sighting(ticket.decision, ticket.job.id, "running", "native", "fake")
        return Sighting(ticket.decision, ticket.job.id, "gone", "native", "fake", int(over.read_text()), "it ended")

    def _say(self, ticket: Ticket, kind: str, **data: Any) -> None:
        path = self._attempt(ticket).journal
        seq = len(JournalReader(path).read()) + 1
        event = Event(self._folder.root.name, ticket.job.id, f"agent-{ticket.decision}", seq, kind, 1.0, 1.0, data)
        with open(path, "a") as journal:
            journal.write(event.to_json() + "\n")


def _over(attempt: AttemptFolder) -> Path:
    return attempt.root / "over"
