"""The chains that were found so far, on the disk: an index whose making was killed is gone on with.

The file is a row of frames (length, crc32, compressed JSON). The first says of what; a last one that is torn is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import struct
import threading
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from packtrain.indexing.archive_map import Chain

_FRAME = struct.Struct("<II")
_VERSION = 1


class Journal:
    """Where another process makes the same index at the same time, nothing is kept."""

    def __init__(self, path: Path, of: list[Any]) -> None:
        self._path, self._lock = path, threading.Lock()
        self._file: BinaryIO | None = None
        self._of = {"version": _VERSION, "of": of}

    def open(self) -> list[tuple[int, Chain]]:
        """What an earlier process left, if it was of the same archives."""
        file = open(self._path, "a+b")  # noqa: SIM115 - closed by `close`
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return []
        self._file = file
        try:
            return self._resumed(file)
        except (ValueError, KeyError, TypeError, OverflowError):
            self._begin(file)
            return []

    def _resumed(self, file: BinaryIO) -> list[tuple[int, Chain]]:
        file.seek(0)
        frames = list(read_frames(file))
        found = [json.loads(data) for data, _ in frames]
        if not found or found[0] != json.loads(json.dumps(self._of)):
            self._begin(file)
            return []
        file.truncate(frames[-1][1])
        return [(raw["archive"], _chain(raw)) for raw in found[1:]]

    def _begin(self, file: BinaryIO) -> None:
        file.truncate(0)
        self._append(self._of)

    def keep(self, archive: int, chain: Chain) -> None:
        self._append({"archive": archive, **_raw(chain)})

    def _append(self, raw: Any) -> None:
        data = zlib.compress(json.dumps(raw, separators=(",", ":")).encode(), 1)
        with self._lock:
            if self._file is not None:
                self._file.write(_FRAME.pack(len(data), zlib.crc32(data)) + data)
                self._file.flush()

    def close(self, done: bool) -> None:
        with self._lock:
            if self._file is None:
                return
            if done:
                with contextlib.suppress(FileNotFoundError):
                    self._path.unlink()
            self._file.close()
            self._file = None


def read_frames(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Those that are whole, and where each ends."""
    while True:
        head = file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            return
        length, crc32 = _FRAME.unpack(head)
        data = file.read(length)
        if len(data) < length or zlib.crc32(data) != crc32:
            return
        yield zlib.decompress(data), file.tell()


def _raw(chain: Chain) -> dict[str, Any]:
    return {
        "start": chain.start,
        "end": chain.end,
        "last": chain.last,
        "positions": chain.positions.tolist(),
        "offsets": chain.offsets.tolist(),
        "sizes": chain.sizes.tolist(),
        "kinds": chain.kinds,
        "names": chain.names,
        "links": list(chain.links.items()),
        "texts": list(chain.texts.items()),
    }


def _chain(raw: dict[str, Any]) -> Chain:
    chain = Chain(raw["start"])
    chain.end, chain.last, chain.kinds, chain.names = raw["end"], raw["last"], raw["kinds"], raw["names"]
    chain.positions, chain.offsets, chain.sizes = (array("Q", raw[key]) for key in ("positions", "offsets", "sizes"))
    chain.links, chain.texts = dict(raw["links"]), dict(raw["texts"])
    return chain
