"""What a running job tells: at once what matters, the rest seldom; and what goes wrong costs the job nothing."""

import json
import time
from urllib.parse import unquote

import pytest

from packtrain.agent.live.reporter import LiveReporter, LogTail, StatusAccumulator, chirp_connector
from packtrain.condor.classads import parse_old_classad
from packtrain.events import Event, Journal, Redactor, kinds
from tests.support.chirp_proxy import ChirpProxy


class Story:
    def __init__(self):
        self.seq = 0

    def __call__(self, kind, /, **data):
        self.seq += 1
        return Event("run-1", "0", "agent-1", self.seq, kind, 1.5, 2.5, data)


@pytest.fixture
def event():
    return Story()


@pytest.fixture
def proxy(tmp_path):
    with ChirpProxy(tmp_path) as proxy:
        yield proxy


@pytest.fixture
def live(proxy, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    said = []
    made = LiveReporter(chirp_connector(proxy.config_path), 0.01, logs, said.append)
    made.said, made.logs = said, logs
    yield made.start()
    made.stop()


def values(proxy):
    return parse_old_classad("".join(f"{name} = {value}\n" for name, value in proxy.attributes.items()))


# What there is to tell


def test_of_stages_that_come_together_the_last_is_told(event):
    figures = StatusAccumulator()
    for stage in ("probe", "fetch", "unpack"):
        figures.add_event(event(kinds.STAGE_STARTED, stage=stage))
    (line,) = figures.take_log_lines()
    assert Event.from_json(line.partition(" ")[2]).data == {"stage": "unpack"}
    assert figures.changed_attributes(None) == {"PacktrainStage": "unpack", "PacktrainUpdateCount": 1}


def test_the_line_is_the_very_event(event):
    figures = StatusAccumulator()
    saved = event(kinds.CHECKPOINT_SAVED, step=7, path="modèle ✓.pt")
    figures.add_event(saved)
    (line,) = figures.take_log_lines()
    assert line.startswith("packtrain {") and line.isascii()
    assert Event.from_json(line.partition(" ")[2]) == saved
    assert figures.take_log_lines() == []


def test_what_is_too_long_for_the_user_log_comes_with_the_journal(event):
    figures = StatusAccumulator()
    figures.add_event(event(kinds.AGENT_ENDED, outcome="succeeded", outputs=["x" * 1000]))
    figures.add_event(event(kinds.CHECKPOINT_SAVED, step=7))
    (line,) = figures.take_log_lines()
    assert "checkpoint.saved" in line
    assert figures.changed_attributes(None)["PacktrainStage"] == "ended"


def test_figures_are_told_when_they_change(event):
    figures = StatusAccumulator()
    figures.add_event(event(kinds.PROGRESS, stage="fetch", done=5, total=10))
    figures.add_event(event(kinds.PROGRESS, stage="fetch", done=6, total=10))
    figures.add_event(event(kinds.PROGRESS, stage="unpack", done=99, total=None))
    assert figures.changed_attributes(None) == {"PacktrainDone": 6, "PacktrainTotal": 10, "PacktrainUpdateCount": 1}
    figures.mark_sent(["PacktrainDone", "PacktrainTotal"])
    assert figures.changed_attributes(None) == {}
    figures.add_event(event(kinds.METRIC, epoch=1, step=20, loss=0.5, accuracy=0.9, steps=100))
    figures.add_event(event(kinds.METRIC, loss="nan", epoch=2))
    assert figures.changed_attributes(None) == {
        "PacktrainEpoch": 2,
        "PacktrainStep": 20,
        "PacktrainLoss": 0.5,
        "PacktrainMetrics": '{"accuracy": 0.9}',
        "PacktrainUpdateCount": 2,
    }


# The newest lines of the logs


def test_the_tail_follows_the_log_that_was_written_last(tmp_path):
    tail = LogTail(tmp_path / "logs")
    assert tail.read() is None
    (tmp_path / "logs").mkdir()
    assert tail.read() is None
    (tmp_path / "logs" / "train.out").write_text("one\ntwo\n")
    assert json.loads(tail.read()) == {"file": "train.out", "end": 8, "text": "one%0Atwo%0A"}
    assert tail.read() is None
    with open(tmp_path / "logs" / "train.out", "a") as log:
        log.write("".join(f"line {number}\n" for number in range(1000)))
    told = json.loads(tail.read())
    assert told["end"] == (tmp_path / "logs" / "train.out").stat().st_size
    text = unquote(told["text"])
    assert text.endswith("line 999\n") and text.startswith("line ") and len(text) <= 2048
    (tmp_path / "logs" / "train.err").write_text("oh\n")
    assert json.loads(tail.read()) == {"file": "train.err", "end": 3, "text": "oh%0A"}


def test_the_tail_keeps_to_its_budget(tmp_path):
    tail, told, log = LogTail(tmp_path), 0, tmp_path / "train.out"
    for number in range(1000):
        with open(log, "a") as file:
            file.write(f"line {number} {'x' * 500}\n")
        text = tail.read()
        told += len(unquote(json.loads(text)["text"])) if text else 0
    assert 10_000 < told < 17_000
    tail.budget_bytes = 2048.0
    assert json.loads(tail.read())["text"].endswith(f"line 999 {'x' * 500}%0A"), "the newest, once there is room again"


@pytest.mark.parametrize("letter", [" ", "\\", '"', "\n", "\x00", "\u00e9", "\u2713"])
def test_whatever_they_say_the_tail_fits_into_a_request(proxy, tmp_path, letter):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.out").write_text(letter * 3000)
    live = LiveReporter(chirp_connector(proxy.config_path), 60, logs, print).start()
    live.stop()
    told = json.loads(values(proxy)["PacktrainLogTail"])
    assert told["text"] and set(unquote(told["text"])) <= {letter, "\ufffd"}
    assert "\\" not in proxy.attributes["PacktrainLogTail"].replace('\\"', "")
    assert told["end"] == (logs / "a.out").stat().st_size


# Telling it


def test_stages_and_figures_arrive(proxy, live, event):
    live.on_event(event(kinds.AGENT_STARTED, decision="0-1"))
    live.on_event(event(kinds.STAGE_STARTED, stage="fetch"))
    live.on_event(event(kinds.PROGRESS, stage="fetch", done=2**40, total=None))
    proxy.wait_for(lambda p: len(p.log_lines) == 2 and "PacktrainDone" in p.attributes)
    told = values(proxy)
    assert told["PacktrainStage"] == "fetch" and told["PacktrainDone"] == 2**40
    assert "PacktrainTotal" not in told
    kinds_told = [Event.from_json(line.partition(" ")[2]).kind for line in proxy.log_lines]
    assert kinds_told == [kinds.AGENT_STARTED, kinds.STAGE_STARTED]
    live.on_event(event(kinds.CHECKPOINT_SAVED, step=3))
    proxy.wait_for(lambda p: len(p.log_lines) == 3)


def test_the_logs_are_told_without_any_event(proxy, live):
    (live.logs / "train.out").write_text("epoch 1\n")
    proxy.wait_for(lambda p: "epoch 1" in p.attributes.get("PacktrainLogTail", ""))


def test_figures_wait_for_their_time_but_stages_do_not(proxy, tmp_path, event):
    live = LiveReporter(chirp_connector(proxy.config_path), 3600, tmp_path, print).start()
    live.on_event(event(kinds.STAGE_STARTED, stage="steps"))
    proxy.wait_for(lambda p: "PacktrainStage" in p.attributes)
    for step in range(1000):
        live.on_event(event(kinds.METRIC, step=step))
    for step in range(990, 1000):
        live.on_event(event(kinds.CHECKPOINT_SAVED, step=step))
    proxy.wait_for(lambda p: len(p.log_lines) == 2)
    assert Event.from_json(proxy.log_lines[1].partition(" ")[2]).data["step"] == 999
    live.on_event(event(kinds.CHECKPOINT_SAVED, step=1000))
    assert "PacktrainStep" not in proxy.attributes
    live.on_event(event(kinds.STAGE_STARTED, stage="check"))
    proxy.wait_for(lambda p: p.attributes["PacktrainStage"] == '"check"')
    assert len(proxy.log_lines) == 3, "the next checkpoint waits"
    live.stop()
    assert len(proxy.log_lines) == 4
    assert proxy.updates.count("PacktrainStep") == 1 and proxy.attributes["PacktrainStep"] == "999"


def test_the_last_words_are_told_at_the_end(proxy, tmp_path, event):
    live = LiveReporter(chirp_connector(proxy.config_path), 3600, tmp_path, print).start()
    live.on_event(event(kinds.AGENT_ENDED, outcome="succeeded"))
    live.stop()
    assert proxy.attributes["PacktrainStage"] == '"ended"'
    assert "agent.ended" in proxy.log_lines[-1]


def test_where_updates_are_not_allowed_delayed_ones_are_made(proxy, live, event):
    proxy.supported_commands.discard("set_job_attr")
    live.on_event(event(kinds.STAGE_STARTED, stage="fetch"))
    proxy.wait_for(lambda p: p.attributes.get("ChirpPacktrainStage") == '"fetch"')
    assert "PacktrainStage" not in proxy.attributes


def test_nothing_allowed_is_no_error(proxy, live, event):
    proxy.supported_commands.clear()
    live.on_event(event(kinds.STAGE_STARTED, stage="fetch"))
    live.stop()
    assert proxy.attributes == {} and live.said == []


# Trouble


def test_a_silent_proxy_holds_up_nobody(proxy, live, event):
    proxy.is_responding.clear()
    for number in range(1000):
        live.on_event(event(kinds.CHECKPOINT_SAVED, step=number))
    began = time.monotonic()
    live.stop(timeout_s=0.1)
    assert time.monotonic() - began < 5


def test_a_dead_proxy_is_said_once_and_its_return_noticed(tmp_path, proxy, event, monkeypatch):
    monkeypatch.setattr("packtrain.agent.live.reporter._MIN_BACKOFF_S", 0.01)
    said = []
    address = proxy.config_path.read_text()
    proxy.config_path.write_text("127.0.0.1 1 cookie\n")
    live = LiveReporter(chirp_connector(proxy.config_path), 0.01, tmp_path, said.append).start()
    live.on_event(event(kinds.AGENT_STARTED, decision="0-1"))
    live.on_event(event(kinds.STAGE_STARTED, stage="fetch"))
    while not said:
        time.sleep(0.01)
    proxy.config_path.write_text(address)
    live.on_event(event(kinds.CHECKPOINT_SAVED, step=1))
    proxy.wait_for(lambda p: len(p.log_lines) == 3 and "PacktrainStage" in p.attributes)
    assert len(said) == 1
    live.stop()


def test_a_proxy_that_does_not_know_us_is_said_once(tmp_path, proxy, event, monkeypatch):
    monkeypatch.setattr("packtrain.agent.live.reporter._MIN_BACKOFF_S", 0.01)
    said = []
    proxy.config_path.write_text(proxy.config_path.read_text().replace("c0ffee", "wrong"))
    live = LiveReporter(chirp_connector(proxy.config_path), 0.01, tmp_path, said.append).start()
    for number in range(3):
        live.on_event(event(kinds.STAGE_STARTED, stage=f"stage {number}"))
    live.stop()
    assert len(said) == 1 and "cookie was answered with -1" in said[0]
    assert proxy.log_lines == []


def test_the_journal_tells_it_what_it_writes(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl", "run-1", "0", "agent-1", Redactor(["geheim"]))
    heard = []
    journal.set_listener(heard.append)
    journal.emit(kinds.NOTICE, text="it is geheim")
    assert [event.data for event in heard] == [{"text": "it is ***"}]
