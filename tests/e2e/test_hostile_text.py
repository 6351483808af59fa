"""Text from servers, programs, files, archives and logs: no command passes it to the terminal as it is."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from packtrain.formatting import CONTROL_CHARS
from tests.support.cli_runs import Workspace
from tests.support.hostile_server import OK, HostileServer

pytestmark = pytest.mark.slow

HOSTILE = "a\x1b]52;c;cm0gLXJm\x07b\x9b2Jc\x1b[8md\u202ee :100: [red]f[/red]"
VISIBLE = r"b\x9b2Jc\x1b[8md\u202ee :100: [red]f[/red]"
# What rich writes to a terminal to color text, to update a live display, and at line ends.
RICH_SEQUENCE = re.compile(r"\x1b\[(?:[0-9;]*m|[0-9]*[AK]|\?25[lh]|[0-9]*G)|\r?\n|\r|\t")
WORKFLOW = r"""
name: hostile
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {maxAttempts: 1}
matrix: {value: ["HOSTILE"]}
steps:
  - name: "HOSTILE"
    run:
      command: |
        printf '\033]52;c;cm0gLXJm\007visible \033[1;31mred\033[0m \033[2J\302\2332Jend\n'
        touch "$PACKTRAIN_OUTPUT/$(printf 'file\033[2J.txt')"
        printf '\033[1;31merror\033]0;title\007 \342\200\256detail\n' >&2
        exit EXIT_CODE
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def assert_harmless(output: str) -> None:
    found = CONTROL_CHARS.findall(RICH_SEQUENCE.sub("", output))
    assert not found, (found, output)
    assert "💯" not in output


def run_everywhere(workspace: Workspace, *arguments: object) -> str:
    """Run a command in a terminal with colors, and in a pipe; return what the terminal received."""
    piped = workspace.run(*arguments, exit_code=None)
    assert_harmless(piped.replace("\n", ""))
    assert_harmless(workspace.stderr)
    output = workspace.run_in_terminal(*arguments)
    assert "Traceback" not in output
    assert_harmless(output)
    return output


@pytest.fixture
def ended_run(workspace: Workspace, request: pytest.FixtureRequest) -> str:
    escaped = json.dumps(HOSTILE)[1:-1]
    workspace.write_file(WORKFLOW.replace("HOSTILE", escaped).replace("EXIT_CODE", str(request.param)))
    return workspace.run_in_terminal("run", "workflow.yaml")


@pytest.mark.parametrize("ended_run", [0, 3], indirect=True)
def test_run(workspace: Workspace, ended_run: str):
    assert_harmless(ended_run)
    for command in (["ps"], ["ps", workspace.run_folder().name], ["ps", "-w"], ["why"], ["outputs"], ["plot"]):
        run_everywhere(workspace, *command)
    assert VISIBLE in run_everywhere(workspace, "plan", "workflow.yaml").replace("\r\n", "")
    assert_harmless(workspace.run("ps", "-w", "--json", exit_code=None))
    (job,) = workspace.run_json("ps", workspace.run_folder().name)["jobs"]
    assert job["point"] == {"value": HOSTILE}
    page = workspace.run_folder() / "report" / "index.html"
    assert not CONTROL_CHARS.search(page.read_text(encoding="utf-8").replace("\n", ""))


@pytest.mark.parametrize("ended_run", [0], indirect=True)
def test_logs_keep_colors(workspace: Workspace, ended_run: str):
    output = run_everywhere(workspace, "logs")
    assert "visible \x1b[1;31mred\x1b[0m end" in output
    assert run_everywhere(workspace, "logs", "-f") == output
    lines = [json.loads(line)["line"] for line in workspace.run("logs", "--json").splitlines()]
    assert any("\x1b]52;c;cm0gLXJm\x07" in line for line in lines), "JSON is exact"


def test_json_is_exact_and_harmless(workspace: Workspace):
    workspace.write_file(WORKFLOW.replace("HOSTILE", json.dumps(HOSTILE)[1:-1]).replace("EXIT_CODE", "0"))
    text = workspace.run("plan", "workflow.yaml", "--json")
    assert not CONTROL_CHARS.search(text.replace("\n", ""))
    assert any(isinstance(value, str) and HOSTILE in value for value in walk(json.loads(text)))


def walk(data):
    yield data
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from walk(value)


@pytest.mark.parametrize(
    "response",
    [
        "HTTP/1.1 503 {}\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 {}\r\nServer: {}\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><title>{}</title>sign in</html>",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/{}\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: {}\r\nContent-Length: 5\r\n\r\n12345",
        "{}\r\n\r\n",
    ],
)
def test_server(workspace: Workspace, response: str):
    with HostileServer(lambda: [response.replace("{}", HOSTILE).encode()]) as server:
        run_everywhere(workspace, "get", server.url, "-o", "data.bin", "--retry-timeout", "0", "-vv")


def test_archive(workspace: Workspace):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in (f"{HOSTILE}/1.png", f"{HOSTILE}/2.png"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    (workspace.folder / "data.tar").write_bytes(buffer.getvalue())
    run_everywhere(workspace, "index", "data.tar")
    run_everywhere(workspace, "preview", "data.tar", "-o", "sheet.png")
    with HostileServer(lambda: [OK + b"Connection: close\r\n\r\n" + buffer.getvalue()]) as server:
        run_everywhere(workspace, "get", server.url, "--unpack", "-o", "folder")


def test_event_log(workspace: Workspace):
    text = "".join(
        f"{code:03} (012.000.000) 2026-11-16 02:13:{second} {lines}\n...\n"
        for code, second, lines in [
            (0, 10, "Job submitted from host: <127.0.0.1:1>"),
            (1, 20, f'Job executing on host: <127.0.0.1:2>\n\tGLIDEIN_ResourceName = "{HOSTILE}"'),
            (12, 30, f"Job was held.\n\t{HOSTILE}\n\tCode 13 Subcode 22"),
        ]
    )
    name = f"{HOSTILE.replace('/', '')}.log"
    (workspace.folder / name).write_text(text, encoding="utf-8")
    output = run_everywhere(workspace, "report", name, "-o", "page", "--csv")
    output = run_everywhere(workspace, "report", name, "-o", "page")
    assert r"\x1b]52" in output
    for path in (workspace.folder / "page").rglob("*"):
        if path.suffix in (".html", ".svg"):
            assert not CONTROL_CHARS.search(path.read_text(encoding="utf-8").replace("\n", ""))


@pytest.mark.parametrize(
    "text", [f"{json.dumps(HOSTILE)}: 1", f"name: {json.dumps(HOSTILE)}\nsteps: {json.dumps(HOSTILE)}", "name: \x9b2J"]
)
def test_workflow_file(workspace: Workspace, text: str):
    workspace.write_file(text)
    run_everywhere(workspace, "check", "workflow.yaml")


def test_arguments_and_submit_files(workspace: Workspace):
    run_everywhere(workspace, "why", HOSTILE)
    run_everywhere(workspace, HOSTILE)
    workspace.write_file(f"executable = {HOSTILE}\n{HOSTILE} = 1\nqueue", "job.sub")
    run_everywhere(workspace, "convert", "job.sub")
