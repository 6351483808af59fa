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
from packtrain.plan import Location, Output
from packtrain.transfer.api import SecretResolver, Sink
from packtrain.transfer.backends.s3.backend import S3Backend
from packtrain.transfer.digests import hash_file
from packtrain.transfer.engine.source_stats import AUTHORIZED_HOSTS
from packtrain.transfer.http.connection import cancellation_scope
from packtrain.transfer.http.request_body import OnBytesSent
from packtrain.transfer.registry import get_sink
from packtrain.transfer.retry import RetryTracker, cancellable_sleep
from packtrain.transfer.urls import join_url, redact_url, url_scheme

T = TypeVar("T")
CancelCheck = Callable[[], None]
ProgressCallback = Callable[[int, Optional[int]], None]

_SINGLE_URL_SCHEMES = ("http", "https")
_STAT_FORBIDDEN_KINDS = ("access_denied", "unsupported")  # who may write need not be allowed to look
_RESERVED_PREFIX = ".packtrain/"  # below a destination: checkpoints and what failed attempts left


@dataclass(frozen=True)
class UploadResult:
    files: int
    bytes: int


def upload_folder(
    folder: Path,
    output: Output,
    resolve_secret: SecretResolver,
    *,
    prefix: str = "",
    check_cancelled: CancelCheck,
    on_progress: ProgressCallback,
    retry_timeout_s: float,
) -> UploadResult:
    """All files of the folder stand at the destination, or FailedError: upload_failed, access_denied."""
    files = dict(_list_files(folder))
    with _prepare_uploads(files, folder, output.location, prefix) as parcels:
        work = _FolderUpload(output.location, resolve_secret, retry_timeout_s, check_cancelled, on_progress)
        try:
            work.put_all(parcels)
        except FailedError:
            work.abort(parcels)
            raise
        if output.delete_sync and url_scheme(output.location.url) not in _SINGLE_URL_SCHEMES:
            work.delete_extraneous(prefix, set(parcels))
    return UploadResult(len(files), work.done_bytes)


def upload_file(
    path: Path,
    output: Output,
    name: str,
    resolve_secret: SecretResolver,
    *,
    retry_timeout_s: float = 0.0,
    check_cancelled: CancelCheck = lambda: None,
    on_progress: ProgressCallback = lambda done, total: None,
) -> None:
    """One file; by default once, without patience: for a copy that comes again soon."""
    work = _FolderUpload(output.location, resolve_secret, retry_timeout_s, check_cancelled, on_progress)
    work.put_all({name: path})


def _list_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and files; a link to a file counts as that file."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(where, name) for name in sorted(names)):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path


@contextlib.contextmanager
def _prepare_uploads(
    files: dict[str, Path], folder: Path, location: Location, prefix: str
) -> Iterator[dict[str, Path]]:
    """What is put under which name below the address; the empty name is the address itself."""
    if url_scheme(location.url) not in _SINGLE_URL_SCHEMES:
        yield {prefix + name: path for name, path in files.items()}
    elif len(files) <= 1:
        yield {prefix.rstrip("/"): path for path in files.values()}
    else:
        with _zip_files(files, folder) as path:
            yield {prefix.rstrip("/"): path}


@contextlib.contextmanager
def _zip_files(files: dict[str, Path], folder: Path) -> Iterator[Path]:
    import tempfile
    import zipfile

    with tempfile.NamedTemporaryFile(dir=folder.parent, prefix=f".{folder.name}-", suffix=".zip") as file:
        # Stored, not compressed: outputs are mostly weights, which do not shrink.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, path in files.items():
                archive.write(path, name)
        file.flush()
        yield Path(file.name)


