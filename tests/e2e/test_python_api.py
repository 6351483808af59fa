"""The Python API with real runs on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import packtrain
from packtrain.events import kinds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RESOURCES = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 10, "gpus": 0}
LOG_METRICS = (
    "python3 -c \"from packtrain.torch import log_metrics; log_metrics(step=1, loss=float('$PACKTRAIN_POINT_LR'))\""
)


def make_workflow(command="echo hello; echo model > $PACKTRAIN_OUTPUT/model.txt", **keys):
    return {"name": "test", "resources": RESOURCES, "steps": [{"run": {"command": command}}], **keys}


def make_waiting_workflow():
    """A job that creates the file `started` and waits until it is cancelled."""
    return make_workflow(f'trap "exit 1" TERM; touch {Path.cwd()}/started; sleep 300 & wait', limits={"grace": "1s"})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACKTRAIN_STORE", str(tmp_path / "store.db"))
    return tmp_path


def wait_for(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_run_from_submission_to_outputs(folder):
    run = packtrain.submit(make_workflow(expect=[{"path": "model.txt"}]))
    assert run.id.startswith("test-")
    assert run.wait(timeout=120) == run.status == "succeeded"
    assert run.done()
    (job,) = run.jobs
    assert (job.id, job.status, job.attempts, job.matrix) == ("0", "succeeded", 1, {})
    assert job.logs() == "hello\n"
    assert "ended with exit code 0" in job.logs(agent=True)
    assert job.result == packtrain.JobResult("succeeded", message="execution 1 passed all checks")
    (file,) = run.outputs().files
    assert (file.job, file.name, file.bytes) == ("0", "model.txt", 6)
    (path,) = run.outputs(0).download(folder / "results")
    assert path == folder / "results/model.txt"
    assert path.read_text() == "model\n"
    assert run.report().stats.success_rate == 1
    assert packtrain.get_run(run.id) == packtrain.get_run() == run
    assert packtrain.list_runs() == [run]
    assert repr(run) == f"<packtrain.Run {run.id}: succeeded>"


def test_matrix_and_metrics(folder, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    run = packtrain.submit(make_workflow(LOG_METRICS), matrix={"lr": [0.5, 0.25]})
    run.wait(timeout=120)
    assert [job.matrix["lr"] for job in run.jobs] == ["0.5", "0.25"]
    assert [job.metrics["loss"] for job in run.jobs] == [0.5, 0.25]
    assert run.job(1).result.metrics["loss"] == 0.25


def test_failed_job(folder):
    run = packtrain.submit(make_workflow("echo broken >&2; exit 3", limits={"maxAttempts": 1}))
    assert run.wait(timeout=120) == "failed"
    result = run.jobs[0].result
    assert (result.status, result.failure) == ("failed", "step_failed")
    assert "3" in result.message
    assert run.outputs().files == ()
    with pytest.raises(packtrain.NotFoundError, match="has no outputs, because it did not succeed"):
        run.outputs().download(folder)


def test_events_are_followed_to_the_end():
    run = packtrain.submit(make_workflow())
    followed = [event.kind for event in run.follow(timeout=120)]
    assert followed[0] == kinds.RUN_CREATED
    assert followed.count(kinds.JOB_ENDED) == 1
    assert kinds.SUPERVISOR_ENDED in followed
    assert run.status == "succeeded"


def test_workflow_with_errors(folder):
    Path("w.yaml").write_text("resources: {tasks: 1}\nstepz: []\n")
    with pytest.raises(packtrain.WorkflowError) as caught:
        packtrain.submit("w.yaml")
    process = subprocess.run(
        [sys.executable, "-m", "packtrain", "run", "w.yaml"], capture_output=True, text=True, env=os.environ
    )
    assert process.stderr.splitlines() == [str(diagnostic) for diagnostic in caught.value.diagnostics]
    assert isinstance(caught.value, packtrain.PacktrainError)
    assert packtrain.list_runs() == []


def test_warnings():
    Path("w.yaml").write_text(json.dumps(make_workflow(resources={**RESOURCES, "cpusPerTask": 1000})))
    with pytest.warns(UserWarning, match="1,000 CPUs"):
        packtrain.submit("w.yaml").cancel()


@pytest.mark.parametrize("lookup", [lambda: packtrain.get_run("no-such"), lambda: packtrain.get_run()])
def test_unknown_run(lookup):
    with pytest.raises(packtrain.NotFoundError):
        lookup()


def test_unknown_job():
    run = packtrain.submit(make_workflow())
    for lookup in (run.job, run.outputs):
        with pytest.raises(packtrain.NotFoundError, match="has no job '7'"):
            lookup(7)
    run.wait(timeout=120)


def test_timeout_and_cancel(folder):
    run = packtrain.submit(make_waiting_workflow())
    with pytest.raises(TimeoutError):
        run.wait(timeout=0.2)
    wait_for(lambda: run.jobs[0].status == "running")  # the supervisor has read the journal
    assert (run.status, run.jobs[0].result) == ("running", None)
    run.cancel("enough")
    assert run.wait(timeout=120) == "cancelled"
    assert run.jobs[0].result == packtrain.JobResult("cancelled", message="enough")
    run.cancel()  # nothing to cancel


def test_resume(folder):
    Path("w.yaml").write_text(json.dumps(make_workflow(f"test -e {folder}/ready", limits={"maxAttempts": 1})))
    run = packtrain.submit("w.yaml")
    assert run.wait(timeout=120) == "failed"
    Path("ready").touch()
    assert run.resume().wait(timeout=120) == "succeeded"
    assert run.jobs[0].attempts == 2
    assert run.resume() is run  # nothing to resume


def test_supervised_run_cannot_be_resumed(folder):
    run = packtrain.submit(make_waiting_workflow())
    with pytest.raises(packtrain.UnavailableError, match="already has a supervisor"):
        packtrain.get_run(run.id).resume()
    run.cancel()


def test_state_is_visible_in_other_threads():
    run = packtrain.submit(make_workflow())
    run.wait(timeout=120)
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append([run.status, run.jobs[0].status]))
    thread.start()
    thread.join()
    assert statuses == [["succeeded", "succeeded"]]


SCRIPT = """
import json, os, sys, packtrain
run = packtrain.submit(json.loads(sys.argv[1]), detach=sys.argv[2] == "detach")
while not os.path.exists("started"): pass
try:
    print(run.id, flush=True)
    run.wait() if sys.argv[3:] else input()
