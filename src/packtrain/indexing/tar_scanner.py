"""Draws the chart of a tar, by many walks at once, and reads off its files: tars inside of it, too."""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Callable, Iterator

from packtrain.errors import FailedError
from packtrain.indexing import tar_members
from packtrain.indexing.archive_map import Chain, Chart
from packtrain.indexing.archive_reader import Remote
from packtrain.indexing.grouping import File, refused_packed
from packtrain.indexing.read_window import Window
from packtrain.indexing.tar_members import Member, first_header, member
from packtrain.indexing.task_pool import Crew
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.tar_header import HeaderError

Told = Callable[[int, int], None]
"""Bytes that were passed, and files that were found."""

_CHAIN_MEMBERS, _CHAIN_S = 512, 2.0
_SMALLEST_REGION = 4 << 20
_LARGE_INSIDE = 4 << 30
_LOOKED_AT = 3  # members
_DEEPEST = 4


class Tar:
    def __init__(self, remote: Remote, chart: Chart, crew: Crew, told: Told) -> None:
        self._remote, self._chart, self._crew, self._told = remote, chart, crew, told

    def draw(self, walks: int) -> None:
        """By so many walks at once, which begin where a header seems to stand. A tar of tars is walked through by one,
        and each tar in it by another."""
        nested = tar_members.TAR in self._first_kinds()
        self._extent(0, self._remote.size, 1 if nested else walks)

    def _first_kinds(self) -> str:
        """Of the first members: a folder or a list may stand before the tars of a tar of tars."""
        window, kinds, at = self._window(self._remote.size), "", 0
        with contextlib.suppress(HeaderError, EOFError):  # told when the files are read off
            while len(kinds) < _LOOKED_AT:
                found = member(window, at)
                if found is None:
                    break
                kinds, at = kinds + found.kind, found.behind
        return kinds

    def _extent(self, start: int, stop: int, walks: int) -> None:
        walks = max(1, min(walks, (stop - start) // _SMALLEST_REGION))
        length = -(-(stop - start) // walks // tar_header.SIZE) * tar_header.SIZE
        self._crew.do(self._walk_from, start, start + length if walks > 1 else stop, stop)
        for at in range(start + length, stop if walks > 1 else 0, length):
            self._crew.do(self._guess, at, min(stop, at + length), stop)

    def _walk_from(self, at: int, until: int, stop: int) -> None:
        """What is wrong with the archive is told when its files are read off."""
        with contextlib.suppress(HeaderError, EOFError):
            self._walk(at, until, stop)

    def _guess(self, at: int, until: int, stop: int) -> None:
        found = first_header(self._remote.read, at, until)
        if found is not None:
            self._walk_from(found, until, stop)

    def _walk(self, at: int, until: int, stop: int) -> None:
        window, chain, began = self._window(stop), Chain(at), time.monotonic()
        try:
            while at < until:
                self._crew.check()
                known = self._chart.starting(at)
                if known is None:
                    found = member(window, at)
                    if found is None:
                        chain.last = True
                        return
                    chain.add(found)
                    self._met(found)
                    at = found.behind
                elif self._passed(known):
                    return
                else:
                    at = known.end
                if known or len(chain) >= _CHAIN_MEMBERS or time.monotonic() > began + _CHAIN_S:
                    self._chart.add(chain)
                    chain, began = Chain(at), time.monotonic()
        finally:
            self._chart.add(chain)

    def _passed(self, chain: Chain) -> bool:
        """Known already; whether the archive ends there."""
        for found in chain.members(0):
            self._met(found)
        return chain.last

    def _met(self, found: Member) -> None:
        if found.kind == tar_members.TAR:
            walks = found.size // _LARGE_INSIDE
            self._extent(found.offset, found.offset + found.size, walks)
        else:
            self._told(found.behind - found.at, found.kind == tar_members.FILE)

    def _window(self, stop: int) -> Window:
        return Window(self._remote.read, stop)

    # Reading off

    def files(self) -> Iterator[File]:
        """Those that an unpacked archive would have, in the order of their places."""
        return self._files(0, self._remote.size, "", 0)

    def _files(self, start: int, stop: int, prefix: str, depth: int) -> Iterator[File]:
        found: dict[str, Member] = {}
        for one in self._members(start, stop, prefix):
            self._enter(found, one)
        for name, one in found.items():
            if one.kind == tar_members.TAR:
                inside = f"{prefix}{name[: -len('.tar')]}/"
                self._refuse_depth(inside, depth)
                yield from self._files(one.offset, one.offset + one.size, inside, depth + 1)
            else:
                folder = prefix.rstrip("/") or posixpath.dirname(name)
                yield File(prefix + name, folder, one.offset, one.size, one.text)

    def _enter(self, found: dict[str, Member], one: Member) -> None:
        """The last of several that have the same name is the one that stays."""
        name = tidy(one.name)
        if one.kind == tar_members.FOLDER or name in ("", "."):
            return
        found.pop(name, None)
        if one.kind == tar_members.LINK:
            target = found.get(tidy(one.link))
            if target is not None:
                found[name] = target
        elif one.kind == tar_members.SPARSE:
            words = f"{self._remote.shown} has {name!r} as a sparse file, whose bytes are not in one place"
            raise FailedError("unsupported", f"{words}: pack it anew without `--sparse`")
        elif one.kind == tar_members.PACKED:
            raise refused_packed(f"{name} in {self._remote.shown}")
        elif one.kind != tar_members.OTHER:
            found[name] = one

    def _members(self, at: int, stop: int, prefix: str) -> Iterator[Member]:
        """The walk that counts: from the beginning to the end."""
        name = f"{prefix.rstrip('/')} in {self._remote.shown}" if prefix else self._remote.shown
        while True:
            known = self._chart.find(at)
            if known is None:
                self._fill(at, stop, name)
                known = self._chart.find(at)
                assert known is not None
            chain, place = known
            yield from chain.members(place)
            if chain.last:
                return
            at = chain.end

    def _fill(self, at: int, stop: int, name: str) -> None:
        """Up to the next place that is known."""
        chain, window = Chain(at), self._window(stop)
        try:
            while len(chain) < _CHAIN_MEMBERS and not (len(chain) and self._chart.find(chain.end)):
                found = member(window, chain.end)
                if found is None:
                    chain.last = True
                    break
                chain.add(found)
        except EOFError:
            raise FailedError("truncated", f"{name} ends before its end: it was cut") from None
        except HeaderError as error:
            raise FailedError("archive_broken", f"{name} has {error} at byte {chain.end}") from None
        self._chart.add(chain)

    def _refuse_depth(self, inside: str, depth: int) -> None:
        if depth >= _DEEPEST:
            raise FailedError("archive_broken", f"{self._remote.shown} has tars in tars in tars: {inside}")


def tidy(name: str) -> str:
    """The name as it would be below a folder."""
    return posixpath.normpath(name).lstrip("/") if name else ""
