"""Live words from a running job: what the journal tells, by Chirp, seldom enough for a pool of ten thousand jobs.

Stage changes and checkpoints go at once, as lines of the user log; figures as attributes of the job, the newest of
each, at most every so many seconds. HTCondor writes a line of the user log for each attribute that is set, too: so a
job speaks the less often the older it is, and its logs are told within a budget.
A proxy that is slow, dead or not there costs the job nothing: all of it happens in a thread of its own, and the journal
comes home with the outputs anyway.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from packtrain.agent.live.chirp import LONGEST_LINE, Chirp, RefusedError, quoted
from packtrain.condor.classads import old_value
from packtrain.events import Event, kinds

LINE = "packtrain "
_LONGEST_LOG_LINE = 1000  # HTCondor cuts at 1023
_GATHER_S = 0.2  # stages that last no longer than this are not worth a line
_TIMEOUT_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0
_END_S = 3.0
_AGE_SHARE = 0.01  # of a job's age: the least time between two updates, if that is longer
_TAIL = 2048
_SHORTEST_TAIL = 200
_FIRST_BUDGET = 8 * _TAIL
_BUDGET_A_UPDATE = 40.0  # bytes of logs, for each update that the run allows the job
_MOST_LINES = 50  # that wait for a proxy
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '%"\\')
_LATER = "Chirp"  # what names of delayed attributes begin with

_AT_ONCE = frozenset({kinds.ATTEMPT_STARTED, kinds.ATTEMPT_ENDED, kinds.CHECKPOINT_RESTORED})
_NUMBERS = {"epoch": "PacktrainEpoch", "step": "PacktrainStep", "loss": "PacktrainLoss"}
_NO_METRIC = frozenset({*_NUMBERS, "steps", "batch", "batches", "steps_per_epoch"})


class Figures:
    """What there is to tell. Pure: it hears events, and says which lines and attributes are new."""

    def __init__(self) -> None:
        self._now: dict[str, Any] = {}
        self._told: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._newest: dict[str, Event] = {}  # the stage, the checkpoint
        self._lines: list[Event] = []
        self._seen = 0
        self.urgent = False  # the stage has changed since it was told

    def hear(self, event: Event) -> None:
        if event.kind in _AT_ONCE:
            self._lines.append(event)
        elif event.kind in (kinds.STAGE_STARTED, kinds.CHECKPOINT_SAVED):
            self._newest[event.kind] = event
        if event.kind in (kinds.STAGE_STARTED, kinds.ATTEMPT_ENDED):
            self._now["PacktrainStage"] = str(event.data.get("stage", "ended"))
            self.urgent = True
        elif event.kind == kinds.PROGRESS and event.data.get("stage") == "fetch":
            self._now.update(PacktrainDone=event.data.get("done"), PacktrainTotal=event.data.get("total"))
        elif event.kind == kinds.METRIC:
            self._hear_metric(event.data)

    def _hear_metric(self, data: Any) -> None:
        for name, attribute in _NUMBERS.items():
            if type(data.get(name)) in (int, float):
                self._now[attribute] = data[name]
        self._metrics.update((name, value) for name, value in data.items() if name not in _NO_METRIC)
        told = json.dumps(self._metrics)
        if self._metrics and len(told) <= _TAIL // 2 and "\\" not in told:
            self._now["PacktrainMetric"] = told

    def lines(self, checkpoints: bool = True) -> list[str]:
        """For the user log, in the order in which things happened; of stages or checkpoints that came together only
        the last."""
        kept = {} if checkpoints else {k: e for k, e in self._newest.items() if k == kinds.CHECKPOINT_SAVED}
        events = [*self._lines, *(event for kind, event in self._newest.items() if kind not in kept)]
        self._lines, self._newest = [], kept
        told = (LINE + json.dumps(json.loads(event.to_json())) for event in sorted(events, key=lambda e: e.seq))
        return [line for line in told if len(line) <= _LONGEST_LOG_LINE]

    def attributes(self, tail: str | None) -> dict[str, Any]:
        """Those that have changed; `told` has to follow."""
        if tail is not None:
            self._now["PacktrainTail"] = tail
        changed = {name: value for name, value in self._now.items() if self._told.get(name) != value}
        return {**changed, "PacktrainSeen": self._seen + 1} if changed else {}

    def told(self, attributes: Iterable[str]) -> None:
        self._told.update((name, self._now[name]) for name in attributes if name in self._now)
        self._seen += 1
        self.urgent = False


class Tail:
    """The newest lines of the step log that was written last, as far as the budget allows."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._ends: dict[str, int] = {}  # how far each was told
        self.budget = float(_FIRST_BUDGET)

    def read(self) -> str | None:
        """JSON: the file, where in it the text ends, the text. None if nothing was written since."""
        if self.budget < _SHORTEST_TAIL:
            return None
        try:
            status = {path: path.stat() for path in self._logs.iterdir()}
            fresh = [path for path in status if status[path].st_size > self._ends.get(path.name, 0)]
            newest = max(fresh, key=lambda path: status[path].st_mtime_ns)
            text, end = _last_lines(newest, self._ends.get(newest.name, 0), min(_TAIL, int(self.budget)))
        except (OSError, ValueError):  # no logs yet, or none that is new
            return None
        self._ends[newest.name] = end
        self.budget -= len(text)
        return _fitting(newest.name, end, text)


