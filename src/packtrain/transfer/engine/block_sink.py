"""Where the blocks of a fetch go: what the engine and its workers ask of such a place."""

from __future__ import annotations

from typing import Protocol

from packtrain.transfer.engine.resume_log import ObjectIdentity


class DirectWriter(Protocol):
    """Takes blocks piece by piece."""

    def write_chunk(self, index: int, offset: int, chunk: memoryview) -> None:
        """The bytes of a block behind those got before."""
        ...

    def finish_block(self, index: int) -> None:
        """All of it; instead of `put`."""
        ...

    def read_back(self, index: int, view: memoryview) -> None:
        """The first bytes of a block that was begun."""
        ...


class BlockSink(Protocol):
    def begin(self, identity: ObjectIdentity) -> None: ...

    def begin_unsized(self) -> None: ...

    def write_block(self, index: int, block: memoryview) -> memoryview:
        """Take a block; gives a buffer to receive the next one into."""
        ...

    def append(self, position: int, data: memoryview) -> None: ...

    @property
    def direct_writer(self) -> DirectWriter | None:
        """For blocks that nobody needs to see."""
        ...
