"""Jobs whose image has no Python: what the shell script does instead of the agent, by a real shell."""

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
def scratch(tmp_path):
    """As HTCondor leaves it: what was sent in folders, what a plugin fetched under its own name."""
    (tmp_path / "in-0").mkdir()
    (tmp_path / "in-0/run.sh").write_text("exit 1\n")
    (tmp_path / "in-1/sub").mkdir(parents=True)
    (tmp_path / "in-1/sub/deep.txt").write_text("deep\n")
    (tmp_path / "words.tar").write_text("words\n")
    (tmp_path / "output").mkdir()
    return tmp_path


def job(command, collect=("*",), expect=(), **more):
    inputs = (
        Input("run.sh", "work", (RemoteFile("run.sh", (local_input_location("in-0/run.sh"),)),), unpack="never"),
        Input("folder", "work/folder", prefix=local_input_location("in-1"), unpack="never"),
        Input("words", "work", (RemoteFile("words.tar", (local_input_location("words.tar"),)),), unpack="never"),
    )
    wanted = tuple(entry if isinstance(entry, CollectedOutput) else CollectedOutput(entry) for entry in collect)
    action = RunAction(command, work_dir="work", collect=wanted, **more)
    env = (EnvVar("NOTE", 'it\'s {a} "b"'),)
    steps = (Step("run.sh", action),)
    return Job("3", (EnvVar("lr", "0.1"),), Resources(), Limits(), steps, env=env, inputs=inputs, expect=tuple(expect))


def run(scratch, job, silent=True):
    (scratch / "bare.sh").write_text(shell_runner.render_script("run-1", job))
    done = subprocess.run(
        ["/bin/sh", "bare.sh", "plan.json", "--attempt-id", "3-1", "--attempt-folder", "."],
        cwd=scratch,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert not (silent and done.stderr)
    return done.returncode


def outputs(scratch):
    folder = scratch / "output"
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def ended(scratch):
    events = JournalReader(scratch / "journal.jsonl").read()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    state = RunState("run-1")
    for event in events:
        state.apply(event, 0.0)
    assert (events[0].kind, events[0].data["attempt"]) == ("agent.started", "3-1")
    return events[-1].data


def test_files_are_where_the_program_expects_them_and_new_ones_come_home(scratch):
    command = (
        'cat words.tar folder/sub/deep.txt > out.txt; echo "$NOTE $PACKTRAIN_JOB $PACKTRAIN_POINT_LR" > "a b"; mkdir d'
    )
    assert run(scratch, job(command, stdout="logs/o.txt", stderr="logs/o.txt")) == 0
    assert outputs(scratch) == {"out.txt": "words\ndeep\n", "a b": 'it\'s {a} "b" 3 0.1\n', "logs/o.txt": ""}
    assert ended(scratch)["outcome"] == "succeeded"
    assert not (scratch / "sandbox").exists()


def test_declared_outputs(scratch):
    collect = ("m.pt", "deep/", CollectedOutput("deep/x", "named/y"), "missing")
    assert run(scratch, job("echo 1 > m.pt; mkdir deep; echo 2 > deep/x", collect)) == 0
    assert outputs(scratch) == {"m.pt": "1\n", "x": "2\n", "named/y": "2\n"}


def test_a_program_that_fails(scratch):
    assert run(scratch, job("echo part > m.pt; echo oops >&2; exit 7")) == FAILURE_KINDS["step_failed"].exit_code
    said = ended(scratch)
    assert (said["outcome"], said["failure"]["kind"]) == ("failed", "step_failed")
    assert said["failure"]["detail"] == "the program ended with exit code 7"
    assert list(outputs(scratch).values()) == ["part\n"]
    assert all(name.startswith(".packtrain/agent-") for name in outputs(scratch))
    assert (scratch / "logs/run.sh.err").read_text() == "oops\n"


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
def test_what_is_expected_must_exist(scratch, command, expect, kind):
    code = run(scratch, job(command, expect=[expect]))
    assert code == (FAILURE_KINDS[kind].exit_code if kind else 0)
    failure = ended(scratch)["failure"]
    assert (failure["kind"] if failure else "") == kind


@pytest.mark.parametrize("missing", ["words.tar", "in-0/run.sh", "in-1"])
def test_without_its_inputs_the_program_is_not_started(scratch, missing):
    os.rename(scratch / missing, scratch / "elsewhere")
    done = run(scratch, job("touch begun"), silent=False)
    assert done == FAILURE_KINDS["transfer_failed"].exit_code
    said = ended(scratch)
    assert (said["outcome"], said["failure"]["kind"]) == ("failed", "transfer_failed")
    assert outputs(scratch) == {}


def test_its_delivery_is_never_switched_to_the_agent():
    made = shell_runner._use_plugin_transfer(Plan("run-1", "run", "htcondor", (job("true"),)))
    assert not made.recovery.fallback_to_agent


def test_the_launcher_takes_it_where_there_is_no_python(scratch):
    write_launcher(scratch / "launch.sh")
    (scratch / "shell_runner.sh").write_text('echo "bare $1"\nexit 9\n')
    image = apptainer.build_root_tree(scratch / "image")
    command = [
        apptainer.apptainer_path(),
        "-q",
        "exec",
        "--no-home",
        "--bind",
        scratch,
        image,
        "/bin/sh",
        scratch / "launch.sh",
    ]
    done = subprocess.run([*command, "word"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (9, "bare word\n")


def plan_in(image, **more):
    planned = job("true", **more)
    inputs = (Input("x", "work", (RemoteFile("x", (Location("https://h.org/x"),)),), unpack="never"),)
    container = EnvironmentConfig(Container(str(image)))
    return Plan("r", "r", "htcondor", (Job(**{**vars(planned), "inputs": inputs, "environment": container}),))


def test_an_image_without_python_is_known_beforehand(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    image = apptainer.build_sif(tmp_path / "image.sif")
    assert shell_runner.lacks_python(str(image))
    chosen = shell_runner.choose_runner(plan_in(image), None)
    assert chosen.without_agent
    assert [source.transfer for source in chosen.plan.jobs[0].inputs] == ["plugin"]
    assert "has no Python 3.9 or newer" in chosen.problems[0].message
    assert not chosen.problems[0].is_error
    refused = shell_runner.choose_runner(plan_in(image, expect=[ExpectedOutput("m.pt", torch=True)]), None)
    assert refused.problems[0].is_error
    assert "outputs have to be looked into" in refused.problems[0].message


def test_an_image_with_python_is_left_to_the_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    tree = apptainer.build_root_tree(tmp_path / "tree")
    (tree / "bin/python3").write_text("#!/bin/sh\nexit 0\n")
    (tree / "bin/python3").chmod(0o755)
    assert not shell_runner.lacks_python(str(tree))
    assert not shell_runner.lacks_python(str(tmp_path / "none.sif"))
    assert not shell_runner.lacks_python("docker://python:3.11")
    shutil.rmtree(tree)
