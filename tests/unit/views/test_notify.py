"""Notifications to a real server and a real command."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from packtrain import notifications
from tests.support.event_builder import RunBuilder

PAYLOAD = {"text": "r failed", "run": "r", "status": "failed", "run_dir": "/f"}


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.server.responses.pop(0) if self.server.responses else 204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    server.received, server.responses = [], []
    server.url = f"http://127.0.0.1:{server.server_port}/hooks/T0K3N"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def finished_run():
    run = RunBuilder("0", "1")
    run.add_failed_attempt(1, "step_failed")
    failure = run.job.executions[0].failure.to_data()
    run.end_job("failed", failure=failure)
    run.end_job("succeeded", "1")
    return run


def test_url_gets_json(server):
    assert notifications.send(server.url, PAYLOAD) == ""
    assert server.received == [("/hooks/T0K3N", "application/json", PAYLOAD)]


def test_transient_errors_are_retried(server):
    server.responses = [503, 429]
    assert notifications.send(server.url, PAYLOAD, retry_delays_s=(0.0, 0.0)) == ""
    assert len(server.received) == 3


def test_retries_are_limited(server):
    server.responses = [500] * 9
    problem = notifications.send(server.url, PAYLOAD, retry_delays_s=(0.0,))
    assert len(server.received) == 2
    assert problem == "cannot send the notification to 127.0.0.1: the server responded with 500 Internal Server Error"
    assert "T0K3N" not in problem, "the path of a webhook is a secret"


def test_permanent_error_is_not_retried(server):
    server.responses = [404] * 9
    assert "responded with 404" in notifications.send(server.url, PAYLOAD, retry_delays_s=(0.0,))
    assert len(server.received) == 1


def test_no_server():
    problem = notifications.send("http://127.0.0.1:9/x", PAYLOAD, retry_delays_s=())
    assert "did not respond" in problem and "127.0.0.1" in problem


def test_command_gets_variables_and_json(tmp_path):
    out = tmp_path / "out"
    command = f'echo "$PACKTRAIN_RUN $PACKTRAIN_STATUS: $PACKTRAIN_TEXT ($PACKTRAIN_RUN_DIR)" > {out}; cat >> {out}'
    assert notifications.send(command, PAYLOAD) == ""
    first, second = out.read_text().splitlines()
    assert first == "r failed: r failed (/f)"
    assert json.loads(second) == PAYLOAD


def test_failed_command():
    problem = notifications.send("cat > /dev/null; echo no mail today >&2; exit 4", PAYLOAD)
    assert problem == "the --notify command failed with exit code 4: no mail today"


def test_message(finished_run):
    message = notifications.build_message(finished_run.state, "cifar", "/f")
    assert message["text"] == "run-1 failed: 1 of 2 jobs succeeded: d"
    assert (message["status"], message["succeeded"], message["failed"], message["cancelled"]) == ("failed", 1, 1, 0)
    assert message["failures"] == [{"kind": "step_failed", "detail": "d", "jobs": 1}]


def test_original_failure_comes_first():
    run = RunBuilder(*map(str, range(5)))
    run.add_failed_attempt(1, "step_failed")
    run.end_job("failed", failure=run.job.executions[0].failure.to_data())
    stopped = {"kind": "run_stopped", "stage": "startup", "blame": "user", "transient": False, "detail": "not started"}
    for job in "1234":
        run.end_job("failed", job, failure=stopped)
    message = notifications.build_message(run.state, "n", "/f")
    assert [failure["kind"] for failure in message["failures"]] == ["step_failed", "run_stopped"]
    assert message["text"].endswith("0 of 5 jobs succeeded: d")


def test_each_end_is_notified_once(finished_run, server, tmp_path):
    path = tmp_path / "notify.json"
    notifications.write_target(path, server.url)
    assert path.stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        assert notifications.notify_run_ended(path, finished_run.state, "n", tmp_path) == ""
    assert len(server.received) == 1
    finished_run.reopen()
    assert notifications.notify_run_ended(path, finished_run.state, "n", tmp_path) == "", "it is running again"
    assert len(server.received) == 1
    finished_run.replace_supervisor()
    finished_run.end_job("succeeded")
    notifications.notify_run_ended(path, finished_run.state, "n", tmp_path)
    assert [data["status"] for _, _, data in server.received] == ["failed", "succeeded"]


def test_failed_notification_is_sent_later(finished_run, server, tmp_path):
    path = tmp_path / "notify.json"
    notifications.write_target(path, server.url)
    server.responses = [403]
    assert "responded with 403" in notifications.notify_run_ended(path, finished_run.state, "n", tmp_path)
    assert notifications.notify_run_ended(path, finished_run.state, "n", tmp_path) == ""
    assert len(server.received) == 2


def test_no_target_or_unreadable_target(finished_run, tmp_path):
    assert notifications.notify_run_ended(tmp_path / "notify.json", finished_run.state, "n", tmp_path) == ""
    (tmp_path / "broken").write_text("{")
    assert "cannot read broken" in notifications.notify_run_ended(
        tmp_path / "broken", finished_run.state, "n", tmp_path
    )


@pytest.mark.parametrize("target", ["", "  ", "ftp://x/y", "https://", "http://[x"])
def test_invalid_targets(target):
    with pytest.raises(ValueError, match="should be a command"):
        notifications.validate_target(target)


@pytest.mark.parametrize("target", ["mail -s done me", "curl https://x/y", "https://h/p?q"])
def test_valid_targets(target):
    assert notifications.validate_target(target) == target
