"""The order of the stages, the first real error, and an end whatever happens."""

import errno
import time

import pytest

from packtrain.agent import attempt
from packtrain.agent.agent_log import AgentLog
from packtrain.agent.attempt import AttemptRunner, failure_from_error
from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import AttemptFolder, Job, Limits, Location, Output, Resources

SECRET = "correct-horse"


@pytest.fixture
def make(tmp_path):
    """Contexts; what they started is ended."""
    guards = []

    def make(**more):
        box = Sandbox(tmp_path / "box", AttemptFolder(tmp_path / "home"))
        box.create()
        redactor = Redactor([SECRET])
        journal = Journal(box.attempt_folder.journal, "r", "0", "agent-1", redactor)
        guards.append(Guard.start())
        log = AgentLog(box.attempt_folder.agent_log, redactor)
        job = Job("0", (), Resources(), Limits(grace_s=0.2), (), **more)
        processes = ProcessTable(guards[-1], 0.2)
        return AttemptContext(job, box, journal, log, Secrets(tmp_path / "secrets"), redactor, StopRequest(), processes)

    yield make
    for guard in guards:
        guard.quit()


def events(context):
    return JournalReader(context.journal.path).read()


def ended(context):
    return events(context)[-1].data


def fail_with(error):
    def work(context, tally):
        tally["bytes"] = 7
        raise error

    return work


def good(context, tally):
    (context.box.output / "f").write_text("1")


def test_a_defect_still_ends_in_good_order(make, monkeypatch, capsys):
    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("probe", good), ("fetch", fail_with(ZeroDivisionError(SECRET)))))
    context = make()
    assert AttemptRunner(context, time.monotonic()).run() == 70
    assert [e.data["stage"] for e in events(context) if e.kind == "stage.ended"] == ["probe", "fetch", "sync", "clean"]
    assert ended(context)["failure"]["kind"] == "internal"
    assert not context.box.root.exists()
    log = context.box.home.agent_log.read_text()
    assert "Traceback" in log
    assert "in work" in log
    assert SECRET not in log + context.journal.path.read_text() + capsys.readouterr().err


def test_what_a_failed_stage_counted_is_told(make, monkeypatch):
    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("fetch", fail_with(FailedError("truncated", "it ended early"))),))
    context = make()
    assert AttemptRunner(context, time.monotonic()).run() == 32
    stage = next(e.data for e in events(context) if e.kind == "stage.ended")
    assert stage["bytes"] == 7
    assert stage["failure"]["detail"] == "it ended early"


def test_after_a_failure_no_stage_goes_forward(make, monkeypatch):
    failing = fail_with(FailedError("step_failed", "no"))
    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("steps", failing), ("check", pytest.fail)))
    assert AttemptRunner(make(), time.monotonic()).run() == 10


def test_a_stop_before_a_stage_is_its_failure(make, monkeypatch):
    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("probe", good), ("fetch", pytest.fail)))
    context = make()
    context.stop.request("terminated", "the agent received SIGTERM")
    assert AttemptRunner(context, time.monotonic()).run() == 60
    assert ended(context)["failure"]["stage"] == "probe"


def test_a_stop_after_the_last_stage_changes_nothing(make, monkeypatch):
    def late(context, tally):
        good(context, tally)
        context.stop.request("terminated", "the agent received SIGTERM")

    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("check", late),))
    context = make()
    assert AttemptRunner(context, time.monotonic()).run() == 0
    assert (context.box.home.output / "f").read_text() == "1"


def test_a_step_that_removes_the_output_folder(make, monkeypatch):
    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("steps", lambda context, tally: context.box.output.rmdir()),))
    context = make()
    assert AttemptRunner(context, time.monotonic()).run() == 11
    assert "removed the output folder" in ended(context)["failure"]["detail"]


def test_outputs_that_did_not_arrive_are_listed_where_they_are(make, monkeypatch):
    monkeypatch.setattr(attempt, "FORWARD_STAGES", (("steps", good),))
    context = make(output=Output(Location("nowhere://x")))
    assert AttemptRunner(context, time.monotonic()).run() == 18
    assert [o["path"] for o in ended(context)["outputs"]] == [".packtrain/agent-1/f"]
    assert (context.box.home.output / ".packtrain" / "agent-1" / "f").read_text() == "1"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_wherever_it_shows(number):
    failure = failure_from_error(OSError(number, "No space left on device", "/scratch/x"), "steps")
    assert failure.kind == "disk_full"
    assert failure.detail == "the disk is full at /scratch/x: No space left on device"
