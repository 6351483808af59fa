"""A secret reaches the job as a file of mode 0600, and stands nowhere else: not in the queue, history, log, spool,
store or the run's folder afterwards."""

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


def holding(folder: Path) -> list[str]:
    """The files below the folder that have the secret in them."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and SECRET.encode() in path.read_bytes():
            found.append(str(path.relative_to(folder)))
    return found


def test_a_secret_is_a_file_of_the_job_and_nothing_else(desk):
    gate = desk.folder / "gate"
    desk.environment["PACKTRAIN_DATA_TOKEN"] = SECRET
    (desk.folder / "origin").mkdir()
    (desk.folder / "origin" / "data.txt").write_text("data")
    with HttpServer(desk.folder / "origin", token=SECRET) as origin:
        desk.write_file(WORKFLOW.replace("URL", origin.url).replace("GATE", str(gate)))
        run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
        desk.wait_for(lambda: "steps" in str(desk.run_json("ps", run)["jobs"][0]["attempts"]))
        desk.wait_for(lambda: "train" in str(desk.pool.queue("JobUniverse == 5", "PacktrainLogTail")))
        queue = desk.pool.run(["condor_q", "-l", "-allusers"]).stdout
        vacated = desk.run_json("ps", run)["jobs"][0]["attempts"][0]["native"]
        desk.pool.run(["condor_vacate_job", vacated])
        desk.wait_for(lambda: len(desk.run_json("ps", run)["jobs"][0]["attempts"]) == 2)
        spool = holding(desk.pool.folder / "spool")
        gate.touch()
        desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")
    history = desk.pool.run(["condor_history", "-l", "-limit", "5"]).stdout
    assert "PacktrainRun" in queue and "PacktrainRun" in history, "looked at the right thing"
    assert SECRET not in queue
    assert SECRET not in history
    assert spool == []
    output = desk.run_folder() / "jobs/0/output"
    assert (output / "modes.txt").read_text().split() == ["600"]
    assert (output / "start.txt").read_text().strip() == SECRET[:3], "the program had it"
    assert "says" in desk.run("logs", run) and SECRET not in desk.run("logs", run)
    assert holding(desk.run_folder()) == []
    assert holding(desk.folder) == []
    assert holding(desk.pool.folder / "log") == []
