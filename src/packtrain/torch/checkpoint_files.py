"""A checkpoint on the disk: the newest under its own name, the ones before it, and the best.

    checkpoint.pt                    the newest; complete at every moment, or not there
    checkpoint.best.pt               the one with the best metric
    .checkpoint.pt.tmp-kept-1        the one before the newest; -2 is the one before that, …
    .checkpoint.pt.tmp-PID           one that is being written

The hidden ones never leave the machine: the agent passes over dot files with `.tmp-` in their names, and keeps
generations of its own outside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packtrain.torch.training_state import StateDict

_LEFTOVER_PATTERN = re.compile(r"\.tmp-(\d+)(-link)?$")


class CheckpointFiles:
    """Owns the names. `write` is called by one thread at a time."""

    def __init__(self, path: str | os.PathLike[str], max_to_keep: int) -> None:
        output = os.environ.get("PACKTRAIN_OUTPUT") or os.environ.get("DEEPSQUARE_OUTPUT") or ""
        self._output_dir = Path.cwd() / output  # the program may change its folder later
        self.latest = self._output_dir / path
        self.best = self.latest.with_name(f"{self.latest.stem}.best{self.latest.suffix}")
        self._previous = [self._temporary_path(f"kept-{n}") for n in range(1, max_to_keep)]

    def candidates(self, fallback: str | os.PathLike[str] | None = None) -> Iterator[Path]:
        """What to resume from, the most welcome first."""
        named = [Path(path) for path in (os.environ.get("PACKTRAIN_RESUME"), fallback) if path]
        yield from dict.fromkeys(path for path in (self.latest, *self._previous, *named) if path.exists())

    def write(self, state: StateDict, is_best: bool) -> None:
        """Complete or invisible: a temporary name, the disk, then a rename. The best comes first: killed in between,
        the training goes on from before it and finds it again."""
        temporary = self._temporary_path(str(os.getpid()))
        self.latest.parent.mkdir(parents=True, exist_ok=True)
        try:
            _save_and_fsync(state, temporary)
            if is_best:
                self._link(temporary, self.best)
            self._rotate()
            temporary.replace(self.latest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _fsync_folder(self.latest.parent)

    def remove_leftovers(self) -> None:
        """Of processes that were killed while they wrote."""
        for path in self.latest.parent.glob(f".{self.latest.name}.tmp-*"):
            leftover = _LEFTOVER_PATTERN.search(path.name)
            if leftover and not _is_other_process_alive(int(leftover[1])):
                path.unlink(missing_ok=True)

    def notify_agent(self, step: int, epoch: int) -> None:
        """Tell the agent, if there is one. One that cannot be told finds the file by itself."""
        path = os.environ.get("PACKTRAIN_CHECKPOINTS")
        if path:
            line = json.dumps({"path": self._path_for_agent(), "step": step, "epoch": epoch}) + "\n"
            with suppress(OSError):
                _append_line(path, line.encode())

    def _path_for_agent(self) -> str:
        """Relative where possible: in a container the folder has another name than outside."""
        inside = self._output_dir in self.latest.parents
        return (self.latest.relative_to(self._output_dir) if inside else self.latest).as_posix()

    def _temporary_path(self, tag: str) -> Path:
        return self.latest.with_name(f".{self.latest.name}.tmp-{tag}")

    def _rotate(self) -> None:
        """The newest becomes the one before it, and so on; what it is called now stays until it is replaced."""
        if not self._previous or not self.latest.exists() or _is_same_file(self.latest, self._previous[0]):
            return  # the same: a process was killed just after this
        for older, newer in zip(self._previous[:0:-1], self._previous[-2::-1]):
            with suppress(FileNotFoundError):
                newer.replace(older)
        self._link(self.latest, self._previous[0])

    def _link(self, source: Path, target: Path) -> None:
        """A second name for the same bytes, or a copy where the file system has no such thing."""
        link = self._temporary_path(f"{os.getpid()}-link")
        link.unlink(missing_ok=True)
        try:
            os.link(source, link)
        except OSError:
            shutil.copyfile(source, link)
        link.replace(target)


def _save_and_fsync(state: StateDict, path: Path) -> None:
    import torch

    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _fsync_folder(folder: Path) -> None:
    """So that the new name survives a power cut, too."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems know no such thing
            os.fsync(file)
    finally:
        os.close(file)


def _is_same_file(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


def _is_other_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()  # a leftover with our own number is of a process before us


def _append_line(path: str, line: bytes) -> None:
    """One write in append mode: lines never mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)
