"""The agent in the environment that HTCondor gives a job, without a pool."""

from __future__ import annotations

import json
import os

import pytest

from packtrain.plan import Container, EnvironmentConfig
from tests.support.agent_runs import make_job, make_step

pytestmark = pytest.mark.slow


@pytest.fixture
def slot(tmp_path):
    """The environment variables of a job, with the ClassAd files that they name."""
    (tmp_path / "machine.ad").write_text('Machine = "node1"\nGLIDEIN_ResourceName = "CHTC-Spark-CE1"\n')
    (tmp_path / "job.ad").write_text("ClusterId = 1\n")
    ads = {"_CONDOR_JOB_AD": str(tmp_path / "job.ad"), "_CONDOR_MACHINE_AD": str(tmp_path / "machine.ad")}
    return {**os.environ, **ads}


def test_site_from_machine_ad(attempt, slot):
    run = attempt(
        make_job(make_step("true")), environ=slot, options=("--site", "auto", "--deadline", "auto")
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert run.events("agent.started")[0].data["site"] == "CHTC-Spark-CE1"


def test_steps_in_container_run_directly(attempt, slot):
    image = Container("/no/such/image.sif")
    job = make_job(
        make_step("echo one", "a"),
        make_step("echo two", "b", container=image),
        environment=EnvironmentConfig(container=image),
    )
    run = attempt(job, environ=slot, options=("--in-container",)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.logs / "a.out").read_text() + (
        run.attempt_folder.logs / "b.out"
    ).read_text() == "one\ntwo\n"


def test_gpu_variables_are_unchanged(attempt, slot):
    gpus = {"CUDA_VISIBLE_DEVICES": "GPU-abcd", "_CONDOR_AssignedGPUs": "GPU-abcd"}
    run = attempt(
        make_job(make_step("echo $CUDA_VISIBLE_DEVICES $_CONDOR_AssignedGPUs", "a")), environ={**slot, **gpus}
    ).start_and_wait()
    assert (run.attempt_folder.logs / "a.out").read_text() == "GPU-abcd GPU-abcd\n"


def test_tokens_are_redacted_in_logs(attempt, slot, tmp_path):
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "scitokens.use").write_text(json.dumps({"access_token": "tok-0123456789"}))
    environ = {**slot, "_CONDOR_CREDS": str(tmp_path / "creds")}
    run = attempt(make_job(make_step("cat $_CONDOR_CREDS/scitokens.use", "a")), environ=environ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.logs / "a.out").read_text() == '{"access_token": "***"}'


def test_truncated_journal_is_continued(attempt, slot):
    run = attempt(make_job(make_step("true")), environ=slot)
    run.attempt_folder.root.mkdir()
    run.attempt_folder.journal.write_text('{"v": 1, "run": "run-1", "jo')
    run.start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert [event.seq for event in run.events()] == list(range(1, len(run.events()) + 1))


def test_live_updates_without_proxy(attempt, slot):
    run = attempt(make_job(make_step("true")), environ=slot, options=("--live-interval", "2")).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert "no Chirp proxy" in run.attempt_folder.agent_log.read_text()


PRINT_TMPDIR = """python3 -c '
import os, tempfile
from multiprocessing.connection import Listener
Listener(family="AF_UNIX").close()
print(tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir()))'"""


def test_short_tmpdir_in_deep_scratch_folder(attempt, slot, tmp_path):
    """PyTorch data loaders create Unix sockets there, whose paths are limited in length."""
    deep = tmp_path / "/".join(["deep"] * 20)
    deep.mkdir(parents=True)
    run = attempt(make_job(make_step(PRINT_TMPDIR, "a")), environ={**slot, "TMPDIR": str(deep)}).start_and_wait()
    assert run.process.returncode == 0, (run.attempt_folder.logs / "a.err").read_text()
    short, real = (run.attempt_folder.logs / "a.out").read_text().split()
    assert len(short) < 30 and real.startswith(str(run.scratch)), "it is inside the sandbox"
    assert not os.path.lexists(short)
