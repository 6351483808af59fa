"""Name, write and read the files of a checkpoint.

    checkpoint.pt                        the newest; complete at any moment, or absent
    checkpoint.best.pt                   the one with the best metric
    .checkpoint.pt.tmp-previous-1        the one before the newest; -2 is the one before that, …
    .checkpoint.pt.tmp-PID               one that is being written

The hidden files are never uploaded: the agent ignores dot files with `.tmp-` in their names, and keeps its own earlier
checkpoints at the destination.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from packtrain.fileutil import durable_mkdir, sync_file, sync_folder
from packtrain.torch.metrics import append_line
from packtrain.torch.training_state import StateDict, find_problem

_LEFTOVER_PATTERN = re.compile(r"\.tmp-(\d+)(-link)?$")


class CheckpointFiles:
    """The file names of one checkpoint.

    One thread at a time may call `write`.

    Args:
        path: The checkpoint file, relative to $PACKTRAIN_OUTPUT (or $DEEPSQUARE_OUTPUT, or the current folder).
        max_to_keep: Number of files to keep: the newest and the ones before it.

    Attributes:
        latest: The newest checkpoint.
        best: The checkpoint with the best metric.
    """

    def __init__(self, path: str | os.PathLike[str], max_to_keep: int) -> None:
        output = os.environ.get("PACKTRAIN_OUTPUT") or os.environ.get("DEEPSQUARE_OUTPUT") or ""
        self._output_dir = Path.cwd() / output  # absolute, because the program may change its folder later
        self.latest = self._output_dir / path
        self.best = self.latest.with_name(f"{self.latest.stem}.best{self.latest.suffix}")
        self._previous = [self._temporary_path(f"previous-{n}") for n in range(1, max_to_keep)]

    def candidates(self, fallback: str | os.PathLike[str] | None = None) -> Iterator[Path]:
        """Yield the existing files to resume from, in order of preference.

        Args:
            fallback: A file to try last.
        """
        named = [Path(path) for path in (os.environ.get("PACKTRAIN_RESUME"), fallback) if path]
        yield from dict.fromkeys(path for path in (self.latest, *self._previous, *named) if path.exists())

    def write(self, state: StateDict, is_best: bool) -> None:
        """Write a checkpoint atomically and keep the previous ones.

        The best file is replaced first: if the process is killed in between, training resumes from an earlier step and
        reaches the best value again.

        Args:
            state: The state to write, in plain types.
            is_best: Whether it also becomes the best checkpoint.
        """
        temporary = self._temporary_path(str(os.getpid()))
        durable_mkdir(self.latest.parent)
        try:
            _save_and_fsync(state, temporary)
            if is_best:
                self._link(temporary, self.best)
            self._rotate()
            temporary.replace(self.latest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(self.latest.parent)

    def remove_leftovers(self) -> None:
        """Remove temporary files of processes that were killed while writing."""
        for path in self.latest.parent.glob(f".{self.latest.name}.tmp-*"):
            leftover = _LEFTOVER_PATTERN.search(path.name)
            if leftover and not _is_other_process_alive(int(leftover[1])):
                path.unlink(missing_ok=True)

    def notify_agent(self, step: int, epoch: int) -> None:
        """Append a line about the newest checkpoint to $PACKTRAIN_CHECKPOINTS, if it is set.

        A line that cannot be written is dropped: the agent also finds the file by polling.

        Args:
            step: Number of completed steps.
            epoch: The epoch to resume with.
        """
        path = os.environ.get("PACKTRAIN_CHECKPOINTS")
        if path:
            append_line(path, json.dumps({"path": self._path_for_agent(), "step": step, "epoch": epoch}))

    def _path_for_agent(self) -> str:
        """Return a path relative to the output folder if possible: in a container the folder has another name."""
        is_inside = self._output_dir in self.latest.parents
        return (self.latest.relative_to(self._output_dir) if is_inside else self.latest).as_posix()

    def _temporary_path(self, tag: str) -> Path:
        return self.latest.with_name(f".{self.latest.name}.tmp-{tag}")

    def _rotate(self) -> None:
        """Make the newest file the first previous one, and so on. The newest keeps its name until it is replaced."""
        if not self._previous or not self.latest.exists() or _is_same_file(self.latest, self._previous[0]):
            return  # the same file: a process was killed right after rotating
        for older, newer in zip(self._previous[:0:-1], self._previous[-2::-1]):
            with suppress(FileNotFoundError):
                newer.replace(older)
        self._link(self.latest, self._previous[0])

    def _link(self, source: Path, target: Path) -> None:
        """Make `target` a hard link to `source`, or a copy if the file system has no hard links."""
        link = self._temporary_path(f"{os.getpid()}-link")
        link.unlink(missing_ok=True)
        try:
            os.link(source, link)
        except OSError:
            shutil.copyfile(source, link)
            sync_file(link)
        link.replace(target)


def load_first_valid(
    paths: Iterable[Path], from_file: Callable[[StateDict], StateDict] = lambda content: content
) -> tuple[Path, StateDict] | None:
    """Load the first valid checkpoint file, with a warning about each damaged file before it.

    Args:
        paths: Files in order of preference.
        from_file: Converts the content of a file to a state.

    Returns:
        The path and the content of the first valid file; None if there is none.
    """
    for path in paths:
        try:
            return path, _load_checkpoint(path, from_file)
        except Exception as error:  # a damaged file can raise anything
            warnings.warn(f"{path} is damaged ({_short_message(error)}); trying the previous checkpoint", stacklevel=4)
    return None


def _load_checkpoint(path: Path, from_file: Callable[[StateDict], StateDict]) -> StateDict:
    import torch

    _verify_zip_checksums(path)
    state = from_file(torch.load(path, map_location="cpu", weights_only=True))
    problem = find_problem(state)
    if problem:
        raise ValueError(problem)
    return state


def _verify_zip_checksums(path: Path) -> None:
    """Raise ValueError if a checksum is wrong: torch.load does not verify them. Older torch files have none."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
        if bad:
            raise ValueError(f"the checksum of {bad} is wrong")


def _short_message(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _save_and_fsync(state: StateDict, path: Path) -> None:
    import torch

    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _is_same_file(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


def _is_other_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()  # a leftover with our own id belongs to an earlier process
