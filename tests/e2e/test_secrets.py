"""A token is used by the fetch, given to a step that prints it, and is found nowhere but in `secrets/`."""

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


def places_with(secret: str, folder: Path) -> list[Path]:
    forms = (secret.encode(), base64.b64encode(secret.encode())[:-4])
    files = (path for path in folder.rglob("*") if path.is_file() and "secrets" not in path.parts)
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def command_lines_with(secret: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if secret.encode() in text:
            found.append(text.decode())
    return found


def test_no_secret_anywhere(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "data.bin").write_bytes(b"data" * 1000)
    home = tmp_path / "desk"
    home.mkdir()
    with HttpServer(served, token=TOKEN) as origin:
        desk = Workspace(home, DEMO_TOKEN=TOKEN)
        workflow = desk.write_file(WORKFLOW.format(url=origin.url, literal=LITERAL))
        packtrain = desk.start("run", "workflow.yaml")
        desk.wait_for(lambda: desk.read_events(kinds.STEP_STARTED))
        kept = desk.run_folder() / "secrets"
        assert oct(kept.stat().st_mode)[-3:] == "700"
        assert {oct(path.stat().st_mode)[-3:] for path in kept.iterdir()} == {"600"}
        while packtrain.poll() is None:
            assert command_lines_with(TOKEN) == []
        out, err = packtrain.communicate()
        assert packtrain.returncode == 0, out + err
    assert TOKEN not in out + err
    assert not kept.exists(), "gone at the end"
    logs = desk.run("logs")
    assert "the token is ***" in logs
    for secret in (TOKEN, LITERAL):
        assert [path for path in places_with(secret, home) if path != workflow] == []


def test_missing_variable_is_told_before_anything_starts(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(WORKFLOW.format(url="http://127.0.0.1:9", literal=LITERAL))
    desk.run("run", "workflow.yaml", exit_code=2)
    assert "DEMO_TOKEN" in desk.stderr
    assert "workflow.yaml:5:" in desk.stderr
    assert not os.path.exists(tmp_path / ".packtrain")
