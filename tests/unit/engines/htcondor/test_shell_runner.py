"""The script that replaces the agent in images without Python, run by a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from packtrain.engines.bundle import write_launcher
from packtrain.engines.htcondor import shell_runner
from packtrain.events import FAILURE_KINDS, JournalReader
from packtrain.plan import (
    CollectedOutput,
    Container,
    EnvironmentConfig,
    EnvVar,
    ExpectedOutput,
    Input,
    Job,
    Limits,
    Location,
    Plan,
    RemoteFile,
    Resources,
    RunAction,
    Step,
)
from packtrain.plan.local_inputs import local_input_location
from packtrain.state import RunState
from testbed import apptainer


@pytest.fixture
def folder(tmp_path):
    """An attempt folder after HTCondor's transfer: inputs in folders, and files of plugins under their own names."""
    (tmp_path / "input-0").mkdir()
    (tmp_path / "input-0/run.sh").write_text("exit 1\n")
    (tmp_path / "input-1/sub").mkdir(parents=True)
    (tmp_path / "input-1/sub/deep.txt").write_text("deep\n")
    (tmp_path / "words.tar").write_text("words\n")
    (tmp_path / "output").mkdir()
    return tmp_path


def make_job(command, collect=("*",), expect=(), **more):
    inputs = (
        Input("run.sh", "work", (RemoteFile("run.sh", (local_input_location("input-0/run.sh"),)),), unpack="never"),
        Input("folder", "work/folder", prefix=local_input_location("input-1"), unpack="never"),
        Input("words", "work", (RemoteFile("words.tar", (local_input_location("words.tar"),)),), unpack="never"),
    )
    collected = tuple(output if isinstance(output, CollectedOutput) else CollectedOutput(output) for output in collect)
    action = RunAction(command, work_dir="work", collect=collected, **more)
    env = (EnvVar("NOTE", 'it\'s {a} "b"'),)
    steps = (Step("run.sh", action),)
    return Job("3", (EnvVar("lr", "0.1"),), Resources(), Limits(), steps, env=env, inputs=inputs, expect=tuple(expect))


