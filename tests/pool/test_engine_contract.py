"""The contract of every engine (tests/contracts), checked for the HTCondor engine on a real pool.

Two tests differ here: a removed job returns no files, and waiting jobs are not reported repeatedly.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from packtrain.engines.api import SubmitRequest
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import write_run_files
from packtrain.engines.updates import Running
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import Job, Limits, Plan, Resources, write_plan
from tests.contracts.test_engine_contract import (  # noqa: F401
    has_started,
    test_attempt_ends_with_exit_code,
    test_cancel_ignores_unknown_and_gone,
    test_finished_attempt_is_not_started_again,
    test_finished_attempt_is_recovered_as_gone,
    test_first_come_first_served,
    test_gone_is_reported_once,
    test_recover_keeps_updates_of_others,
    test_recover_leaves_out_unknown_attempts,
    test_submit_is_repeatable,
    test_two_engines_start_an_attempt_once,
    test_wait_returns_early,
)
from tests.support.pool_updates import AGENT_SCRIPT, FakeEngineHarness, all_gone, poll_until
from tests.support.remote_engine import RemoteEngine

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]


class CondorEngineHarness(FakeEngineHarness):
    """A run folder on the access point. Its jobs are so large that only one at a time fits into the pool."""

    def __init__(self, root: Path, pool: Any) -> None:
        super().__init__(root)
        self._pool, self._engines = pool, []
        self._events: dict[str, Event] = {}
        self._resources = Resources(mem_per_cpu_mb=max(site.memory_mb for site in pool.sites) * 2 // 3)
        jobs = tuple(Job(str(n), (), self._resources, Limits(grace_s=1.0), ()) for n in range(9))
        plan = Plan("run-1", "run", "htcondor", jobs)
        write_plan(plan, self.folder.plan)
        write_run_files(plan, self.folder, RunSettings(disk_mb=1))
        command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(AGENT_SCRIPT))}"
        self.folder.launcher.write_text(f'#!/bin/sh\n{command} "$@"\n')
        self.folder.launcher.chmod(0o755)
        self.folder.agent.touch()

    def make_engine(self) -> Any:
        engine = RemoteEngine(self._pool.user_command, self._pool.user_environment, self.folder)
        self._engines.append(engine)
        return engine

    def make_request(self, attempt_id: str, behavior: str, **limits: Any) -> SubmitRequest:
        return super().make_request(attempt_id, behavior, self._resources, **{"grace_s": 1.0, **limits})

    def set_behavior(self, job: str, behavior: str) -> None:
        self.folder.job_plan(job).write_text(behavior)

    def read_events(self, request: SubmitRequest, kind: str = kinds.AGENT_STARTED) -> list[Event]:
        """Return events of the attempt's journal, and of journals in sandboxes that exist or have existed."""
        paths = [self.attempt_folder(request).journal, *self._pool.folder.glob("execute/*/dir_*/scratch/journal.jsonl")]
        events = {event.emitter + event.kind: event for path in paths for event in JournalReader(path).read()}
        emitters = {e.emitter for e in events.values() if e.data.get("attempt") == request.attempt_id}
        self._events.update({key: event for key, event in events.items() if event.emitter in emitters})
        emitters = {e.emitter for e in self._events.values() if e.data.get("attempt") == request.attempt_id}
        return [event for event in self._events.values() if event.kind == kind and event.emitter in emitters]

    def kill_agents(self) -> None:
        for engine in self._engines:
            engine.close()


@pytest.fixture
def pool(session_pool, tmp_path):
    session_pool.wait_until_up()
    harness = CondorEngineHarness(tmp_path, session_pool)
    yield harness
    harness.kill_agents()
    session_pool.run_as_user(["condor_rm", "-constraint", "true"], check=False)


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def test_running_attempt_is_recovered_and_cancelled(pool, engine):
    request = pool.make_request("0-1", "hang")
    engine.submit([request])
    poll_until(engine, has_started(pool, request))
    later_engine = pool.make_engine()
    assert later_engine.recover([request])[-1] == Running("0-1", "0")
    later_engine.cancel(["0-1"])
    poll_until(later_engine, all_gone("0-1"))


def test_cancel_queued_attempt(pool, engine):
    first, queued, last = (pool.make_request(f"{n}-1", "hang") for n in range(3))
    engine.submit([first, queued, last])
    poll_until(engine, has_started(pool, first))
    engine.cancel(["1-1"])
    engine.cancel(["0-1"])
    poll_until(engine, all_gone("0-1", "1-1"))
    poll_until(engine, has_started(pool, last))
    engine.cancel(["2-1"])
    poll_until(engine, all_gone("2-1"))
    assert pool.read_events(queued) == []


def test_second_attempt_has_its_own_cluster(pool, engine):
    first, second = pool.make_request("0-1", "succeed"), pool.make_request("0-2", "succeed")
    native_ids = engine.submit([first])
    poll_until(engine, all_gone("0-1"))
    native_ids |= engine.submit([second])
    poll_until(engine, all_gone("0-2"))
    assert native_ids["0-1"].partition(".")[0] != native_ids["0-2"].partition(".")[0]
    assert sorted(path.name for path in pool.folder.htcondor.glob("*.sub")) == ["0-1.sub", "0-2.sub"]
