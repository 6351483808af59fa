"""A run in a temporary folder, with supervisors whose clock is ahead, so that they never wait for a retry delay."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packtrain.events import Event, kinds
from packtrain.plan import Job, Limits, Plan, Resources, RunFolder
from packtrain.store import RunInfo, SqliteStore
from packtrain.supervise import Supervisor
from tests.support.fake_engine import FakeEngine

RUN = "run-1"


@dataclass
class SupervisorHarness:
    """Creates engines and supervisors of one run. Several processes may open the store."""

    root: Path
    plan: Plan
    store: SqliteStore

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.root / RUN)

    def make_engine(self, script: Any = None, engine_class: type[FakeEngine] = FakeEngine, **more: Any) -> FakeEngine:
        return engine_class(self.folder, script, **more)

    def make_supervisor(self, engine: Any, store: SqliteStore | None = None, **more: Any) -> Supervisor:
        return Supervisor(
            self.plan,
            self.folder,
            store or self.store,
            engine,
            clock=lambda: time.time() + 1000,
            recover_retry_interval_s=0.0,
            **more,
        )

    def events(self, *event_kinds: str) -> list[Event]:
        return [s.event for s in self.store.events(RUN) if not event_kinds or s.event.kind in event_kinds]

    def decided_ids(self, action: str) -> list[str]:
        """Return the attempt ids of all decisions with an action."""
        decisions = [e.data for e in self.events(kinds.DECISION_MADE) if e.data["action"] == action]
        return [str(data.get("attempt", "")) for data in decisions]

    def request_cancel(self, *jobs: str) -> None:
        self.store.append(
            Event(
                RUN,
                job,
                f"cli-{time.monotonic()}",
                1,
                kinds.USER_REQUESTED,
                1.0,
                1.0,
                {"action": "cancel", "reason": "r"},
            )
            for job in jobs
        )


@pytest.fixture
def make_harness(tmp_path):
    def make(jobs: int = 1, attempts: int = 3) -> SupervisorHarness:
        plan_jobs = tuple(Job(str(n), (), Resources(), Limits(max_attempts=attempts), ()) for n in range(jobs))
        store = SqliteStore(tmp_path / "store.db")
        harness = SupervisorHarness(tmp_path, Plan(RUN, "name", "fake", plan_jobs), store)
        harness.folder.root.mkdir()
        created = Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 1.0, 1.0, {"points": {job.id: {} for job in plan_jobs}})
        store.add_run(RunInfo(RUN, "name", "fake", harness.folder.root, 1.0), created)
        return harness

    return make


@pytest.fixture
def harness(make_harness):
    return make_harness()