def run(folder, job, is_silent=True):
    (folder / "shell_runner.sh").write_text(shell_runner.render_script("run-1", job))
    process = subprocess.run(
        ["/bin/sh", "shell_runner.sh", "plan.json", "--attempt-id", "3-1", "--attempt-folder", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert not (is_silent and process.stderr)
    return process.returncode


def read_outputs(folder):
    output = folder / "output"
    return {path.relative_to(output).as_posix(): path.read_text() for path in output.rglob("*") if path.is_file()}


def read_end_event(folder):
    events = JournalReader(folder / "journal.jsonl").read()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    state = RunState("run-1")
    for event in events:
        state.apply(event, 0.0)
    assert (events[0].kind, events[0].data["attempt"]) == ("agent.started", "3-1")
    return events[-1].data


def test_inputs_and_new_files(folder):
    command = (
        'cat words.tar folder/sub/deep.txt > out.txt; echo "$NOTE $PACKTRAIN_JOB $PACKTRAIN_POINT_LR" > "a b"; mkdir d'
    )
    assert run(folder, make_job(command, stdout="logs/o.txt", stderr="logs/o.txt")) == 0
    assert read_outputs(folder) == {"out.txt": "words\ndeep\n", "a b": 'it\'s {a} "b" 3 0.1\n', "logs/o.txt": ""}
    assert read_end_event(folder)["outcome"] == "succeeded"
    assert not (folder / "sandbox").exists()


def test_declared_outputs(folder):
    collect = ("m.pt", "deep/", CollectedOutput("deep/x", "named/y"), "missing")
    assert run(folder, make_job("echo 1 > m.pt; mkdir deep; echo 2 > deep/x", collect)) == 0
    assert read_outputs(folder) == {"m.pt": "1\n", "x": "2\n", "named/y": "2\n"}


def test_failing_program(folder):
    assert run(folder, make_job("echo part > m.pt; echo oops >&2; exit 7")) == FAILURE_KINDS["step_failed"].exit_code
    end = read_end_event(folder)
    assert (end["outcome"], end["failure"]["kind"]) == ("failed", "step_failed")
    assert end["failure"]["detail"] == "the program ended with exit code 7"
    assert list(read_outputs(folder).values()) == ["part\n"]
    assert all(name.startswith(".packtrain/agent-") for name in read_outputs(folder))
    assert (folder / "logs/run.sh.err").read_text() == "oops\n"


@pytest.mark.parametrize(
    ("command", "expect", "kind"),
    [
        ("true", ExpectedOutput("m.pt"), "output_missing"),
        ("touch m.pt", ExpectedOutput("m.pt"), "output_empty"),
        ("touch m.pt", ExpectedOutput("m.pt", min_bytes=0), ""),
        ("echo 1 > m.pt", ExpectedOutput("*.pt"), ""),
        ("echo 1 > m.txt", ExpectedOutput("*.pt"), "output_missing"),
        ("echo 1 > 'my model.pt'", ExpectedOutput("my model.pt"), ""),
        ("echo 1 > 'my model.pt'", ExpectedOutput("my *.pt"), ""),
        ("touch 'my a.pt'; echo 1 > 'my b.pt'", ExpectedOutput("my ?.pt"), "output_empty"),
        ("echo 1 > my; echo 1 > model.pt", ExpectedOutput("my model.pt"), "output_missing"),
        ("echo 1 > m1.pt", ExpectedOutput("m[0-9].pt"), ""),
    ],
)
def test_expected_outputs(folder, command, expect, kind):
    exit_code = run(folder, make_job(command, expect=[expect]))
    assert exit_code == (FAILURE_KINDS[kind].exit_code if kind else 0)
    failure = read_end_event(folder)["failure"]
    assert (failure["kind"] if failure else "") == kind


@pytest.mark.parametrize("missing", ["words.tar", "input-0/run.sh", "input-1"])
def test_missing_input(folder, missing):
    os.rename(folder / missing, folder / "elsewhere")
    exit_code = run(folder, make_job("touch started"), is_silent=False)
    assert exit_code == FAILURE_KINDS["transfer_failed"].exit_code
    end = read_end_event(folder)
    assert (end["outcome"], end["failure"]["kind"]) == ("failed", "transfer_failed")
    assert read_outputs(folder) == {}


def test_no_fallback_to_agent():
    plan = shell_runner.use_plugin_transfer(Plan("run-1", "run", "htcondor", (make_job("true"),)))
    assert not plan.recovery.fallback_to_agent


def test_launcher_starts_script_without_python(folder):
    write_launcher(folder / "launch.sh")
    (folder / "shell_runner.sh").write_text('echo "shell $1"\nexit 9\n')
    image = apptainer.build_root_tree(folder / "image")
    command = [
        apptainer.apptainer_path(),
        "-q",
        "exec",
        "--no-home",
        "--bind",
        folder,
        image,
        "/bin/sh",
        folder / "launch.sh",
    ]
    process = subprocess.run([*command, "argument"], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (9, "shell argument\n")


def plan_with_image(image, **more):
    job = make_job("true", **more)
    inputs = (Input("x", "work", (RemoteFile("x", (Location("https://h.org/x"),)),), unpack="never"),)
    container = EnvironmentConfig(Container(str(image)))
    return Plan("r", "r", "htcondor", (Job(**{**vars(job), "inputs": inputs, "environment": container}),))


def test_image_without_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    image = apptainer.build_sif(tmp_path / "image.sif")
    assert shell_runner.lacks_python(str(image))
    plan = plan_with_image(image)
    choice = shell_runner.choose_runner(plan, None)
    assert choice.without_agent
    assert [source.transfer for source in shell_runner.use_plugin_transfer(plan).jobs[0].inputs] == ["plugin"]
    assert "has no Python 3.9 or newer" in choice.problems[0].message
    assert not choice.problems[0].is_error
    rejected = shell_runner.choose_runner(plan_with_image(image, expect=[ExpectedOutput("m.pt", torch=True)]), None)
    assert rejected.problems[0].is_error
    assert "the contents of outputs have to be checked" in rejected.problems[0].message


def test_image_with_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    tree = apptainer.build_root_tree(tmp_path / "tree")
    (tree / "bin/python3").write_text("#!/bin/sh\nexit 0\n")
    (tree / "bin/python3").chmod(0o755)
    assert not shell_runner.lacks_python(str(tree))
    assert not shell_runner.lacks_python(str(tmp_path / "none.sif"))
    assert not shell_runner.lacks_python("docker://python:3.11")
    shutil.rmtree(tree)
