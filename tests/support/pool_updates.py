"""Helpers to test an engine: a run folder, jobs with a given behavior, and polling with a timeout."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packtrain.engines.api import Engine, SubmitRequest
from packtrain.engines.local import LocalEngine
from packtrain.engines.local.local_engine import send_signal
from packtrain.engines.updates import AttemptUpdate, Gone
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import AttemptFolder, Job, Limits, Resources, RunFolder, claim
from tests.support.fake_engine import FakeEngine

AGENT_SCRIPT = Path(__file__).with_name("stand_in_agent.py")
WHOLE_NODE = Resources(cpus_per_task=100_000)  # only one such job runs at a time
_TIMEOUT_S = 300.0  # long enough for a machine under load


class FakeEngineHarness:
    """Creates fake engines and requests for one run."""

    def __init__(self, root: Path) -> None:
        self.folder = RunFolder(root / "run-1")
        self.folder.root.mkdir()
        self._script: dict[str, list[str]] = {}

    def make_engine(self) -> Engine:
        return FakeEngine(self.folder, self._script, capacity=1)

    def make_request(
        self, attempt_id: str, behavior: str, resources: Resources = WHOLE_NODE, **limits: Any
    ) -> SubmitRequest:
        job = Job(attempt_id.partition("-")[0], (), resources, Limits(**limits), ())
        self.set_behavior(job.id, behavior)
        return SubmitRequest(attempt_id, job)

    def set_behavior(self, job: str, behavior: str) -> None:
        self._script[job] = [behavior]

    def attempt_folder(self, request: SubmitRequest) -> AttemptFolder:
        return self.folder.attempt_folder(request.job.id, request.attempt_id)

    def read_events(self, request: SubmitRequest, kind: str = kinds.AGENT_STARTED) -> list[Event]:
        return [event for event in JournalReader(self.attempt_folder(request).journal).read() if event.kind == kind]

    def kill_agents(self) -> None:
        """Kill all agents, so that a failed test leaves no process behind."""
        for path in self.folder.root.glob("jobs/*/attempts/*/claim"):
            pid = claim.claim_holder_pid(AttemptFolder(path.parent))
            if pid is not None:
                send_signal(pid, signal.SIGKILL)


class LocalEngineHarness(FakeEngineHarness):
    """The same for the local engine, whose launcher starts a stand-in agent in a real process."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(AGENT_SCRIPT))}"
        self.folder.launcher.write_text(f'#!/bin/sh\n{command} "$@"\n')

    def make_engine(self, environment: dict[str, str] | None = None, **options: Any) -> Engine:
        return LocalEngine(self.folder, environment, **options)

    def set_behavior(self, job: str, behavior: str) -> None:
        self.folder.job_folder(job).mkdir(parents=True, exist_ok=True)
        self.folder.job_plan(job).write_text(behavior)


def poll_until(engine: Engine, condition: Callable[[list[AttemptUpdate]], Any]) -> list[AttemptUpdate]:
    """Poll until the condition is true for all updates so far, and return them."""
    updates: list[AttemptUpdate] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition(updates):
        assert time.monotonic() < deadline, updates[-3:]
        updates += engine.poll()
        engine.wait(0.05)
    return updates


def all_gone(*attempt_ids: str) -> Callable[[list[AttemptUpdate]], bool]:
    return lambda updates: set(attempt_ids) <= {u.attempt_id for u in updates if isinstance(u, Gone)}
