"""Live updates: immediate and rate-limited ones, the log tail, and an unreliable proxy."""

import json
from urllib.parse import unquote

import pytest

from packtrain.agent.live.reporter import LiveReporter, LogTail, StatusAccumulator, chirp_connector
from packtrain.backoff import Backoff
from packtrain.condor.classads import parse_old_classad
from packtrain.events import Event, Journal, Redactor, kinds
from tests.support.chirp_proxy import ChirpProxy
from tests.support.waiting import wait_until

BACKOFF = Backoff(initial_s=0.01, max_s=0.1)


class EventFactory:
    def __init__(self):
        self.seq = 0

    def __call__(self, kind, /, **data):
        self.seq += 1
        return Event("run-1", "0", "agent-1", self.seq, kind, 1.5, 2.5, data)


@pytest.fixture
def make_event():
    return EventFactory()


@pytest.fixture
def proxy(tmp_path):
    with ChirpProxy(tmp_path) as proxy:
        yield proxy


@pytest.fixture
def reporter(proxy, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    messages = []
    reporter = LiveReporter(chirp_connector(proxy.config_path), 0.01, logs, messages.append)
    reporter.messages, reporter.logs = messages, logs
    yield reporter.start()
    reporter.stop()


def parse_attributes(proxy):
    return parse_old_classad("".join(f"{name} = {value}\n" for name, value in proxy.attributes.items()))


def parse_log_line(line):
    return Event.from_json(line.partition(" ")[2])


# Status


def test_latest_stage_of_a_batch(make_event):
    status = StatusAccumulator()
    for stage in ("probe", "fetch", "unpack"):
        status.add_event(make_event(kinds.STAGE_STARTED, stage=stage))
    (line,) = status.take_log_lines()
    assert parse_log_line(line).data == {"stage": "unpack"}
    assert status.changed_attributes(None) == {"PacktrainStage": "unpack", "PacktrainUpdateCount": 1}


def test_log_line_contains_the_event(make_event):
    status = StatusAccumulator()
    saved = make_event(kinds.CHECKPOINT_SAVED, step=7, path="modèle ✓.pt")
    status.add_event(saved)
    (line,) = status.take_log_lines()
    assert line.startswith("packtrain {") and line.isascii()
    assert parse_log_line(line) == saved
    assert status.take_log_lines() == []


def test_too_long_event_has_no_log_line(make_event):
    """It is only in the journal."""
    status = StatusAccumulator()
    status.add_event(make_event(kinds.AGENT_ENDED, outcome="succeeded", outputs=["x" * 1000]))
    status.add_event(make_event(kinds.CHECKPOINT_SAVED, step=7))
    (line,) = status.take_log_lines()
    assert "checkpoint.saved" in line
    assert status.changed_attributes(None)["PacktrainStage"] == "ended"


def test_changed_attributes(make_event):
    status = StatusAccumulator()
    status.add_event(make_event(kinds.PROGRESS, stage="fetch", done=5, total=10))
    status.add_event(make_event(kinds.PROGRESS, stage="fetch", done=6, total=10))
    status.add_event(make_event(kinds.PROGRESS, stage="unpack", done=99, total=None))
    assert status.changed_attributes(None) == {"PacktrainDone": 6, "PacktrainTotal": 10, "PacktrainUpdateCount": 1}
    status.mark_sent(["PacktrainDone", "PacktrainTotal"])
    assert status.changed_attributes(None) == {}
    status.add_event(make_event(kinds.METRIC, epoch=1, step=20, loss=0.5, accuracy=0.9, steps=100))
    status.add_event(make_event(kinds.METRIC, loss="nan", epoch=2))
    assert status.changed_attributes(None) == {
        "PacktrainEpoch": 2,
        "PacktrainStep": 20,
        "PacktrainLoss": 0.5,
        "PacktrainMetrics": '{"accuracy": 0.9}',
        "PacktrainUpdateCount": 2,
    }


# Log tail


def test_tail_of_most_recent_log(tmp_path):
    tail = LogTail(tmp_path / "logs")
    assert tail.read() is None
    (tmp_path / "logs").mkdir()
    assert tail.read() is None
    (tmp_path / "logs" / "train.out").write_text("one\ntwo\n")
    assert json.loads(tail.read()) == {"file": "train.out", "end": 8, "text": "one%0Atwo%0A"}
    assert tail.read() is None
    with open(tmp_path / "logs" / "train.out", "a") as log:
        log.write("".join(f"line {number}\n" for number in range(1000)))
    data = json.loads(tail.read())
    assert data["end"] == (tmp_path / "logs" / "train.out").stat().st_size
    text = unquote(data["text"])
    assert text.endswith("line 999\n") and text.startswith("line ") and len(text) <= 2048
    (tmp_path / "logs" / "train.err").write_text("oh\n")
    assert json.loads(tail.read()) == {"file": "train.err", "end": 3, "text": "oh%0A"}


def test_tail_budget(tmp_path):
    tail, n_bytes, log = LogTail(tmp_path), 0, tmp_path / "train.out"
    for number in range(1000):
        with open(log, "a") as file:
            file.write(f"line {number} {'x' * 500}\n")
        text = tail.read()
        n_bytes += len(unquote(json.loads(text)["text"])) if text else 0
    assert 10_000 < n_bytes < 17_000
    tail.budget_bytes = 2048.0
    assert json.loads(tail.read())["text"].endswith(f"line 999 {'x' * 500}%0A"), "the newest, with a new budget"


@pytest.mark.parametrize("letter", [" ", "\\", '"', "\n", "\x00", "\u00e9", "\u2713"])
def test_tail_of_any_text_fits_into_a_request(proxy, tmp_path, letter):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.out").write_text(letter * 3000)
    reporter = LiveReporter(chirp_connector(proxy.config_path), 60, logs, print).start()
    reporter.stop()
    tail = json.loads(parse_attributes(proxy)["PacktrainLogTail"])
    assert tail["text"] and set(unquote(tail["text"])) <= {letter, "\ufffd"}
    assert "\\" not in proxy.attributes["PacktrainLogTail"].replace('\\"', "")
    assert tail["end"] == (logs / "a.out").stat().st_size


# Updates


def test_stages_and_progress_are_sent(proxy, reporter, make_event):
    reporter.on_event(make_event(kinds.AGENT_STARTED, attempt="0-1"))
    reporter.on_event(make_event(kinds.STAGE_STARTED, stage="fetch"))
    reporter.on_event(make_event(kinds.PROGRESS, stage="fetch", done=2**40, total=None))
    proxy.wait_for(lambda p: len(p.log_lines) == 2 and "PacktrainDone" in p.attributes)
    attributes = parse_attributes(proxy)
    assert attributes["PacktrainStage"] == "fetch" and attributes["PacktrainDone"] == 2**40
    assert "PacktrainTotal" not in attributes
    assert [parse_log_line(line).kind for line in proxy.log_lines] == [kinds.AGENT_STARTED, kinds.STAGE_STARTED]
    reporter.on_event(make_event(kinds.CHECKPOINT_SAVED, step=3))
    proxy.wait_for(lambda p: len(p.log_lines) == 3)


def test_log_tail_is_sent_without_events(proxy, reporter):
    (reporter.logs / "train.out").write_text("epoch 1\n")
    proxy.wait_for(lambda p: "epoch 1" in p.attributes.get("PacktrainLogTail", ""))


def test_only_stages_are_sent_before_the_interval(proxy, tmp_path, make_event):
    reporter = LiveReporter(chirp_connector(proxy.config_path), 3600, tmp_path, print).start()
    reporter.on_event(make_event(kinds.STAGE_STARTED, stage="steps"))
    proxy.wait_for(lambda p: "PacktrainStage" in p.attributes)
    for step in range(1000):
        reporter.on_event(make_event(kinds.METRIC, step=step))
    for step in range(990, 1000):
        reporter.on_event(make_event(kinds.CHECKPOINT_SAVED, step=step))
    proxy.wait_for(lambda p: len(p.log_lines) == 2)
    assert parse_log_line(proxy.log_lines[1]).data["step"] == 999
    reporter.on_event(make_event(kinds.CHECKPOINT_SAVED, step=1000))
    assert "PacktrainStep" not in proxy.attributes
    reporter.on_event(make_event(kinds.STAGE_STARTED, stage="check"))
    proxy.wait_for(lambda p: p.attributes["PacktrainStage"] == '"check"')
    assert len(proxy.log_lines) == 3, "the next checkpoint waits for the interval"
    reporter.stop()
    assert len(proxy.log_lines) == 4
    assert proxy.updates.count("PacktrainStep") == 1 and proxy.attributes["PacktrainStep"] == "999"


def test_stop_sends_final_update(proxy, tmp_path, make_event):
    reporter = LiveReporter(chirp_connector(proxy.config_path), 3600, tmp_path, print).start()
    reporter.on_event(make_event(kinds.AGENT_ENDED, outcome="succeeded"))
    reporter.stop()
    assert proxy.attributes["PacktrainStage"] == '"ended"'
    assert "agent.ended" in proxy.log_lines[-1]


def test_delayed_attributes_as_fallback(proxy, reporter, make_event):
    proxy.supported_commands.discard("set_job_attr")
    reporter.on_event(make_event(kinds.STAGE_STARTED, stage="fetch"))
    proxy.wait_for(lambda p: p.attributes.get("ChirpPacktrainStage") == '"fetch"')
    assert "PacktrainStage" not in proxy.attributes


def test_no_supported_command_is_no_error(proxy, reporter, make_event):
    proxy.supported_commands.clear()
    reporter.on_event(make_event(kinds.STAGE_STARTED, stage="fetch"))
    reporter.stop()
    assert proxy.attributes == {} and reporter.messages == []


# Faults


def test_silent_proxy_does_not_block(proxy, reporter, make_event):
    proxy.is_responding.clear()
    for number in range(1000):
        reporter.on_event(make_event(kinds.CHECKPOINT_SAVED, step=number))
    reporter.stop(timeout_s=0.1)
    assert reporter._thread.is_alive(), "it waits for the proxy, and the agent does not wait for it"
    proxy.is_responding.set()  # so that the thread ends


def test_unreachable_proxy_is_logged_once_and_retried(tmp_path, proxy, make_event):
    messages = []
    address = proxy.config_path.read_text()
    proxy.config_path.write_text("127.0.0.1 1 cookie\n")
    reporter = LiveReporter(chirp_connector(proxy.config_path), 0.01, tmp_path, messages.append, BACKOFF).start()
    reporter.on_event(make_event(kinds.AGENT_STARTED, attempt="0-1"))
    reporter.on_event(make_event(kinds.STAGE_STARTED, stage="fetch"))
    wait_until(lambda: messages)
    proxy.config_path.write_text(address)
    reporter.on_event(make_event(kinds.CHECKPOINT_SAVED, step=1))
    proxy.wait_for(lambda p: len(p.log_lines) == 3 and "PacktrainStage" in p.attributes)
    assert len(messages) == 1
    reporter.stop()


def test_rejected_cookie_is_logged_once(tmp_path, proxy, make_event):
    messages = []
    proxy.config_path.write_text(proxy.config_path.read_text().replace("c0ffee", "wrong"))
    reporter = LiveReporter(chirp_connector(proxy.config_path), 0.01, tmp_path, messages.append, BACKOFF).start()
    for number in range(3):
        reporter.on_event(make_event(kinds.STAGE_STARTED, stage=f"stage {number}"))
    reporter.stop()
    assert len(messages) == 1 and "failed with code -1: cookie" in messages[0]
    assert proxy.log_lines == []


def test_journal_notifies_listener_of_redacted_events(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl", "run-1", "0", "agent-1", Redactor(["geheim"]))
    events = []
    journal.set_listener(events.append)
    journal.emit(kinds.NOTICE, text="it is geheim")
    assert [event.data for event in events] == [{"text": "it is ***"}]
