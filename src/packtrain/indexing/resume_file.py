"""Save the chains found so far to a file, so that building an index can resume after a kill.

The file is a sequence of frames: length, CRC-32, compressed JSON. The first frame names the archives. An incomplete
last frame is ignored.
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
_VERSION = 2


class ScanResumeFile:
    """The chains of an unfinished index. If another process builds the same index, nothing is saved."""

    def __init__(self, path: Path, archives: list[Any]) -> None:
        self._path, self._lock = path, threading.Lock()
        self._file: BinaryIO | None = None
        self._header = {"version": _VERSION, "archives": archives}

    def open(self) -> list[tuple[int, MemberChain]]:
        """Return the chains of an earlier process, with the archive of each, if it indexed the same archives."""
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
        payloads = [json.loads(data) for data, _ in frames]
        if not payloads or payloads[0] != json.loads(json.dumps(self._header)):
            self._reset(file)
            return []
        file.truncate(frames[-1][1])
        return [(raw["archive_id"], _chain_from_json(raw)) for raw in payloads[1:]]

    def _reset(self, file: BinaryIO) -> None:
        file.truncate(0)
        self._append_frame(self._header)

    def append_chain(self, archive_id: int, chain: MemberChain) -> None:
        """Append a chain of an archive."""
        self._append_frame({"archive_id": archive_id, **_chain_to_json(chain)})

    def _append_frame(self, payload: Any) -> None:
        data = zlib.compress(json.dumps(payload, separators=(",", ":")).encode(), 1)
        with self._lock:
            if self._file is not None:
                self._file.write(_FRAME_HEADER.pack(len(data), zlib.crc32(data)) + data)
                self._file.flush()

    def close(self, delete: bool) -> None:
        """Close the file, and delete it if asked to."""
        with self._lock:
            if self._file is None:
                return
            if delete:
                with contextlib.suppress(FileNotFoundError):
                    self._path.unlink()
            self._file.close()
            self._file = None


def read_frames(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the content of each complete frame, and the offset of its end."""
    while True:
        header = file.read(_FRAME_HEADER.size)
        if len(header) < _FRAME_HEADER.size:
            return
        length, crc32 = _FRAME_HEADER.unpack(header)
        data = file.read(length)
        if len(data) < length or zlib.crc32(data) != crc32:
            return
        yield zlib.decompress(data), file.tell()


def _chain_to_json(chain: MemberChain) -> dict[str, Any]:
    return {
        "start": chain.start,
        "end": chain.end,
        "reaches_end": chain.reaches_end,
        "header_offsets": chain.header_offsets.tolist(),
        "offsets": chain.offsets.tolist(),
        "sizes": chain.sizes.tolist(),
        "kinds": chain.kinds,
        "names": chain.names,
        "links": list(chain.links.items()),
        "label_texts": list(chain.label_texts.items()),
    }


def _chain_from_json(raw: dict[str, Any]) -> MemberChain:
    chain = MemberChain(raw["start"])
    chain.end, chain.reaches_end, chain.kinds, chain.names = raw["end"], raw["reaches_end"], raw["kinds"], raw["names"]
    chain.header_offsets, chain.offsets, chain.sizes = (
        array("Q", raw[key]) for key in ("header_offsets", "offsets", "sizes")
    )
    chain.links, chain.label_texts = dict(raw["links"]), dict(raw["label_texts"])
    return chain
