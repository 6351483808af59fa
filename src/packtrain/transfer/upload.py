"""Upload a folder or a file to a destination: retried, verified afterwards, each object complete or invisible.

An http destination is a single URL: one file is uploaded as it is, several are uploaded as one zip file. If the URL
ends in /, the name of the file is appended, as `curl -T` does.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Location, Output
from packtrain.transfer.api import SecretResolver, Sink
from packtrain.transfer.credentials import AUTHORIZED_HOSTS, has_credentials
from packtrain.transfer.integrity.digests import hash_file
from packtrain.transfer.progress import OnBytesSent, ProgressCallback
from packtrain.transfer.registry import get_sink
from packtrain.transfer.retry import RetryTracker, cancellable_sleep
from packtrain.transfer.tasks.cancellation import CancelCheck, cancellation_scope, time_limit
from packtrain.transfer.urls import host_label, is_federated, is_http, join_url, redact_url

T = TypeVar("T")

_STAT_FORBIDDEN_KINDS = ("access_denied", "unsupported")  # a token may allow writing but not reading
# Statuses that another attempt of the job, which would run all steps again, does not change.
_REFUSED_STATUSES = frozenset({400, 404, 405, 410, 411, 413, 414, 415, 501})
_ZIP_NAME = "output.zip"  # as DeepSquare calls it


@dataclass(frozen=True)
class UploadResult:
    """Statistics of a completed upload."""

    files: int
    bytes: int
    url: str = ""  # of an http destination: where the file is, without credentials
    answer: str = ""  # what the server said, mostly a link


def upload_folder(
    folder: Path,
    output: Output,
    resolve_secret: SecretResolver,
    *,
    prefix: str = "",
    check_cancelled: CancelCheck,
    on_progress: ProgressCallback,
    retry_timeout_s: float,
    adopt_uploads: bool = True,
) -> UploadResult:
    """Upload all files of a folder.

    Args:
        folder: The folder; a link to a file is uploaded as that file.
        output: The destination.
        resolve_secret: Returns the values of secrets.
        prefix: Prepended to the name of each object below the destination.
        check_cancelled: Called several times a second; raises to cancel.
        on_progress: Receives the bytes sent and the total.
        retry_timeout_s: How long to retry without progress before a failure is final.
        adopt_uploads: Whether to resume unfinished uploads of other processes; see `Sink.put`.

    Raises:
        FailedError: upload_failed, upload_refused or access_denied.
    """
    files = dict(_list_files(folder))
    with _prepare_uploads(files, folder, output.location, prefix) as paths_by_name:
        uploader = _Uploader(
            output.location, resolve_secret, retry_timeout_s, check_cancelled, on_progress, adopt_uploads
        )
        try:
            uploader.put_all(paths_by_name)
        except FailedError:
            uploader.abort(paths_by_name)
            raise
    if not is_http(output.location.url) or not paths_by_name:
        return UploadResult(len(files), uploader.done_bytes)
    (name,) = paths_by_name
    url = redact_url(uploader.location_of(name).url)
    return UploadResult(len(files), uploader.done_bytes, url, uploader.answer)


def upload_file(
    path: Path,
    output: Output,
    name: str,
    resolve_secret: SecretResolver,
    *,
    retry_timeout_s: float = 0.0,
    check_cancelled: CancelCheck = lambda: None,
    on_progress: ProgressCallback = lambda done, total: None,
    adopt_uploads: bool = True,
) -> None:
    """Upload one file as `name` below a destination.

    By default a failure is not retried, which suits a file that is uploaded again soon. The arguments are those of
    `upload_folder`.
    """
    uploader = _Uploader(output.location, resolve_secret, retry_timeout_s, check_cancelled, on_progress, adopt_uploads)
    uploader.put_all({name: path})


def _list_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative name and the path of each file, sorted."""
    for parent, subfolders, names in os.walk(folder):
        subfolders.sort()
        for path in (Path(parent, name) for name in sorted(names)):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path


@contextlib.contextmanager
def _prepare_uploads(
    files: dict[str, Path], folder: Path, location: Location, prefix: str
) -> Iterator[dict[str, Path]]:
    """Provide the files to upload by object name; the empty name is the address itself."""
    if not is_http(location.url):
        yield {prefix + name: path for name, path in files.items()}
        return
    is_folder = urlsplit(location.url).path.endswith("/")
    if len(files) <= 1:
        yield {prefix + path.name if is_folder else prefix.rstrip("/"): path for path in files.values()}
    else:
        with _zip_files(files, folder) as path:
            yield {prefix + _ZIP_NAME if is_folder else prefix.rstrip("/"): path}


@contextlib.contextmanager
def _zip_files(files: dict[str, Path], folder: Path) -> Iterator[Path]:
    import tempfile
    import zipfile

    with tempfile.NamedTemporaryFile(dir=folder.parent, prefix=f".{folder.name}-", suffix=".zip") as file:
        # Not compressed: outputs are mostly model weights, which do not shrink.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, path in files.items():
                archive.write(path, name)
        file.flush()
        yield Path(file.name)


