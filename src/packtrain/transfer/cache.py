"""The depot: fetched data on a disk that several jobs share, so that each object is fetched once.

    DIR/lock                    held for the moment in which room is made
    DIR/KE/KEY                  an object, complete (it appears by renaming) and never changed; or the folder of a
                                dataset that is streamed (`shelf`), which fills while jobs read
    DIR/KE/KEY.new, …           one that is on its way; whoever asks next goes on with it
    DIR/KE/KEY.json             what it is, how large it is or will be
    DIR/KE/KEY.lock             held alone by who fetches or removes it, together by those who copy it;
                                its time is that of the last use

Locks are the kernel's (flock): a process that dies holds none. Jobs get a copy (a reflink where the file system
has them), never a second name of the file: what a job does to its input does not reach the depot.
"""

from __future__ import annotations

import contextlib
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
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import ObjectInfo, SecretResolver
from packtrain.transfer.digests import WEAK_ALGORITHMS
from packtrain.transfer.engine.coordinator import CancelCheck, FetchRequest, ProgressCallback
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.reflink import clone_file
from packtrain.transfer.registry import get_source
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import BlockChecksums

DEFAULT_MAX_BYTES = 100 * 10**9
_POLL_INTERVAL_S = 0.1
_FIRST_SOURCE_TIMEOUT_S = (
    60.0  # patience with the one source that may fill an entry, before all are asked past the depot
)
_MAX_DATASET_FRACTION = 0.5  # of the depot, for what is kept of a dataset that is larger than all of it


@dataclass(frozen=True)
class CacheEntry:
    key: str
    name: str
    bytes: int
    source: str  # without secrets
    is_complete: bool
    last_used_at: float  # seconds since 1970

    @property
    def metadata_json(self) -> str:
        return json.dumps({"v": 1, "name": self.name, "bytes": self.bytes, "source": self.source})


