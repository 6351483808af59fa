"""What an agent makes of the surroundings that HTCondor gives a job, without a pool."""

from __future__ import annotations

import json
import os

import pytest

from packtrain.plan import Container, EnvironmentConfig
from tests.support.agent_runs import make_job, make_step

pytestmark = pytest.mark.slow


@pytest.fixture
def slot(tmp_path):
    """Variables of a job's environment, with the ads that they name."""
    (tmp_path / "machine.ad").write_text('Machine = "node1"\nGLIDEIN_ResourceName = "CHTC-Spark-CE1"\n')
    (tmp_path / "job.ad").write_text("ClusterId = 1\n")
    ads = {"_CONDOR_JOB_AD": str(tmp_path / "job.ad"), "_CONDOR_MACHINE_AD": str(tmp_path / "machine.ad")}
    return {**os.environ, **ads}


def test_the_site_is_the_ads(attempt, slot):
    run = attempt(make_job(make_step("true")), environ=slot, options=("--site", "auto", "--deadline", "auto")).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert run.events("agent.started")[0].data["site"] == "CHTC-Spark-CE1"


def test_inside_of_the_image_steps_run_directly(attempt, slot):
    image = Container("/no/such/image.sif")
    planned = make_job(
        make_step("echo one", "a"),
        make_step("echo two", "b", container=image),
        environment=EnvironmentConfig(container=image),
    )
    run = attempt(planned, environ=slot, options=("--in-container",)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.logs / "a.out").read_text() + (run.attempt_folder.logs / "b.out").read_text() == "one\ntwo\n"


def test_gpus_are_left_as_they_were_given(attempt, slot):
    given = {"CUDA_VISIBLE_DEVICES": "GPU-abcd", "_CONDOR_AssignedGPUs": "GPU-abcd"}
    run = attempt(
        make_job(make_step("echo $CUDA_VISIBLE_DEVICES $_CONDOR_AssignedGPUs", "a")), environ={**slot, **given}
    ).start_and_wait()
    assert (run.attempt_folder.logs / "a.out").read_text() == "GPU-abcd GPU-abcd\n"


def test_tokens_of_the_job_are_in_no_log(attempt, slot, tmp_path):
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "scitokens.use").write_text(json.dumps({"access_token": "tok-0123456789"}))
    environ = {**slot, "_CONDOR_CREDS": str(tmp_path / "creds")}
    run = attempt(make_job(make_step("cat $_CONDOR_CREDS/scitokens.use", "a")), environ=environ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.logs / "a.out").read_text() == '{"access_token": "***"}'


def test_a_journal_that_was_cut_off_is_gone_on_with(attempt, slot):
    run = attempt(make_job(make_step("true")), environ=slot)
    run.attempt_folder.root.mkdir()
    run.attempt_folder.journal.write_text('{"v": 1, "run": "run-1", "jo')
    run.start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert [event.seq for event in run.events()] == list(range(1, len(run.events()) + 1))


def test_live_without_a_proxy_is_no_trouble(attempt, slot):
    run = attempt(make_job(make_step("true")), environ=slot, options=("--live-interval", "2")).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert "no Chirp proxy" in run.attempt_folder.agent_log.read_text()


LISTEN = """python3 -c '
import os, tempfile
from multiprocessing.connection import Listener
Listener(family="AF_UNIX").close()
print(tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir()))'"""


def test_a_deep_scratch_folder_leaves_room_for_sockets(attempt, slot, tmp_path):
    """As data loaders of PyTorch use them."""
    deep = tmp_path / "/".join(["deep"] * 20)
    deep.mkdir(parents=True)
    run = attempt(make_job(make_step(LISTEN, "a")), environ={**slot, "TMPDIR": str(deep)}).start_and_wait()
    assert run.process.returncode == 0, (run.attempt_folder.logs / "a.err").read_text()
    short, real = (run.attempt_folder.logs / "a.out").read_text().split()
    assert len(short) < 30 and real.startswith(str(run.scratch)), "it goes with the sandbox"
    assert not os.path.lexists(short)
