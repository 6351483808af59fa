"""Tests that a secret reaches the job as a file of mode 0600 and is stored nowhere else.

The test searches the queue, history, log, spool, store, and the run folder afterwards.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.http_server import HttpServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

SECRET = "s3cr3t-of-ada-4711"
WORKFLOW = """\
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}
limits: {grace: 2s, disk: 10MB}
input: {http: {url: "URL/data.txt", token: "${env:PACKTRAIN_DATA_TOKEN}"}}
env: [{key: PASSWORD, value: "${env:PACKTRAIN_DATA_TOKEN}"}]
steps:
  - name: train
    run:
      command: |
        stat -c %a ../secrets/* > $DEEPSQUARE_OUTPUT/modes.txt
        echo "$PASSWORD" | cut -c 1-3 > $DEEPSQUARE_OUTPUT/start.txt
        echo "says $PASSWORD"
        until [ -e GATE ]; do sleep 0.1; done
"""


def files_with_secret(folder: Path) -> list[str]:
    """Return the files below the folder that contain the secret."""
    matches = []
    for path in folder.rglob("*"):
        if path.is_file() and SECRET.encode() in path.read_bytes():
            matches.append(str(path.relative_to(folder)))
    return matches


def test_secret_is_only_a_file_of_the_job(workspace):
    gate = workspace.folder / "gate"
    workspace.environment["PACKTRAIN_DATA_TOKEN"] = SECRET
    (workspace.folder / "origin").mkdir()
    (workspace.folder / "origin" / "data.txt").write_text("data")
    with HttpServer(workspace.folder / "origin", token=SECRET) as origin:
        workspace.write_file(WORKFLOW.replace("URL", origin.url).replace("GATE", str(gate)))
        run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
        workspace.wait_for(lambda: "steps" in str(workspace.run_json("ps", run)["jobs"][0]["executions"]))
        workspace.wait_for(lambda: "train" in str(workspace.pool.queue("JobUniverse == 5", "PacktrainLogTail")))
        queue = workspace.pool.run_as_user(["condor_q", "-l", "-allusers"]).stdout
        vacated = workspace.run_json("ps", run)["jobs"][0]["executions"][0]["native_id"]
        workspace.pool.run_as_user(["condor_vacate_job", vacated])
        workspace.wait_for(lambda: len(workspace.run_json("ps", run)["jobs"][0]["executions"]) == 2)
        spool = files_with_secret(workspace.pool.folder / "spool")
        gate.touch()
        workspace.wait_for(lambda: workspace.run_json("ps", run)["status"] == "succeeded")
    history = workspace.pool.run_as_user(["condor_history", "-l", "-limit", "5"]).stdout
    assert "PacktrainRun" in queue and "PacktrainRun" in history, "the job is in both listings"
    assert SECRET not in queue
    assert SECRET not in history
    assert spool == []
    output = workspace.run_folder() / "jobs/0/output"
    assert (output / "modes.txt").read_text().split() == ["600"]
    assert (output / "start.txt").read_text().strip() == SECRET[:3], "the program had the secret"
    assert "says" in workspace.run("logs", run) and SECRET not in workspace.run("logs", run)
    assert files_with_secret(workspace.run_folder()) == []
    assert files_with_secret(workspace.folder) == []
    assert files_with_secret(workspace.pool.folder / "log") == []
