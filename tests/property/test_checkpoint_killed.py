"""A process that is killed at any moment of a save loses no finished checkpoint.

Each process is a fork that writes checkpoints until it is killed: in an open, link, rename or remove of a temporary
file, after a number of bytes, or after a number of saves.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packtrain.torch.checkpoint_files import CheckpointFiles, load_first_valid
from packtrain.torch.training_state import CHECKPOINT_VERSION, PACKTRAIN_KEY, TrainingState, parse_training_state

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

KEEP = 3
SHARED_MEMORY = Path("/dev/shm")  # what a killed process wrote survives there; only a power cut would need a disk
AUDIT_EVENTS = {"open", "os.link", "os.rename", "os.remove"}
kills = st.one_of(
    st.tuples(st.just("event"), st.integers(1, 25)),
    st.tuples(st.just("byte"), st.integers(0, 3000)),
    st.tuples(st.just("save"), st.integers(1, 5)),
)
best_steps = st.sets(st.integers(0, 7))  # modulo 8, so that a repeated step has the same result


def make_state(step: int, best_value: float | None) -> dict:
    position = TrainingState(step=step, best_value=best_value)
    return {
        "model": {"w": torch.full((200,), float(step))},
        PACKTRAIN_KEY: {"version": CHECKPOINT_VERSION, "training_state": position.to_dict()},
    }


def arm_kill(kind: str, after: int) -> None:
    """Let the process be killed at the given audit event or file size."""
    if kind == "event":
        remaining = [after]

        def on_audit_event(event: str, args: tuple) -> None:
            if event in AUDIT_EVENTS and ".tmp-" in str(args[0]):
                remaining[0] -= 1
                if remaining[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(on_audit_event)
    if kind == "byte":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores the signal; by default it kills the process
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (after, after))


def resume_and_save(folder: Path, kill: tuple[str, int], best: set[int], pipe: int) -> None:
    """Resume, save eight steps, and write each step to the pipe when its save has returned."""
    files = CheckpointFiles(folder / "c.pt", KEEP)
    files.remove_leftovers()
    loaded = load_first_valid(files.candidates())
    state = parse_training_state(loaded[1]) if loaded else TrainingState()
    arm_kill(*kill)
    best_value = state.best_value
    for number in range(1, 9):
        step = state.step + number
        is_best = step % 8 in best
        best_value = float(step) if is_best else best_value
        files.write(make_state(step, best_value), is_best)
        os.write(pipe, bytes([step]))
        if kill == ("save", number):
            os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(folder: Path, kill: tuple[str, int], best: set[int]) -> list[int]:
    """Fork a process that saves, and return the steps whose saves returned."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            resume_and_save(folder, kill, best, write_end)
        finally:
            os._exit(1)  # it saved all steps, or failed
    os.close(write_end)
    steps = []
    while data := os.read(read_end, 100):
        steps += data
    os.close(read_end)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or len(steps) == 8, "it was killed, or saved all steps"
    return steps


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(kills, min_size=1, max_size=6), best_steps)
def test_no_finished_save_is_lost(kills, best):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.exists() else None) as name:
        folder, finished = Path(name), 0
        for kill in kills:
            steps = run_until_killed(folder, kill, best)
            finished = max([finished, *steps])
            check(folder, finished)


def check(folder: Path, finished: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # loading warns of damaged files
        files = CheckpointFiles(folder / "c.pt", KEEP)
        loaded = load_first_valid(files.candidates())
        state = parse_training_state(loaded[1]) if loaded else TrainingState()
        assert state.step in (finished, finished + 1), "the last finished save, or the one in progress"
        if finished:
            assert loaded[0] == files.latest, "the latest checkpoint always exists under its name"
        for path in files.candidates():
            assert load_first_valid([path])[0] == path
        if state.best_value is not None:
            best_step = parse_training_state(load_first_valid([files.best])[1]).step
            assert best_step == state.best_value or best_step == state.step + 1, "the best save, or the one in progress"
