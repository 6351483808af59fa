"""Record the members of an archive that were found so far, as chains.

A walk may start anywhere: at the beginning of the archive, at bytes that look like a header, or where an earlier
process was killed. A chain is valid if a walk from the beginning of the archive reaches one of its members, because
the members that follow depend only on the position. Walks therefore share their chains, and one final walk, which
reads almost nothing, decides which of them are valid.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Callable, Iterator

from packtrain.indexing.tar_members import ArchiveMember

_MAX_LOOKBACK = 8  # chains before an offset that may contain it


class MemberChain:
    """Consecutive members, stored as columns. `start` and `end` are offsets in the archive.

    `reaches_end` is true if the archive ends at `end`.
    """

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.reaches_end = False
        self.header_offsets, self.offsets, self.sizes = array("Q"), array("Q"), array("Q")
        self.kinds = ""  # one letter per member, see tar_members
        self.names: list[str] = []
        self.links: dict[int, str] = {}  # position: link target
        self.label_texts: dict[int, str] = {}  # position: content of a label file

    def __len__(self) -> int:
        return len(self.names)

    def add(self, member: ArchiveMember) -> None:
        """Append the member that follows the last one."""
        position = len(self.names)
        self.header_offsets.append(member.header_offset)
        self.offsets.append(member.offset)
        self.sizes.append(member.size)
        self.kinds += member.kind
        self.names.append(member.name)
        if member.link_target:
            self.links[position] = member.link_target
        if member.label_text:
            self.label_texts[position] = member.label_text
        self.end = member.next_offset

    def members(self, first: int) -> Iterator[ArchiveMember]:
        """Yield the members from position `first` on."""
        for position in range(first, len(self)):
            is_last = position + 1 == len(self)
            yield ArchiveMember(
                header_offset=self.header_offsets[position],
                next_offset=self.end if is_last else self.header_offsets[position + 1],
                kind=self.kinds[position],
                name=self.names[position],
                offset=self.offsets[position],
                size=self.sizes[position],
                link_target=self.links.get(position, ""),
                label_text=self.label_texts.get(position, ""),
            )

    def find_member(self, header_offset: int) -> int | None:
        """Return the position of the member whose header starts at the offset, or None."""
        if header_offset == self.start and not self.names:
            return 0
        position = bisect.bisect_left(self.header_offsets, header_offset)
        return position if position < len(self) and self.header_offsets[position] == header_offset else None


class ArchiveMap:
    """The chains of one archive, filled by many threads. Calls `save_chain` with every new chain."""

    def __init__(self, save_chain: Callable[[MemberChain], None] = lambda chain: None) -> None:
        self._save_chain, self._lock = save_chain, threading.Lock()
        self._by_start: dict[int, MemberChain] = {}
        self._starts: list[int] = []
        self._chains: list[MemberChain] = []

    def add(self, chain: MemberChain, save: bool = True) -> None:
        """Add a chain. Empty chains are ignored, unless they mark the end of the archive."""
        if not len(chain) and not chain.reaches_end:
            return
        with self._lock:
            position = bisect.bisect(self._starts, chain.start)
            self._starts.insert(position, chain.start)
            self._chains.insert(position, chain)
            self._by_start[chain.start] = chain
        if save:
            self._save_chain(chain)

    def chain_starting_at(self, header_offset: int) -> MemberChain | None:
        """Return the chain that starts at the offset, or None. Faster than `find_member`."""
        return self._by_start.get(header_offset)

    def find_member(self, header_offset: int) -> tuple[MemberChain, int] | None:
        """Return the chain with a member at the offset, and the position of that member; or None."""
        with self._lock:
            position = bisect.bisect(self._starts, header_offset)
            nearby = self._chains[max(0, position - _MAX_LOOKBACK) : position]
        for chain in reversed(nearby):
            member = chain.find_member(header_offset)
            if member is not None:
                return chain, member
        return None
