"""What is known of an archive: chains of members, each beginning where the one before ends.

Walks may begin anywhere: at the beginning, where a header seems to stand, where an earlier process was killed. A chain
is true if a walk from the archive's beginning comes to one of its members, for all that follows depends on the place
only. So walks share what they find, and one last walk, which reads next to nothing, tells what counts.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Callable, Iterator

from packtrain.indexing.tar_members import ArchiveMember

_MAX_LOOKBACK = 8


class MemberChain:
    """Members one behind the other, from `start` to `end`; `last`: there the archive ends."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.reaches_end = False
        self.header_offsets, self.offsets, self.sizes = array("Q"), array("Q"), array("Q")
        self.kinds = ""
        self.names: list[str] = []
        self.links: dict[int, str] = {}
        self.label_texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def add(self, member: ArchiveMember) -> None:
        at = len(self.names)
        self.header_offsets.append(member.header_offset)
        self.offsets.append(member.offset)
        self.sizes.append(member.size)
        self.kinds += member.kind
        self.names.append(member.name)
        if member.link_target:
            self.links[at] = member.link_target
        if member.label_text:
            self.label_texts[at] = member.label_text
        self.end = member.next_offset

    def members(self, first: int) -> Iterator[ArchiveMember]:
        for at in range(first, len(self)):
            behind = self.header_offsets[at + 1] if at + 1 < len(self) else self.end
            yield ArchiveMember(
                self.header_offsets[at],
                behind,
                self.kinds[at],
                self.names[at],
                self.offsets[at],
                self.sizes[at],
                self.links.get(at, ""),
                self.label_texts.get(at, ""),
            )

    def find_member(self, header_offset: int) -> int | None:
        """Which member begins there."""
        if header_offset == self.start and not self.names:
            return 0
        at = bisect.bisect_left(self.header_offsets, header_offset)
        return at if at < len(self) and self.header_offsets[at] == header_offset else None


class ArchiveMap:
    """Of one archive, drawn by many threads. `keep` is told of every chain."""

    def __init__(self, save_chain: Callable[[MemberChain], None] = lambda chain: None) -> None:
        self._save_chain, self._lock = save_chain, threading.Lock()
        self._by_start: dict[int, MemberChain] = {}
        self._starts: list[int] = []
        self._chains: list[MemberChain] = []

    def add(self, chain: MemberChain, save: bool = True) -> None:
        if not len(chain) and not chain.reaches_end:
            return
        with self._lock:
            at = bisect.bisect(self._starts, chain.start)
            self._starts.insert(at, chain.start)
            self._chains.insert(at, chain)
            self._by_start[chain.start] = chain
        if save:
            self._save_chain(chain)

    def chain_starting_at(self, header_offset: int) -> MemberChain | None:
        """One that begins here: quicker to find than any that has a member here."""
        return self._by_start.get(header_offset)

    def find_member(self, header_offset: int) -> tuple[MemberChain, int] | None:
        """The chain that has a member here, and which one it is."""
        with self._lock:
            at = bisect.bisect(self._starts, header_offset)
            near = self._chains[max(0, at - _MAX_LOOKBACK) : at]
        for chain in reversed(near):
            place = chain.find_member(header_offset)
            if place is not None:
                return chain, place
        return None
