"""What an agent of packtrain did inside of its stay on a slot. Pure.

Its clock is the worker's, and is never compared with another: what it took is laid into the time that the engine's log
says the program ran. What no agent explains is setting up, and comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from packtrain.events import Event, kinds
from packtrain.report.history import Attempt, Move, Outcome, Phase, Span
from packtrain.report.number_format import printable
from packtrain.report.readers.values import amount_of, whole_of
from packtrain.report.spans import joined

# Looking at outputs is neither the program's work nor a transfer; it takes no time worth a colour of its own.
_PHASES = {"fetch": Phase.TRANSFER_IN, "unpack": Phase.UNPACK, "steps": Phase.EXECUTE, "sync": Phase.TRANSFER_OUT}
_KEPT = "kept by"  # begins the source of inputs that the attempt before had brought

_TINY_S = 1e-6

Piece = tuple[Phase, float]  # what, and how many seconds


@dataclass
class Words:
    """What one agent said, as far as it tells of time. `mono` of its events is one clock."""

    emitter: str
    began: float | None = None
    ended: float | None = None
    last: float = 0.0
    stages: list[tuple[str, float, float | None, Mapping[str, Any]]] = field(default_factory=list)
    saves: dict[int, float] = field(default_factory=dict)  # by generation: when it was what the program had reached
    restored: Mapping[str, Any] = field(default_factory=dict)
    moved: int = 0  # bytes of inputs, by the newest progress
    farewell: Mapping[str, Any] = field(default_factory=dict)  # its last word
    wall: float = 0.0  # of its first event, for engines whose clock is the worker's

    def hear(self, event: Event) -> None:
        """In the order of its seq."""
        self.last = max(self.last, event.mono)
        handler = _HEARS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def _start(self, event: Event) -> None:
        self.began, self.wall = event.mono, event.wall

    def _end(self, event: Event) -> None:
        self.ended, self.farewell = event.mono, event.data
        seconds = amount_of(event.data.get("seconds"))
        if seconds is not None and self.began is not None:
            early = self.began - (event.mono - seconds)  # it woke before it could say so
            self.began, self.wall = self.began - max(0.0, early), self.wall - max(0.0, early)

    def _start_stage(self, event: Event) -> None:
        self.stages.append((str(event.data.get("stage", "")), event.mono, None, {}))

    def _end_stage(self, event: Event) -> None:
        name, seconds = str(event.data.get("stage", "")), amount_of(event.data.get("seconds")) or 0.0
        if self.stages and self.stages[-1][0] == name and self.stages[-1][2] is None:
            self.stages.pop()
        self.stages.append((name, event.mono - seconds, event.mono, event.data))

    def _save(self, event: Event) -> None:
        generation = event.data.get("generation")
        if isinstance(generation, int):
            self.saves[generation] = event.mono - (amount_of(event.data.get("seconds")) or 0.0)

    def _restore(self, event: Event) -> None:
        self.restored = event.data

    def _progress(self, event: Event) -> None:
        if event.data.get("stage") == "fetch":
            self.moved = whole_of(event.data.get("done")) or self.moved

    # What it was

    def pieces(self) -> Iterator[Piece]:
        """One behind the other, from its first to its last sign of life."""
        now = self.began if self.began is not None else self.stages[0][1] if self.stages else self.last
        for (name, start, _, data), until in zip(self.stages, self._ends(), strict=True):
            if start > now:
                yield Phase.START, start - now
            yield from self._of_stage(name, max(0.0, until - max(start, now)), data)
            now = max(now, until)
        if self.last > now:
            yield Phase.START, self.last - now

    def _ends(self) -> list[float]:
        """Of the stages. Of an agent that was removed only live words came, which tell when stages began."""
        nexts = [*(start for _, start, _, _ in self.stages[1:]), self.last]
        return [
            following if end is None else end for (_, _, end, _), following in zip(self.stages, nexts, strict=False)
        ]

    @property
    def seconds(self) -> float:
        """From its first to its last sign of life."""
        return sum(seconds for _, seconds in self.pieces())

    def _of_stage(self, name: str, seconds: float, data: Mapping[str, Any]) -> Iterator[Piece]:
        """The checkpoint is brought back at the end of the stage fetch."""
        restoring = 0.0
        if name == "fetch" and self.restored:
            restoring = min(seconds, amount_of(self.restored.get("seconds")) or 0.0)
            if not data.get("bytes"):
                restoring = seconds
        yield _PHASES.get(name, Phase.START), seconds - restoring
        yield Phase.CHECKPOINT, restoring

    def executed_until(self, moment: float) -> float:
        """Seconds of its program until then."""
        told = zip(self.stages, self._ends(), strict=True)
        return sum(max(0.0, min(end, moment) - start) for (name, start, _, _), end in told if name == "steps")

    @property
    def executed(self) -> float:
        return self.executed_until(self.last)

    @property
    def doing(self) -> Phase:
        """What it did when it was last heard of."""
        under_way = self.stages[-1] if self.stages and self.stages[-1][2] is None else None
        return _PHASES.get(under_way[0], Phase.START) if under_way else Phase.START

    def move(self) -> Move | None:
        """Of its inputs. One that was kept from the attempt before is none. Its times are durations since it began."""
        for name, start, end, data in self.stages:
            if name == "fetch" and not str(data.get("source", "")).startswith(_KEPT):
                size = whole_of(data.get("bytes")) or self.moved
                seconds = max(0.0, (self.last if end is None else end) - start)
                whole = end is not None and not data.get("failure")
                if size:
                    return Move(start - (self.began or start), seconds, size, host_of(data), whole)
        return None

    def counted(self, stage: str, what: str) -> int | None:
        """Of a stage that ended."""
        found = [data.get(what) for name, _, end, data in self.stages if name == stage and end is not None]
        return whole_of(found[-1]) if found else None


_HEARS = {
    kinds.ATTEMPT_STARTED: Words._start,
    kinds.ATTEMPT_ENDED: Words._end,
    kinds.STAGE_STARTED: Words._start_stage,
    kinds.STAGE_ENDED: Words._end_stage,
    kinds.CHECKPOINT_SAVED: Words._save,
    kinds.CHECKPOINT_RESTORED: Words._restore,
    kinds.PROGRESS: Words._progress,
}
HEARD = frozenset(_HEARS)


def host_of(data: Mapping[str, Any]) -> str:
    """Of the last source that gave bytes."""
    source = str(data.get("source", ""))
    return printable(urlsplit(source).netloc.rpartition("@")[2] or source)


def with_words(attempt: Attempt, agents: Sequence[Words]) -> Attempt:
    """The attempt, with what its agents told of themselves."""
    if not agents:
        return attempt
    filled = poured(attempt, agents)
    return replace(
        filled,
        moves=(*attempt.moves, *_placed(filled, _begin_of_program(attempt), agents)),
        bytes_in=_sum(words.counted("fetch", "bytes") for words in agents),
        bytes_out=_sum(words.counted("sync", "bytes") for words in agents),
    )


def _begin_of_program(attempt: Attempt) -> float:
    return next((span.start for span in attempt.spans if span.phase is Phase.EXECUTE), attempt.start)


def _placed(attempt: Attempt, since: float, agents: Sequence[Words]) -> Iterator[Move]:
    """The agents' own transfers, each where it was poured; what the pool transferred was before."""
    starts = [span.start for span in attempt.spans if span.phase is Phase.TRANSFER_IN and span.start >= since]
    moves = [move for words in agents if (move := words.move()) is not None]
    for place, move in enumerate(moves):
        yield replace(move, start=starts[min(place, len(starts) - 1)] if starts else since)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def kept_by_emitter(agents: Iterable[Words]) -> dict[str, float]:
    """Computing that another agent went on from: until the checkpoint that it took was saved."""
    known = {words.emitter: words for words in agents}
    kept: dict[str, float] = {}
    for words in known.values():
        source = known.get(str(words.restored.get("emitter", "")))
        saved = source.saves.get(words.restored.get("generation", -1)) if source else None
        if source is not None and saved is not None:
            kept[source.emitter] = max(kept.get(source.emitter, 0.0), source.executed_until(saved))
    return kept


