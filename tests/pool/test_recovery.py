"""Failures on a real pool: retried at another site, with more memory, or with another transfer method."""

from __future__ import annotations

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(360)]

HEAD = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\nlimits: {grace: 2s, disk: 10MB}\n"
MESSAGE = "ModuleNotFoundError: No module named scipy"
STEP = "steps: [{name: train, run: {command: '%s'}}]\n"
# All sites are on this machine, so the second attempt finds the mark.
FAIL_ONCE = (
    STEP % "[ -e MARK ] || { touch MARK; echo no luck here >&2; exit 3; }; echo ok > $PACKTRAIN_OUTPUT/model.txt"
)


def read_executions(workspace):
    run = workspace.run_json("ps")[-1]["run"]
    return [execution for job in workspace.run_json("ps", run)["jobs"] for execution in job["executions"]]


def read_submit_file(workspace, attempt_id):
    return (workspace.run_folder() / "htcondor" / f"{attempt_id}.sub").read_text()


def test_failed_step_is_retried_at_other_site(workspace):
    workspace.write_file(HEAD + FAIL_ONCE.replace("MARK", str(workspace.folder / "mark")))
    workspace.run("run", "workflow.yaml", "--on", "htcondor")
    first, second = read_executions(workspace)
    assert (first["status"], second["status"]) == ("failed", "succeeded")
    assert first["site"] != second["site"]
    assert f'GLIDEIN_ResourceName =!= "{first["site"]}"' in read_submit_file(workspace, "0-2")


def test_out_of_memory_doubles_memory(workspace):
    workspace.write_file(
        HEAD + FAIL_ONCE.replace("MARK", str(workspace.folder / "mark")).replace("no luck here", "MemoryError")
    )
    workspace.run("run", "workflow.yaml", "--on", "htcondor")
    first, second = read_executions(workspace)
    assert (first["failure"]["kind"], second["status"]) == ("out_of_memory", "succeeded")
    assert [re.search(r"request_memory += (\w+)", read_submit_file(workspace, d))[1] for d in ("0-1", "0-2")] == [
        "100MB",
        "200MB",
    ]
    assert "attempt 0-2 was submitted with 2 times the memory" in workspace.run("why")


def test_identical_failures_stop_run(workspace):
    # Each job takes half of the largest site, so that few run at once.
    head = HEAD.replace("cpusPerTask: 1", "cpusPerTask: 8")
    workspace.write_file(head + "count: 40\n" + STEP % f"echo {MESSAGE} >&2; exit 1")
    result = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", exit_code=21)
    kinds = [job["failure"]["kind"] for job in result["jobs"]]
    assert set(kinds) == {"module_missing", "run_stopped"}
    why = workspace.run("why")
    assert re.search(r"stopped after \d+ identical failures on [2-9] sites; \d+ jobs were not started", why)
    assert "No module named scipy" in why and "the workflow or its program" in why


class RejectCurlHandler(SimpleHTTPRequestHandler):
    """A server that rejects HTCondor's own client."""

    def do_GET(self):
        if "curl" in self.headers.get("User-Agent", "").lower():
            self.send_error(403)
        else:
            super().do_GET()

    def log_message(self, *args):
        pass


def test_agent_fetches_after_plugin_failure(workspace, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"seven!!")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(RejectCurlHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/x.bin"
        inputs = (
            f"recovery: {{retryDelay: 1s}}\ninput: {{http: {{url: '{address}'}}, unpack: never, transfer: plugin}}\n"
        )
        workspace.write_file(HEAD + inputs + STEP % "cp $PACKTRAIN_INPUT/x.bin $PACKTRAIN_OUTPUT")
        workspace.run("run", "workflow.yaml", "--on", "htcondor", "--offline")
    finally:
        server.shutdown()
        server.server_close()
    assert (workspace.run_folder() / "jobs/0/output/x.bin").read_bytes() == b"seven!!"
    assert address in read_submit_file(workspace, "0-1") + (workspace.run_folder() / "htcondor/0-1.items").read_text()
    assert (
        address not in read_submit_file(workspace, "0-2") + (workspace.run_folder() / "htcondor/0-2.items").read_text()
    )
    assert "attempt 0-2 was submitted with its inputs fetched by the agent" in workspace.run("why")
