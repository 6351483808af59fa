"""What only the local engine does: slots, the job's environment, sandboxes, agents of earlier processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from packtrain.engines.local import local_engine as engine_module
from packtrain.engines.local.local_engine import send_signal
from packtrain.engines.local.resources import cache_options, capabilities, job_environment, visible_gpu_ids
from packtrain.events import kinds
from packtrain.plan import Resources
from packtrain.plan import claim as claim_lock
from tests.support.pool_updates import LocalEngineHarness, all_gone, poll_until

HALF = Resources(cpus_per_task=max(1, capabilities().cpus // 2), mem_per_cpu_mb=1)


@pytest.fixture
def pool(tmp_path):
    made = LocalEngineHarness(tmp_path)
    yield made
    made.kill_agents()


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def running(pool, *tickets):
    return lambda seen: all(pool.read_events(ticket) for ticket in tickets)


def kill_agent(pool, ticket, number=signal.SIGKILL):
    os.kill(pool.read_events(ticket)[0].data["pid"], number)


PERSON = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C",
    "LC_ALL": "C",
    "https_proxy": "http://proxy",
    "NO_PROXY": "x",
    "CUDA_HOME": "/cuda",
    "APPTAINER_CACHEDIR": "/cache",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "GITHUB_TOKEN": "secret",
    "MY_PASSWORD": "secret",
    "APPTAINER_DOCKER_PASSWORD": "secret",
    "SINGULARITY_DOCKER_PASSWORD": "secret",
    "APPTAINERENV_TOKEN": "secret",
    "BEARER_TOKEN": "secret",
    "PACKTRAIN_STORE": "/x",
    "PYTHONPATH": "/mine",
    "LD_PRELOAD": "/mine.so",
}


class TestEnvironment:
    def test_only_what_is_on_the_list_is_passed(self):
        passed = job_environment(PERSON, ())
        expected = {"PATH", "HOME", "LANG", "LC_ALL", "https_proxy", "NO_PROXY", "CUDA_HOME", "APPTAINER_CACHEDIR"}
        assert set(passed) == {*expected, "CUDA_VISIBLE_DEVICES"}
        assert "secret" not in passed.values()

    def test_a_depot_is_used_only_where_a_person_asks_for_it(self):
        assert cache_options({}) == cache_options({"PACKTRAIN_CACHE": ""}) == []
        assert cache_options({"PACKTRAIN_CACHE": "/d"}) == ["--cache", "/d"]
        named = {"PACKTRAIN_CACHE": "/d", "PACKTRAIN_CACHE_LIMIT": "5000"}
        assert cache_options(named) == ["--cache", "/d", "--cache-limit", "5000"]

    def test_a_job_sees_its_own_gpus(self):
        assert job_environment({"CUDA_VISIBLE_DEVICES": "7"}, ("0", "2"))["CUDA_VISIBLE_DEVICES"] == "0,2"
        assert job_environment({"CUDA_VISIBLE_DEVICES": "7"}, ())["CUDA_VISIBLE_DEVICES"] == ""

    @pytest.mark.parametrize(
        ("allowed", "found", "names"),
        [(None, 2, ["0", "1"]), ("2,3", 4, ["2", "3"]), ("GPU-5f", 1, ["GPU-5f"]), ("", 2, []), ("0", 0, [])],
    )
    def test_a_persons_own_restriction_of_gpus_is_kept(self, allowed, found, names):
        assert visible_gpu_ids(allowed, found) == names

    @pytest.mark.slow
    def test_no_secret_of_the_persons_shell_reaches_a_job(self, pool):
        engine = pool.make_engine({**PERSON, "PATH": os.environ["PATH"]})
        ticket = pool.make_request("0-1", "succeed")
        engine.submit([ticket])
        poll_until(engine, all_gone("0-1"))
        seen = json.loads((pool.attempt_folder(ticket).root / "environment.json").read_text())
        assert seen["HOME"] == "/home/me"
        assert "secret" not in seen.values()


@pytest.mark.slow
class TestProcesses:
    def test_jobs_that_fit_run_at_once(self, pool, engine):
        if capabilities().cpus < 2:
            pytest.skip("one CPU only")
        tickets = [pool.make_request(f"{n}-1", "hang", HALF) for n in range(2)]
        engine.submit(tickets)
        poll_until(engine, running(pool, *tickets))
        engine.cancel(["0-1", "1-1"])
        poll_until(engine, all_gone("0-1", "1-1"))

    def test_a_big_job_is_not_passed_by_small_ones(self, pool, engine):
        small, last = pool.make_request("0-1", "hang", HALF), pool.make_request("2-1", "hang", HALF)
        big = pool.make_request("1-1", "succeed")
        engine.submit([small, big, last])
        poll_until(engine, running(pool, small))
        engine.poll()
        assert not pool.attempt_folder(last).claim.exists(), "it would fit, but the big one was first"
        engine.cancel(["0-1"])
        seen = poll_until(engine, running(pool, last))
        assert all_gone("0-1", "1-1")(seen)
        engine.cancel(["2-1"])
        poll_until(engine, all_gone("2-1"))

    def test_a_killed_agents_sandbox_is_removed_and_its_slot_is_free(self, pool, engine):
        ticket, following = pool.make_request("0-1", "hang"), pool.make_request("1-1", "succeed")
        engine.submit([ticket, following])
        poll_until(engine, running(pool, ticket))
        sandbox = pool.attempt_folder(ticket).sandbox
        (sandbox / "deep" / "er").mkdir(parents=True)
        (sandbox / "deep" / "er" / "file").write_text("x")
        (sandbox / "link").symlink_to(pool.folder.root)
        kill_agent(pool, ticket)
        seen = poll_until(engine, all_gone("0-1", "1-1"))
        (lost,) = (s for s in seen if s.attempt_id == "0-1" and s.status == "gone")
        assert (lost.exit_code, lost.detail) == (-9, "the agent was killed by SIGKILL")
        assert not sandbox.exists()
        assert pool.attempt_folder(ticket).journal.exists() and pool.folder.launcher.exists(), "nothing else is touched"

    def test_an_agent_of_an_earlier_process_is_cancelled_by_its_claim(self, pool, engine):
        ticket = pool.make_request("0-1", "hang")
        engine.submit([ticket])
        poll_until(engine, running(pool, ticket))
        assert claim_lock.holder_pid(pool.attempt_folder(ticket)) == pool.read_events(ticket)[0].data["pid"]
        later = pool.make_engine()
        later.look([ticket])
        later.cancel(["0-1"])
        last = poll_until(later, all_gone("0-1"))[-1]
        assert pool.read_events(ticket, kinds.AGENT_ENDED)
        assert (last.exit_code, last.detail) == (None, "the agent ended while no supervisor watched it")
        assert not pool.attempt_folder(ticket).sandbox.exists()

    def test_an_adopted_agent_keeps_its_share_of_the_machine(self, pool, engine):
        ticket, queued = pool.make_request("0-1", "hang"), pool.make_request("1-1", "succeed")
        engine.submit([ticket])
        poll_until(engine, running(pool, ticket))
        later = pool.make_engine()
        later.look([ticket])
        later.submit([queued])
        assert [s.decision for s in later.poll()] == ["0-1"]
        later.cancel(["0-1"])
        poll_until(later, all_gone("0-1", "1-1"))

    def test_one_that_does_not_obey_is_killed_after_its_grace(self, pool, engine, monkeypatch):
        monkeypatch.setattr(engine_module, "_KILL_MARGIN_S", 0.2)
        ticket = pool.make_request("0-1", "stubborn", grace_s=0.1)
        engine.submit([ticket])
        poll_until(engine, running(pool, ticket))
        engine.cancel(["0-1"])
        poll_until(engine, lambda seen: pool.read_events(ticket, kinds.NOTICE))
        last = poll_until(engine, all_gone("0-1"))[-1]
        assert last.detail == "the agent was killed by SIGKILL"
        assert not pool.read_events(ticket, kinds.AGENT_ENDED)

    def test_an_agent_that_never_claimed_is_gone_with_its_code(self, pool, engine):
        engine.submit([pool.make_request("0-1", "mute")])
        assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 50

    def test_agents_outlive_the_terminal(self, pool, engine):
        ticket = pool.make_request("0-1", "hang")
        engine.submit([ticket])
        poll_until(engine, running(pool, ticket))
        pid = pool.read_events(ticket)[0].data["pid"]
        assert os.getsid(pid) != os.getsid(0)
        engine.cancel(["0-1"])
        poll_until(engine, all_gone("0-1"))

    def test_two_engines_that_start_one_decision_at_once_leave_one_agent(self, pool):
        """The first supervisor died between starting the agent and the agent's claim; the next one submits again."""
        ticket = pool.make_request("0-1", "hang")
        first, second = pool.make_engine(), pool.make_engine()
        first.submit([ticket])
        second.submit([ticket])
        poll_until(second, running(pool, ticket))
        poll_until(second, lambda seen: seen and seen[-1].status == "running")
        second.cancel(["0-1"])
        codes = {poll_until(engine, all_gone("0-1"))[-1].exit_code for engine in (second, first)}
        assert codes == {60, None}, "of the one that came too late nothing is told"
        assert len(pool.read_events(ticket)) == 1


class TestClaim:
    def test_no_claim_is_held_by_nobody(self, pool):
        attempt = pool.folder.attempt_folder("0", "0-1")
        assert (claim_lock.exists(attempt), claim_lock.is_held(attempt), claim_lock.holder_pid(attempt)) == (
            False,
            False,
            None,
        )

    @pytest.mark.parametrize("text", ["", "nobody", "PID host", "0 h", "9" * 30])
    def test_a_process_that_is_not_the_attempts_agent_is_never_signalled(self, pool, text):
        attempt = pool.folder.attempt_folder("0", "0-1")
        attempt.root.mkdir(parents=True)
        attempt.claim.write_text(text.replace("PID", str(os.getpid())))
        assert claim_lock.holder_pid(attempt) is None

    def test_sending_to_a_process_that_is_gone_is_ignored(self):
        process = subprocess.Popen(["/bin/true"])
        process.wait()
        send_signal(process.pid, signal.SIGTERM)
