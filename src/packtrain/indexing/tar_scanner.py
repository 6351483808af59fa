"""Draws the chart of a tar, by many walks at once, and reads off its files: tars inside of it, too."""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Callable, Iterator

from packtrain.errors import FailedError
from packtrain.indexing import tar_members
from packtrain.indexing.archive_map import ArchiveMap, MemberChain
from packtrain.indexing.archive_reader import ArchiveReader
from packtrain.indexing.grouping import ArchiveFile, compressed_error
from packtrain.indexing.read_window import ReadWindow
from packtrain.indexing.tar_members import ArchiveMember, find_header, read_member
from packtrain.indexing.task_pool import TaskPool
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.tar_header import TarHeaderError

OnScanProgress = Callable[[int, int], None]
"""Bytes that were passed, and files that were found."""

_MAX_CHAIN_MEMBERS, _MAX_CHAIN_S = 512, 2.0
_MIN_REGION_BYTES = 4 << 20
_NESTED_BYTES_PER_WALK = 4 << 30
_PROBED_MEMBERS = 3  # members
_MAX_DEPTH = 4


class TarScanner:
    def __init__(
        self, reader: ArchiveReader, archive_map: ArchiveMap, task_pool: TaskPool, on_progress: OnScanProgress
    ) -> None:
        self._reader, self._archive_map, self._task_pool, self._on_progress = (
            reader,
            archive_map,
            task_pool,
            on_progress,
        )

    def scan(self, n_walks: int) -> None:
        """By so many walks at once, which begin where a header seems to stand. A tar of tars is walked through by one,
        and each tar in it by another."""
        nested = tar_members.NESTED_TAR in self._leading_kinds()
        self._scan_range(0, self._reader.size, 1 if nested else n_walks)

    def _leading_kinds(self) -> str:
        """Of the first members: a folder or a list may stand before the tars of a tar of tars."""
        window, kinds, at = self._make_window(self._reader.size), "", 0
        with contextlib.suppress(TarHeaderError, EOFError):  # told when the files are read off
            while len(kinds) < _PROBED_MEMBERS:
                found = read_member(window, at)
                if found is None:
                    break
                kinds, at = kinds + found.kind, found.next_offset
        return kinds

    def _scan_range(self, start: int, stop: int, n_walks: int) -> None:
        n_walks = max(1, min(n_walks, (stop - start) // _MIN_REGION_BYTES))
        length = -(-(stop - start) // n_walks // tar_header.HEADER_BYTES) * tar_header.HEADER_BYTES
        self._task_pool.submit(self._try_walk, start, start + length if n_walks > 1 else stop, stop)
        for at in range(start + length, stop if n_walks > 1 else 0, length):
            self._task_pool.submit(self._walk_from_guess, at, min(stop, at + length), stop)

    def _try_walk(self, start: int, until: int, stop: int) -> None:
        """What is wrong with the archive is told when its files are read off."""
        with contextlib.suppress(TarHeaderError, EOFError):
            self._walk(start, until, stop)

    def _walk_from_guess(self, start: int, until: int, stop: int) -> None:
        found = find_header(self._reader.read, start, until)
        if found is not None:
            self._try_walk(found, until, stop)

    def _walk(self, start: int, until: int, stop: int) -> None:
        window, chain, began = self._make_window(stop), MemberChain(start), time.monotonic()
        try:
            while start < until:
                self._task_pool.raise_if_stopped()
                known = self._archive_map.chain_starting_at(start)
                if known is None:
                    found = read_member(window, start)
                    if found is None:
                        chain.reaches_end = True
                        return
                    chain.add(found)
                    self._on_member(found)
                    start = found.next_offset
                elif self._report_chain(known):
                    return
                else:
                    start = known.end
                if known or len(chain) >= _MAX_CHAIN_MEMBERS or time.monotonic() > began + _MAX_CHAIN_S:
                    self._archive_map.add(chain)
                    chain, began = MemberChain(start), time.monotonic()
        finally:
            self._archive_map.add(chain)

    def _report_chain(self, chain: MemberChain) -> bool:
        """Known already; whether the archive ends there."""
        for found in chain.members(0):
            self._on_member(found)
        return chain.reaches_end

    def _on_member(self, member: ArchiveMember) -> None:
        if member.kind == tar_members.NESTED_TAR:
            walks = member.size // _NESTED_BYTES_PER_WALK
            self._scan_range(member.offset, member.offset + member.size, walks)
        else:
            self._on_progress(member.next_offset - member.header_offset, member.kind == tar_members.FILE)

    def _make_window(self, stop: int) -> ReadWindow:
        return ReadWindow(self._reader.read, stop)

    # Reading off

    def files(self) -> Iterator[ArchiveFile]:
        """Those that an unpacked archive would have, in the order of their places."""
        return self._iter_files(0, self._reader.size, "", 0)

    def _iter_files(self, start: int, stop: int, prefix: str, depth: int) -> Iterator[ArchiveFile]:
        found: dict[str, ArchiveMember] = {}
        for one in self._iter_members(start, stop, prefix):
            self._apply_member(found, one)
        for name, one in found.items():
            if one.kind == tar_members.NESTED_TAR:
                inside = f"{prefix}{name[: -len('.tar')]}/"
                self._check_depth(inside, depth)
                yield from self._iter_files(one.offset, one.offset + one.size, inside, depth + 1)
            else:
                folder = prefix.rstrip("/") or posixpath.dirname(name)
                yield ArchiveFile(prefix + name, folder, one.offset, one.size, one.label_text)

    def _apply_member(self, members_by_name: dict[str, ArchiveMember], member: ArchiveMember) -> None:
        """The last of several that have the same name is the one that stays."""
        name = normalize_name(member.name)
        if member.kind == tar_members.FOLDER or name in ("", "."):
            return
        members_by_name.pop(name, None)
        if member.kind == tar_members.HARDLINK:
            target = members_by_name.get(normalize_name(member.link_target))
            if target is not None:
                members_by_name[name] = target
        elif member.kind == tar_members.SPARSE:
            words = f"{self._reader.redacted_url} has {name!r} as a sparse file, whose bytes are not in one place"
            raise FailedError("unsupported", f"{words}: pack it anew without `--sparse`")
        elif member.kind == tar_members.COMPRESSED_TAR:
            raise compressed_error(f"{name} in {self._reader.redacted_url}")
        elif member.kind != tar_members.OTHER:
            members_by_name[name] = member

    def _iter_members(self, start: int, stop: int, prefix: str) -> Iterator[ArchiveMember]:
        """The walk that counts: from the beginning to the end."""
        name = f"{prefix.rstrip('/')} in {self._reader.redacted_url}" if prefix else self._reader.redacted_url
        while True:
            known = self._archive_map.find_member(start)
            if known is None:
                self._fill_gap(start, stop, name)
                known = self._archive_map.find_member(start)
                assert known is not None
            chain, place = known
            yield from chain.members(place)
            if chain.reaches_end:
                return
            start = chain.end

    def _fill_gap(self, start: int, stop: int, name: str) -> None:
        """Up to the next place that is known."""
        chain, window = MemberChain(start), self._make_window(stop)
        try:
            while len(chain) < _MAX_CHAIN_MEMBERS and not (len(chain) and self._archive_map.find_member(chain.end)):
                found = read_member(window, chain.end)
                if found is None:
                    chain.reaches_end = True
                    break
                chain.add(found)
        except EOFError:
            raise FailedError("truncated", f"{name} ends before its end: it was cut") from None
        except TarHeaderError as error:
            raise FailedError("archive_broken", f"{name} has {error} at byte {chain.end}") from None
        self._archive_map.add(chain)

    def _check_depth(self, inside: str, depth: int) -> None:
        if depth >= _MAX_DEPTH:
            raise FailedError("archive_broken", f"{self._reader.redacted_url} has tars in tars in tars: {inside}")


def normalize_name(name: str) -> str:
    """The name as it would be below a folder."""
    return posixpath.normpath(name).lstrip("/") if name else ""