class _Uploader:
    """Puts files below one location and retries each until the retry timeout."""

    def __init__(
        self,
        location: Location,
        resolve_secret: SecretResolver,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
        on_progress: ProgressCallback,
        adopt_uploads: bool,
    ) -> None:
        self._location, self._sink, self._adopt_uploads = location, get_sink(location, resolve_secret), adopt_uploads
        self._retry_timeout_s, self._check_cancelled, self._on_progress = retry_timeout_s, check_cancelled, on_progress
        self.done_bytes = self._max_sent_bytes = 0
        self._last_sent_at = 0.0  # in the current try; 0: nothing was sent yet
        self.answer = ""

    def put_all(self, files: dict[str, Path]) -> None:
        total = sum(path.stat().st_size for path in files.values())
        for name, path in files.items():
            location, size = self.location_of(name), path.stat().st_size
            self._retry(location, self._make_put(location, path, total))
            self.done_bytes += size
            self._on_progress(self.done_bytes, total)

    def _make_put(self, location: Location, path: Path, total_bytes: int) -> Callable[[], None]:
        def put() -> None:
            on_bytes_sent = self._make_bytes_sent_callback(total_bytes)
            self.answer = self._sink.put(location, path, on_bytes_sent, adopt_uploads=self._adopt_uploads) or ""
            verify_upload(self._sink, location, path)

        return put

    def _make_bytes_sent_callback(self, total_bytes: int) -> OnBytesSent:
        """Return a callback that counts the bytes of one try; several threads may call it."""
        lock, done = threading.Lock(), self.done_bytes

        def on_bytes_sent(n_bytes: int) -> None:
            nonlocal done
            self._check_cancelled()
            with lock:
                done, self._last_sent_at = done + n_bytes, time.monotonic()
                self._max_sent_bytes = max(self._max_sent_bytes, done)
                self._on_progress(min(done, total_bytes), total_bytes)

        return on_bytes_sent

    def abort(self, files: dict[str, Path]) -> None:
        """Delete the parts of unfinished multipart uploads, which S3 would charge for."""
        from packtrain.transfer.backends.s3.backend import S3Backend

        if isinstance(self._sink, S3Backend):
            with contextlib.suppress(FailedError):
                for name in files:
                    self._sink.abort_uploads(self.location_of(name))

    def location_of(self, name: str) -> Location:
        """Return the address of a name below the destination."""
        return replace(self._location, url=join_url(self._location.url, name))

    def _retry(self, location: Location, operation: Callable[[], T]) -> T:
        """Run an operation until it succeeds, or until it made no progress for the retry timeout."""
        retry_tracker = RetryTracker(self._retry_timeout_s, time.monotonic())

        while True:
            self._check_cancelled()
            sent_before, started_at, self._last_sent_at = self._max_sent_bytes, time.monotonic(), 0.0
            try:
                with (
                    cancellation_scope(self._check_cancelled),
                    time_limit(
                        lambda: max(retry_tracker.try_ends_at(started_at), self._last_sent_at + self._retry_timeout_s)  # noqa: B023
                    ),
                ):
                    result = operation()
                self._record_access()
                return result
            except TransferError as error:
                if self._max_sent_bytes > sent_before:
                    retry_tracker.record_progress(self._last_sent_at)
                is_transient = self._may_be_expired_token(error)
                wait_s = retry_tracker.next_wait_s(error, time.monotonic(), is_transient=is_transient)
                if wait_s is None:
                    raise _to_upload_error(error, location) from error
            cancellable_sleep(wait_s, self._check_cancelled)

    def _record_access(self) -> None:
        # A federation may use a token of the machine, which the location does not name.
        if has_credentials(self._location) or is_federated(self._location.url):
            AUTHORIZED_HOSTS.add(host_label(self._location.url))

    def _may_be_expired_token(self, error: TransferError) -> bool:
        """Return whether a host refused that accepted our credentials before: the token may be renewed soon."""
        return error.kind == "access_denied" and host_label(self._location.url) in AUTHORIZED_HOSTS


def verify_upload(sink: Sink, location: Location, path: Path) -> None:
    """Compare an uploaded object with its file, as far as the server allows.

    Raises:
        TransferError: The size or the digest differs.
    """
    try:
        info = sink.stat(location)
    except TransferError as error:
        if error.kind in _STAT_FORBIDDEN_KINDS or (error.kind == "object_missing" and is_http(location.url)):
            return
        raise
    if _is_html_page(location, info.content_type):
        return
    size, url = path.stat().st_size, redact_url(location.url)
    if info.size not in (None, size):
        raise TransferError("truncated", f"{url} has {info.size} bytes after {size} were uploaded", url)
    if info.digest is not None and hash_file(path, info.digest.algorithm) != info.digest.value:
        detail = f"{url} has a different {info.digest.algorithm} than {path.name}, which was uploaded"
        raise TransferError("digest_mismatch", detail, url)


def _is_html_page(location: Location, content_type: str | None) -> bool:
    """Return whether the server shows a page there, like services that give each upload a new address."""
    return is_http(location.url) and "html" in (content_type or "")


def _to_upload_error(error: TransferError, location: Location) -> FailedError:
    if error.kind == "access_denied":
        return error
    url = redact_url(location.url)
    is_refused = is_http(location.url) and error.http_status in _REFUSED_STATUSES
    kind = "upload_refused" if is_refused else "upload_failed"
    return TransferError(kind, f"{url} could not be written: {error.detail.removeprefix(url + ': ')}", url)
