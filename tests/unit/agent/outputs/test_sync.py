"""Outputs leave complete: links resolved, files quiet, nothing half-written."""

import threading
import time

import pytest

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.context import AttemptContext
from packtrain.agent.outputs.sync import ContinuousSync, clean_outputs, keep_in_attempt_folder, make_grace_check
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import AttemptFolder, Job, Limits, Location, Output, Resources

LOOK_S = 0.05


@pytest.fixture
def context(tmp_path):
    box = Sandbox(tmp_path / "box", AttemptFolder(tmp_path / "home"))
    box.create()
    redactor = Redactor()
    journal = Journal(box.attempt_folder.journal, "r", "0", "agent-1", redactor)
    job = Job("0", (), Resources(), Limits(grace_s=0.2), ())
    guard = Guard.start()
    log = AgentLog(box.attempt_folder.agent_log, redactor)
    secrets = Secrets(tmp_path / "secrets")
    yield AttemptContext(job, box, journal, log, secrets, redactor, StopRequest(), ProcessTable(guard, 0.2))
    guard.quit()
    journal.close()


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def notices(context):
    return [e.data["text"] for e in JournalReader(context.journal.path).read() if e.kind == "notice"]


def test_kept_outputs_appear_at_once(context):
    (context.sandbox.output / "f").write_text("1")
    keep_in_attempt_folder(context, "")
    assert (context.sandbox.home.output / "f").read_text() == "1"
    assert not context.box.output.exists()
    assert [p.name for p in context.box.home.root.iterdir() if p.name.endswith(".new")] == []


def test_what_a_pool_brought_along_of_an_earlier_start_makes_room(context):
    earlier = context.sandbox.attempt_folder.output / ".packtrain" / "agent-0"
    earlier.mkdir(parents=True)
    (earlier / "half").write_text("0")
    (context.box.output / "f").write_text("1")
    keep_in_attempt_folder(context, "")
    assert [path.name for path in context.box.home.output.iterdir()] == ["f"]


def test_what_is_left_out_is_told_but_not_a_hundred_times(context):
    for number in range(100):
        (context.sandbox.output / f"broken{number}").symlink_to("nowhere")
    (context.sandbox.output / ".half.tmp-7").write_text("not finished")
    clean_outputs(context)
    assert list(context.box.output.iterdir()) == []
    told = notices(context)
    assert len(told) == 6 and told[-1] == "95 more outputs are left out"


# Grace


def test_without_a_stop_there_is_all_time(context):
    check = make_grace_check(context)
    check()
    assert not context.stop.wait(0.3)
    check()


def test_after_a_stop_there_is_the_grace_period(context):
    check = make_grace_check(context)
    context.stop.request("terminated", "the agent received SIGTERM")
    check()
    deadline = time.monotonic() + 60
    with pytest.raises(FailedError, match="SIGTERM; the outputs could not all be copied") as caught:
        while time.monotonic() < deadline:
            check()
            time.sleep(0.01)
    assert caught.value.kind == "terminated"


def test_ahead_of_a_limit_there_is_the_time_up_to_it(context):
    check = make_grace_check(context)
    context.stop.request("wall_time", "its time is near", graceful=True, deadline=time.monotonic() + 1000)
    context.stop.since -= 500
    check()
    context.stop.request("terminated", "SIGTERM")
    check()
    context.stop.since -= 1
    with pytest.raises(FailedError, match="its time is near"):
        check()


# Continuous


def test_a_quiet_file_is_copied(context, tmp_path):
    target = tmp_path / "target"
    with ContinuousSync(context, Output(Location(f"file://{target}")), LOOK_S):
        (context.sandbox.output / "sub").mkdir()
        (context.sandbox.output / "sub" / "f").write_text("1")
        wait_for((target / "sub" / "f").exists)
        assert (target / "sub" / "f").read_text() == "1"
        (context.box.output / "sub" / "f").write_text("second")
        wait_for(lambda: (target / "sub" / "f").read_text() == "second")


def test_a_file_that_keeps_changing_waits(context, tmp_path):
    target, grows = tmp_path / "target", threading.Event()
    grows.set()

    class Busy(ContinuousSync):
        def _versions(self):
            if grows.is_set():
                with open(context.box.output / "growing", "a") as growing:
                    growing.write("more\n")
            return super()._scan_versions()

    with Busy(context, Output(Location(f"file://{target}")), LOOK_S):
        (context.sandbox.output / "marker").write_text("quiet")
        wait_for((target / "marker").exists)
        assert not (target / "growing").exists()
        grows.clear()
        wait_for((target / "growing").exists)
        assert (target / "growing").read_text() == (context.box.output / "growing").read_text()


def test_errors_are_told_once_and_tried_again(context, tmp_path):
    (tmp_path / "target").write_text("a file is in the way")
    with ContinuousSync(context, Output(Location(f"file://{tmp_path}/target")), LOOK_S):
        (context.sandbox.output / "f").write_text("1")
        wait_for(lambda: notices(context))
        (tmp_path / "target").unlink()
        wait_for((tmp_path / "target" / "f").exists)
    assert len(notices(context)) == 1
    assert "continuous sync will try again" in notices(context)[0]


def test_links_to_nowhere_do_not_hold_up_the_rest(context, tmp_path):
    (context.sandbox.output / "broken").symlink_to("nowhere")
    (context.sandbox.output / "f").write_text("1")
    with ContinuousSync(context, Output(Location(f"file://{tmp_path}/target")), LOOK_S):
        wait_for((tmp_path / "target" / "f").exists)
    assert notices(context) == []
