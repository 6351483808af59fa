"""Tests that a token used by fetch and printed by a step is stored nowhere but in `secrets/`."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from packtrain.events import kinds
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

TOKEN = "s3cret-token-91c2ab77f0"
LITERAL = "literal-password-33aa"
WORKFLOW = """
name: secretive
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
env:
  - {{key: MY_TOKEN, value: "${{env:DEMO_TOKEN}}"}}
inputs:
  data: {{http: {{url: "{url}/data.bin", token: "${{env:DEMO_TOKEN}}", headers: {{X-Key: {literal}}}}}}}
steps:
  - name: leak
    run: {{command: 'echo "the token is $MY_TOKEN"; echo $MY_TOKEN >&2; echo -n $MY_TOKEN | base64; sleep 1'}}
"""


def files_with(secret: str, folder: Path) -> list[Path]:
    forms = (secret.encode(), base64.b64encode(secret.encode())[:-4])
    files = (path for path in folder.rglob("*") if path.is_file() and "secrets" not in path.parts)
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def command_lines_with(secret: str) -> list[str]:
    matches = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if secret.encode() in text:
            matches.append(text.decode())
    return matches


def test_no_secret_is_stored(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "data.bin").write_bytes(b"data" * 1000)
    folder = tmp_path / "workspace"
    folder.mkdir()
    with HttpServer(served, token=TOKEN) as origin:
        workspace = Workspace(folder, DEMO_TOKEN=TOKEN)
        workflow = workspace.write_file(WORKFLOW.format(url=origin.url, literal=LITERAL))
        packtrain = workspace.start("run", "workflow.yaml")
        workspace.wait_for(lambda: workspace.read_events(kinds.STEP_STARTED))
        secrets = workspace.run_folder() / "secrets"
        assert oct(secrets.stat().st_mode)[-3:] == "700"
        assert {oct(path.stat().st_mode)[-3:] for path in secrets.iterdir()} == {"600"}
        while packtrain.poll() is None:
            assert command_lines_with(TOKEN) == []
        out, err = packtrain.communicate()
        assert packtrain.returncode == 0, out + err
    assert TOKEN not in out + err
    assert not secrets.exists(), "removed at the end of the run"
    logs = workspace.run("logs")
    assert "the token is ***" in logs
    for secret in (TOKEN, LITERAL):
        assert [path for path in files_with(secret, folder) if path != workflow] == []


def test_missing_variable_is_a_user_error(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(WORKFLOW.format(url="http://127.0.0.1:9", literal=LITERAL))
    workspace.run("run", "workflow.yaml", exit_code=2)
    assert "DEMO_TOKEN" in workspace.stderr
    assert "workflow.yaml:5:" in workspace.stderr
    assert not os.path.exists(tmp_path / ".packtrain")
