"""Tests of output capture, log names, exit descriptions, and the counter of out-of-memory kills."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from packtrain.agent.processes.exit_status import count_oom_kills, describe_exit, to_shell_status
from packtrain.agent.processes.output_capture import LogFile, OutputCapture, PipePump
from packtrain.agent.steps.scope import LogNames
from packtrain.events import Redactor
from tests.support.step_harness import StepHarness, make_step

SECRET = "hunter2-hunter2"


def test_secret_split_between_chunks_is_redacted(tmp_path):
    harness = StepHarness(tmp_path, secrets={"s": SECRET})
    halves = f"printf %s '{SECRET[:6]}'; sleep 0.1; printf '%s\\n' '{SECRET[6:]}'; printf %s {SECRET[:4]}"
    harness.run(make_step(halves, name="leak"))
    assert harness.read_log("leak.out") == f"***\n{SECRET[:4]}"
    harness.close()


def test_other_text_is_written_at_once(tmp_path):
    log = LogFile(Redactor([SECRET]), tmp_path / "log")
    log.feed(b"epoch 1\nhunt")
    assert (tmp_path / "log").read_bytes() == b"epoch 1\n"
    log.feed(b"ing")
    assert (tmp_path / "log").read_bytes() == b"epoch 1\nhunting"
    log.close()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"", ""),
        (b"one\ntwo\n\n  \n", "two"),
        (b"10%\r20%\r", "20%"),
        (b"\x1b[91mred\x1b[0m\n", "red"),
        (b"\xff broken\n", "\ufffd broken"),
        (b"x" * 9000, "x" * 300),
        (f"token {SECRET}".encode(), "token ***"),
    ],
)
def test_last_line(output, expected):
    capture = OutputCapture(Redactor([SECRET]))
    capture.feed(output)
    capture.close()
    assert capture.last_line() == expected


def test_full_disk_ends_only_the_log():
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    reader, writer = os.pipe()
    log = LogFile(Redactor(), "/dev/full")
    pump = PipePump({reader: log})
    pump.start()
    for _ in range(4):
        os.write(writer, b"x" * 65536)
    os.close(writer)
    assert pump.wait_until_closed(10)
    pump.abort()
    os.close(reader)
    assert log.write_error is not None
    assert log.last_line() == "x" * 300


def test_large_output_is_complete(tmp_path):
    harness = StepHarness(tmp_path)
    harness.run(make_step("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2", name="much"))
    assert (harness.sandbox.attempt_folder.logs / "much.out").stat().st_size == 3000000
    assert (harness.sandbox.attempt_folder.logs / "much.err").stat().st_size == 3000000
    harness.close()


def test_log_names_are_unique():
    names = LogNames()
    assert names.name_for("a/b") == "a.b"
    assert names.name_for("a.b") == "a.b-2"
    assert names.name_for("a/b") == "a.b"
    assert names.name_for("..") == "_"
    assert len(names.name_for("x" * 500)) < 200
    assert "/" not in names.name_for("/etc/passwd")


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (2, 2, "ended with exit code 2"),
        (-11, 139, "was killed by signal SIGSEGV"),
        (-9, 137, "was killed by signal SIGKILL, often a sign of too little memory"),
        (-40, 168, "was killed by signal 40"),
    ],
)
def test_describe_exit(code, status, message):
    assert (to_shell_status(code), describe_exit(code)) == (status, message)


def test_shell_reports_killed_program():
    assert "SIGKILL, often a sign of too little memory" in describe_exit(137)


def write_file(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_oom_kills_cgroup_v2(tmp_path):
    write_file(tmp_path / "proc/self/cgroup", "0::/job/7\n")
    write_file(tmp_path / "sys/fs/cgroup/job/7/memory.events", "low 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert count_oom_kills(tmp_path) == 3


def test_oom_kills_cgroup_v1(tmp_path):
    write_file(tmp_path / "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job/7\n0::/\n")
    write_file(
        tmp_path / "sys/fs/cgroup/memory/job/7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    )
    assert count_oom_kills(tmp_path) == 2


def test_oom_kills_in_container(tmp_path):
    write_file(tmp_path / "proc/self/cgroup", "0::/of/the/host\n")
    write_file(tmp_path / "sys/fs/cgroup/memory.events", "oom_kill 1\n")
    assert count_oom_kills(tmp_path) == 1


def test_oom_kills_without_counter(tmp_path):
    assert count_oom_kills(tmp_path) == 0


@pytest.fixture
def small_cgroup():
    """Create a control group of 300 MB: enough for a test process, not for the program it starts."""
    cgroup_root, limit = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
    with open("/proc/self/cgroup") as groups:
        own_group = next((line.split(":")[2].strip() for line in groups if ":memory:" in line), None)
    folder = f"{cgroup_root}{own_group}/packtrain-test-{os.getpid()}"
    try:
        if own_group is None:
            raise OSError("no control group of version 1")
        os.mkdir(folder)
        with open(f"{folder}/{limit}", "w") as file:
            file.write(str(300 << 20))
    except OSError as error:
        pytest.skip(f"cannot create a control group: {error}")
    yield folder
    os.rmdir(folder)


OOM_PROGRAM = """
import os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from tests.support.step_harness import StepHarness, make_step
from packtrain.errors import FailedError
Path({group!r}, "cgroup.procs").write_text(str(os.getpid()))
harness = StepHarness(Path({folder!r}))
first = "echo 1000 > /proc/self/oom_score_adj"  # the kernel must choose the step, not this process
try:
    harness.run(make_step(f"{{first}}; exec {{sys.executable}} -c \\"b'x' * 2000000000\\"", name="big"))
except FailedError as error:
    print(error.kind, error.detail)
harness.close()
"""


@pytest.mark.slow
def test_step_killed_for_memory(tmp_path, small_cgroup):
    """Runs in a new process inside the small control group, like an agent in a slot."""
    program = OOM_PROGRAM.format(path=sys.path, group=small_cgroup, folder=str(tmp_path))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.stdout.startswith("out_of_memory "), process
    assert '"big"' in process.stdout
