"""The small `pixi` for machines that have none."""

from __future__ import annotations

import subprocess

import pytest

from packtrain.pixi.pixi_command import write_pixi_command
from packtrain.plan import EnvVar, PixiCommand, PixiTask

TASKS = (
    PixiTask(
        "train",
        (
            PixiCommand("echo first", (EnvVar("A", "x y"),)),
            PixiCommand('echo "$A|$PWD"', (EnvVar("A", "it's"),), "src"),
        ),
    ),
    PixiTask("echo-all", (PixiCommand("printf '<%s>'"),)),
    PixiTask("fails", (PixiCommand("exit 3"), PixiCommand("echo never"))),
    PixiTask("odd", error="it has inputs"),
)


@pytest.fixture
def pixi(tmp_path):
    workspace = tmp_path / "work space"
    (workspace / "src").mkdir(parents=True)
    (tmp_path / "hook").write_text("export HOOKED='a b'\n")
    write_pixi_command(tmp_path / "pixi", "gpu", workspace, tmp_path / "hook", TASKS)

    def run(*arguments, code=0):
        process = subprocess.run([tmp_path / "pixi", *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert process.returncode == code, process.stderr
        return process.stdout if code == 0 else process.stderr

    run.workspace = workspace
    return run


def test_run_a_command(pixi, tmp_path):
    assert pixi("run", "-e", "gpu", "printf", "<%s>", "a b", "-e", "cpu") == "<a b><-e><cpu>"
    assert pixi("run", "--frozen", "--environment=gpu", "--manifest-path", "x/pixi.toml", "pwd") == f"{tmp_path}\n"
    assert pixi("run", "--", "echo", "--", "x") == "-- x\n"
    assert pixi("-q", "run", "sh", "-c", "exit 0") == ""
    pixi("run", "sh", "-c", "exit 7", code=7)


def test_run_a_task(pixi):
    assert pixi("run", "train") == f"first\nit's|{pixi.workspace}/src\n"
    assert pixi("run", "train", "more args") == f"first\nit's|{pixi.workspace}/src more args\n"
    assert pixi("run", "echo-all", "a b", "$HOME", "'") == "<a b><$HOME><'>"
    pixi("run", "fails", code=3)
    assert "the task odd cannot be run: it has inputs" in pixi("run", "odd", code=1)
    pixi("run", "-x", "train", code=127)


def test_install_and_hook(pixi):
    assert pixi("install", "--locked", "-e", "gpu") == ""
    assert pixi("shell-hook", "--shell", "bash") == "export HOOKED='a b'\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "-e", "cpu", "true"), "this job has the environment gpu, not cpu"),
        (("install", "--environment", "cpu"), "this job has the environment gpu, not cpu"),
        (("add", "numpy"), "can only run, install and shell-hook"),
        (("run",), "`run` needs a command"),
        ((), "name a command"),
    ],
)
def test_refused(pixi, arguments, message):
    assert message in pixi(*arguments, code=1)
