"""Tests of the guard: an agent that dies from SIGKILL leaves no process behind."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packtrain.agent.processes.guard import Guard
from tests.support.step_harness import StepHarness, make_trace_step
from tests.support.waiting import TIMEOUT_S, wait_until

AGENT = """
import fcntl, sys
from pathlib import Path
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.output_capture import OutputCapture
from packtrain.agent.processes.process_table import ProcessSpec, ProcessTable
from packtrain.events import Redactor

claim = open(sys.argv[1], "w")
fcntl.flock(claim, fcntl.LOCK_EX)
processes = ProcessTable(Guard.start(keep_fds=[claim.fileno()]), 1.0)
variables = {"PATH": "/usr/bin:/bin", "MARK": sys.argv[1]}
"""
START_PROCESS = (
    'spec = ProcessSpec(("sh", "-c", %r), variables, Path("/")); '
    "processes.start(spec, OutputCapture(Redactor()), OutputCapture(Redactor()))\n"
)
STEP_SCRIPT = 'sh -c "sleep 300; :" & echo $! $$ > "$MARK.new"; mv "$MARK.new" "$MARK.pids"; wait'


def start_agent(program: str, claim: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", AGENT + program, str(claim)])


def marked_pids(mark: Path):
    """Return the live processes that have MARK=mark in their environment."""
    pids = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if f"MARK={mark}\0".encode() in file.read():
                    pids.append(int(entry))
        except (OSError, ValueError):
            continue
    return pids


def is_claim_free(claim: Path) -> bool:
    with open(claim) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_killed_agent_leaves_no_processes(tmp_path):
    claim = tmp_path / "claim"
    agent = start_agent(START_PROCESS % STEP_SCRIPT + "import time; time.sleep(300)", claim)
    pids = Path(f"{claim}.pids")
    wait_until(pids.exists)
    grandchild, leader = map(int, pids.read_text().split())
    assert {grandchild, leader} <= set(marked_pids(claim))
    assert not is_claim_free(claim)
    agent.kill()
    agent.wait()
    wait_until(lambda: not marked_pids(claim))
    wait_until(lambda: is_claim_free(claim))


def test_guard_ignores_term(tmp_path):
    claim = tmp_path / "claim"
    agent = start_agent(
        "import os, time; os.kill(processes._guard._pid, 15)\n" + START_PROCESS % STEP_SCRIPT + "time.sleep(300)", claim
    )
    wait_until(Path(f"{claim}.pids").exists)
    agent.kill()
    agent.wait()
    wait_until(lambda: not marked_pids(claim))


@pytest.mark.slow
def test_agent_killed_at_any_moment(tmp_path):
    """The agent is killed while it starts one process after the other."""
    for round_ in range(20):
        claim = tmp_path / f"claim{round_}"
        ready = f"open({str(claim) + '.ready'!r}, 'w').close()\n"
        agent = start_agent(ready + "while True:\n    " + START_PROCESS % "exec sleep 300", claim)
        wait_until(Path(f"{claim}.ready").exists)
        time.sleep(0.002 * round_)
        agent.kill()
        agent.wait()
        wait_until(lambda mark=claim: not marked_pids(mark))
        wait_until(lambda mark=claim: is_claim_free(mark))


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def test_quit_kills_nothing(sleeper):
    guard = Guard.start()
    guard.add_group(sleeper.pid)
    guard.quit()
    assert sleeper.poll() is None


def test_removed_group_is_not_killed(sleeper):
    guard = Guard.start()
    guard.add_group(sleeper.pid)
    guard.remove_group(sleeper.pid)
    os.close(guard._pipe)
    os.waitpid(guard._pid, 0)
    assert sleeper.poll() is None


def test_group_is_killed(sleeper):
    guard = Guard.start()
    guard.add_group(sleeper.pid)
    os.close(guard._pipe)
    assert sleeper.wait(TIMEOUT_S) == -signal.SIGKILL
    os.waitpid(guard._pid, 0)


def test_agent_continues_without_guard(tmp_path):
    harness = StepHarness(tmp_path)
    guard_pid = harness.context.processes._guard._pid
    os.kill(guard_pid, signal.SIGKILL)
    wait_until(lambda: _is_zombie(guard_pid))
    harness.run(make_trace_step("ran"))
    assert harness.read_trace() == ["ran"]
    harness.close()


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def test_failed_start_is_unregistered(tmp_path):
    """Its process id may belong to another process later."""
    program = (
        "class RecordingGuard(Guard):\n"
        "    def _send(self, message):\n"
        "        with open(sys.argv[1] + '.messages', 'a') as file: file.write(message + '\\n')\n"
        "processes = ProcessTable(RecordingGuard(0, 0), 1.0)\n"
        "out, err = OutputCapture(Redactor()), OutputCapture(Redactor())\n"
        "try:\n"
        "    processes.start(ProcessSpec(('/no/such',), {}, Path('/')), out, err)\n"
        "except FileNotFoundError:\n"
        "    print('refused')\n"
    )
    claim = tmp_path / "claim"
    argv = [sys.executable, "-c", AGENT + program, str(claim)]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "refused\n"
    added, removed = Path(f"{claim}.messages").read_text().split()
    assert (added[0], removed[0]) == ("+", "-")
    assert added[1:] == removed[1:]