def _last_lines(path: Path, told: int, most: int) -> tuple[bytes, int]:
    """What is new; if that is too much, whole lines of its end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(told, size - most)
        file.seek(start)
        data = file.read(most)
    whole = data if start == told else data.partition(b"\n")[2] or data
    return whole, start + len(data)


def _fitting(name: str, end: int, text: bytes) -> str:
    """Cut at its beginning until a request can hold it. The text is percent-encoded: see `chirp.fit`."""
    while True:
        told = json.dumps({"file": name, "end": end, "text": quote(text, safe=_PLAIN)})
        if len(quoted(old_value(told).encode())) < LONGEST_LINE - 100:
            return told
        text = text[len(text) // 4 + 1 :]


class Teller(Protocol):
    def set(self, name: str, expression: str) -> None: ...

    def set_later(self, name: str, expression: str) -> None: ...

    def log(self, text: str) -> None: ...

    def close(self) -> None: ...


class Live:
    """`hear` is for the journal: any thread, never waits. `end` gives the last words a moment."""

    def __init__(self, connect: Callable[[], Teller], every_s: float, logs: Path, say: Callable[[str], None]) -> None:
        self._connect, self._every_s, self._say = connect, every_s, say
        self._figures, self._tail = Figures(), Tail(logs)
        self._heard: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._teller: Teller | None = None
        self._refused: set[str] = set()  # requests that this site does not allow
        self._lines: collections.deque[str] = collections.deque(maxlen=_MOST_LINES)  # that wait to be told
        self._began = time.monotonic()
        self._due = self._rests_until = self._next_checkpoint = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> Live:
        self._thread.start()
        return self

    def hear(self, event: Event) -> None:
        self._heard.put(event)

    def end(self, within_s: float = _END_S) -> None:
        self._heard.put(None)
        self._thread.join(within_s)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            goes_on = self._listen()
            now = time.monotonic()
            if now >= self._rests_until or not goes_on:
                self._try_to_tell(now, last=not goes_on)
        if self._teller is not None:
            self._teller.close()

    def _listen(self) -> bool:
        """Take what comes until there is something to tell; False: nothing more will come."""
        until = max(self._due, time.monotonic() + _GATHER_S)
        while True:
            try:
                event = self._heard.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return True
            if event is None:
                return False
            self._figures.hear(event)
            if self._figures.urgent or event.kind in _AT_ONCE or event.kind == kinds.CHECKPOINT_SAVED:
                until = min(until, time.monotonic() + _GATHER_S)

    def _try_to_tell(self, now: float, last: bool) -> None:
        try:
            self._tell(now, last)
            self._pause_s = _FIRST_PAUSE_S
        except Exception as error:  # whatever it is, the job goes on
            self._give_up(error, now)

    def _give_up(self, error: Exception, now: float) -> None:
        """For a while. What was not told is told then, as it is by then."""
        if self._teller is not None:
            self._teller.close()
            self._teller = None
        if not self._complained:
            self._complained = True
            self._say(f"live: no word reaches the submit side for now: {error}")
        self._rests_until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _tell(self, now: float, last: bool) -> None:
        lines = self._figures.lines(checkpoints=last or now >= self._next_checkpoint)
        if any(kinds.CHECKPOINT_SAVED in line for line in lines):
            self._next_checkpoint = now + self._every_s  # a program may save ten times a second
        self._lines += lines
        attributes: dict[str, Any] = {}
        if now >= self._due or self._figures.urgent or last:
            attributes = self._figures.attributes(self._tail.read())
            pause_s = max(self._every_s, _AGE_SHARE * (now - self._began))
            self._due = now + pause_s
            self._tail.budget = min(_FIRST_BUDGET, self._tail.budget + _BUDGET_A_UPDATE * pause_s / self._every_s)
        if self._lines or attributes:
            self._teller = self._teller or self._connect()
            self._tell_all(self._teller, attributes)

    def _tell_all(self, teller: Teller, attributes: Mapping[str, Any]) -> None:
        while self._lines:
            self._request("log", teller.log, self._lines[0])
            self._lines.popleft()
        for name, value in attributes.items():
            self._request("set", teller.set, name, old_value(value))
            if "set" in self._refused:
                self._request("set_later", teller.set_later, _LATER + name, old_value(value))
        if attributes:
            self._figures.told(attributes)

    def _request(self, what: str, act: Callable[..., None], *words: str) -> None:
        if what in self._refused:
            return
        try:
            act(*words)
        except RefusedError as error:
            if error.for_good:
                self._refused.add(what)


def to_proxy(config: Path) -> Callable[[], Teller]:
    return lambda: Chirp(config, _TIMEOUT_S)
