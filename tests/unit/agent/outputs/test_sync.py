"""Upload of outputs: moving them, the grace period, and continuous sync of stable files."""

import os
import threading
import time

import pytest

from packtrain.agent.outputs.sync import ContinuousSync, clean_outputs, keep_in_attempt_folder
from packtrain.errors import FailedError
from packtrain.events import JournalReader
from packtrain.fileutil import is_temporary_name
from packtrain.plan import Job, Limits, Location, Output, OutputManifest, Resources
from packtrain.plan.output_manifest import SYNC_LIST_NAME, staged_name, staging_folder
from tests.support.attempt_contexts import attempt_contexts
from tests.support.waiting import wait_until

POLL_INTERVAL_S = 0.05


@pytest.fixture
def context(tmp_path):
    with attempt_contexts(tmp_path) as make:
        yield make(Job("0", (), Resources(), Limits(grace_s=0.2), ()))


def staged_folder(target):
    return target / staged_name("r", "0", "agent-1", "")


def read_sync_list(target):
    return OutputManifest.from_text((target / staging_folder("r", "0", "agent-1") / SYNC_LIST_NAME).read_text())


def notices(context):
    return [e.data["text"] for e in JournalReader(context.journal.path).read() if e.kind == "notice"]


def test_outputs_are_moved_atomically(context):
    (context.sandbox.output / "f").write_text("1")
    keep_in_attempt_folder(context, "")
    assert (context.sandbox.attempt_folder.output / "f").read_text() == "1"
    assert not context.sandbox.output.exists()
    assert not any(is_temporary_name(p.name) for p in context.sandbox.attempt_folder.root.iterdir())


def test_outputs_of_earlier_execution_are_replaced(context):
    earlier = context.sandbox.attempt_folder.output / ".packtrain" / "agent-0"
    earlier.mkdir(parents=True)
    (earlier / "half").write_text("0")
    (context.sandbox.output / "f").write_text("1")
    keep_in_attempt_folder(context, "")
    assert [path.name for path in context.sandbox.attempt_folder.output.iterdir()] == ["f"]


def test_number_of_notices_is_limited(context):
    for number in range(100):
        (context.sandbox.output / f"broken{number}").symlink_to("nowhere")
    (context.sandbox.output / ".half.tmp-7").write_text("not finished")
    clean_outputs(context)
    assert list(context.sandbox.output.iterdir()) == []
    texts = notices(context)
    assert len(texts) == 6 and texts[-1] == "95 more outputs are left out"


# Grace period


def test_no_deadline_without_stop_request(context):
    check = context.check_upload_time
    check()
    assert not context.stop.wait(0.3)
    check()


def test_grace_period_after_stop_request(context):
    check = context.check_upload_time
    context.stop.request("terminated", "the agent received SIGTERM")
    check()
    deadline = time.monotonic() + 60
    with pytest.raises(FailedError, match="SIGTERM; not all outputs were uploaded in time") as caught:
        while time.monotonic() < deadline:
            check()
            time.sleep(0.01)
    assert caught.value.kind == "terminated"


def test_uploads_may_last_until_the_limit(context):
    check = context.check_upload_time
    context.stop.request("wall_time", "the limit is near", graceful=True, deadline=time.monotonic() + 1000)
    context.stop.requested_at -= 500
    check()
    context.stop.request("terminated", "SIGTERM")
    check()
    context.stop.requested_at -= 1
    with pytest.raises(FailedError, match="the limit is near"):
        check()


# Continuous sync


def test_stable_file_is_uploaded(context, tmp_path):
    target = staged_folder(tmp_path / "target")
    with ContinuousSync(context, Output(Location(f"file://{tmp_path}/target")), POLL_INTERVAL_S):
        (context.sandbox.output / "sub").mkdir()
        (context.sandbox.output / "sub" / "f").write_text("1")
        wait_until((target / "sub" / "f").exists)
        assert (target / "sub" / "f").read_text() == "1"
        (context.sandbox.output / "sub" / "f").write_text("second")
        wait_until(lambda: (target / "sub" / "f").read_text() == "second")
        wait_until(lambda: [entry.bytes for entry in read_sync_list(tmp_path / "target").entries] == [len("second")])
    assert os.listdir(tmp_path / "target") == [".packtrain"], "the supervisor shows it under the user's path"


def test_changing_file_is_not_uploaded(context, tmp_path):
    target, growing = staged_folder(tmp_path / "target"), threading.Event()
    growing.set()

    class GrowingFileSync(ContinuousSync):
        """Appends to a file before each scan."""

        def _scan_versions(self):
            if growing.is_set():
                with open(context.sandbox.output / "growing", "a") as file:
                    file.write("more\n")
            return super()._scan_versions()

    with GrowingFileSync(context, Output(Location(f"file://{tmp_path}/target")), POLL_INTERVAL_S):
        (context.sandbox.output / "marker").write_text("stable")
        wait_until((target / "marker").exists)
        assert not (target / "growing").exists()
        growing.clear()
        wait_until((target / "growing").exists)
        assert (target / "growing").read_text() == (context.sandbox.output / "growing").read_text()


def test_errors_are_reported_once_and_retried(context, tmp_path):
    (tmp_path / "target").write_text("a file prevents the folder")
    with ContinuousSync(context, Output(Location(f"file://{tmp_path}/target")), POLL_INTERVAL_S):
        (context.sandbox.output / "f").write_text("1")
        wait_until(lambda: notices(context))
        (tmp_path / "target").unlink()
        wait_until((staged_folder(tmp_path / "target") / "f").exists)
    assert len(notices(context)) == 1
    assert "continuous sync failed and will be retried" in notices(context)[0]


def test_dangling_links_are_skipped(context, tmp_path):
    (context.sandbox.output / "broken").symlink_to("nowhere")
    (context.sandbox.output / "f").write_text("1")
    with ContinuousSync(context, Output(Location(f"file://{tmp_path}/target")), POLL_INTERVAL_S):
        wait_until((staged_folder(tmp_path / "target") / "f").exists)
    assert notices(context) == []