class _FolderUpload:
    def __init__(
        self,
        location: Location,
        resolve_secret: SecretResolver,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
        on_progress: ProgressCallback,
    ) -> None:
        self._location, self._sink = location, get_sink(location, resolve_secret)
        self._retry_timeout_s, self._check_cancelled, self._on_progress = retry_timeout_s, check_cancelled, on_progress
        self.done_bytes = self._max_sent_bytes = 0

    def put_all(self, files: dict[str, Path]) -> None:
        total = sum(path.stat().st_size for path in files.values())
        for name, path in files.items():
            ref, size = self._location_of(name), path.stat().st_size
            self._retry(ref, self._make_put(ref, path, total))
            self.done_bytes += size
            self._on_progress(self.done_bytes, total)

    def _make_put(self, location: Location, path: Path, total_bytes: int) -> Callable[[], None]:
        def put() -> None:
            self._sink.put(location, path, self._make_bytes_sent_callback(total_bytes))
            verify_upload(self._sink, location, path)

        return put

    def _make_bytes_sent_callback(self, total_bytes: int) -> OnBytesSent:
        """Counts the bytes of one try, which may leave by several threads."""
        lock, done = threading.Lock(), self.done_bytes

        def on_bytes_sent(n_bytes: int) -> None:
            nonlocal done
            self._check_cancelled()
            with lock:
                done += n_bytes
                self._max_sent_bytes = max(self._max_sent_bytes, done)
                self._on_progress(min(done, total_bytes), total_bytes)

        return on_bytes_sent

    def abort(self, files: dict[str, Path]) -> None:
        """Parts of files that will not come are not left behind to be paid for."""
        if isinstance(self._sink, S3Backend):
            with contextlib.suppress(FailedError):
                for name in files:
                    self._sink.abort_uploads(self._location_of(name))

    def delete_extraneous(self, prefix: str, uploaded_names: set[str]) -> None:
        """deleteSync: what is gone here goes there, too."""
        at = self._location_of(prefix.rstrip("/"))
        for entry in self._retry(at, lambda: list(self._sink.list(at))):
            name = prefix + entry.name
            if name not in uploaded_names and (prefix or not name.startswith(_RESERVED_PREFIX)):
                self._retry(entry.location, _make_delete(self._sink, entry.location))

    def _location_of(self, name: str) -> Location:
        return replace(self._location, url=join_url(self._location.url, name))

    def _retry(self, location: Location, operation: Callable[[], T]) -> T:
        """Again and again while the failure may pass; patience ends when nothing has gone further for so long."""
        patience = RetryTracker(self._retry_timeout_s, 1, time.monotonic())
        while True:
            self._check_cancelled()
            before = self._max_sent_bytes
            try:
                with cancellation_scope(self._check_cancelled):
                    done = operation()
                self._record_access()
                return done
            except TransferError as error:
                if self._max_sent_bytes > before:
                    patience.record_progress(time.monotonic())
                patience.record_failure(0, error, is_transient=self._may_be_expired_token(error))
                wait = patience.next_wait_s(time.monotonic())
                if wait is None:
                    raise _to_sink_error(error, location) from error
            cancellable_sleep(wait, self._check_cancelled)

    def _record_access(self) -> None:
        if _has_credentials(self._location):
            AUTHORIZED_HOSTS.add(_host_label(self._location))

    def _may_be_expired_token(self, error: TransferError) -> bool:
        """A token that was good before has run out: it is renewed under a running job, and read anew each time."""
        return error.kind == "access_denied" and _host_label(self._location) in AUTHORIZED_HOSTS


def _has_credentials(location: Location) -> bool:
    """Its own, or those that the machine may have for a federation."""
    signed = location.s3 is not None and location.s3.access_key is not None
    return (
        signed
        or location.token is not None
        or bool(location.headers)
        or url_scheme(location.url) in ("osdf", "pelican")
    )


def _host_label(location: Location) -> str:
    url = redact_url(location.url)
    return urlsplit(url).netloc or url


def verify_upload(sink: Sink, location: Location, path: Path) -> None:
    """Look at what stands there after a `put`, as far as one is allowed to; it must be the file."""
    try:
        info = sink.stat(location)
    except TransferError as error:
        if error.kind in _STAT_FORBIDDEN_KINDS or (
            error.kind == "object_missing" and url_scheme(location.url) in _SINGLE_URL_SCHEMES
        ):
            return
        raise
    if _is_html_page(location, info.content_type):
        return
    size, where = path.stat().st_size, redact_url(location.url)
    if info.size not in (None, size):
        raise TransferError("truncated", f"{where} has {info.size} bytes after {size} were sent", where)
    if info.digest is not None and hash_file(path, info.digest.algorithm) != info.digest.value:
        words = f"{where} has another {info.digest.algorithm} than {path.name}, which was sent"
        raise TransferError("digest_mismatch", words, where)


def _is_html_page(location: Location, content_type: str | None) -> bool:
    """Services that give each upload an address of their own show a page at the one that was written to."""
    return url_scheme(location.url) in _SINGLE_URL_SCHEMES and "html" in (content_type or "")


def _make_delete(sink: Sink, location: Location) -> Callable[[], None]:
    return lambda: sink.delete(location)


def _to_sink_error(error: TransferError, location: Location) -> FailedError:
    if error.kind == "access_denied":
        return error
    where = redact_url(location.url)
    words = f"{where} could not be written: {error.detail.removeprefix(where + ': ')}"
    return TransferError("upload_failed", words, where)
