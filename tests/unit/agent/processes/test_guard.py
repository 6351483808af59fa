"""An agent that is killed with SIGKILL leaves no step behind."""

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

AGENT = """
import fcntl, sys
from pathlib import Path
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.output_capture import Capture
from packtrain.agent.processes.process_table import Processes, Program
from packtrain.events import Redactor

claim = open(sys.argv[1], "w")
fcntl.flock(claim, fcntl.LOCK_EX)
processes = Processes(Guard.start(keep=[claim.fileno()]), 1.0)
variables = {"PATH": "/usr/bin:/bin", "MARK": sys.argv[1]}
"""
START = 'processes.start(Program(("sh", "-c", %r), variables, Path("/")), Capture(Redactor()), Capture(Redactor()))\n'
STEP = 'sh -c "sleep 300; :" & echo $! $$ > "$MARK.new"; mv "$MARK.new" "$MARK.pids"; wait'


def start_agent(program: str, claim: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", AGENT + program, str(claim)])


def until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def marked(mark: Path):
    """The living processes that have MARK=mark in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if f"MARK={mark}\0".encode() in file.read():
                    found.append(int(entry))
        except (OSError, ValueError):
            continue
    return found


def is_free(claim: Path) -> bool:
    with open(claim) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_killed_agent_takes_its_steps_along(tmp_path):
    claim = tmp_path / "claim"
    agent = start_agent(START % STEP + "import time; time.sleep(300)", claim)
    pids = Path(f"{claim}.pids")
    until(pids.exists, 10)
    grandchild, leader = map(int, pids.read_text().split())
    assert {grandchild, leader} <= set(marked(claim))
    assert not is_free(claim)
    agent.kill()
    agent.wait()
    until(lambda: not marked(claim), 1.0)
    until(lambda: is_free(claim), 5.0)


def test_term_to_the_guard_does_not_disarm_it(tmp_path):
    claim = tmp_path / "claim"
    agent = start_agent(
        "import os, time; os.kill(processes._guard._pid, 15)\n" + START % STEP + "time.sleep(300)", claim
    )
    until(Path(f"{claim}.pids").exists, 10)
    agent.kill()
    agent.wait()
    until(lambda: not marked(claim), 1.0)


@pytest.mark.slow
def test_at_whatever_moment_the_agent_dies(tmp_path):
    """Steps are started one after the other while the agent is killed: none is overlooked."""
    for round_ in range(20):
        claim = tmp_path / f"claim{round_}"
        ready = f"open({str(claim) + '.ready'!r}, 'w').close()\n"
        agent = start_agent(ready + "while True:\n    " + START % "exec sleep 300", claim)
        until(Path(f"{claim}.ready").exists, 10)
        time.sleep(0.002 * round_)
        agent.kill()
        agent.wait()
        until(lambda mark=claim: not marked(mark), 5.0)
        until(lambda mark=claim: is_free(mark), 5.0)


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as started:
        yield started
        started.kill()


def test_quit_kills_nothing(sleeper):
    guard = Guard.start()
    guard.add_group(sleeper.pid)
    guard.quit()
    assert sleeper.poll() is None


def test_what_is_forgotten_is_not_killed(sleeper):
    guard = Guard.start()
    guard.add_group(sleeper.pid)
    guard.remove_group(sleeper.pid)
    os.close(guard._pipe)
    os.waitpid(guard._pid, 0)
    assert sleeper.poll() is None


def test_what_is_watched_is_killed(sleeper):
    guard = Guard.start()
    guard.add_group(sleeper.pid)
    os.close(guard._pipe)
    assert sleeper.wait(5) == -signal.SIGKILL
    os.waitpid(guard._pid, 0)


def test_without_its_guard_the_agent_goes_on(tmp_path):
    bench = StepHarness(tmp_path)
    os.kill(bench.guard._pid, signal.SIGKILL)
    until(lambda: _is_zombie(bench.guard._pid), 5)
    bench.run(make_trace_step("ran"))
    assert bench.read_trace() == ["ran"]
    bench.close()


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def test_a_program_that_cannot_be_started_is_not_watched(tmp_path):
    """Its number will be another process's one day."""
    program = (
        "class Telling(Guard):\n"
        "    def _tell(self, message):\n"
        "        with open(sys.argv[1] + '.told', 'a') as file: file.write(message + '\\n')\n"
        "processes = Processes(Telling(0, 0), 1.0)\n"
        "try:\n"
        "    processes.start(Program(('/no/such',), {}, Path('/')), Capture(Redactor()), Capture(Redactor()))\n"
        "except FileNotFoundError:\n"
        "    print('refused')\n"
    )
    claim = tmp_path / "claim"
    argv = [sys.executable, "-c", AGENT + program, str(claim)]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "refused\n"
    watched, forgotten = Path(f"{claim}.told").read_text().split()
    assert (watched[0], forgotten[0]) == ("+", "-")
    assert watched[1:] == forgotten[1:]
