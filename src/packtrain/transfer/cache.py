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

from packtrain.errors import FailedError, NotFoundError, RefusedError, TransferError
from packtrain.plan import Digest, Item
from packtrain.transfer.api import ObjectInfo, Reveal
from packtrain.transfer.digests import WEAK
from packtrain.transfer.engine.coordinator import Progress, Stop, Wish
from packtrain.transfer.fetch import Fetched, fetch
from packtrain.transfer.reflink import clone
from packtrain.transfer.registry import source_for
from packtrain.transfer.urls import shown

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import Checksums

DEFAULT_CAP = 100 * 10**9
_LOOK_EVERY_S = 0.1
_FIRST_ALONE_S = 60.0  # patience with the one source that may fill an entry, before all are asked past the depot
_SHARE_OF_ONE = 0.5  # of the depot, for what is kept of a dataset that is larger than all of it


@dataclass(frozen=True)
class Entry:
    key: str
    name: str
    bytes: int
    source: str  # without secrets
    complete: bool
    used: float  # seconds since 1970

    @property
    def about(self) -> str:
        return json.dumps({"v": 1, "name": self.name, "bytes": self.bytes, "source": self.source})


class Depot:
    def __init__(self, folder: Path, cap_bytes: int = DEFAULT_CAP) -> None:
        self._folder, self._cap = folder, cap_bytes

    def get(
        self,
        item: Item,
        target: Path,
        reveal: Reveal,
        *,
        patience_s: float,
        stop: Stop,
        progress: Progress,
        checksums: Checksums | None = None,
    ) -> Fetched:
        """The item stands at `target`, complete and verified, or FailedError says why not.

        What has no name of its own (no digest, and a source that states no ETag or size), or is larger than the
        depot, passes it by.
        """
        began = time.monotonic()
        wish = Wish(_named(item, checksums), reveal, patience_s, stop, progress, checksums)
        with contextlib.suppress(OSError):  # a depot that cannot be used is no reason to fail
            got = self._through(wish, target)
            if got is not None:
                return replace(got, seconds=time.monotonic() - began)
        return _fetch(wish, target)

    def _through(self, wish: Wish, target: Path) -> Fetched | None:
        """None: it has to pass the depot by."""
        known = identify(wish.item, wish.reveal)
        if known is None:
            return None
        got = self._fetched(*known, wish)
        if got is None or not self._copied(known[0], target, wish.stop):
            return None
        wish.progress(got.bytes, got.bytes)
        return got

    @contextlib.contextmanager
    def shelf(self, key: str, name: str, size: int, source: str) -> Iterator[tuple[Path, int] | None]:
        """A folder that is shared by all who name this key, and how many bytes it may hold, which count from now on; it
        stays at least until the block ends. None where there is no room, or no depot that can be used."""
        with contextlib.ExitStack() as stack:
            found = None
            with contextlib.suppress(OSError):
                found = self._shelf(stack, Entry(key, name, size, source, False, 0.0))
            yield found

    def _shelf(self, stack: contextlib.ExitStack, wanted: Entry) -> tuple[Path, int] | None:
        path = self._path(wanted.key)
        if not stack.enter_context(self._locked(path, fcntl.LOCK_SH)):
            return None  # it is being removed
        os.utime(_beside(path, ".lock"))
        most = wanted.bytes if wanted.bytes <= self._cap else int(self._cap * _SHARE_OF_ONE)
        there = self._entry(wanted.key)
        if there is None and not self._reserved(replace(wanted, bytes=most)):
            return None
        path.mkdir(exist_ok=True)
        return path, there.bytes if there else most

    def entries(self) -> list[Entry]:
        """The least recently used first."""
        found = (self._entry(path.name[: -len(".json")]) for path in self._folder.glob("*/*.json"))
        return sorted((entry for entry in found if entry), key=lambda entry: entry.used)

    def remove(self, key: str) -> Entry:
        """Raises NotFoundError, and RefusedError where somebody uses it."""
        entry = self._entry(key)
        if entry is None:
            raise NotFoundError(f"the depot {self._folder} has no object {key}")
        if not self._removed(key):
            raise RefusedError(f"{entry.name} ({key[:12]}) is in use by a job: try again when it is done")
        return entry

    def clear(self) -> list[Entry]:
        """Everything that nobody uses; what was removed."""
        return [entry for entry in self.entries() if self._removed(entry.key)]

    def _fetched(self, key: str, size: int, wish: Wish) -> Fetched | None:
        """The object stands in the depot; None if there is no room for it."""
        path = self._path(key)
        while True:
            wish.stop()
            with self._locked(path, fcntl.LOCK_EX) as mine:
                if mine and path.exists():
                    return self._found(path)
                if mine:
                    return self._fetch(key, size, wish)
            if path.exists():  # those who hold the lock copy it, as we will
                return self._found(path)
            time.sleep(_LOOK_EVERY_S)

    def _fetch(self, key: str, size: int, wish: Wish) -> Fetched | None:
        path, item = self._path(key), wish.item
        if not self._reserved(Entry(key, item.name, size, shown(item.sources[0].url), False, 0.0)):
            return None
        new = _beside(path, ".new")
        got = _filled(new, wish)
        if got is None:
            return None
        if got.bytes != size or not (_has_own_name(item) or identify(item, wish.reveal) == (key, size)):
            new.unlink()  # the source has another object by now: it is right, but not the one of this key
            return None
        _keep(new, path)
        return got

    def _found(self, path: Path) -> Fetched:
        size = path.stat().st_size
        return Fetched(size, f"the depot {self._folder}", 0.0, 0, "")

    def _copied(self, key: str, target: Path, stop: Stop) -> bool:
        """False if it was removed meanwhile."""
        path = self._path(key)
        while True:
            stop()
            with self._locked(path, fcntl.LOCK_SH) as mine:
                if mine:
                    return self._copy(path, target, stop)
            time.sleep(_LOOK_EVERY_S)

    def _copy(self, path: Path, target: Path, stop: Stop) -> bool:
        os.utime(_beside(path, ".lock"))
        try:
            clone(path, target, stop)
            return True
        except FileNotFoundError:
            return False

    def _reserved(self, entry: Entry) -> bool:
        """Make room. What is on its way counts as if it were there."""
        about = _beside(self._path(entry.key), ".json")
        with open(self._folder / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = [other for other in self.entries() if other.key != entry.key]
            used = sum(other.bytes for other in others)
            for other in others:
                if used + entry.bytes <= self._cap:
                    break
                used -= other.bytes if self._removed(other.key) else 0
            if used + entry.bytes > self._cap:
                return False
            _beside(about, ".new").write_text(entry.about, encoding="utf-8")
            _keep(_beside(about, ".new"), about)
        return True

    def _removed(self, key: str) -> bool:
        """Unless it is in use."""
        path = self._path(key)
        with self._locked(path, fcntl.LOCK_EX) as mine:
            if mine:
                for other in path.parent.glob(f"{key}*"):
                    if other.is_dir():
                        shutil.rmtree(other)
                    elif other.suffix != ".lock":
                        other.unlink()
                _beside(path, ".lock").unlink()
            return mine

    def _entry(self, key: str) -> Entry | None:
        path = self._path(key)
        try:
            about = json.loads(_beside(path, ".json").read_text(encoding="utf-8"))
            used = _beside(path, ".lock").stat().st_mtime
        except (OSError, ValueError):
            return None
        return Entry(key, about["name"], about["bytes"], about["source"], path.exists(), used)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    @contextlib.contextmanager
    def _locked(self, path: Path, how: int) -> Iterator[bool]:
        """Whether we have the lock, without waiting. A lock file that was removed under us is none."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what needed a token to come is not for all
        path.parent.mkdir(exist_ok=True)
        name = _beside(path, ".lock")
        with open(name, "a+b") as lock:  # NFS gives a shared lock only to who may read
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield _is_at(lock.fileno(), name)


def _filled(new: Path, wish: Wish) -> Fetched | None:
    """None where it has to be fetched past the depot: for want of room, or from others than may fill this entry."""
    item, others = wish.item, not _has_own_name(wish.item) and len(wish.item.sources) > 1
    if others:
        alone = replace(item, sources=item.sources[:1])
        wish = replace(wish, item=alone, patience_s=min(wish.patience_s, _FIRST_ALONE_S))
    try:
        return _fetch(wish, new)
    except FailedError as error:
        if error.kind == "disk_full" or (others and isinstance(error, TransferError)):
            return None
        raise


def _fetch(wish: Wish, target: Path) -> Fetched:
    return fetch(
        wish.item,
        target,
        wish.reveal,
        patience_s=wish.patience_s,
        stop=wish.stop,
        progress=wish.progress,
        checksums=wish.checksums,
    )


def _named(item: Item, checksums: Checksums | None) -> Item:
    """A checksums file knows the digest of the whole, and so a name for it, whoever gives it."""
    if checksums is None or not checksums.whole or _has_own_name(item):
        return item
    return replace(item, digest=Digest("sha256", checksums.whole))


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _keep(new: Path, path: Path) -> None:
    """It gets its name when it is on the disk: an entry is trusted for ever, also after a crash of the machine."""
    with open(new, "rb") as file:
        os.fdatasync(file.fileno())
    new.replace(path)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _has_own_name(item: Item) -> bool:
    """By its digest, whoever gives it. A name by ETag is that of the first source, so nobody else may give it."""
    return item.digest is not None and item.digest.algorithm not in WEAK


def identify(item: Item, reveal: Reveal) -> tuple[str, int] | None:
    """The object's key and size; None where nobody states enough to know it again."""
    digest, info = item.digest, None
    if not _has_own_name(item) or item.size is None:
        info = _stated(item, reveal)
    size = item.size if item.size is not None else (info.size if info else None)
    if size is None:
        return None
    if digest is not None and _has_own_name(item):
        return (digest.value if digest.algorithm == "sha256" else _hashed(digest.algorithm, digest.value)).lower(), size
    if info is None or not info.etag or info.size != size:
        return None
    demanded = (digest.algorithm, digest.value) if digest else ()
    return _hashed(shown(item.sources[0].url), str(size), info.etag, *demanded), size


def _stated(item: Item, reveal: Reveal) -> ObjectInfo | None:
    """By the first source alone: another has its own ETags."""
    ref = item.sources[0]
    try:
        return source_for(ref, reveal).stat(ref)
    except TransferError:
        return None  # the fetch will be more patient


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
