"""The shelf of a fetch to a file: the partial file, and the digests that follow what is written."""

from __future__ import annotations

import threading
from collections.abc import Collection

from packtrain.plan import Digest
from packtrain.transfer.digests import Digests, refuse_unaffordable
from packtrain.transfer.engine.background_digest import Follower
from packtrain.transfer.engine.buffer_pool import Buffers
from packtrain.transfer.engine.coordinator import Wish
from packtrain.transfer.engine.part_file import Partial
from packtrain.transfer.engine.resume_log import Known

_ALWAYS_HASHED = 64 << 20  # up to this size a sha256 costs nothing that anybody would notice


class Disk:
    def __init__(self, part: Partial, wish: Wish) -> None:
        self._part, self._wish = part, wish
        self._lock = threading.Lock()
        self._written = bytearray()
        self._edge = 0  # blocks before it are all written
        self._known: Known | None = None
        self._follower: Follower | None = None
        self._buffers = Buffers(wish.block)
        self.stated: Digest | None = None  # by the server

    def go_on(self, known: Known, done: Collection[int]) -> None:
        self._refuse_unaffordable(known)
        self._follow(known)
        for index in done:
            self._written[index] = 1
        self._advance()

    def begin(self, known: Known) -> None:
        self._refuse_unaffordable(known)
        self._part.begin(known)
        self._follow(known)

    def _refuse_unaffordable(self, known: Known) -> None:
        refuse_unaffordable(self._wish.item.name, self._wish.item.digest, known.size)

    def begin_unsized(self) -> None:
        self._end_following()
        self._part.begin_unsized()
        self._follower = Follower(Digests(self._wish.item.digest), self._part.readinto)

    def put(self, index: int, block: memoryview) -> memoryview:
        given, follower = self._part.put(index, block), self._follower
        if follower is not None and index == self._edge and self._offered(follower, index, block):
            given = self._buffers.take()
        self._written_now(index)
        return given

    def _written_now(self, index: int) -> None:
        with self._lock:
            self._written[index] = 1
            if index == self._edge:
                self._advance()

    @property
    def mover(self) -> Disk | None:
        """Unless there is a digest to compute."""
        return self if self._follower is None and self._wish.checksums is None else None

    def move(self, index: int, got: int, piece: memoryview) -> None:
        assert self._known is not None
        self._part.append(index * self._known.block + got, piece)

    def moved(self, index: int) -> None:
        self._part.moved(index)
        self._written_now(index)

    def read_back(self, index: int, view: memoryview) -> None:
        assert self._known is not None
        if self._part.readinto(view, index * self._known.block) != len(view):
            raise OSError("the partial file became shorter while it was written")

    def _offered(self, follower: Follower, index: int, block: memoryview) -> bool:
        """Nobody else can be at the edge: it is where this block is missing."""
        assert self._known is not None
        return follower.offer(index * self._known.block, block)

    def append(self, position: int, data: memoryview) -> None:
        self._part.append(position, data)
        if self._follower is not None:
            self._follower.advance(position + len(data))

    def state(self, digest: Digest) -> None:
        """What a server says while the file arrives: followed anew, from the beginning."""
        with self._lock:
            self._end_following()
            self.stated = digest
            self._begin_following(digest)
            self._advance()

    def digests(self) -> Digests | None:
        """Of the whole, when all is written."""
        return self._follower.finish(self._wish.stop) if self._follower else None

    def close(self) -> None:
        """The part stays open: it is ours until the fetch is over."""
        self._end_following()

    def _follow(self, known: Known) -> None:
        self._end_following()
        self._known, self._written, self._edge = known, bytearray(known.count), 0
        self.stated = None if self._wish.checksums else known.digest
        self._begin_following(self._wish.item.digest or self.stated)

    def _begin_following(self, wanted: Digest | None) -> None:
        assert self._known is not None
        small = self._known.size <= _ALWAYS_HASHED
        if wanted is not None or small:
            self._follower = Follower(Digests(wanted, sha256=small), self._part.readinto)

    def _end_following(self) -> None:
        if self._follower is not None:
            self._follower.end()
            self._follower = None

    def _advance(self) -> None:
        assert self._known is not None
        gap = self._written.find(0, self._edge)
        self._edge = self._known.count if gap < 0 else gap
        if self._follower is not None:
            self._follower.advance(min(self._known.size, self._edge * self._known.block))
