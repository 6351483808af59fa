"""What a test of an engine needs, for each engine alike: a run's folder, jobs that behave as told, and patience."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packtrain.engines.api import Engine, Sighting, Ticket
from packtrain.engines.local import LocalEngine, claim_lock
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import AttemptFolder, Job, Limits, Resources, RunFolder
from tests.support.fake_engine import FakeEngine

AGENT = Path(__file__).with_name("stand_in_agent.py")
EVERYTHING = Resources(cpus_per_task=100_000)  # a job that needs the whole machine, so that others queue
_DEADLINE_S = 300.0  # of a machine with load: it costs nothing when all is well


class FakePool:
    def __init__(self, root: Path) -> None:
        self.folder = RunFolder(root / "run-1")
        self.folder.root.mkdir()
        self._script: dict[str, list[str]] = {}

    def engine(self) -> Engine:
        return FakeEngine(self.folder, self._script, capacity=1)

    def ticket(self, decision: str, behaviour: str, resources: Resources = EVERYTHING, **limits: Any) -> Ticket:
        job = Job(decision.partition("-")[0], (), resources, Limits(**limits), ())
        self.tell(job.id, behaviour)
        return Ticket(decision, job)

    def tell(self, job: str, behaviour: str) -> None:
        self._script[job] = [behaviour]

    def attempt(self, ticket: Ticket) -> AttemptFolder:
        return self.folder.attempt(ticket.job.id, ticket.decision)

    def heard(self, ticket: Ticket, kind: str = kinds.ATTEMPT_STARTED) -> list[Event]:
        return [event for event in JournalReader(self.attempt(ticket).journal).read() if event.kind == kind]

    def end_agents(self) -> None:
        """So that a test that failed leaves no process behind."""
        for path in self.folder.root.glob("jobs/*/attempts/*/claim"):
            pid = claim_lock.holder(AttemptFolder(path.parent))
            if pid is not None:
                claim_lock.send(pid, signal.SIGKILL)


class LocalPool(FakePool):
    """Real processes: the launcher starts the stand-in agent."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(AGENT))}"
        self.folder.launcher.write_text(f'#!/bin/sh\n{command} "$@"\n')

    def engine(self, environment: dict[str, str] | None = None) -> Engine:
        return LocalEngine(self.folder, environment)

    def tell(self, job: str, behaviour: str) -> None:
        self.folder.job(job).mkdir(parents=True, exist_ok=True)
        self.folder.job_plan(job).write_text(behaviour)


def until(engine: Engine, ready: Callable[[list[Sighting]], Any]) -> list[Sighting]:
    """Poll until what was seen so far is as expected; everything that was seen."""
    seen: list[Sighting] = []
    deadline = time.monotonic() + _DEADLINE_S
    while not ready(seen):
        assert time.monotonic() < deadline, seen[-3:]
        seen += engine.poll()
        engine.wait(0.05)
    return seen


def gone(*decisions: str) -> Callable[[list[Sighting]], bool]:
    return lambda seen: set(decisions) <= {s.decision for s in seen if s.status == "gone"}
