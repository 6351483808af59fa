"""The block sink of a download to a file: writes the partial file and hashes it in the background."""

from __future__ import annotations

import threading
from collections.abc import Collection

from packtrain.plan import Digest
from packtrain.transfer.engine.fetch_request import FetchRequest
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.integrity.background_digest import BackgroundDigest
from packtrain.transfer.integrity.digests import Digests, can_compute

_MAX_ALWAYS_HASHED_BYTES = 64 << 20  # files up to this size always get a sha256, at no noticeable cost


class FileSink:
    """Implements BlockSink and DirectWriter of `coordinator` for a partial file."""

    def __init__(self, part_file: PartFile, request: FetchRequest) -> None:
        self._part_file, self._request = part_file, request
        self._lock = threading.Lock()
        self._written_blocks = bytearray()
        self._frontier = 0  # all blocks before this one are written
        self._identity: ObjectIdentity | None = None
        self._background_digest: BackgroundDigest | None = None
        self.server_digest: Digest | None = None

    def resume(self, identity: ObjectIdentity, done: Collection[int]) -> None:
        """Continue a partial file in which the blocks `done` are written."""
        self._start_tracking(identity)
        for index in done:
            self._written_blocks[index] = 1
        self._advance_frontier()

    def begin(self, identity: ObjectIdentity) -> None:
        self._part_file.begin(identity)
        self._start_tracking(identity)

    def begin_unsized(self) -> None:
        self._stop_digest()
        self._part_file.begin_unsized()
        self._background_digest = BackgroundDigest(Digests(self._request.remote_file.digest), self._part_file.readinto)

    def write_block(self, index: int, block: memoryview) -> memoryview:
        buffer, digest = self._part_file.write_block(index, block), self._background_digest
        if digest is not None and index == self._frontier and self._offer_block(digest, index, block):
            buffer = memoryview(bytearray(self._request.block_bytes))
        self._mark_written(index)
        return buffer

    def _mark_written(self, index: int) -> None:
        with self._lock:
            self._written_blocks[index] = 1
            if index == self._frontier:
                self._advance_frontier()

    @property
    def direct_writer(self) -> FileSink | None:
        """This sink, unless a digest needs complete blocks."""
        return self if self._background_digest is None and self._request.checksums is None else None

    def write_chunk(self, index: int, offset: int, chunk: memoryview) -> None:
        assert self._identity is not None
        self._part_file.write_at(index * self._identity.block_bytes + offset, chunk)

    def finish_block(self, index: int) -> None:
        self._part_file.record_block(index)
        self._mark_written(index)

    def read_back(self, index: int, view: memoryview) -> None:
        assert self._identity is not None
        if self._part_file.readinto(view, index * self._identity.block_bytes) != len(view):
            raise OSError("the partial file was truncated while it was written")

    def _offer_block(self, background_digest: BackgroundDigest, index: int, block: memoryview) -> bool:
        """Offer the block at the frontier; no other thread can be there while this block is missing."""
        assert self._identity is not None
        return background_digest.offer(index * self._identity.block_bytes, block)

    def append(self, position: int, data: memoryview) -> None:
        self._part_file.append(position, data, self._request.max_unsized_bytes)
        if self._background_digest is not None:
            self._background_digest.advance(position + len(data))

    def set_server_digest(self, digest: Digest) -> None:
        """Hash the file again from its start, because a server reported this digest during the download."""
        with self._lock:
            self._stop_digest()
            self.server_digest = digest
            self._start_digest(digest)
            self._advance_frontier()

    def finish_digests(self) -> Digests | None:
        """Return the digests of the complete file, once all blocks are written; None if none are computed."""
        return self._background_digest.finish(self._request.check_cancelled) if self._background_digest else None

    def close(self) -> None:
        """Stop hashing; the partial file stays open and locked until the download ends."""
        self._stop_digest()

    def _start_tracking(self, identity: ObjectIdentity) -> None:
        self._stop_digest()
        self._identity, self._written_blocks, self._frontier = identity, bytearray(identity.n_blocks), 0
        # A resume log may be from a process that could compute a crc32c.
        is_usable = identity.digest is not None and can_compute(identity.digest.algorithm)
        self.server_digest = identity.digest if is_usable and not self._request.checksums else None
        self._start_digest(self._request.remote_file.digest or self.server_digest)

    def _start_digest(self, expected: Digest | None) -> None:
        assert self._identity is not None
        is_small = self._identity.size <= _MAX_ALWAYS_HASHED_BYTES
        if expected is not None or is_small:
            self._background_digest = BackgroundDigest(Digests(expected, sha256=is_small), self._part_file.readinto)

    def _stop_digest(self) -> None:
        if self._background_digest is not None:
            self._background_digest.stop()
            self._background_digest = None

    def _advance_frontier(self) -> None:
        assert self._identity is not None
        gap = self._written_blocks.find(0, self._frontier)
        self._frontier = self._identity.n_blocks if gap < 0 else gap
        if self._background_digest is not None:
            self._background_digest.advance(min(self._identity.size, self._frontier * self._identity.block_bytes))
