"""Find the files of a tar, with many walks at the same time, including the files of tars inside it."""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Iterator

from packtrain.errors import FailedError
from packtrain.indexing import tar_members
from packtrain.indexing.archive_map import ArchiveMap, MemberChain
from packtrain.indexing.archive_reader import ArchiveReader
from packtrain.indexing.grouping import ArchiveFile, compressed_error
from packtrain.indexing.read_window import ReadWindow
from packtrain.indexing.scan_settings import OnScanProgress, ScanSettings
from packtrain.indexing.tar_members import ArchiveMember, find_header, read_member
from packtrain.indexing.task_pool import TaskPool
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.tar_header import TarHeaderError

_MAX_CHAIN_S = 2.0  # a chain that is this old is saved
_NESTED_BYTES_PER_WALK = 4 << 30
_PROBED_MEMBERS = 3  # members to read before deciding whether this is a tar of tars
_MAX_DEPTH = 4


class TarScanner:
    """Scans one tar. `scan` submits walks; `files` returns the files when all walks are done."""

    def __init__(
        self,
        reader: ArchiveReader,
        archive_map: ArchiveMap,
        task_pool: TaskPool,
        on_progress: OnScanProgress,
        settings: ScanSettings,
    ) -> None:
        self._reader, self._archive_map, self._settings = reader, archive_map, settings
        self._task_pool, self._on_progress = task_pool, on_progress

    def scan(self, n_walks: int) -> None:
        """Submit `n_walks` walks, each from bytes that look like a header.

        In a tar of tars one walk reads the outer tar, and others read the tars inside.
        """
        is_nested = tar_members.NESTED_TAR in self._leading_kinds()
        self._scan_range(0, self._reader.size, 1 if is_nested else n_walks)

    def _leading_kinds(self) -> str:
        """Return the kinds of the first members. A folder or a list may precede the tars of a tar of tars."""
        window, kinds, offset = self._make_window(self._reader.size), "", 0
        with contextlib.suppress(TarHeaderError, EOFError):  # `files` reports errors
            while len(kinds) < _PROBED_MEMBERS:
                member = read_member(window, offset)
                if member is None:
                    break
                kinds, offset = kinds + member.kind, member.next_offset
        return kinds

    def _scan_range(self, start: int, stop: int, n_walks: int) -> None:
        n_walks = max(1, min(n_walks, (stop - start) // self._settings.min_region_bytes))
        length = -(-(stop - start) // n_walks // tar_header.HEADER_BYTES) * tar_header.HEADER_BYTES
        self._task_pool.submit(self._try_walk, start, start + length if n_walks > 1 else stop, stop)
        for region_start in range(start + length, stop if n_walks > 1 else 0, length):
            self._task_pool.submit(self._walk_from_guess, region_start, min(stop, region_start + length), stop)

    def _try_walk(self, start: int, until: int, stop: int) -> None:
        """Walk, and ignore errors of the archive: `files` reports them."""
        with contextlib.suppress(TarHeaderError, EOFError):
            self._walk(start, until, stop)

    def _walk_from_guess(self, start: int, until: int, stop: int) -> None:
        header_offset = find_header(self._reader.read, start, until)
        if header_offset is not None:
            self._try_walk(header_offset, until, stop)

    def _walk(self, start: int, until: int, stop: int) -> None:
        """Record the members from `start` to `until`, skipping chains that are known. The tar ends at `stop`."""
        window, chain, chain_started_at = self._make_window(stop), MemberChain(start), time.monotonic()
        try:
            while start < until:
                self._task_pool.raise_if_stopped()
                known_chain = self._archive_map.chain_starting_at(start)
                if known_chain is None:
                    member = read_member(window, start)
                    if member is None:
                        chain.reaches_end = True
                        return
                    chain.add(member)
                    self._on_member(member)
                    start = member.next_offset
                elif self._report_chain(known_chain):
                    return
                else:
                    start = known_chain.end
                is_old = time.monotonic() > chain_started_at + _MAX_CHAIN_S
                if known_chain or len(chain) >= self._settings.max_chain_members or is_old:
                    self._archive_map.add(chain)
                    chain, chain_started_at = MemberChain(start), time.monotonic()
        finally:
            self._archive_map.add(chain)

    def _report_chain(self, chain: MemberChain) -> bool:
        """Report the members of a known chain. Return whether the archive ends there."""
        for member in chain.members(0):
            self._on_member(member)
        return chain.reaches_end

    def _on_member(self, member: ArchiveMember) -> None:
        if member.kind == tar_members.NESTED_TAR:
            n_walks = member.size // _NESTED_BYTES_PER_WALK
            self._scan_range(member.offset, member.offset + member.size, n_walks)
        else:
            self._on_progress(member.next_offset - member.header_offset, member.kind == tar_members.FILE)

    def _make_window(self, stop: int) -> ReadWindow:
        return ReadWindow(self._reader.read, stop)

    # The final walk, which decides which chains are valid

    def files(self) -> Iterator[ArchiveFile]:
        """Yield the files that unpacking the archive would create, ordered by offset.

        Raises FailedError if the archive is damaged or cannot be indexed.
        """
        return self._iter_files(0, self._reader.size, "", 0)

    def _iter_files(self, start: int, stop: int, prefix: str, depth: int) -> Iterator[ArchiveFile]:
        members: dict[str, ArchiveMember] = {}
        for member in self._iter_members(start, stop, prefix):
            self._apply_member(members, member)
        for name, member in members.items():
            if member.kind == tar_members.NESTED_TAR:
                nested_prefix = f"{prefix}{name[: -len('.tar')]}/"
                self._check_depth(nested_prefix, depth)
                yield from self._iter_files(member.offset, member.offset + member.size, nested_prefix, depth + 1)
            else:
                folder = prefix.rstrip("/") or posixpath.dirname(name)
                yield ArchiveFile(prefix + name, folder, member.offset, member.size, member.label_text)

    def _apply_member(self, members_by_name: dict[str, ArchiveMember], member: ArchiveMember) -> None:
        """Add a member, as unpacking it would: of several with the same name, the last one counts."""
        name = normalize_name(member.name)
        if member.kind == tar_members.FOLDER or name in ("", "."):
            return
        members_by_name.pop(name, None)
        if member.kind == tar_members.HARDLINK:
            target = members_by_name.get(normalize_name(member.link_target))
            if target is not None:
                members_by_name[name] = target
        elif member.kind == tar_members.SPARSE:
            raise FailedError(
                "unsupported",
                f"{self._reader.redacted_url}: {name!r} is a sparse file, whose bytes are not contiguous: "
                "repack the tar without `--sparse`",
            )
        elif member.kind == tar_members.COMPRESSED_TAR:
            raise compressed_error(f"{name} in {self._reader.redacted_url}")
        elif member.kind != tar_members.OTHER:
            members_by_name[name] = member

    def _iter_members(self, start: int, stop: int, prefix: str) -> Iterator[ArchiveMember]:
        """Yield all members from the beginning to the end of a tar, and read what is still missing."""
        name = f"{prefix.rstrip('/')} in {self._reader.redacted_url}" if prefix else self._reader.redacted_url
        while True:
            known = self._archive_map.find_member(start)
            if known is None:
                self._fill_gap(start, stop, name)
                known = self._archive_map.find_member(start)
                assert known is not None
            chain, position = known
            yield from chain.members(position)
            if chain.reaches_end:
                return
            start = chain.end

    def _fill_gap(self, start: int, stop: int, name: str) -> None:
        """Read members up to the next known one."""
        chain, window = MemberChain(start), self._make_window(stop)
        try:
            max_members = self._settings.max_chain_members
            while len(chain) < max_members and not (len(chain) and self._archive_map.find_member(chain.end)):
                member = read_member(window, chain.end)
                if member is None:
                    chain.reaches_end = True
                    break
                chain.add(member)
        except EOFError:
            raise FailedError("truncated", f"{name} is truncated") from None
        except TarHeaderError as error:
            raise FailedError("archive_broken", f"{name} has {error} at byte {chain.end}") from None
        self._archive_map.add(chain)

    def _check_depth(self, nested_prefix: str, depth: int) -> None:
        if depth >= _MAX_DEPTH:
            raise FailedError(
                "archive_broken",
                f"{self._reader.redacted_url} has tars nested more than {_MAX_DEPTH} deep: {nested_prefix}",
            )


def normalize_name(name: str) -> str:
    """Return the path that unpacking would create, relative to the target folder."""
    return posixpath.normpath(name).lstrip("/") if name else ""
