"""An engine without processes that follows a script and writes real journals into the attempt folders.

The state of an attempt is stored in its folder (`claim`, `exit-code`), so a new engine object finds what an earlier one
started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packtrain.engines.api import Capabilities, SubmitRequest
from packtrain.engines.updates import AttemptUpdate, Gone, Running
from packtrain.events import Event, Failure, JournalReader, kinds
from packtrain.plan import AttemptFolder, RunFolder

SUCCEED, LOST, HANG = "succeed", "lost", "hang"  # any other entry of a script is a failure kind


class FakeEngine:
    """An engine whose attempts end as a script says.

    Args:
        folder: The run folder.
        script: For each job, how its attempts end, in order. The last entry applies to all later attempts.
        capacity: Number of attempts that run at the same time.
        on_wait: Called instead of waiting.
    """

    def __init__(
        self,
        folder: RunFolder,
        script: Mapping[str, Sequence[str]] | None = None,
        capacity: int = 100,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self.capabilities = Capabilities("fake", supports_containers=False, cpus=1, memory_mb=1024, gpus=0)
        self._folder, self._capacity, self._on_wait = folder, capacity, on_wait
        self._script = {} if script is None else script
        self._queued: dict[str, SubmitRequest] = {}
        self._running: dict[str, SubmitRequest] = {}
        self._cancelled: set[str] = set()

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        self._log_submits(requests)
        for request in requests:
            if request.attempt_id not in self._running and not self._attempt_folder(request).claim.exists():
                self._queued[request.attempt_id] = request
        self._start_queued()
        return {request.attempt_id: "native" for request in requests}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        known = [request for request in requests if self._attempt_folder(request).claim.exists()]
        self._running.update({t.attempt_id: t for t in known if not _exit_code_path(self._attempt_folder(t)).exists()})
        return [self._make_update(request) for request in known]

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        self._cancelled.update(d for d in attempt_ids if d in self._queued or d in self._running)

    def release(self, attempt_ids: Sequence[str]) -> None:
        self.released_ids = [*getattr(self, "released_ids", []), *attempt_ids]

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        self.committed_ids = [*getattr(self, "committed_ids", []), *(request.attempt_id for request in requests)]

    def poll(self) -> Sequence[AttemptUpdate]:
        before_start = [self._queued.pop(d) for d in sorted(self._cancelled & set(self._queued))]
        gone = [Gone(t.attempt_id, t.job.id, detail="cancelled before it started") for t in before_start]
        for request in self._running.values():
            self._run_script(request)
        updates = [self._make_update(request) for request in self._running.values()]
        for update in updates:
            if isinstance(update, Gone):
                del self._running[update.attempt_id]
        self._start_queued()
        return [*gone, *updates]

    def wait(self, timeout_s: float) -> None:
        self._on_wait()

    def read_submitted_ids(self) -> list[str]:
        """Return the attempt ids of every `submit` call, made by any engine object."""
        path = self._folder.root / "pool.log"
        return path.read_text().split() if path.exists() else []

    def _log_submits(self, requests: Sequence[SubmitRequest]) -> None:
        self._folder.root.mkdir(parents=True, exist_ok=True)
        with open(self._folder.root / "pool.log", "a") as log:
            log.writelines(f"{request.attempt_id}\n" for request in requests)

    def _attempt_folder(self, request: SubmitRequest) -> AttemptFolder:
        return self._folder.attempt_folder(request.job.id, request.attempt_id)

    def _start_queued(self) -> None:
        for attempt_id in list(self._queued):
            if len(self._running) >= self._capacity:
                return
            request = self._running[attempt_id] = self._queued.pop(attempt_id)
            self._attempt_folder(request).root.mkdir(parents=True)
            self._attempt_folder(request).claim.touch()
            self._write_event(request, kinds.AGENT_STARTED, attempt=attempt_id, host="fake", pid=1, site="fake")

    def _run_script(self, request: SubmitRequest) -> None:
        endings = self._script.get(request.job.id, (SUCCEED,))
        number = int(request.attempt_id.rpartition("-")[2])
        ending = endings[min(number, len(endings)) - 1]
        if request.attempt_id in self._cancelled:
            self._end_attempt(request, "failed", "terminated")
        elif ending == SUCCEED:
            self._end_attempt(request, "succeeded")
        elif ending == LOST:
            _exit_code_path(self._attempt_folder(request)).write_text("-9")
        elif ending != HANG:
            self._end_attempt(request, "failed", ending)

    def _end_attempt(self, request: SubmitRequest, outcome: str, kind: str = "") -> None:
        failure = Failure.from_kind(kind, "steps", "by the script") if kind else None
        code = failure.exit_code if failure else 0
        data = failure.to_data() if failure else None
        self._write_event(request, kinds.AGENT_ENDED, outcome=outcome, exit_code=code, failure=data, seconds=1.0)
        _exit_code_path(self._attempt_folder(request)).write_text(str(code))

    def _make_update(self, request: SubmitRequest) -> AttemptUpdate:
        path = _exit_code_path(self._attempt_folder(request))
        if not path.exists():
            return Running(request.attempt_id, request.job.id)
        return Gone(request.attempt_id, request.job.id, exit_code=int(path.read_text()), detail="it ended")

    def _write_event(self, request: SubmitRequest, kind: str, **data: Any) -> None:
        path = self._attempt_folder(request).journal
        seq = len(JournalReader(path).read()) + 1
        event = Event(self._folder.root.name, request.job.id, f"agent-{request.attempt_id}", seq, kind, 1.0, 1.0, data)
        with open(path, "a") as journal:
            journal.write(event.to_json() + "\n")


def _exit_code_path(attempt_folder: AttemptFolder) -> Path:
    return attempt_folder.root / "exit-code"
