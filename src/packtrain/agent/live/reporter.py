"""Send live updates of a running job through Chirp, at a rate that a pool with ten thousand jobs can handle.

Stage changes and checkpoints are sent at once, as lines of the user log. Metrics are sent as job attributes, the latest
value of each, at a minimum interval. HTCondor also writes a line to the user log for each attribute that is set.
Therefore the interval grows with the age of the job, and the log tail has a byte budget.

A slow or unreachable proxy does not delay the job: updates are sent in a separate thread, and the complete journal is
retrieved with the outputs in any case.
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

from packtrain.agent.live.chirp import MAX_REQUEST_BYTES, ChirpClient, ChirpError, escape_argument
from packtrain.backoff import Backoff
from packtrain.condor.classads import format_old_value
from packtrain.events import Event, kinds

LOG_LINE_PREFIX = "packtrain "
_MAX_LOG_LINE_CHARS = 1000  # HTCondor truncates lines at 1023
_BATCH_WINDOW_S = 0.2  # a stage that is shorter than this gets no line
_TIMEOUT_S = 10.0
_BACKOFF = Backoff(initial_s=2.0, max_s=60.0)
_FINAL_SEND_TIMEOUT_S = 3.0
_INTERVAL_AGE_SHARE = 0.01  # minimum interval between two updates, as a share of the job's age
_MAX_TAIL_BYTES = 2048
_MIN_TAIL_BYTES = 200
_MAX_BUDGET_BYTES = 8 * _MAX_TAIL_BYTES
_BUDGET_BYTES_PER_UPDATE = 40.0  # bytes of log tail that each minimum interval adds to the budget
_MAX_PENDING_LINES = 50  # lines that wait until the proxy is reachable
_UNESCAPED_CHARS = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '%"\\')
_DELAYED_PREFIX = "Chirp"  # prefix of the names of delayed attributes

_IMMEDIATE_KINDS = frozenset({kinds.AGENT_STARTED, kinds.AGENT_ENDED, kinds.CHECKPOINT_RESTORED})
_METRIC_ATTRIBUTES = {"epoch": "PacktrainEpoch", "step": "PacktrainStep", "loss": "PacktrainLoss"}
_NOT_A_METRIC = frozenset({*_METRIC_ATTRIBUTES, "steps", "batch", "batches", "steps_per_epoch"})


class StatusAccumulator:
    """Accumulate events into the log lines and attributes that are not sent yet. Pure."""

    def __init__(self) -> None:
        self._current: dict[str, Any] = {}
        self._sent: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._latest_events: dict[str, Event] = {}  # the latest stage and checkpoint
        self._immediate_events: list[Event] = []
        self._n_updates = 0
        self.is_urgent = False  # the stage changed since the last update

    def add_event(self, event: Event) -> None:
        if event.kind in _IMMEDIATE_KINDS:
            self._immediate_events.append(event)
        elif event.kind in (kinds.STAGE_STARTED, kinds.CHECKPOINT_SAVED):
            self._latest_events[event.kind] = event
        if event.kind in (kinds.STAGE_STARTED, kinds.AGENT_ENDED):
            self._current["PacktrainStage"] = str(event.data.get("stage", "ended"))
            self.is_urgent = True
        elif event.kind == kinds.PROGRESS and event.data.get("stage") == "fetch":
            self._current.update(PacktrainDone=event.data.get("done"), PacktrainTotal=event.data.get("total"))
        elif event.kind == kinds.METRIC:
            self._add_metrics(event.data)

    def _add_metrics(self, data: Any) -> None:
        for name, attribute in _METRIC_ATTRIBUTES.items():
            if type(data.get(name)) in (int, float):
                self._current[attribute] = data[name]
        self._metrics.update((name, value) for name, value in data.items() if name not in _NOT_A_METRIC)
        text = json.dumps(self._metrics)
        if self._metrics and len(text) <= _MAX_TAIL_BYTES // 2 and "\\" not in text:
            self._current["PacktrainMetrics"] = text

    def take_log_lines(self, checkpoints: bool = True) -> list[str]:
        """Return and clear the pending lines for the user log, in the order of events.

        Of several stages or checkpoints since the last call, only the latest is included.

        Args:
            checkpoints: Include the pending checkpoint; without it, the checkpoint remains pending.
        """
        deferred = {} if checkpoints else {k: e for k, e in self._latest_events.items() if k == kinds.CHECKPOINT_SAVED}
        latest = (event for kind, event in self._latest_events.items() if kind not in deferred)
        events = sorted([*self._immediate_events, *latest], key=lambda event: event.seq)
        self._immediate_events, self._latest_events = [], deferred
        lines = (LOG_LINE_PREFIX + json.dumps(json.loads(event.to_json())) for event in events)
        return [line for line in lines if len(line) <= _MAX_LOG_LINE_CHARS]

    def changed_attributes(self, tail: str | None) -> dict[str, Any]:
        """Return the attributes that changed since the last `mark_sent`, which the caller must call after sending."""
        if tail is not None:
            self._current["PacktrainLogTail"] = tail
        changed = {name: value for name, value in self._current.items() if self._sent.get(name) != value}
        return {**changed, "PacktrainUpdateCount": self._n_updates + 1} if changed else {}

    def mark_sent(self, attributes: Iterable[str]) -> None:
        self._sent.update((name, self._current[name]) for name in attributes if name in self._current)
        self._n_updates += 1
        self.is_urgent = False


class LogTail:
    """Read the last lines of the most recently written step log, within the budget."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._offsets: dict[str, int] = {}  # how far each log was read, in bytes
        self.budget_bytes = float(_MAX_BUDGET_BYTES)

    def read(self) -> str | None:
        """Return JSON with the file, the offset at which the text ends, and the text; None if nothing is new."""
        if self.budget_bytes < _MIN_TAIL_BYTES:
            return None
        try:
            status = {path: path.stat() for path in self._logs.iterdir()}
            grown = [path for path in status if status[path].st_size > self._offsets.get(path.name, 0)]
            newest = max(grown, key=lambda path: status[path].st_mtime_ns)
            text, end = _read_last_lines(
                newest, self._offsets.get(newest.name, 0), min(_MAX_TAIL_BYTES, int(self.budget_bytes))
            )
        except (OSError, ValueError):  # there are no logs yet, or none has grown
            return None
        self._offsets[newest.name] = end
        self.budget_bytes -= len(text)
        return _encode_tail(newest.name, end, text)


