"""Makes an index, unless there is one already."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packtrain.errors import FailedError, TransferError
from packtrain.indexing import existing
from packtrain.indexing import listing as folders
from packtrain.indexing.archive_map import Chart
from packtrain.indexing.archive_reader import Remote
from packtrain.indexing.grouping import File, Gathering, draft, refused_packed
from packtrain.indexing.local_file import opened
from packtrain.indexing.resume_file import Journal
from packtrain.indexing.tar_members import is_tar
from packtrain.indexing.tar_scanner import Tar
from packtrain.indexing.task_pool import Crew
from packtrain.indexing.zip_scanner import Zip
from packtrain.plan import Ref
from packtrain.stream import index_checksums
from packtrain.stream.index import FILES, SPANS, SUFFIX, Archive, Index, bare, write
from packtrain.transfer.api import Entry, Reveal
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.decompress import MAGIC
from packtrain.transfer.block_checksums import Checksums
from packtrain.transfer.digests import why_not_the_data
from packtrain.transfer.http.pool import keeping
from packtrain.transfer.urls import scheme_of

Stop = Callable[[], None]
Progress = Callable[[int, int | None, int], None]
"""Bytes of the archives that are charted, all their bytes, and files found so far."""

MADE, KEPT, SHARED = "made", "kept", "shared"
_Parsed = Tar | Zip
_OTHER_MAGIC = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c", b"Rar!")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")
_PROBES = 2
_SERVED_IN_S = 0.0003  # a request, by the processor
_FEWEST_THREADS, _MOST_THREADS = 2, 64
_FEDERATED = ("osdf", "pelican")


@dataclass(frozen=True)
class Wish:
    """`archives`: of each its addresses, all as good as the other; one that ends in / means a folder.

    `grouped`: whether files that follow one another and differ by their endings only make one sample; None: as it
    seems. `below`: only files whose names begin so."""

    archives: Sequence[Sequence[Ref]]
    reveal: Reveal
    patience_s: float = 10.0
    grouped: bool | None = None
    below: str = ""

    @property
    def choice(self) -> str:
        """Tells indexes of the same archives apart."""
        return json.dumps([self.grouped, self.below]) if self.grouped is not None or self.below else ""


@dataclass(frozen=True)
class Obtained:
    index: Index
    how: str  # made, kept (it was there) or shared (it lay beside the data)


def _untold(done: int, total: int | None, files: int) -> None:
    """Nobody wants to know."""


def build(wish: Wish, target: Path, *, stop: Stop = lambda: None, progress: Progress = _untold) -> Index:
    """The index stands at `target`, or FailedError says why not. Killed at any moment, the next call goes on."""
    with keeping():
        return _Making(wish, target.parent, target, True, stop, progress).run().index


def obtain(
    wish: Wish,
    home: Path,
    target: Path | None = None,
    *,
    anew: bool = False,
    stop: Stop = lambda: None,
    progress: Progress = _untold,
) -> Obtained:
    """As `build`, unless the index of these very archives exists. Without a target it is kept in the folder `home`."""
    with keeping():
        return _Making(wish, home, target, anew, stop, progress).run()


class _Making:
    def __init__(self, wish: Wish, home: Path, target: Path | None, anew: bool, stop: Stop, progress: Progress) -> None:
        self._wish, self._home, self._target, self._anew = wish, home, target, anew
        self._stop, self._progress = stop, progress
        self._passed = self._found = 0
        self._lock = threading.Lock()
        self._archives = [list(refs) for refs in wish.archives]

    def run(self) -> Obtained:
        listed = self._lists()
        return self._of_folders(listed) if listed else self._of_archives()

    def _lists(self) -> list[list[Entry]]:
        """Of folders; one that has nothing but tars is the tars."""
        are = {refs[0].url.endswith("/") for refs in self._archives}
        if len(are) > 1:
            raise FailedError("unsupported", "an index is of archives or of folders, not of both: make two")
        if are != {True}:
            return []
        wish = self._wish
        listed = [folders.entries(refs[0], wish.reveal, wish.patience_s, self._stop) for refs in self._archives]
        every = [entry for entries in listed for entry in entries]
        if every and all(entry.name.endswith(".tar") for entry in every):
            self._archives = [[entry.ref] for entry in every]
            return []
        return listed

    def _place(self, archives: tuple[Archive, ...]) -> Path:
        if self._target is None:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._target = self._home / (existing.key_of(archives, self._wish.choice) + SUFFIX)
        return self._target

    # Folders

    def _of_folders(self, listed: Sequence[Sequence[Entry]]) -> Obtained:
        archives = tuple(_folder(refs, entries) for refs, entries in zip(self._archives, listed, strict=False))
        there = self._ready(archives, None)
        if there is not None:
            return there
        gathered = Gathering()
        for number, entries in enumerate(listed):
            gathered.add(number, self._wanted(folders.files_of(entries)))
        return Obtained(self._written(gathered, archives, FILES, False), MADE)

    # Archives

    def _of_archives(self) -> Obtained:
        remotes = [opened(refs, self._wish.reveal, self._wish.patience_s, self._stop) for refs in self._archives]
        kinds = self._kinds(remotes)
        archives = tuple(map(_archive, remotes))
        there = self._ready(archives, remotes[0] if kinds == [Tar] else None)
        if there is not None:
            return there
        threads = _threads(remotes[0])
        with self._journal(archives) as charts, Crew(threads) as crew:
            parts = zip(kinds, remotes, charts, strict=False)
            parsed = [kind(remote, chart, crew, self._told) for kind, remote, chart in parts]
            self._draw(parsed, threads, sum(remote.size for remote in remotes), crew)
            sums = self._checksums(archives, crew)
            return Obtained(self._written(self._gathered(parsed), archives, SPANS, self._wish.grouped, sums), MADE)

    def _checksums(self, archives: tuple[Archive, ...], crew: Crew) -> list[Checksums]:
        """Those that lie beside the archives, if each has some; where the first has none, the others are not asked."""
        found: dict[int, Checksums | None] = {}

        def look(number: int) -> None:
            wish, place, ref = self._wish, self._place(archives), self._archives[number][0]
            aside = place.with_name(f".{place.name}.{os.getpid()}.{number}.sums")
            size = archives[number].size
            found[number] = existing.checksums(ref, wish.reveal, wish.patience_s, self._stop, aside, size)

        look(0)
        for number in range(1, len(archives) if found[0] else 0):
            crew.do(look, number)
        crew.finish(self._stop)
        sums = [one for one in (found.get(number) for number in range(len(archives))) if one]
        return sums if len(sums) == len(archives) else []

    def _ready(self, archives: tuple[Archive, ...], tar: Remote | None) -> Obtained | None:
        """`tar`: to look into it whether what lies beside it fits."""
        place = self._place(archives)
        if self._anew:
            return None
        index = existing.standing(place, archives, self._wish.choice)
        if index is not None:
            return Obtained(index, KEPT)
        if len(archives) > 1 or self._wish.choice:
            return None
        wish, ref = self._wish, self._archives[0][0]
        index = existing.shared(ref, wish.reveal, wish.patience_s, self._stop, place, archives)
        if index is None:
            return None
        if tar is not None and not existing.spot_checked(index, tar):
            place.unlink()
            return None
        return Obtained(index, SHARED)

    def _kinds(self, remotes: Sequence[Remote]) -> list[type[_Parsed]]:
        """What each archive is; all are asked at once."""
        found: dict[int, type[_Parsed]] = {}

        def ask(number: int, remote: Remote) -> None:
            found[number] = _kind(remote)

        with Crew(min(len(remotes), _MOST_THREADS)) as crew:
            for number, remote in enumerate(remotes):
                crew.do(ask, number, remote)
            crew.finish(self._stop)
        return [found[number] for number in range(len(remotes))]

    @contextlib.contextmanager
    def _journal(self, archives: tuple[Archive, ...]) -> Iterator[list[Chart]]:
        """Charts with what an earlier process found."""
        place = self._place(archives)
        identity = [[archive.url, archive.size, archive.etag, archive.modified] for archive in archives]
        journal = Journal(place.with_name(f".{place.name}.part"), identity)
        charts = [Chart(partial(journal.keep, number)) for number in range(len(archives))]
        useless = True
        try:
            for number, chain in journal.open():
                charts[number].add(chain, keep=False)
            yield charts
        except BaseException as error:
            useless = _is_final(error)
            raise
        finally:
            journal.close(useless)

    def _draw(self, parsed: Sequence[_Parsed], threads: int, total: int, crew: Crew) -> None:
        for one in parsed:
            crew.do(one.draw, max(1, threads // len(parsed)))
        crew.finish(lambda: self._tell(total))

    def _told(self, passed: int, files: int) -> None:
        with self._lock:
            self._passed += passed
            self._found += files

    def _tell(self, total: int) -> None:
        self._stop()
        self._progress(min(self._passed, total), total, self._found)

    def _gathered(self, parsed: Sequence[_Parsed]) -> Gathering:
        gathered = Gathering()
        for number, one in enumerate(parsed):
            gathered.add(number, self._wanted(one.files()))
            self._stop()
        return gathered

    def _wanted(self, files: Iterator[File]) -> Iterator[File]:
        below = self._wish.below
        return (file for file in files if file.name.startswith(below)) if below else files

    def _written(
        self,
        found: Gathering,
        archives: tuple[Archive, ...],
        layout: str,
        grouped: bool | None,
        sums: Sequence[Checksums] = (),
    ) -> Index:
        if not found.names:
            where = ", ".join(archive.url for archive in archives[:3])
            below = f" below {self._wish.below}" if self._wish.below else ""
            raise FailedError("unsupported", f"{where} has no files{below}, so there is nothing to index")
        made = draft(found, archives, layout, grouped)
        made.choice = self._wish.choice
        made.block_sizes, made.digests = index_checksums.packed(sums)
        return write(made, self._place(archives))


def _kind(remote: Remote) -> type[_Parsed]:
    """By the first bytes. Raises FailedError for what cannot be read in places, or is no archive."""
    head = remote.read(0, tar_header.SIZE)
    wrong = why_not_the_data(remote.refs[0].url, head, remote.info.content_type if remote.info else None)
    if wrong:
        raise FailedError("not_the_data", f"{remote.shown}: {wrong}")
    if head.startswith((*MAGIC.values(), *_OTHER_MAGIC)):
        raise refused_packed(remote.shown)
    if head.startswith(_ZIP):
        return Zip
    if len(head) < tar_header.SIZE or not is_tar(head):
        raise FailedError("archive_broken", f"{remote.shown} is no tar and no zip: its first bytes are {head[:8]!r}")
    return Tar


def _is_final(error: BaseException) -> bool:
    """Whether the archive itself is at fault, so that nobody will go on."""
    return isinstance(error, FailedError) and not isinstance(error, TransferError) and error.kind != "cancelled"


def _threads(remote: Remote) -> int:
    """As many as the processor can serve while one of them waits: near by few, far away many."""
    waits = []
    for _ in range(_PROBES):
        began = time.monotonic()
        remote.read(0, tar_header.SIZE)
        waits.append(time.monotonic() - began)
    return max(_FEWEST_THREADS, min(_MOST_THREADS, round(min(waits) / _SERVED_IN_S)))


def _archive(remote: Remote) -> Archive:
    assert remote.info is not None
    url, *mirrors = (bare(ref.url) for ref in remote.refs)
    # Objects never change in a federation, and each cache has its own times.
    if scheme_of(url) in _FEDERATED or not remote.told_by_first:
        return Archive(url, remote.size, mirrors=tuple(mirrors))
    etag, modified = remote.info.etag or "", remote.info.modified or ""
    return Archive(url, remote.size, etag, "" if etag else modified, tuple(mirrors))


def _folder(refs: Sequence[Ref], found: Sequence[Entry]) -> Archive:
    listing = hashlib.sha256()
    for entry in found:
        listing.update(f"{entry.name}\0{entry.size}\n".encode("utf-8", "surrogateescape"))
    url, *mirrors = (bare(ref.url) for ref in refs)
    return Archive(url, sum(entry.size or 0 for entry in found), mirrors=tuple(mirrors), listing=listing.hexdigest())