class DownloadCache:
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
    ) -> FetchResult:
        """The item stands at `target`, complete and verified, or FailedError says why not.

        What has no name of its own (no digest, and a source that states no ETag or size), or is larger than the
        depot, passes it by.
        """
        began = time.monotonic()
        wish = FetchRequest(
            _with_known_digest(remote_file, checksums),
            resolve_secret,
            retry_timeout_s,
            check_cancelled,
            on_progress,
            checksums,
        )
        with contextlib.suppress(OSError):  # a depot that cannot be used is no reason to fail
            got = self._get_via_cache(wish, target)
            if got is not None:
                return replace(got, duration_s=time.monotonic() - began)
        return _run_fetch(wish, target)

    def _get_via_cache(self, request: FetchRequest, target: Path) -> FetchResult | None:
        """None: it has to pass the depot by."""
        known = identify_object(request.remote_file, request.resolve_secret)
        if known is None:
            return None
        got = self._ensure_cached(*known, request)
        if got is None or not self._copy_to_target(known[0], target, request.check_cancelled):
            return None
        request.on_progress(got.bytes, got.bytes)
        return got

    @contextlib.contextmanager
    def dataset_dir(self, key: str, name: str, size: int, source: str) -> Iterator[tuple[Path, int] | None]:
        """A folder that is shared by all who name this key, and how many bytes it may hold, which count from now on; it
        stays at least until the block ends. None where there is no room, or no depot that can be used."""
        with contextlib.ExitStack() as stack:
            found = None
            with contextlib.suppress(OSError):
                found = self._open_dataset_dir(stack, CacheEntry(key, name, size, source, False, 0.0))
            yield found

    def _open_dataset_dir(self, stack: contextlib.ExitStack, entry: CacheEntry) -> tuple[Path, int] | None:
        path = self._object_path(entry.key)
        if not stack.enter_context(self._try_lock(path, fcntl.LOCK_SH)):
            return None  # it is being removed
        os.utime(_with_suffix(path, ".lock"))
        most = entry.bytes if entry.bytes <= self._max_bytes else int(self._max_bytes * _MAX_DATASET_FRACTION)
        there = self._read_entry(entry.key)
        if there is None and not self._reserve(replace(entry, bytes=most)):
            return None
        path.mkdir(exist_ok=True)
        return path, there.bytes if there else most

    def entries(self) -> list[CacheEntry]:
        """The least recently used first."""
        found = (self._read_entry(path.name[: -len(".json")]) for path in self._folder.glob("*/*.json"))
        return sorted((entry for entry in found if entry), key=lambda entry: entry.last_used_at)

    def remove(self, key: str) -> CacheEntry:
        """Raises NotFoundError, and RefusedError where somebody uses it."""
        entry = self._read_entry(key)
        if entry is None:
            raise NotFoundError(f"the depot {self._folder} has no object {key}")
        if not self._try_remove(key):
            raise UnavailableError(f"{entry.name} ({key[:12]}) is in use by a job: try again when it is done")
        return entry

    def clear(self) -> list[CacheEntry]:
        """Everything that nobody uses; what was removed."""
        return [entry for entry in self.entries() if self._try_remove(entry.key)]

    def _ensure_cached(self, key: str, size: int, request: FetchRequest) -> FetchResult | None:
        """The object stands in the depot; None if there is no room for it."""
        path = self._object_path(key)
        while True:
            request.check_cancelled()
            with self._try_lock(path, fcntl.LOCK_EX) as mine:
                if mine and path.exists():
                    return self._cached_result(path)
                if mine:
                    return self._fetch_into_cache(key, size, request)
            if path.exists():  # those who hold the lock copy it, as we will
                return self._cached_result(path)
            time.sleep(_POLL_INTERVAL_S)

    def _fetch_into_cache(self, key: str, size: int, request: FetchRequest) -> FetchResult | None:
        path, item = self._object_path(key), request.remote_file
        if not self._reserve(CacheEntry(key, item.name, size, redact_url(item.locations[0].url), False, 0.0)):
            return None
        new = _with_suffix(path, ".new")
        got = _fetch_new_entry(new, request)
        if got is None:
            return None
        if got.bytes != size or not (
            _is_content_addressed(item) or identify_object(item, request.resolve_secret) == (key, size)
        ):
            new.unlink()  # the source has another object by now: it is right, but not the one of this key
            return None
        _publish(new, path)
        return got

    def _cached_result(self, path: Path) -> FetchResult:
        size = path.stat().st_size
        return FetchResult(size, f"the depot {self._folder}", 0.0, 0, "")

    def _copy_to_target(self, key: str, target: Path, check_cancelled: CancelCheck) -> bool:
        """False if it was removed meanwhile."""
        path = self._object_path(key)
        while True:
            check_cancelled()
            with self._try_lock(path, fcntl.LOCK_SH) as mine:
                if mine:
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
        """Make room. What is on its way counts as if it were there."""
        about = _with_suffix(self._object_path(entry.key), ".json")
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
            _with_suffix(about, ".new").write_text(entry.metadata_json, encoding="utf-8")
            _publish(_with_suffix(about, ".new"), about)
        return True

    def _try_remove(self, key: str) -> bool:
        """Unless it is in use."""
        path = self._object_path(key)
        with self._try_lock(path, fcntl.LOCK_EX) as mine:
            if mine:
                for other in path.parent.glob(f"{key}*"):
                    if other.is_dir():
                        shutil.rmtree(other)
                    elif other.suffix != ".lock":
                        other.unlink()
                _with_suffix(path, ".lock").unlink()
            return mine

    def _read_entry(self, key: str) -> CacheEntry | None:
        path = self._object_path(key)
        try:
            about = json.loads(_with_suffix(path, ".json").read_text(encoding="utf-8"))
            used = _with_suffix(path, ".lock").stat().st_mtime
        except (OSError, ValueError):
            return None
        return CacheEntry(key, about["name"], about["bytes"], about["source"], path.exists(), used)

    def _object_path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    @contextlib.contextmanager
    def _try_lock(self, path: Path, lock_type: int) -> Iterator[bool]:
        """Whether we have the lock, without waiting. A lock file that was removed under us is none."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what needed a token to come is not for all
        path.parent.mkdir(exist_ok=True)
        name = _with_suffix(path, ".lock")
        with open(name, "a+b") as lock:  # NFS gives a shared lock only to who may read
            try:
                fcntl.flock(lock, lock_type | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield _is_same_file(lock.fileno(), name)


def _fetch_new_entry(target: Path, request: FetchRequest) -> FetchResult | None:
    """None where it has to be fetched past the depot: for want of room, or from others than may fill this entry."""
    item, others = (
        request.remote_file,
        not _is_content_addressed(request.remote_file) and len(request.remote_file.locations) > 1,
    )
    if others:
        alone = replace(item, locations=item.locations[:1])
        request = replace(
            request, remote_file=alone, retry_timeout_s=min(request.retry_timeout_s, _FIRST_SOURCE_TIMEOUT_S)
        )
    try:
        return _run_fetch(request, target)
    except FailedError as error:
        if error.kind == "disk_full" or (others and isinstance(error, TransferError)):
            return None
        raise


def _run_fetch(request: FetchRequest, target: Path) -> FetchResult:
    return fetch(
        request.remote_file,
        target,
        request.resolve_secret,
        retry_timeout_s=request.retry_timeout_s,
        check_cancelled=request.check_cancelled,
        on_progress=request.on_progress,
        checksums=request.checksums,
    )


def _with_known_digest(remote_file: RemoteFile, checksums: BlockChecksums | None) -> RemoteFile:
    """A checksums file knows the digest of the whole, and so a name for it, whoever gives it."""
    if checksums is None or not checksums.file_sha256 or _is_content_addressed(remote_file):
        return remote_file
    return replace(remote_file, digest=Digest("sha256", checksums.file_sha256))


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _publish(temporary: Path, path: Path) -> None:
    """It gets its name when it is on the disk: an entry is trusted for ever, also after a crash of the machine."""
    with open(temporary, "rb") as file:
        os.fdatasync(file.fileno())
    temporary.replace(path)


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _is_content_addressed(remote_file: RemoteFile) -> bool:
    """By its digest, whoever gives it. A name by ETag is that of the first source, so nobody else may give it."""
    return remote_file.digest is not None and remote_file.digest.algorithm not in WEAK_ALGORITHMS


def identify_object(remote_file: RemoteFile, resolve_secret: SecretResolver) -> tuple[str, int] | None:
    """The object's key and size; None where nobody states enough to know it again."""
    digest, info = remote_file.digest, None
    if not _is_content_addressed(remote_file) or remote_file.size is None:
        info = _stat_first_source(remote_file, resolve_secret)
    size = remote_file.size if remote_file.size is not None else (info.size if info else None)
    if size is None:
        return None
    if digest is not None and _is_content_addressed(remote_file):
        return (
            digest.value if digest.algorithm == "sha256" else _hash_parts(digest.algorithm, digest.value)
        ).lower(), size
    if info is None or not info.etag or info.size != size:
        return None
    demanded = (digest.algorithm, digest.value) if digest else ()
    return _hash_parts(redact_url(remote_file.locations[0].url), str(size), info.etag, *demanded), size


def _stat_first_source(remote_file: RemoteFile, resolve_secret: SecretResolver) -> ObjectInfo | None:
    """By the first source alone: another has its own ETags."""
    ref = remote_file.locations[0]
    try:
        return get_source(ref, resolve_secret).stat(ref)
    except TransferError:
        return None  # the fetch will be more patient


def _hash_parts(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
