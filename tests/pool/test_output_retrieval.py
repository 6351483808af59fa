"""The outputs of jobs on a real pool: many files, links, and evictions while the pool returns them."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from packtrain.events import kinds
from packtrain.store import SqliteStore
from testbed.http_server import HttpServer
from tests.support.cli_runs import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

HEAD = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\nlimits: {grace: 2s, disk: 100MB}\n"
TRAIN = """
checkpoint: {path: ckpt.bin, minInterval: 1h}
steps:
  - name: train
    run:
      command: |
        cd $PACKTRAIN_OUTPUT
        if [ -n "$PACKTRAIN_RESUME" ]; then echo resumed > model.bin; exit 0; fi
        echo weights > .ckpt.tmp-1; mv .ckpt.tmp-1 ckpt.bin
        echo '{"path": "ckpt.bin", "step": 7}' >> $PACKTRAIN_CHECKPOINTS
        until [ -e GATE ]; do sleep 0.1; done
        echo all > first.bin
"""
MANY = """
steps:
  - name: train
    run:
      command: |
        cd $PACKTRAIN_OUTPUT
        mkdir part one; for number in $(seq 1500); do echo $number > part/$number; done
        echo 1 > one/file; ln -s one latest; ln -s nowhere broken; ln -s $PWD/../beside beside; echo 2 > ../beside
"""
EXECUTE = re.compile(r"^001 \(", re.MULTILINE)


def read_log(workspace) -> str:
    return (workspace.run_folder() / "htcondor/event.log").read_text()


def wait_for_log(workspace, text: str) -> None:
    workspace.wait_for(
        lambda: list(workspace.folder.glob(".packtrain/runs/*/htcondor/event.log")) and text in read_log(workspace)
    )


def stored_transfers(workspace) -> list[tuple[int, str, str]]:
    """Return execution, direction and phase of the transfers in the store."""
    store = SqliteStore(Path(workspace.environment["PACKTRAIN_STORE"]))
    transfers = [stored.event.data for stored in store.events(workspace.run_folder().name, kind=kinds.ATTEMPT_TRANSFER)]
    store.close()
    return [(data["execution"], data["direction"], data["phase"]) for data in transfers]


def test_eviction_during_output_transfer(workspace):
    gate = workspace.folder / "gate"
    workspace.write_file(HEAD + TRAIN.replace("GATE", str(gate)))
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    wait_for_log(workspace, "checkpoint.saved")
    attempt = workspace.run_folder() / "jobs/0/attempts/0-1"
    (attempt / "output").mkdir()
    os.mkfifo(attempt / "output/first.bin")  # writing this output blocks
    time.sleep(1.1)  # the log has whole seconds; a shorter execution would have no duration
    gate.touch()
    workspace.wait_for(
        lambda: list(attempt.glob("logs/train.out"))
    )  # it is returned after the checkpoint and before the outputs
    workspace.pool.run_as_user(["condor_vacate_job", "-fast", "-constraint", "JobUniverse == 5"])
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err + read_log(workspace)
    assert [event.data["step"] for event in workspace.read_events("checkpoint.restored")] == [7]
    outputs = {path.name: path.read_text() for path in (workspace.run_folder() / "jobs/0/output").iterdir()}
    assert outputs == {"ckpt.bin": "weights\n", "model.bin": "resumed\n"}, "no files of the lost execution"
    assert not list(attempt.glob("checkpoint/*")), "it is not needed any more"
    transfers = stored_transfers(workspace)
    expected = [(1, "in", "started"), (1, "in", "finished"), (1, "out", "started"), (2, "in", "started")]
    assert set(expected) < set(transfers) and (1, "out", "finished") not in transfers
    assert re.search(r"^ *queue ", out, re.MULTILINE) and re.search(r"^ *wasted ", out, re.MULTILINE), out


def test_checkpoint_of_removed_job(workspace):
    """The checkpoint of a held job is in the schedd's spool, and only the same job would get it from there."""
    workspace.write_file(HEAD + TRAIN.replace("GATE", str(workspace.folder / "gate")))
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    wait_for_log(workspace, "checkpoint.saved")
    workspace.pool.run_as_user(["condor_hold", "-constraint", "JobUniverse == 5"])
    workspace.wait_for(lambda: workspace.run_json("ps")[-1]["jobs"][0]["status"] == "held")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, out + err
    assert workspace.run_json("resume", workspace.run_folder().name)["status"] == "succeeded"
    assert [event.data["step"] for event in workspace.read_events("checkpoint.restored")] == [7]


def test_many_outputs_and_links(workspace):
    workspace.write_file(HEAD + MANY)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    wait_for_log(workspace, "Started transferring output files")
    workspace.pool.run_as_user(["condor_vacate_job", "-constraint", "JobUniverse == 5"], check=False)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err + read_log(workspace)
    folder = workspace.run_folder() / "jobs/0/output"
    outputs = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    small = {f"part/{number}": f"{number}\n" for number in range(1, 1501)}
    assert outputs == {**small, "one/file": "1\n", "latest/file": "1\n", "beside": "2\n"}
    assert len(EXECUTE.findall(read_log(workspace))) == 1, "all outputs had been returned, so the job did not run again"
    assert "the output broken is left out: it is a link to nowhere, which does not exist" in out + err


def test_http_output_is_uploaded_by_the_supervisor(workspace, tmp_path):
    """A URL has no room for the outputs of several attempts, so the pool returns them."""
    with HttpServer(tmp_path / "served", writable=True) as server:
        steps = "steps: [{name: train, run: {command: 'echo weights > $PACKTRAIN_OUTPUT/model.txt'}}]\n"
        workspace.write_file(HEAD + f"output: {{http: {{url: '{server.url}/up/'}}}}\n" + steps)
        assert workspace.run_json("run", "workflow.yaml", "--on", "htcondor")["status"] == "succeeded"
        (output,) = workspace.run_json("outputs")
        assert output == {"job": "0", "name": "model.txt", "bytes": 8, "url": f"{server.url}/up/model.txt"}
        assert [request.method for request in server.requests if request.method == "PUT"] == ["PUT"]
    assert (tmp_path / "served/up/model.txt").read_text() == "weights\n"
