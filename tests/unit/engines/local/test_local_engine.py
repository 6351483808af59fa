"""The local engine: slots, the environment of jobs, sandboxes, and agents of earlier processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from packtrain.engines.job_environment import job_environment
from packtrain.engines.local.local_engine import claim, send_signal
from packtrain.engines.local.resources import cache_options, capabilities, visible_gpu_ids
from packtrain.engines.updates import Gone, Running
from packtrain.events import kinds
from packtrain.plan import Resources
from tests.support.pool_updates import LocalEngineHarness, all_gone, poll_until

HALF = Resources(cpus_per_task=max(1, capabilities().cpus // 2), mem_per_cpu_mb=1)


@pytest.fixture
def pool(tmp_path):
    harness = LocalEngineHarness(tmp_path)
    yield harness
    harness.kill_agents()


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def all_started(pool, *requests):
    return lambda updates: all(pool.read_events(request) for request in requests)


def kill_agent(pool, request):
    os.kill(pool.read_events(request)[0].data["pid"], signal.SIGKILL)


USER_ENV = {
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
    def test_only_listed_variables(self):
        passed = job_environment(USER_ENV)
        expected = {"PATH", "HOME", "LANG", "LC_ALL", "https_proxy", "NO_PROXY", "CUDA_HOME", "APPTAINER_CACHEDIR"}
        assert set(passed) == expected
        assert "secret" not in passed.values()

    def test_download_cache_is_opt_in(self):
        assert cache_options({}) == cache_options({"PACKTRAIN_CACHE": ""}) == []
        assert cache_options({"PACKTRAIN_CACHE": "/d"}) == ["--cache", "/d"]
        limited = {"PACKTRAIN_CACHE": "/d", "PACKTRAIN_CACHE_LIMIT": "5000"}
        assert cache_options(limited) == ["--cache", "/d", "--cache-limit", "5000"]

    def test_the_engine_chooses_the_gpus(self):
        assert job_environment({"CUDA_VISIBLE_DEVICES": "7"}) == {}

    @pytest.mark.parametrize(
        ("cuda_visible_devices", "n_gpus", "names"),
        [(None, 2, ["0", "1"]), ("2,3", 4, ["2", "3"]), ("GPU-5f", 1, ["GPU-5f"]), ("", 2, []), ("0", 0, [])],
    )
    def test_users_cuda_visible_devices(self, cuda_visible_devices, n_gpus, names):
        assert visible_gpu_ids(cuda_visible_devices, n_gpus) == names

    @pytest.mark.slow
    def test_no_secrets_in_the_job(self, pool):
        engine = pool.make_engine({**USER_ENV, "PATH": os.environ["PATH"]})
        request = pool.make_request("0-1", "succeed")
        engine.submit([request])
        poll_until(engine, all_gone("0-1"))
        environment = json.loads((pool.attempt_folder(request).root / "environment.json").read_text())
        assert environment["HOME"] == "/home/me"
        assert "secret" not in environment.values()


@pytest.mark.slow
class TestProcesses:
    def test_small_jobs_run_in_parallel(self, pool, engine):
        if capabilities().cpus < 2:
            pytest.skip("one CPU only")
        requests = [pool.make_request(f"{n}-1", "hang", HALF) for n in range(2)]
        engine.submit(requests)
        poll_until(engine, all_started(pool, *requests))
        engine.cancel(["0-1", "1-1"])
        poll_until(engine, all_gone("0-1", "1-1"))

    def test_small_jobs_do_not_overtake_large_one(self, pool, engine):
        small, last = pool.make_request("0-1", "hang", HALF), pool.make_request("2-1", "hang", HALF)
        large = pool.make_request("1-1", "succeed")
        engine.submit([small, large, last])
        poll_until(engine, all_started(pool, small))
        engine.poll()
        assert not pool.attempt_folder(last).claim.exists(), "it would fit, but the large job comes first"
        engine.cancel(["0-1"])
        updates = poll_until(engine, all_started(pool, last))
        assert all_gone("0-1", "1-1")(updates)
        engine.cancel(["2-1"])
        poll_until(engine, all_gone("2-1"))

    def test_killed_agent_is_cleaned_up(self, pool, engine):
        request, next_request = pool.make_request("0-1", "hang"), pool.make_request("1-1", "succeed")
        engine.submit([request, next_request])
        poll_until(engine, all_started(pool, request))
        sandbox = pool.attempt_folder(request).sandbox
        (sandbox / "deep" / "er").mkdir(parents=True)
        (sandbox / "deep" / "er" / "file").write_text("x")
        (sandbox / "link").symlink_to(pool.folder.root)
        kill_agent(pool, request)
        updates = poll_until(engine, all_gone("0-1", "1-1"))
        (gone,) = (update for update in updates if update.attempt_id == "0-1" and isinstance(update, Gone))
        assert (gone.exit_code, gone.detail) == (-9, "the agent was killed by SIGKILL")
        assert not sandbox.exists()
        assert pool.attempt_folder(request).journal.exists() and pool.folder.launcher.exists(), (
            "nothing else is removed"
        )

    def test_cancel_agent_of_earlier_process(self, pool, engine):
        request = pool.make_request("0-1", "hang")
        engine.submit([request])
        poll_until(engine, all_started(pool, request))
        assert claim.claim_holder_pid(pool.attempt_folder(request)) == pool.read_events(request)[0].data["pid"]
        later_engine = pool.make_engine()
        later_engine.recover([request])
        later_engine.cancel(["0-1"])
        last = poll_until(later_engine, all_gone("0-1"))[-1]
        assert pool.read_events(request, kinds.AGENT_ENDED)
        assert (last.exit_code, last.detail) == (None, "the agent exited while no supervisor was running")
        assert not pool.attempt_folder(request).sandbox.exists()

    def test_recovered_agent_keeps_its_slot(self, pool, engine):
        request, queued = pool.make_request("0-1", "hang"), pool.make_request("1-1", "succeed")
        engine.submit([request])
        poll_until(engine, all_started(pool, request))
        later_engine = pool.make_engine()
        later_engine.recover([request])
        later_engine.submit([queued])
        assert [update.attempt_id for update in later_engine.poll()] == ["0-1"]
        later_engine.cancel(["0-1"])
        poll_until(later_engine, all_gone("0-1", "1-1"))

    def test_stubborn_agent_is_killed(self, pool):
        engine = pool.make_engine(kill_margin_s=0.2)
        request = pool.make_request("0-1", "stubborn", grace_s=0.1)
        engine.submit([request])
        poll_until(engine, all_started(pool, request))
        engine.cancel(["0-1"])
        poll_until(engine, lambda updates: pool.read_events(request, kinds.NOTICE))
        last = poll_until(engine, all_gone("0-1"))[-1]
        assert last.detail == "the agent was killed by SIGKILL"
        assert not pool.read_events(request, kinds.AGENT_ENDED)

    def test_agent_without_claim(self, pool, engine):
        engine.submit([pool.make_request("0-1", "mute")])
        assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 50

    def test_agent_has_its_own_session(self, pool, engine):
        request = pool.make_request("0-1", "hang")
        engine.submit([request])
        poll_until(engine, all_started(pool, request))
        pid = pool.read_events(request)[0].data["pid"]
        assert os.getsid(pid) != os.getsid(0)
        engine.cancel(["0-1"])
        poll_until(engine, all_gone("0-1"))

    def test_two_engines_start_one_agent(self, pool):
        """The first supervisor died before the agent had its claim, and the next one submits the attempt again."""
        request = pool.make_request("0-1", "hang")
        first, second = pool.make_engine(), pool.make_engine()
        first.submit([request])
        second.submit([request])
        poll_until(second, all_started(pool, request))
        poll_until(second, lambda updates: updates and isinstance(updates[-1], Running))
        second.cancel(["0-1"])
        exit_codes = {poll_until(engine, all_gone("0-1"))[-1].exit_code for engine in (second, first)}
        assert exit_codes == {60, None}, "the agent that came too late is not reported"
        assert len(pool.read_events(request)) == 1


class TestClaim:
    def test_missing_claim(self, pool):
        folder = pool.folder.attempt_folder("0", "0-1")
        assert not claim.is_claimed(folder)
        assert not claim.is_claim_held(folder)
        assert claim.claim_holder_pid(folder) is None

    @pytest.mark.parametrize("text", ["", "text", "PID host", "0 h", "9" * 30])
    def test_unrelated_process_is_not_the_holder(self, pool, text):
        folder = pool.folder.attempt_folder("0", "0-1")
        folder.root.mkdir(parents=True)
        folder.claim.write_text(text.replace("PID", str(os.getpid())))
        assert claim.claim_holder_pid(folder) is None

    def test_signal_to_finished_process(self):
        process = subprocess.Popen(["/bin/true"])
        process.wait()
        send_signal(process.pid, signal.SIGTERM)
