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

from packtrain.indexing.archive_map import MemberChain

_FRAME_HEADER = struct.Struct("<II")
_VERSION = 1


class ScanResumeFile:
    """Where another process makes the same index at the same time, nothing is kept."""

    def __init__(self, path: Path, archives: list[Any]) -> None:
        self._path, self._lock = path, threading.Lock()
        self._file: BinaryIO | None = None
        self._header = {"version": _VERSION, "of": archives}

    def open(self) -> list[tuple[int, MemberChain]]:
        """What an earlier process left, if it was of the same archives."""
        file = open(self._path, "a+b")  # noqa: SIM115 - closed by `close`
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return []
        self._file = file
        try:
            return self._read_chains(file)
        except (ValueError, KeyError, TypeError, OverflowError):
            self._reset(file)
            return []

    def _read_chains(self, file: BinaryIO) -> list[tuple[int, MemberChain]]:
        file.seek(0)
        frames = list(read_frames(file))
        found = [json.loads(data) for data, _ in frames]
        if not found or found[0] != json.loads(json.dumps(self._header)):
            self._reset(file)
            return []
        file.truncate(frames[-1][1])
        return [(raw["archive"], _chain_from_json(raw)) for raw in found[1:]]

    def _reset(self, file: BinaryIO) -> None:
        file.truncate(0)
        self._append_frame(self._header)

    def append_chain(self, archive_id: int, chain: MemberChain) -> None:
        self._append_frame({"archive": archive_id, **_chain_to_json(chain)})

    def _append_frame(self, payload: Any) -> None:
        data = zlib.compress(json.dumps(payload, separators=(",", ":")).encode(), 1)
        with self._lock:
            if self._file is not None:
                self._file.write(_FRAME_HEADER.pack(len(data), zlib.crc32(data)) + data)
                self._file.flush()

    def close(self, delete: bool) -> None:
        with self._lock:
            if self._file is None:
                return
            if delete:
                with contextlib.suppress(FileNotFoundError):
                    self._path.unlink()
            self._file.close()
            self._file = None


def read_frames(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Those that are whole, and where each ends."""
    while True:
        head = file.read(_FRAME_HEADER.size)
        if len(head) < _FRAME_HEADER.size:
            return
        length, crc32 = _FRAME_HEADER.unpack(head)
        data = file.read(length)
        if len(data) < length or zlib.crc32(data) != crc32:
            return
        yield zlib.decompress(data), file.tell()


def _chain_to_json(chain: MemberChain) -> dict[str, Any]:
    return {
        "start": chain.start,
        "end": chain.end,
        "last": chain.reaches_end,
        "positions": chain.header_offsets.tolist(),
        "offsets": chain.offsets.tolist(),
        "sizes": chain.sizes.tolist(),
        "kinds": chain.kinds,
        "names": chain.names,
        "links": list(chain.links.items()),
        "texts": list(chain.label_texts.items()),
    }


def _chain_from_json(raw: dict[str, Any]) -> MemberChain:
    chain = MemberChain(raw["start"])
    chain.end, chain.reaches_end, chain.kinds, chain.names = raw["end"], raw["last"], raw["kinds"], raw["names"]
    chain.header_offsets, chain.offsets, chain.sizes = (
        array("Q", raw[key]) for key in ("positions", "offsets", "sizes")
    )
    chain.links, chain.label_texts = dict(raw["links"]), dict(raw["texts"])
    return chain
