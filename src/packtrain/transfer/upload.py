"""Brings an output folder to its destination: every file under its name, retried, nothing half.

An http destination is one URL: it gets a single file as it is, and several as one zip file.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, TypeVar

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Output, Ref
from packtrain.transfer.address import joined, scheme_of, shown
from packtrain.transfer.api import Reveal, Sink
from packtrain.transfer.patience import Patience, pause
from packtrain.transfer.registry import sink_for

T = TypeVar("T")
Stop = Callable[[], None]
Progress = Callable[[int, Optional[int]], None]

_ONE_URL = ("http", "https")
_OURS = ".packtrain/"  # below a destination: checkpoints and what failed attempts left


@dataclass(frozen=True)
class Uploaded:
    files: int
    bytes: int


def upload_folder(
    folder: Path,
    output: Output,
    reveal: Reveal,
    *,
    prefix: str = "",
    stop: Stop,
    progress: Progress,
    patience_s: float,
) -> Uploaded:
    """All files of the folder stand at the destination, or FailedError: sink_failed, token_refused."""
    files = dict(_files_below(folder))
    with _as_sent(files, folder, output.ref, prefix) as parcels:
        work = _Upload(output.ref, reveal, patience_s, stop, progress)
        work.put_all(parcels)
        if output.delete and scheme_of(output.ref.url) not in _ONE_URL:
            work.delete_others(prefix, set(parcels))
    return Uploaded(len(files), work.done)


def upload_file(path: Path, output: Output, name: str, reveal: Reveal) -> None:
    """One file, once, without patience: for a copy that comes again soon."""
    work = _Upload(output.ref, reveal, 0.0, lambda: None, lambda done, total: None)
    work.put_all({name: path})


def _files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and files; a link to a file counts as that file."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(where, name) for name in sorted(names)):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path


@contextlib.contextmanager
def _as_sent(files: dict[str, Path], folder: Path, ref: Ref, prefix: str) -> Iterator[dict[str, Path]]:
    """What is put under which name below the address; the empty name is the address itself."""
    if scheme_of(ref.url) not in _ONE_URL:
        yield {prefix + name: path for name, path in files.items()}
    elif len(files) <= 1:
        yield {prefix.rstrip("/"): path for path in files.values()}
    else:
        with _zipped(files, folder) as path:
            yield {prefix.rstrip("/"): path}


@contextlib.contextmanager
def _zipped(files: dict[str, Path], folder: Path) -> Iterator[Path]:
    import tempfile
    import zipfile

    with tempfile.NamedTemporaryFile(dir=folder.parent, prefix=f".{folder.name}-", suffix=".zip") as file:
        # Stored, not compressed: outputs are mostly weights, which do not shrink.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, path in files.items():
                archive.write(path, name)
        file.flush()
        yield Path(file.name)


class _Upload:
    def __init__(self, ref: Ref, reveal: Reveal, patience_s: float, stop: Stop, progress: Progress) -> None:
        self._ref, self._sink = ref, sink_for(ref, reveal)
        self._patience_s, self._stop, self._progress = patience_s, stop, progress
        self.done = 0

    def put_all(self, parcels: dict[str, Path]) -> None:
        total = sum(path.stat().st_size for path in parcels.values())
        for name, path in parcels.items():
            ref, size = self._at(name), path.stat().st_size
            self._insist(ref, _putting(self._sink, ref, path))
            self.done += size
            self._progress(self.done, total)

    def delete_others(self, prefix: str, kept: set[str]) -> None:
        """deleteSync: what is gone here goes there, too."""
        at = self._at(prefix.rstrip("/"))
        for entry in self._insist(at, lambda: list(self._sink.list(at))):
            name = prefix + entry.name
            if name not in kept and (prefix or not name.startswith(_OURS)):
                self._insist(entry.ref, _deleting(self._sink, entry.ref))

    def _at(self, name: str) -> Ref:
        return replace(self._ref, url=joined(self._ref.url, name))

    def _insist(self, ref: Ref, act: Callable[[], T]) -> T:
        """Again and again while the failure may pass, for the whole patience."""
        patience = Patience(self._patience_s, 1, time.monotonic())
        while True:
            self._stop()
            try:
                return act()
            except TransferError as error:
                patience.failed(0, error)
                wait = patience.wait_s(time.monotonic())
                if wait is None:
                    raise _told(error, ref) from error
            pause(wait, self._stop)


def _putting(sink: Sink, ref: Ref, path: Path) -> Callable[[], None]:
    return lambda: sink.put(ref, path)


def _deleting(sink: Sink, ref: Ref) -> Callable[[], None]:
    return lambda: sink.delete(ref)


def _told(error: TransferError, ref: Ref) -> FailedError:
    if error.kind == "token_refused":
        return error
    words = f"the outputs could not be written to {shown(ref.url)}: {error.detail}"
    return TransferError("sink_failed", words, shown(ref.url))
