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

from packtrain.indexing.tar_members import Member

_LOOKED_BACK = 8


class Chain:
    """Members one behind the other, from `start` to `end`; `last`: there the archive ends."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.last = False
        self.positions, self.offsets, self.sizes = array("Q"), array("Q"), array("Q")
        self.kinds = ""
        self.names: list[str] = []
        self.links: dict[int, str] = {}
        self.texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def add(self, member: Member) -> None:
        at = len(self.names)
        self.positions.append(member.at)
        self.offsets.append(member.offset)
        self.sizes.append(member.size)
        self.kinds += member.kind
        self.names.append(member.name)
        if member.link:
            self.links[at] = member.link
        if member.text:
            self.texts[at] = member.text
        self.end = member.behind

    def members(self, first: int) -> Iterator[Member]:
        for at in range(first, len(self)):
            behind = self.positions[at + 1] if at + 1 < len(self) else self.end
            yield Member(
                self.positions[at],
                behind,
                self.kinds[at],
                self.names[at],
                self.offsets[at],
                self.sizes[at],
                self.links.get(at, ""),
                self.texts.get(at, ""),
            )

    def place_of(self, position: int) -> int | None:
        """Which member begins there."""
        if position == self.start and not self.names:
            return 0
        at = bisect.bisect_left(self.positions, position)
        return at if at < len(self) and self.positions[at] == position else None


class Chart:
    """Of one archive, drawn by many threads. `keep` is told of every chain."""

    def __init__(self, keep: Callable[[Chain], None] = lambda chain: None) -> None:
        self._keep, self._lock = keep, threading.Lock()
        self._by_start: dict[int, Chain] = {}
        self._starts: list[int] = []
        self._chains: list[Chain] = []

    def add(self, chain: Chain, keep: bool = True) -> None:
        if not len(chain) and not chain.last:
            return
        with self._lock:
            at = bisect.bisect(self._starts, chain.start)
            self._starts.insert(at, chain.start)
            self._chains.insert(at, chain)
            self._by_start[chain.start] = chain
        if keep:
            self._keep(chain)

    def starting(self, position: int) -> Chain | None:
        """One that begins here: quicker to find than any that has a member here."""
        return self._by_start.get(position)

    def find(self, position: int) -> tuple[Chain, int] | None:
        """The chain that has a member here, and which one it is."""
        with self._lock:
            at = bisect.bisect(self._starts, position)
            near = self._chains[max(0, at - _LOOKED_BACK) : at]
        for chain in reversed(near):
            place = chain.place_of(position)
            if place is not None:
                return chain, place
        return None