except KeyboardInterrupt:
    print(run.status, flush=True)
    run.cancel()
    print(run.status, flush=True)
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_run_stops_with_its_process(folder, end):
    script = start_script("own")
    run = packtrain.get_run(script.stdout.readline().strip())
    assert run.status == "running"
    end_script(script, end)
    assert run.wait(timeout=120) == "interrupted"
    assert run.jobs[0].status != "running"


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_detached_run_continues(folder, end):
    script = start_script("detach")
    run = packtrain.get_run(script.stdout.readline().strip())
    end_script(script, end)
    with pytest.raises(TimeoutError):
        run.wait(timeout=1)
    assert run.status == "running"
    run.cancel()


def test_interrupted_wait_does_not_stop_the_run():
    """Ctrl-C reaches the whole process group, but not the supervisor."""
    script = start_script("own", "wait")
    script.stdout.readline()
    is_interrupted = False
    while not is_interrupted:  # Python ignores a KeyboardInterrupt in a finalizer; then people press Ctrl-C again
        os.killpg(script.pid, signal.SIGINT)
        is_interrupted = bool(select.select([script.stdout], [], [], 20)[0])
    assert script.communicate(timeout=120)[0].split() == ["running", "cancelled"]


def start_script(*arguments):
    command = [sys.executable, "-c", SCRIPT, json.dumps(make_waiting_workflow()), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def end_script(script, end):
    if end == "kill":
        script.send_signal(signal.SIGKILL)
    script.communicate("\n" if end == "exit" else None)


def test_failed_supervisor(folder):
    run = packtrain.submit(make_waiting_workflow())
    wait_for((folder / "started").exists)
    process = packtrain.api._owned_supervisors[run.id]
    process.kill()
    with pytest.raises(packtrain.UnavailableError, match="the supervisor of"):
        run.wait(timeout=120)
    assert run.status == "orphaned"
    run.cancel()
    assert run.status == "cancelled"


def test_html_is_escaped():
    run = packtrain.submit(make_workflow(), matrix={"x": ["<script>alert(1)</script>"]})
    run.wait(timeout=120)
    html = run._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "succeeded" in html


def test_show_in_terminal(capsys):
    run = packtrain.submit(make_workflow())
    assert run.show(timeout=120) == "succeeded"
    assert run.id in capsys.readouterr().out


def test_fetch(folder):
    (folder / "data").write_bytes(b"x" * 1000)
    url, digest = (folder / "data").as_uri(), hashlib.sha256(b"x" * 1000).hexdigest()
    (folder / "there").mkdir()
    assert packtrain.fetch(url, folder / "there", sha256=digest) == folder / "there/data"
    assert packtrain.fetch(["file:///no/such/file", url], "new/copy").read_bytes() == b"x" * 1000
    with pytest.raises(packtrain.FailedError):
        packtrain.fetch(url, "other", sha256="0" * 64)
    with pytest.raises(packtrain.UsageError, match="exists, but its sha256"):
        packtrain.fetch(url, "new/copy", sha256="0" * 64)
    with pytest.raises(packtrain.UsageError, match="sha256"):
        packtrain.fetch(url, "other", sha256="123")
    with pytest.raises(packtrain.UsageError, match="one file"):
        packtrain.fetch(folder.as_uri() + "/", "other")
    with pytest.raises(packtrain.UsageError, match="is not a URL"):
        packtrain.fetch("data", "other")
