"""What jobs of a real pool bring home: any number of outputs, links among them, and what happens if the pool takes the
machine back while they are on their way."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from packtrain.events import kinds
from packtrain.store import SqliteStore
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
        if [ -n "$PACKTRAIN_RESUME" ]; then echo went on > model.bin; exit 0; fi
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


def user_log(desk) -> str:
    return (desk.run_folder() / "htcondor/event.log").read_text()


def await_log(desk, text: str) -> None:
    desk.wait_for(lambda: list(desk.folder.glob(".packtrain/runs/*/htcondor/event.log")) and text in user_log(desk))


def transfers(desk) -> list[tuple[int, str, str]]:
    """What the store has of them."""
    store = SqliteStore(Path(desk.environment["PACKTRAIN_STORE"]))
    told = [stored.event.data for stored in store.events(desk.run_folder().name, kind=kinds.ATTEMPT_TRANSFER)]
    store.close()
    return [(data["start"], data["direction"], data["what"]) for data in told]


def test_evicted_while_its_outputs_are_on_their_way_it_goes_on_from_its_checkpoint(desk):
    gate = desk.folder / "gate"
    desk.write_file(HEAD + TRAIN.replace("GATE", str(gate)))
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    await_log(desk, "checkpoint.saved")
    attempt = desk.run_folder() / "jobs/0/attempts/0-1"
    (attempt / "output").mkdir()
    os.mkfifo(attempt / "output/first.bin")  # whoever writes this output here waits for ever
    time.sleep(1.1)  # the user log knows whole seconds: less than one of them may be lost without a trace
    gate.touch()
    desk.wait_for(lambda: list(attempt.glob("logs/train.out")))  # comes after the checkpoint, before the outputs
    desk.pool.run(["condor_vacate_job", "-fast", "-constraint", "JobUniverse == 5"])
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err + user_log(desk)
    assert [event.data["step"] for event in desk.read_events("checkpoint.restored")] == [7]
    home = {path.name: path.read_text() for path in (desk.run_folder() / "jobs/0/output").iterdir()}
    assert home == {"ckpt.bin": "weights\n", "model.bin": "went on\n"}, "nothing of the start that was lost"
    assert not list(attempt.glob("checkpoint/*")), "nobody needs it any more"
    moved = transfers(desk)
    each = [(1, "in", "started"), (1, "in", "finished"), (1, "out", "started"), (2, "in", "started")]
    assert set(each) < set(moved) and (1, "out", "finished") not in moved
    assert re.search(r"^ *queue ", out, re.MULTILINE) and re.search(r"^ *lost ", out, re.MULTILINE), out


def test_what_the_pool_had_carried_is_not_lost_with_a_job_that_is_removed(desk):
    """A held job's checkpoint lies in the schedd's spool, which nothing but its own next start would get it from."""
    desk.write_file(HEAD + TRAIN.replace("GATE", str(desk.folder / "gate")))
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    await_log(desk, "checkpoint.saved")
    desk.pool.run(["condor_hold", "-constraint", "JobUniverse == 5"])
    desk.wait_for(lambda: desk.run_json("ps")[-1]["jobs"][0]["status"] == "held")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, out + err
    assert desk.run_json("resume", desk.run_folder().name)["status"] == "succeeded"
    assert [event.data["step"] for event in desk.read_events("checkpoint.restored")] == [7]


def test_any_number_of_outputs_and_links_come_home(desk):
    desk.write_file(HEAD + MANY)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    await_log(desk, "Started transferring output files")
    desk.pool.run(["condor_vacate_job", "-constraint", "JobUniverse == 5"], check=False)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err + user_log(desk)
    home = desk.run_folder() / "jobs/0/output"
    found = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
    small = {f"part/{number}": f"{number}\n" for number in range(1, 1501)}
    assert found == {**small, "one/file": "1\n", "latest/file": "1\n", "beside": "2\n"}
    assert len(EXECUTE.findall(user_log(desk))) == 1, "all of it was here, so it was not done again"
    assert "the output broken is left out: it is a link to nowhere, which does not exist" in out + err
