"""Whatever the moment in which a process dies while it saves, the next one finds everything that was finished.

Each life is a fork that writes checkpoints until it is killed: in an open, link, rename or remove of theirs, or when it
has written so many bytes of a file.
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

from packtrain.torch.checkpoint_files import CheckpointFiles
from packtrain.torch.checkpoint_reader import load_first_valid
from packtrain.torch.training_state import CHECKPOINT_VERSION, PACKTRAIN_KEY, TrainingState, parse_training_state

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

KEEP = 3
MEMORY = Path("/dev/shm")  # a killed process loses nothing of what it wrote: only a power cut would need a disk
EVENTS = {"open", "os.link", "os.rename", "os.remove"}
kills = st.one_of(
    st.tuples(st.just("event"), st.integers(1, 25)),
    st.tuples(st.just("byte"), st.integers(0, 3000)),
    st.tuples(st.just("save"), st.integers(1, 5)),  # after so many
)
best_steps = st.sets(st.integers(0, 7))  # modulo 8; a step that is done again ends as it did


def state_of(step: int, best: float | None) -> dict:
    position = TrainingState(step=step, best_value=best)
    return {
        "model": {"w": torch.full((200,), float(step))},
        PACKTRAIN_KEY: {"version": CHECKPOINT_VERSION, "position": position.to_dict()},
    }


def arm(kind: str, after: int) -> None:
    if kind == "event":
        left = [after]

        def count(event: str, args: tuple) -> None:
            if event in EVENTS and ".tmp-" in str(args[0]):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
    if kind == "byte":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; now it ends the process on the spot
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (after, after))


def live(folder: Path, kill: tuple[str, int], better: set[int], said: int) -> None:
    """Go on from what is there and save, steps counting up; say each step when its save has returned."""
    files = CheckpointFiles(folder / "c.pt", KEEP)
    files.remove_leftovers()
    found = load_first_valid(files.candidates())
    where = parse_training_state(found[1]) if found else TrainingState()
    arm(*kill)
    best = where.best_value
    for number in range(1, 9):
        step = where.step + number
        is_best = step % 8 in better
        best = float(step) if is_best else best
        files.write(state_of(step, best), is_best)
        os.write(said, bytes([step]))
        if kill == ("save", number):
            os.kill(os.getpid(), signal.SIGKILL)


def end_of_life(folder: Path, kill: tuple[str, int], better: set[int]) -> list[int]:
    """The steps whose saves returned."""
    listening, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            live(folder, kill, better, said)
        finally:
            os._exit(1)  # it wrote all it had, or failed
    os.close(said)
    steps = []
    while heard := os.read(listening, 100):
        steps += heard
    os.close(listening)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or len(steps) == 8, "it was killed, or came to its end"
    return steps


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(kills, min_size=1, max_size=6), best_steps)
def test_nothing_that_was_saved_is_lost(deaths, better):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.exists() else None) as name:
        folder, finished = Path(name), 0
        for kill in deaths:
            steps = end_of_life(folder, kill, better)
            finished = max([finished, *steps])
            check(folder, finished)


def check(folder: Path, finished: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is damaged
        files = CheckpointFiles(folder / "c.pt", KEEP)
        found = load_first_valid(files.candidates())
        where = parse_training_state(found[1]) if found else TrainingState()
        assert where.step in (finished, finished + 1), "the newest that was finished, or the one that was almost"
        if finished:
            assert found[0] == files.latest, "it always has its own name"
        for path in files.candidates():
            assert load_first_valid([path])[0] == path
        if where.best_value is not None:
            best = parse_training_state(load_first_valid([files.best])[1]).step
            assert best == where.best_value or best == where.step + 1, "the best, or the one that was about to be"