def _read_last_lines(path: Path, offset: int, max_bytes: int) -> tuple[bytes, int]:
    """Return the new bytes and the end offset; if there are too many, only complete lines at the end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(offset, size - max_bytes)
        file.seek(start)
        data = file.read(max_bytes)
    lines = data if start == offset else data.partition(b"\n")[2] or data
    return lines, start + len(data)


def _encode_tail(name: str, end: int, text: bytes) -> str:
    """Encode a tail as JSON, and shorten it until it fits into a request. See `chirp.encode_value` for why `quote`."""
    while True:
        encoded = json.dumps({"file": name, "end": end, "text": quote(text, safe=_UNESCAPED_CHARS)})
        if len(escape_argument(format_old_value(encoded).encode())) < MAX_REQUEST_BYTES - 100:
            return encoded
        text = text[len(text) // 4 + 1 :]


class StatusChannel(Protocol):
    """A connection to the submit side; `ChirpClient` implements it."""

    def set_attribute(self, name: str, expression: str) -> None: ...

    def set_delayed_attribute(self, name: str, expression: str) -> None: ...

    def log(self, text: str) -> None: ...

    def close(self) -> None: ...


class LiveReporter:
    """Send live updates from a thread.

    `on_event` may be called from any thread and never blocks. `stop` waits a moment for the final update.

    Args:
        connect: Opens the channel to the submit side.
        min_interval_s: Minimum time between two updates of attributes, in seconds.
        logs: Folder of the step logs.
        log_message: Writes to the agent's log.
        backoff: Delays while the submit side is not reachable.
    """

    def __init__(
        self,
        connect: Callable[[], StatusChannel],
        min_interval_s: float,
        logs: Path,
        log_message: Callable[[str], None],
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._connect, self._min_interval_s, self._log_message = connect, min_interval_s, log_message
        self._backoff = backoff
        self._status, self._tail = StatusAccumulator(), LogTail(logs)
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._channel: StatusChannel | None = None
        self._unsupported_requests: set[str] = set()  # requests that this site does not allow
        self._pending_lines: collections.deque[str] = collections.deque(maxlen=_MAX_PENDING_LINES)
        self._started_at = time.monotonic()
        self._next_update_at = self._retry_at = self._next_checkpoint_at = float("-inf")
        self._n_failures = 0  # in a row
        self._error_logged = False
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> LiveReporter:
        self._thread.start()
        return self

    def on_event(self, event: Event) -> None:
        self._events.put(event)

    def stop(self, timeout_s: float = _FINAL_SEND_TIMEOUT_S) -> None:
        self._events.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        running = True
        while running:
            running = self._collect_events()
            now = time.monotonic()
            if now >= self._retry_at or not running:
                self._try_update(now, final=not running)
        if self._channel is not None:
            self._channel.close()

    def _collect_events(self) -> bool:
        """Collect events until the next update is due. Returns False when the reporter was stopped."""
        until = max(self._next_update_at, time.monotonic() + _BATCH_WINDOW_S)
        while True:
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return True
            if event is None:
                return False
            self._status.add_event(event)
            if self._status.is_urgent or event.kind in _IMMEDIATE_KINDS or event.kind == kinds.CHECKPOINT_SAVED:
                until = min(until, time.monotonic() + _BATCH_WINDOW_S)

    def _try_update(self, now: float, final: bool) -> None:
        try:
            self._update(now, final)
            self._n_failures = 0
        except Exception as error:  # no error of a live update may stop the job
            self._back_off(error, now)

    def _back_off(self, error: Exception, now: float) -> None:
        """Close the channel and back off. Pending updates are merged: only the latest values are sent later."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if not self._error_logged:
            self._error_logged = True
            self._log_message(f"live: cannot send updates to the submit side, will retry: {error}")
        self._n_failures += 1
        self._retry_at = now + self._backoff.delay_s(self._n_failures)

    def _update(self, now: float, final: bool) -> None:
        lines = self._status.take_log_lines(checkpoints=final or now >= self._next_checkpoint_at)
        if any(kinds.CHECKPOINT_SAVED in line for line in lines):
            self._next_checkpoint_at = now + self._min_interval_s  # a program may save ten times per second
        self._pending_lines += lines
        attributes: dict[str, Any] = {}
        if now >= self._next_update_at or self._status.is_urgent or final:
            attributes = self._status.changed_attributes(self._tail.read())
            interval_s = max(self._min_interval_s, _INTERVAL_AGE_SHARE * (now - self._started_at))
            self._next_update_at = now + interval_s
            added_bytes = _BUDGET_BYTES_PER_UPDATE * interval_s / self._min_interval_s
            self._tail.budget_bytes = min(_MAX_BUDGET_BYTES, self._tail.budget_bytes + added_bytes)
        if self._pending_lines or attributes:
            self._channel = self._channel or self._connect()
            self._send(self._channel, attributes)

    def _send(self, channel: StatusChannel, attributes: Mapping[str, Any]) -> None:
        while self._pending_lines:
            self._send_request("log", channel.log, self._pending_lines[0])
            self._pending_lines.popleft()
        for name, value in attributes.items():
            expression = format_old_value(value)
            self._send_request("set_attribute", channel.set_attribute, name, expression)
            if "set_attribute" in self._unsupported_requests:
                self._send_request(
                    "set_delayed_attribute", channel.set_delayed_attribute, _DELAYED_PREFIX + name, expression
                )
        if attributes:
            self._status.mark_sent(attributes)

    def _send_request(self, request: str, send: Callable[..., None], *arguments: str) -> None:
        if request in self._unsupported_requests:
            return
        try:
            send(*arguments)
        except ChirpError as error:
            if error.is_permanent:
                self._unsupported_requests.add(request)


def chirp_connector(config: Path) -> Callable[[], StatusChannel]:
    """Return a function that connects to the Chirp proxy of the job."""
    return lambda: ChirpClient(config, _TIMEOUT_S)
