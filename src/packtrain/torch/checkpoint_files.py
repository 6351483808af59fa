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

from packtrain.torch.training_state import State

_LEFTOVER = re.compile(r"\.tmp-(\d+)(-link)?$")


class CheckpointFiles:
    """Owns the names. `write` is called by one thread at a time."""

    def __init__(self, path: str | os.PathLike[str], keep: int) -> None:
        output = os.environ.get("PACKTRAIN_OUTPUT") or os.environ.get("DEEPSQUARE_OUTPUT") or ""
        self._output = Path.cwd() / output  # the program may change its folder later
        self.newest = self._output / path
        self.best = self.newest.with_name(f"{self.newest.stem}.best{self.newest.suffix}")
        self._kept = [self._hidden(f"kept-{n}") for n in range(1, keep)]

    def candidates(self, also: str | os.PathLike[str] | None = None) -> Iterator[Path]:
        """What to resume from, the most welcome first."""
        named = [Path(path) for path in (os.environ.get("PACKTRAIN_RESUME"), also) if path]
        yield from dict.fromkeys(path for path in (self.newest, *self._kept, *named) if path.exists())

    def write(self, state: State, is_best: bool) -> None:
        """Complete or invisible: a temporary name, the disk, then a rename. The best comes first: killed in between,
        the training goes on from before it and finds it again."""
        temporary = self._hidden(str(os.getpid()))
        self.newest.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_through(state, temporary)
            if is_best:
                self._link(temporary, self.best)
            self._rotate()
            temporary.replace(self.newest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _flush_folder(self.newest.parent)

    def remove_leftovers(self) -> None:
        """Of processes that were killed while they wrote."""
        for path in self.newest.parent.glob(f".{self.newest.name}.tmp-*"):
            leftover = _LEFTOVER.search(path.name)
            if leftover and not _alive(int(leftover[1])):
                path.unlink(missing_ok=True)

    def announce(self, step: int, epoch: int) -> None:
        """Tell the agent, if there is one. One that cannot be told finds the file by itself."""
        path = os.environ.get("PACKTRAIN_CHECKPOINTS")
        if path:
            line = json.dumps({"path": self._told(), "step": step, "epoch": epoch}) + "\n"
            with suppress(OSError):
                _append(path, line.encode())

    def _told(self) -> str:
        """Relative where possible: in a container the folder has another name than outside."""
        inside = self._output in self.newest.parents
        return (self.newest.relative_to(self._output) if inside else self.newest).as_posix()

    def _hidden(self, what: str) -> Path:
        return self.newest.with_name(f".{self.newest.name}.tmp-{what}")

    def _rotate(self) -> None:
        """The newest becomes the one before it, and so on; what it is called now stays until it is replaced."""
        if not self._kept or not self.newest.exists() or _same(self.newest, self._kept[0]):
            return  # the same: a process was killed just after this
        for older, newer in zip(self._kept[:0:-1], self._kept[-2::-1]):
            with suppress(FileNotFoundError):
                newer.replace(older)
        self._link(self.newest, self._kept[0])

    def _link(self, source: Path, target: Path) -> None:
        """A second name for the same bytes, or a copy where the file system has no such thing."""
        link = self._hidden(f"{os.getpid()}-link")
        link.unlink(missing_ok=True)
        try:
            os.link(source, link)
        except OSError:
            shutil.copyfile(source, link)
        link.replace(target)


def _write_through(state: State, path: Path) -> None:
    import torch

    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """So that the new name survives a power cut, too."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems know no such thing
            os.fsync(file)
    finally:
        os.close(file)


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()  # a leftover with our own number is of a process before us


def _append(path: str, line: bytes) -> None:
    """One write in append mode: lines never mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)
