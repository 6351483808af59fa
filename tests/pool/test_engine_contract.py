"""What every engine promises (tests/contracts), kept by the HTCondor engine on a real pool. What cannot be the same
there is told here: a job that is removed brings nothing home, and jobs that wait are not told of again and again."""

from __future__ import annotations

import pickle
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packtrain.engines.api import SubmitRequest
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import write_run_files
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import Job, Limits, Plan, Resources, write_plan
from tests.contracts.test_engine_contract import (  # noqa: F401
    started,
    test_a_gone_one_is_told_once,
    test_an_attempt_runs_and_is_gone_with_its_exit_code,
    test_an_attempt_that_ended_in_between_is_found_gone,
    test_cancelling_what_is_unknown_or_gone_is_ignored,
    test_first_come_first_served,
    test_looking_for_one_does_not_swallow_the_end_of_another,
    test_looking_leaves_out_what_is_not_known,
    test_submitting_twice_starts_once,
    test_submitting_what_is_over_does_not_start_it_again,
    test_two_engines_that_submit_one_decision_start_it_once,
    test_waiting_ends_early_when_something_happened,
)
from tests.support.engine_server import __file__ as SERVER
from tests.support.pool_updates import AGENT_SCRIPT, FakeEngineHarness, all_gone, poll_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]


class RemoteEngine:
    """An engine in a process of a user of the pool."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            pickle.dump((name, arguments), self._process.stdin)
            self._process.stdin.flush()
            good, answer = pickle.load(self._process.stdout)
            assert good, answer
            return answer

        return call


class CondorPool(FakeEngineHarness):
    """A run's folder on the access point; its jobs are so large that one fits into the pool at a time."""

    def __init__(self, root: Path, pool: Any) -> None:
        super().__init__(root)
        self._pool, self._engines = pool, []
        self._heard: dict[str, Event] = {}
        largest = max(site.memory_mb for site in pool.sites)
        self._whole = Resources(mem_per_cpu_mb=largest * 2 // 3)
        jobs = tuple(Job(str(n), (), self._whole, Limits(grace_s=1.0), ()) for n in range(9))
        plan = Plan("run-1", "run", "htcondor", jobs)
        write_plan(plan, self.folder.plan)
        write_run_files(plan, self.folder, RunSettings(disk_mb=1))
        command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(AGENT_SCRIPT))}"
        self.folder.launcher.write_text(f'#!/bin/sh\n{command} "$@"\n')
        self.folder.launcher.chmod(0o755)
        self.folder.agent.touch()

    def engine(self) -> Any:
        command = self._pool.command([sys.executable, SERVER, str(self.folder.root)])
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._pool.environment, bufsize=0
        )
        self._engines.append(process)
        return RemoteEngine(process)

    def ticket(self, decision: str, behaviour: str, **limits: Any) -> SubmitRequest:
        return super().make_request(decision, behaviour, self._whole, **{"grace_s": 1.0, **limits})

    def tell(self, job: str, behaviour: str) -> None:
        self.folder.job_plan(job).write_text(behaviour)

    def heard(self, ticket: SubmitRequest, kind: str = kinds.AGENT_STARTED) -> list[Event]:
        """What came home, and what stands in sandboxes that live."""
        paths = [self.attempt_folder(ticket).journal, *self._pool.folder.glob("execute/*/dir_*/scratch/journal.jsonl")]
        events = {event.emitter + event.kind: event for path in paths for event in JournalReader(path).read()}
        mine = {e.emitter for e in events.values() if e.data.get("attempt") == ticket.attempt_id}
        self._heard.update({key: event for key, event in events.items() if event.emitter in mine})
        owners = {e.emitter for e in self._heard.values() if e.data.get("attempt") == ticket.attempt_id}
        return [event for event in self._heard.values() if event.kind == kind and event.emitter in owners]

    def end_agents(self) -> None:
        for process in self._engines:
            process.stdin.close()
            process.wait(30)


@pytest.fixture
def pool(session_pool, tmp_path):
    session_pool.await_up()
    made = CondorPool(tmp_path, session_pool)
    yield made
    made.end_agents()
    session_pool.run(["condor_rm", "-constraint", "true"], check=False)


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def test_an_earlier_engines_attempt_is_found_followed_and_cancelled(pool, engine):
    ticket = pool.make_request("0-1", "hang")
    engine.submit([ticket])
    poll_until(engine, started(pool, ticket))
    later = pool.make_engine()
    assert later.look([ticket])[-1].status == "running"
    later.cancel(["0-1"])
    poll_until(later, all_gone("0-1"))


def test_a_queued_attempt_is_cancelled_before_it_starts(pool, engine):
    first, queued, last = (pool.make_request(f"{n}-1", "hang") for n in range(3))
    engine.submit([first, queued, last])
    poll_until(engine, started(pool, first))
    engine.cancel(["1-1"])
    engine.cancel(["0-1"])
    poll_until(engine, all_gone("0-1", "1-1"))
    poll_until(engine, started(pool, last))
    engine.cancel(["2-1"])
    poll_until(engine, all_gone("2-1"))
    assert pool.read_events(queued) == []


def test_a_later_attempt_is_a_cluster_of_its_own(pool, engine):
    first, second = pool.make_request("0-1", "succeed"), pool.make_request("0-2", "succeed")
    names = engine.submit([first])
    poll_until(engine, all_gone("0-1"))
    names |= engine.submit([second])
    poll_until(engine, all_gone("0-2"))
    assert names["0-1"].partition(".")[0] != names["0-2"].partition(".")[0]
    assert sorted(path.name for path in (pool.folder.htcondor).glob("*.sub")) == ["0-1.sub", "0-2.sub"]