def with_kept(attempt: Attempt, agents: Sequence[Words], kept: Mapping[str, float]) -> Attempt:
    """Of several agents in one stay: all before the one that was last gone on from, and its own."""
    executed, total, before = attempt.of(Phase.EXECUTE), 0.0, 0.0
    for words in agents:
        if words.emitter in kept:
            total = before + kept[words.emitter]
        before += words.executed
    whole = attempt.outcome is Outcome.SUCCEEDED
    return replace(attempt, kept_s=executed if whole else min(executed, total))


def poured(attempt: Attempt, agents: Sequence[Words]) -> Attempt:
    """The attempt, with what its agents did where the engine's log only knows that the program ran."""
    pieces = [piece for words in agents for piece in words.pieces() if piece[1] > 0]
    room = attempt.of(Phase.EXECUTE)
    if not agents or not room:
        return attempt
    taken = sum(seconds for _, seconds in pieces)
    if taken > room:
        fitted = [(phase, seconds * room / taken) for phase, seconds in pieces]
    elif agents[-1].ended is None:  # it had no time to say more: what it did last, it did until its end
        fitted = [*pieces, (agents[-1].doing, room - taken)]
    else:
        fitted = [(Phase.START, room - taken), *pieces]
    return replace(attempt, spans=joined(_flowing(attempt.spans, fitted)))


def _flowing(spans: Iterable[Span], pieces: Sequence[Piece]) -> Iterator[Span]:
    """The pieces one behind the other in the spans of EXECUTE; other spans stay where they are."""
    left = list(reversed([piece for piece in pieces if piece[1] > 0]))
    for span in spans:
        if span.phase is not Phase.EXECUTE:
            yield span
            continue
        now = span.start
        while now < span.end and left:
            phase, seconds = left.pop()
            until = min(span.end, now + seconds)
            if now + seconds - until > _TINY_S:
                left.append((phase, now + seconds - until))
            elif span.end - until < _TINY_S:
                until = span.end  # of rounding, nothing is left over
            if until > now:
                yield Span(phase, now, until)
            now = until
        if now < span.end:
            yield Span(Phase.START, now, span.end)
