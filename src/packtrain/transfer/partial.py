"""A file that has not fully arrived: `NAME.part`, and a ledger `NAME.part.json` of what it will be.

The ledger says size, ETag and digest as the first source stated them, and not which source that was:
any source that says the same may go on. A new process finds both and continues.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import Digest
from packtrain.transfer.api import ObjectInfo

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True)
class Ledger:
    size: int | None
    etag: str | None
    digest: Digest | None = None

    def to_json(self) -> str:
        digest = [self.digest.algorithm, self.digest.value] if self.digest else None
        return json.dumps({"size": self.size, "etag": self.etag, "digest": digest})

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        data = json.loads(text)
        return cls(data["size"], data["etag"], Digest(*data["digest"]) if data["digest"] else None)


class Partial:
    """Owns the two files; `done` bytes have arrived."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self._ledger_path = target.with_name(target.name + ".part.json")
        self.ledger = self._read_ledger()
        self.done = self.path.stat().st_size if self.ledger and self.path.exists() else 0

    def _read_ledger(self) -> Ledger | None:
        """None if there is none, or none that can be used: then all begins anew."""
        try:
            return Ledger.from_json(self._ledger_path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def complete(self) -> bool:
        return self.ledger is not None and self.ledger.size == self.done

    def agrees(self, info: ObjectInfo, proven: bool) -> bool:
        """Whether a source with this info may go on. `proven`: a digest will tell in the end anyway."""
        known = self.ledger
        if known is None or known.size is None or known.size != info.size:
            return False
        return proven or known.etag == info.etag

    def begin(self, info: ObjectInfo) -> None:
        """An empty part for an object with this info."""
        self.discard()
        self._make_sure_of_room(info.size)
        self.ledger = Ledger(info.size, info.etag, info.digest)
        with self._writing(info.size or 0):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(b"")
            temporary = self._ledger_path.with_suffix(".new")
            temporary.write_text(self.ledger.to_json(), encoding="utf-8")
            temporary.replace(self._ledger_path)

    def append(self, data: bytes) -> None:
        with self._writing(len(data)), open(self.path, "ab", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                written = file.write(rest)
                self.done += written
                rest = rest[written:]

    def blocks(self, size: int) -> Iterator[bytes]:
        """What has arrived so far."""
        with open(self.path, "rb") as file:
            while True:
                block = file.read(size)
                if not block:
                    return
                yield block

    def finish(self) -> None:
        self.path.replace(self.target)
        self._ledger_path.unlink()

    def discard(self) -> None:
        for path in (self._ledger_path, self.path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        self.ledger, self.done = None, 0

    def _make_sure_of_room(self, size: int | None) -> None:
        """Better to say so now than after an hour."""
        if size is not None and size > free_bytes(self.target.parent):
            raise self._full(size)

    @contextlib.contextmanager
    def _writing(self, needed: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _NO_ROOM:
                size = self.ledger.size if self.ledger else None
                raise self._full(needed if size is None else size - self.done) from error
            raise FailedError("disk_full", f"{self.path} cannot be written: {error.strerror}") from error

    def _full(self, needed: int) -> FailedError:
        free = free_bytes(self.target.parent)
        words = f"{self.target.name} needs {needed} more bytes in {self.target.parent}, where {free} are free"
        return FailedError("disk_full", words)


def free_bytes(folder: Path) -> int:
    """Free for this user on the disk of a folder that may not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing)
    return disk.f_bavail * disk.f_frsize
