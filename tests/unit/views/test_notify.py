"""Telling the end of a run to a real server and to a real command."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from packtrain import notifications
from tests.support.event_builder import RunBuilder

TOLD = {"text": "r failed", "run": "r", "status": "failed", "run_dir": "/f"}


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    made.heard, made.answers = [], []
    made.url = f"http://127.0.0.1:{made.server_port}/hooks/T0K3N"
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def ended():
    story = RunBuilder("0", "1")
    story.add_failed_attempt(1, "step_failed")
    failure = story.job.executions[0].failure.to_data()
    story.end_job("failed", failure=failure)
    story.end_job("succeeded", "1")
    return story


def test_an_address_gets_json(server):
    assert notifications.send(server.url, TOLD) == ""
    assert server.heard == [("/hooks/T0K3N", "application/json", TOLD)]


def test_a_server_in_trouble_is_asked_again(server):
    server.answers = [503, 429]
    assert notifications.send(server.url, TOLD, retry_delays_s=(0.0, 0.0)) == ""
    assert len(server.heard) == 3


def test_but_not_for_ever(server):
    server.answers = [500] * 9
    said = notifications.send(server.url, TOLD, retry_delays_s=(0.0,))
    assert len(server.heard) == 2
    assert said == "127.0.0.1 could not be told that the run has ended: it answered 500 Internal Server Error"
    assert "T0K3N" not in said, "the path of a webhook is a secret"


def test_one_that_does_not_want_it_is_asked_once(server):
    server.answers = [404] * 9
    assert "it answered 404" in notifications.send(server.url, TOLD, retry_delays_s=(0.0,))
    assert len(server.heard) == 1


def test_nobody_there():
    said = notifications.send("http://127.0.0.1:9/x", TOLD, retry_delays_s=())
    assert "there was no answer" in said and "127.0.0.1" in said


def test_a_command_gets_variables_and_json(tmp_path):
    out = tmp_path / "out"
    command = f'echo "$PACKTRAIN_RUN $PACKTRAIN_STATUS: $PACKTRAIN_TEXT ($PACKTRAIN_RUN_DIR)" > {out}; cat >> {out}'
    assert notifications.send(command, TOLD) == ""
    first, second = out.read_text().splitlines()
    assert first == "r failed: r failed (/f)"
    assert json.loads(second) == TOLD


def test_a_command_that_fails_is_told():
    said = notifications.send("cat > /dev/null; echo no mail today >&2; exit 4", TOLD)
    assert said == "the command of --notify ended with exit code 4: no mail today"


def test_what_is_told(ended):
    told = notifications.build_message(ended.state, "cifar", "/f")
    assert told["text"] == "run-1 failed: 1 of 2 jobs succeeded: d"
    assert (told["status"], told["succeeded"], told["failed"], told["cancelled"]) == ("failed", 1, 1, 0)
    assert told["failures"] == [{"kind": "step_failed", "detail": "d", "jobs": 1}]


def test_the_real_error_comes_before_what_followed_from_it():
    story = RunBuilder(*map(str, range(5)))
    story.add_failed_attempt(1, "step_failed")
    story.end_job("failed", failure=story.job.executions[0].failure.to_data())
    stopped = {"kind": "run_stopped", "stage": "startup", "blame": "user", "transient": False, "detail": "not started"}
    for job in "1234":
        story.end_job("failed", job, failure=stopped)
    told = notifications.build_message(story.state, "n", "/f")
    assert [one["kind"] for one in told["failures"]] == ["step_failed", "run_stopped"]
    assert told["text"].endswith("0 of 5 jobs succeeded: d")


def test_each_end_is_told_once(ended, server, tmp_path):
    path = tmp_path / "notify.json"
    notifications.write_target(path, server.url)
    assert path.stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        assert notifications.notify_run_ended(path, ended.state, "n", tmp_path) == ""
    assert len(server.heard) == 1
    ended.reopen()
    assert notifications.notify_run_ended(path, ended.state, "n", tmp_path) == "", "it goes on"
    assert len(server.heard) == 1
    ended.replace_supervisor()
    ended.end_job("succeeded")
    notifications.notify_run_ended(path, ended.state, "n", tmp_path)
    assert [data["status"] for _, _, data in server.heard] == ["failed", "succeeded"]


def test_an_end_that_could_not_be_told_is_told_later(ended, server, tmp_path):
    path = tmp_path / "notify.json"
    notifications.write_target(path, server.url)
    server.answers = [403]
    assert "it answered 403" in notifications.notify_run_ended(path, ended.state, "n", tmp_path)
    assert notifications.notify_run_ended(path, ended.state, "n", tmp_path) == ""
    assert len(server.heard) == 2


def test_nobody_wants_to_know(ended, tmp_path):
    assert notifications.notify_run_ended(tmp_path / "notify.json", ended.state, "n", tmp_path) == ""
    (tmp_path / "broken").write_text("{")
    assert "cannot be read" in notifications.notify_run_ended(tmp_path / "broken", ended.state, "n", tmp_path)


@pytest.mark.parametrize("target", ["", "  ", "ftp://x/y", "https://", "http://[x"])
def test_what_is_neither_a_command_nor_an_address(target):
    with pytest.raises(ValueError, match="should be a command"):
        notifications.validate_target(target)


@pytest.mark.parametrize("target", ["mail -s done me", "curl https://x/y", "https://h/p?q"])
def test_commands_and_addresses(target):
    assert notifications.validate_target(target) == target
