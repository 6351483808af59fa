"""The download cache: downloaded objects on a disk that several jobs share, so that each is downloaded once.

    DIR/lock            held while space is reserved
    DIR/KE/KEY          a complete object, which never changes; or the folder of a streamed dataset (`dataset_dir`),
                        which fills while jobs read; or an installed environment (`environment_dir`)
    DIR/KE/KEY.new…     an object that is being downloaded; the next job that needs it resumes the download
    DIR/KE/KEY.json     name, size and source of the object
    DIR/KE/KEY.lock     locked exclusively to download or remove the object, shared to copy it; its modification time
                        is the last use

Locks are kernel locks (flock), so a process that dies holds none. Jobs receive a copy (a reflink where the file system
supports it) and never a hard link, so a job that modifies its input does not modify the cache. What only the agent
reads, such as a package, is read in place (`open_object`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError, NotFoundError, TransferError, UnavailableError
from packtrain.fileutil import atomic_write, is_same_file, sync_file
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import ObjectInfo, SecretResolver
from packtrain.transfer.engine.fetch_request import FetchRequest
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.integrity.digests import WEAK_ALGORITHMS
from packtrain.transfer.progress import ProgressCallback
from packtrain.transfer.reflink import clone_file
from packtrain.transfer.registry import get_source
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

DEFAULT_MAX_BYTES = 100 * 10**9
_POLL_INTERVAL_S = 0.1
_FIRST_SOURCE_TIMEOUT_S = 60.0  # retry timeout for the one source that may fill an entry, before the cache is bypassed
_MAX_DATASET_FRACTION = 0.5  # share of the cache for a streamed dataset that is larger than the cache
_METADATA_VERSION = 2
_NO_LOCKS_ERRNOS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})  # of file systems


@dataclass(frozen=True)
class CacheEntry:
    """An object in the cache, or one that is being downloaded."""

    key: str
    name: str
    bytes: int  # size, also while the download is incomplete
    source: str  # URL without secrets
    is_complete: bool
    last_used_at: float  # seconds since 1970

    @property
    def metadata_json(self) -> str:
        """The contents of KEY.json."""
        return json.dumps({"version": _METADATA_VERSION, "name": self.name, "bytes": self.bytes, "source": self.source})


class DownloadCache:
    """A cache of at most `max_bytes` in a folder."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    def get(
        self,
        remote_file: RemoteFile,
        target: Path,
        resolve_secret: SecretResolver,
        *,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
        on_progress: ProgressCallback,
        checksums: BlockChecksums | None = None,
        max_unsized_bytes: int | None = None,
    ) -> FetchResult:
        """Copy an object from the cache to `target`, and download it first if necessary.

        The arguments are those of `fetch.fetch`. The cache is bypassed for an object that is larger than the cache, or
        that cannot be identified: it has no digest, and its source reports no ETag or size.

        Raises:
            FailedError: The object could not be downloaded or verified.
        """
        started_at = time.monotonic()
        request = FetchRequest(
            _with_known_digest(remote_file, checksums),
            resolve_secret,
            retry_timeout_s,
            check_cancelled,
            on_progress,
            checksums,
            max_unsized_bytes=max_unsized_bytes,
        )
        with contextlib.suppress(OSError):  # an unusable cache is bypassed
            result = self._get_via_cache(request, target)
            if result is not None:
                return replace(result, duration_s=time.monotonic() - started_at)
        return _run_fetch(request, target)

    def _get_via_cache(self, request: FetchRequest, target: Path) -> FetchResult | None:
        """Return None if the cache must be bypassed."""
        key_and_size = identify_object(request.remote_file, request.resolve_secret)
        if key_and_size is None:
            return None
        key, size = key_and_size
        result = self._ensure_cached(key, size, request)
        if result is None or not self._copy_to_target(key, target, request.check_cancelled):
            return None
        request.on_progress(result.bytes, result.bytes)
        return result

    @contextlib.contextmanager
    def open_object(
        self,
        remote_file: RemoteFile,
        target: Path,
        resolve_secret: SecretResolver,
        *,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
        on_progress: ProgressCallback,
    ) -> Iterator[tuple[Path, FetchResult]]:
        """Provide the file of an object to read in place, and download it first if necessary.

        The arguments are those of `get`. Where the cache is bypassed, the object is downloaded to `target`.

        Yields:
            The file, which exists at least until the block ends, and how it was obtained.

        Raises:
            FailedError: The object could not be downloaded or verified.
        """
        request = FetchRequest(remote_file, resolve_secret, retry_timeout_s, check_cancelled, on_progress)
        with contextlib.ExitStack() as stack:
            opened = None
            with contextlib.suppress(OSError):  # an unusable cache is bypassed
                opened = self._open_via_cache(stack, request)
            yield opened or (target, _run_fetch(request, target))

    def _open_via_cache(self, stack: contextlib.ExitStack, request: FetchRequest) -> tuple[Path, FetchResult] | None:
        key_and_size = self._identify(request)
        if key_and_size is None:
            return None
        key, size = key_and_size
        result, path = self._ensure_cached(key, size, request), self._object_path(key)
        while result is not None:
            request.check_cancelled()
            with contextlib.ExitStack() as attempt:
                if attempt.enter_context(self._try_lock(path, fcntl.LOCK_SH)):
                    if not path.exists():  # it was removed meanwhile
                        return None
                    os.utime(_with_suffix(path, ".lock"))
                    stack.push(attempt.pop_all())
                    return path, result
            time.sleep(_POLL_INTERVAL_S)
        return None

    def _identify(self, request: FetchRequest) -> tuple[str, int] | None:
        """Return key and size of an object; without a request to its source if the cache has it."""
        digest = request.remote_file.digest
        if digest is not None and digest.algorithm == "sha256":
            with contextlib.suppress(FileNotFoundError):
                return digest.value.lower(), self._object_path(digest.value.lower()).stat().st_size
        return identify_object(request.remote_file, request.resolve_secret)

    @contextlib.contextmanager
    def environment_dir(self, key: str, name: str, size: int) -> Iterator[Path | None]:
        """Provide the path of an environment that jobs share; the caller creates it unless it exists.

        The path is not removed until the block ends. A file system without locks cannot protect it; there the
        environment counts against no limit and is never removed, either.

        Args:
            key: Identifies the environment.
            name: Its name, for display.
            size: Its expected size in bytes; `set_size` corrects it.

        Yields:
            The path, or None if there is not enough space or the cache cannot be used.
        """
        with contextlib.ExitStack() as stack:
            path = None
            try:
                if self._open_folder(stack, CacheEntry(key, name, size, "", False, 0.0), size) is not None:
                    path = self._object_path(key)
            except OSError as error:
                if error.errno in _NO_LOCKS_ERRNOS:
                    path = self._object_path(key)
            yield path

    def set_size(self, key: str, size: int) -> None:
        """Correct the size of an entry."""
        entry = self._read_entry(key)
        if entry is not None:
            metadata_path = _with_suffix(self._object_path(key), ".json")
            atomic_write(metadata_path, replace(entry, bytes=size).metadata_json, durable=True)

    @contextlib.contextmanager
    def dataset_dir(self, key: str, name: str, size: int, source: str) -> Iterator[tuple[Path, int] | None]:
        """Provide the folder that all jobs share for a streamed dataset, and the bytes it may hold.

        The bytes are reserved from now on, and the folder exists at least until the block ends.

        Args:
            key: Identifies the dataset.
            name: Its name, for display.
            size: Its size in bytes.
            source: Its URL without secrets, for display.

        Yields:
            The folder and its limit in bytes, or None if there is not enough space or the cache cannot be used.
        """
        with contextlib.ExitStack() as stack:
            folder_and_limit = None
            with contextlib.suppress(OSError):
                folder_and_limit = self._open_dataset_dir(stack, CacheEntry(key, name, size, source, False, 0.0))
            yield folder_and_limit

    def _open_dataset_dir(self, stack: contextlib.ExitStack, entry: CacheEntry) -> tuple[Path, int] | None:
        limit = entry.bytes if entry.bytes <= self._max_bytes else int(self._max_bytes * _MAX_DATASET_FRACTION)
        reserved_bytes = self._open_folder(stack, entry, limit)
        if reserved_bytes is None:
            return None
        path = self._object_path(entry.key)
        path.mkdir(exist_ok=True)
        return path, reserved_bytes

    def _open_folder(self, stack: contextlib.ExitStack, entry: CacheEntry, limit: int) -> int | None:
        """Protect an entry from removal, and return how many bytes are reserved for it; None: there is no space."""
        path = self._object_path(entry.key)
        if not stack.enter_context(self._try_lock(path, fcntl.LOCK_SH)):
            return None  # the entry is being removed
        os.utime(_with_suffix(path, ".lock"))
        existing = self._read_entry(entry.key)
        if existing is None and not self._reserve(replace(entry, bytes=limit)):
            return None
        return existing.bytes if existing else limit

    def entries(self) -> list[CacheEntry]:
        """Return all entries, the least recently used first."""
        entries = (self._read_entry(path.name[: -len(".json")]) for path in self._folder.glob("*/*.json"))
        return sorted((entry for entry in entries if entry), key=lambda entry: entry.last_used_at)

    def remove(self, key: str) -> CacheEntry:
        """Remove an entry and return it.

        Raises:
            NotFoundError: The cache has no such entry.
            UnavailableError: A job uses it.
        """
        entry = self._read_entry(key)
        if entry is None:
            raise NotFoundError(f"the download cache {self._folder} has no object {key}")
        if not self._try_remove(key):
            raise UnavailableError(f"{entry.name} ({key[:12]}) is in use by a job; try again when the job has finished")
        return entry

    def clear(self) -> list[CacheEntry]:
        """Remove all entries that no job uses, and return them."""
        return [entry for entry in self.entries() if self._try_remove(entry.key)]

    def _ensure_cached(self, key: str, size: int, request: FetchRequest) -> FetchResult | None:
        """Download the object into the cache unless it is there; None if the cache must be bypassed."""
        path = self._object_path(key)
        while True:
            request.check_cancelled()
            with self._try_lock(path, fcntl.LOCK_EX) as is_locked:
                if is_locked and path.exists():
                    return self._cached_result(path)
                if is_locked:
                    return self._fetch_into_cache(key, size, request)
            if path.exists():  # other processes hold the lock to copy it
                return self._cached_result(path)
            time.sleep(_POLL_INTERVAL_S)

    def _fetch_into_cache(self, key: str, size: int, request: FetchRequest) -> FetchResult | None:
        path, remote_file = self._object_path(key), request.remote_file
        entry = CacheEntry(key, remote_file.name, size, redact_url(remote_file.locations[0].url), False, 0.0)
        if not self._reserve(entry):
            return None
        temporary = _with_suffix(path, ".new")
        result = _fetch_new_entry(temporary, request)
        if result is None:
            return None
        if result.bytes != size or not _is_still(key, size, request):
            temporary.unlink()  # the object on the server changed, so it does not belong to this key
            return None
        _publish(temporary, path)
        return result

    def _cached_result(self, path: Path) -> FetchResult:
        size = path.stat().st_size
        return FetchResult(size, f"the download cache {self._folder}", 0.0, 0, "")

    def _copy_to_target(self, key: str, target: Path, check_cancelled: CancelCheck) -> bool:
        """Copy the object; return False if it was removed meanwhile."""
        path = self._object_path(key)
        while True:
            check_cancelled()
            with self._try_lock(path, fcntl.LOCK_SH) as is_locked:
                if is_locked:
                    return self._copy_locked(path, target, check_cancelled)
            time.sleep(_POLL_INTERVAL_S)

    def _copy_locked(self, path: Path, target: Path, check_cancelled: CancelCheck) -> bool:
        os.utime(_with_suffix(path, ".lock"))
        try:
            clone_file(path, target, check_cancelled)
            return True
        except FileNotFoundError:
            return False

    def _reserve(self, entry: CacheEntry) -> bool:
        """Reserve the space of an entry, and remove others that no job uses as far as necessary.

        Returns:
            Whether the space is reserved. Incomplete entries count with their full size.
        """
        metadata_path = _with_suffix(self._object_path(entry.key), ".json")
        with open(self._folder / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = [other for other in self.entries() if other.key != entry.key]
            used = sum(other.bytes for other in others)
            for other in others:
                if used + entry.bytes <= self._max_bytes:
                    break
                used -= other.bytes if self._try_remove(other.key) else 0
            if used + entry.bytes > self._max_bytes:
                return False
            atomic_write(metadata_path, entry.metadata_json, durable=True)
        return True

    def _try_remove(self, key: str) -> bool:
        """Remove an entry unless a job uses it; return whether it was removed."""
        path = self._object_path(key)
        with self._try_lock(path, fcntl.LOCK_EX) as is_locked:
            if is_locked:
                for other in path.parent.glob(f"{key}*"):
                    if other.is_dir():
                        shutil.rmtree(other)
                    elif other.suffix != ".lock":
                        other.unlink()
                _with_suffix(path, ".lock").unlink()
            return is_locked

    def _read_entry(self, key: str) -> CacheEntry | None:
        path = self._object_path(key)
        try:
            metadata = json.loads(_with_suffix(path, ".json").read_text(encoding="utf-8"))
            last_used_at = _with_suffix(path, ".lock").stat().st_mtime
        except (OSError, ValueError):
            return None
        return CacheEntry(key, metadata["name"], metadata["bytes"], metadata["source"], path.exists(), last_used_at)

    def _object_path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    @contextlib.contextmanager
    def _try_lock(self, path: Path, lock_type: int) -> Iterator[bool]:
        """Try to lock an entry without waiting, and yield whether it is locked."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # others must not read data that needed a token
        path.parent.mkdir(exist_ok=True)
        lock_path = _with_suffix(path, ".lock")
        with open(lock_path, "a+b") as lock:  # for a shared lock, NFS needs a file that is open for reading
            try:
                fcntl.flock(lock, lock_type | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield is_same_file(lock.fileno(), lock_path)  # another process may have removed the lock file


def _fetch_new_entry(target: Path, request: FetchRequest) -> FetchResult | None:
    """Download into the cache, or return None if the cache must be bypassed.

    An entry that is identified by the ETag of its first source is filled from that source only. If it fails, or if the
    disk of the cache is full, the caller downloads without the cache.
    """
    remote_file = request.remote_file
    has_other_sources = not _is_content_addressed(remote_file) and len(remote_file.locations) > 1
    if has_other_sources:
        request = replace(
            request,
            remote_file=replace(remote_file, locations=remote_file.locations[:1]),
            retry_timeout_s=min(request.retry_timeout_s, _FIRST_SOURCE_TIMEOUT_S),
        )
    try:
        return _run_fetch(request, target)
    except FailedError as error:
        if error.kind == "disk_full" or (has_other_sources and isinstance(error, TransferError)):
            return None
        raise


def _is_still(key: str, size: int, request: FetchRequest) -> bool:
    """Return whether the first source still has the object of this key."""
    remote_file = request.remote_file
    if _is_content_addressed(remote_file):
        return True
    return identify_object(remote_file, request.resolve_secret) == (key, size)


def _run_fetch(request: FetchRequest, target: Path) -> FetchResult:
    return fetch(
        request.remote_file,
        target,
        request.resolve_secret,
        retry_timeout_s=request.retry_timeout_s,
        check_cancelled=request.check_cancelled,
        on_progress=request.on_progress,
        checksums=request.checksums,
        max_unsized_bytes=request.max_unsized_bytes,
    )


def _with_known_digest(remote_file: RemoteFile, checksums: BlockChecksums | None) -> RemoteFile:
    """Add the sha256 of the checksums file, which identifies the object on any server."""
    if checksums is None or not checksums.file_sha256 or _is_content_addressed(remote_file):
        return remote_file
    return replace(remote_file, digest=Digest("sha256", checksums.file_sha256))


def _publish(temporary: Path, path: Path) -> None:
    """Sync a file to disk and then rename it: complete entries are trusted, even after a crash of the machine."""
    sync_file(temporary)
    temporary.replace(path)


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _is_content_addressed(remote_file: RemoteFile) -> bool:
    """Return whether the digest identifies the object on any server; an ETag is valid for one source only."""
    return remote_file.digest is not None and remote_file.digest.algorithm not in WEAK_ALGORITHMS


def identify_object(remote_file: RemoteFile, resolve_secret: SecretResolver) -> tuple[str, int] | None:
    """Return the cache key and the size of an object, or None if it cannot be identified."""
    digest, info = remote_file.digest, None
    if not _is_content_addressed(remote_file) or remote_file.size is None:
        info = _stat_first_source(remote_file, resolve_secret)
    size = remote_file.size if remote_file.size is not None else (info.size if info else None)
    if size is None:
        return None
    if digest is not None and _is_content_addressed(remote_file):
        key = digest.value if digest.algorithm == "sha256" else _hash_parts(digest.algorithm, digest.value)
        return key.lower(), size
    if info is None or not info.etag or info.size != size:
        return None
    required_digest = (digest.algorithm, digest.value) if digest else ()
    return _hash_parts(redact_url(remote_file.locations[0].url), str(size), info.etag, *required_digest), size


def _stat_first_source(remote_file: RemoteFile, resolve_secret: SecretResolver) -> ObjectInfo | None:
    """Query the first source only: each source has its own ETags."""
    location = remote_file.locations[0]
    try:
        return get_source(location, resolve_secret).stat(location)
    except TransferError:
        return None  # the download itself is retried


def _hash_parts(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
