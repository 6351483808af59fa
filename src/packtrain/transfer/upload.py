"""Brings an output folder to its destination: every file under its name, retried, looked at afterwards, nothing half.

An http destination is one URL: it gets a single file as it is, and several as one zip file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, TypeVar
from urllib.parse import urlsplit

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Output, Ref
from packtrain.transfer.api import Reveal, Sink
from packtrain.transfer.backends.s3.backend import S3Store
from packtrain.transfer.digests import digest_of_file
from packtrain.transfer.engine.source_stats import LET_IN
from packtrain.transfer.http.connection import watched
from packtrain.transfer.http.request_body import Sent
from packtrain.transfer.registry import sink_for
from packtrain.transfer.retry import Patience, pause
from packtrain.transfer.urls import joined, scheme_of, shown

T = TypeVar("T")
Stop = Callable[[], None]
Progress = Callable[[int, Optional[int]], None]

_ONE_URL = ("http", "https")
_UNSEEN = ("token_refused", "unsupported")  # who may write need not be allowed to look
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
        try:
            work.put_all(parcels)
        except FailedError:
            work.abandon(parcels)
            raise
        if output.delete and scheme_of(output.ref.url) not in _ONE_URL:
            work.delete_others(prefix, set(parcels))
    return Uploaded(len(files), work.done)


def upload_file(
    path: Path,
    output: Output,
    name: str,
    reveal: Reveal,
    *,
    patience_s: float = 0.0,
    stop: Stop = lambda: None,
    progress: Progress = lambda done, total: None,
) -> None:
    """One file; by default once, without patience: for a copy that comes again soon."""
    work = _Upload(output.ref, reveal, patience_s, stop, progress)
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
        self.done = self._furthest = 0

    def put_all(self, parcels: dict[str, Path]) -> None:
        total = sum(path.stat().st_size for path in parcels.values())
        for name, path in parcels.items():
            ref, size = self._at(name), path.stat().st_size
            self._insist(ref, self._putting(ref, path, total))
            self.done += size
            self._progress(self.done, total)

    def _putting(self, ref: Ref, path: Path, total: int) -> Callable[[], None]:
        def put() -> None:
            self._sink.put(ref, path, self._watch(total))
            confirm(self._sink, ref, path)

        return put

    def _watch(self, total: int) -> Sent:
        """Counts the bytes of one try, which may leave by several threads."""
        lock, done = threading.Lock(), self.done

        def sent(count: int) -> None:
            nonlocal done
            self._stop()
            with lock:
                done += count
                self._furthest = max(self._furthest, done)
                self._progress(min(done, total), total)

        return sent

    def abandon(self, parcels: dict[str, Path]) -> None:
        """Parts of files that will not come are not left behind to be paid for."""
        if isinstance(self._sink, S3Store):
            with contextlib.suppress(FailedError):
                for name in parcels:
                    self._sink.abandon(self._at(name))

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
        """Again and again while the failure may pass; patience ends when nothing has gone further for so long."""
        patience = Patience(self._patience_s, 1, time.monotonic())
        while True:
            self._stop()
            before = self._furthest
            try:
                with watched(self._stop):
                    done = act()
                self._let_in()
                return done
            except TransferError as error:
                if self._furthest > before:
                    patience.progressed(time.monotonic())
                patience.failed(0, error, passes=self._may_be_renewed(error))
                wait = patience.wait_s(time.monotonic())
                if wait is None:
                    raise _told(error, ref) from error
            pause(wait, self._stop)

    def _let_in(self) -> None:
        if _has_credentials(self._ref):
            LET_IN.add(_label(self._ref))

    def _may_be_renewed(self, error: TransferError) -> bool:
        """A token that was good before has run out: it is renewed under a running job, and read anew each time."""
        return error.kind == "token_refused" and _label(self._ref) in LET_IN


def _has_credentials(ref: Ref) -> bool:
    """Its own, or those that the machine may have for a federation."""
    signed = ref.s3 is not None and ref.s3.access_key is not None
    return signed or ref.token is not None or bool(ref.headers) or scheme_of(ref.url) in ("osdf", "pelican")


def _label(ref: Ref) -> str:
    url = shown(ref.url)
    return urlsplit(url).netloc or url


def confirm(sink: Sink, ref: Ref, path: Path) -> None:
    """Look at what stands there after a `put`, as far as one is allowed to; it must be the file."""
    try:
        info = sink.stat(ref)
    except TransferError as error:
        if error.kind in _UNSEEN or (error.kind == "object_missing" and scheme_of(ref.url) in _ONE_URL):
            return
        raise
    if _is_page(ref, info.content_type):
        return
    size, where = path.stat().st_size, shown(ref.url)
    if info.size not in (None, size):
        raise TransferError("truncated", f"{where} has {info.size} bytes after {size} were sent", where)
    if info.digest is not None and digest_of_file(path, info.digest.algorithm) != info.digest.value:
        words = f"{where} has another {info.digest.algorithm} than {path.name}, which was sent"
        raise TransferError("digest_mismatch", words, where)


def _is_page(ref: Ref, content_type: str | None) -> bool:
    """Services that give each upload an address of their own show a page at the one that was written to."""
    return scheme_of(ref.url) in _ONE_URL and "html" in (content_type or "")


def _deleting(sink: Sink, ref: Ref) -> Callable[[], None]:
    return lambda: sink.delete(ref)


def _told(error: TransferError, ref: Ref) -> FailedError:
    if error.kind == "token_refused":
        return error
    where = shown(ref.url)
    words = f"{where} could not be written: {error.detail.removeprefix(where + ': ')}"
    return TransferError("sink_failed", words, where)
