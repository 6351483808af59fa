"""What `packtrain get` does: where each file goes, whether it is there already, fetching it, unpacking it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from packtrain.cli.commands.data.checksums import load
from packtrain.cli.ui.credentials import Access
from packtrain.cli.ui.hints import hinted
from packtrain.cli.ui.transfer_progress import Follower, Stop
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.archive.byte_stream import of_reader
from packtrain.transfer.archive.unpack import Unpacked, can_stream, unpack, unpack_stream
from packtrain.transfer.block_checksums import SUFFIX, Checksums, bad_blocks
from packtrain.transfer.digests import HEAD_BYTES, Digests, refuse_unaffordable
from packtrain.transfer.fetch import Fetched, fetch
from packtrain.transfer.http.connection import watched
from packtrain.transfer.ordered_download import Ordered, is_doubtful
from packtrain.transfer.registry import source_for
from packtrain.transfer.retry import insisted
from packtrain.transfer.urls import checked_name, is_folder, name_of, scheme_of, shown
from packtrain.views.transfer import Account

T = TypeVar("T")
_BLOCK = 1 << 20
FEDERATED = ("osdf", "pelican")
_BUSY = ("service_unavailable",)  # whoever only asks wants to know soon: what is dead or missing is told at once
_AS_FILES = (".zip", ".7z", ".rar")  # their table of contents stands at the end


@dataclass(frozen=True)
class Wanted:
    item: Item
    target: Path
    checksums: Checksums | None = None


@dataclass(frozen=True)
class Got:
    url: str
    path: Path
    verified_by: str | None
    fetched: Fetched | None = None  # None: it was there already
    unpacked: Unpacked | None = None

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "url": self.url,
            "path": str(self.path),
            "already_there": self.fetched is None,
            "verified_by": self.verified_by,
        }
        if self.fetched is not None:
            figures = {key: value for key, value in vars(self.fetched).items() if key not in ("source", *data)}
            data |= {**figures, "sha256": self.fetched.sha256 or None}
        if self.unpacked is not None:
            data["unpacked"] = vars(self.unpacked)
        return data


@dataclass(frozen=True)
class Getting:
    """The manner that all files of one call are got in."""

    access: Access
    patience_s: float
    stop: Stop
    follower: Follower
    nested: bool = False  # tars in an archive are unpacked, each into a folder of its own

    def get(self, wanted: Wanted, *, force: bool) -> Got:
        if wanted.target.exists() and not force:
            return self._look_at(wanted)
        wanted.target.parent.mkdir(parents=True, exist_ok=True)
        return self._fetch(wanted)

    def _look_at(self, wanted: Wanted) -> Got:
        """A file that stands there is never replaced; it may be the one that is wanted."""
        path, checksums = wanted.target, wanted.checksums
        if not path.is_file():
            raise UsageError(f"{path} exists and is no file; choose another place with -o")
        self.follower.begin("check", path.name)
        if checksums is not None and (path.stat().st_size != checksums.size or bad_blocks(path, checksums)):
            raise _differs(path, "it differs from the checksums file")
        if checksums is not None:
            return _there(wanted, "checksums")
        info = ObjectInfo() if wanted.item.digest else self._stat(wanted.item)
        return _there(wanted, self._compared(path, wanted.item.digest or info.digest, info.size))

    def _compared(self, path: Path, digest: Digest | None, size: int | None) -> str | None:
        if digest is not None and self._digest_of(path, digest) == digest.value.lower():
            return digest.algorithm
        if digest is not None:
            raise _differs(path, f"its {digest.algorithm} is not {digest.value}")
        if size != path.stat().st_size:
            raise _differs(path, f"it has {path.stat().st_size} bytes, and the source {size}")
        return None

    def _digest_of(self, path: Path, digest: Digest) -> str:
        size, done = path.stat().st_size, 0
        refuse_unaffordable(path.name, digest, size)
        digests = Digests(digest)
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                self.stop.check()
                digests.update(block)
                done += len(block)
                self.follower.progress(done, size)
        return digests.value(digest.algorithm)

    def _stat(self, item: Item) -> ObjectInfo:
        """As the first source that answers says."""
        return next(answer for answer in self.asked(item) if isinstance(answer, ObjectInfo))

    def asked(self, item: Item) -> list[ObjectInfo | FailedError]:
        """What each source says of the item. Fails as a fetch would if none has it."""
        return self._insisted(lambda: _answers(item, self.access), only=_BUSY)

    def listed(self, url: str) -> list[Item]:
        """Everything below an address that means a folder."""
        self.follower.begin("list", shown(url))
        ref = self.access.ref(url, url)
        entries = self._insisted(lambda: list(source_for(ref, self.access.reveal).list(ref)))
        items = [Item(checked_name(entry.name, url), (entry.ref,), entry.size) for entry in entries]
        if not items:
            raise NotFoundError(f"there is nothing below {shown(url)}")
        return items

    def _insisted(self, act: Callable[[], T], only: Sequence[str] = ()) -> T:
        try:
            with watched(self.stop.check):
                return insisted(act, self.patience_s, self.stop.check, only)
        except FailedError as error:
            raise hinted(error) from error

    def _fetch(self, wanted: Wanted) -> Got:
        self.follower.begin("fetch", wanted.item.name, wanted.item.size)
        try:
            fetched = fetch(
                wanted.item,
                wanted.target,
                self.access.reveal,
                patience_s=self.patience_s,
                stop=self.stop.check,
                progress=lambda done, total: None,
                checksums=wanted.checksums,
                observe=self.follower.observe,
            )
        except FailedError as error:
            raise hinted(error) from error
        return Got(shown(wanted.item.sources[0].url), wanted.target, fetched.verified_by or None, fetched)

    def get_unpacked(self, wanted: Sequence[Wanted], folder: Path) -> list[Got]:
        """All archives into one folder, which appears when it is complete."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not an empty folder; choose another one with -o")
        folder = folder.absolute()
        aside = folder.with_name(f".{folder.name}.packtrain-get")
        set_aside = [replace(one, target=aside / one.target.name) for one in wanted]
        try:
            got = self._land(set_aside, aside / "unpacked")
            _appear(aside / "unpacked", folder)
        except BaseException:
            shutil.rmtree(aside / "unpacked", ignore_errors=True)
            with contextlib.suppress(OSError):  # it stays if it holds a part of an archive, to go on with
                aside.rmdir()
            raise
        shutil.rmtree(aside)
        return [replace(one, path=folder) for one in got]

    def _land(self, wanted: Sequence[Wanted], landed: Path) -> list[Got]:
        """What was damaged or replaced while it was unpacked as it came is got once more, as a file."""
        try:
            return _unpack_all(wanted, landed, self._streamed, self._unpacked)
        except FailedError as error:
            if not is_doubtful(error):
                raise hinted(error) from error
            return _unpack_all(wanted, landed, self._unpacked)

    def _streamed(self, wanted: Wanted, folder: Path) -> Got | None:
        """Unpacked as it comes, with nothing of the archive on the disk; None if it cannot be."""
        item, began = wanted.item, time.monotonic()
        if item.name.lower().endswith(_AS_FILES) or (wanted.checksums and not wanted.checksums.streams):
            return None
        self.follower.begin("unpack", item.name, item.size)
        with self._ordered(wanted) as download:
            flow = of_reader(download)
            if not can_stream(flow.peek(HEAD_BYTES)):
                return None
            done = unpack_stream(
                flow,
                item.name,
                folder,
                nested=self.nested,
                limit_bytes=None,
                stop=self.stop.check,
                progress=lambda done, total: None,
            )
        fetched = download.figures(time.monotonic() - began)
        return Got(shown(item.sources[0].url), folder, fetched.verified_by or None, fetched, done)

    def _ordered(self, wanted: Wanted) -> Ordered:
        return Ordered(
            wanted.item,
            self.access.reveal,
            patience_s=self.patience_s,
            stop=self.stop.check,
            progress=self.follower.progress,
            checksums=wanted.checksums,
        )

    def _unpacked(self, wanted: Wanted, folder: Path) -> Got:
        """By way of a file: the order of what is in the archive wants it, or what came was damaged."""
        got = self._archive(wanted)
        self.follower.begin("unpack", wanted.item.name)
        done = unpack(
            wanted.target,
            folder,
            nested=self.nested,
            limit_bytes=None,
            stop=self.stop.check,
            progress=self.follower.progress,
        )
        wanted.target.unlink()
        return replace(got, unpacked=done)

    def _archive(self, wanted: Wanted) -> Got:
        """What a call that was killed while unpacking left is used, if it is the right one."""
        try:
            return self.get(wanted, force=False)
        except UsageError:
            return self.get(wanted, force=True)

    def read_checksums(self, given: str, own: str) -> Checksums:
        """From a file or an address."""
        if "://" not in given:
            return load(Path(given))
        with tempfile.TemporaryDirectory() as folder:
            item = Item(name_of(own) + SUFFIX, (self.access.ref(given, own),))  # as JSON it is no error's page
            return load(self._fetch(Wanted(item, Path(folder, item.name))).path)


def _there(wanted: Wanted, verified_by: str | None) -> Got:
    return Got(shown(wanted.item.sources[0].url), wanted.target, verified_by)


def _differs(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} exists, and {reason}; --force replaces it")


def _unpack_all(wanted: Sequence[Wanted], landed: Path, *ways: Callable[[Wanted, Path], Got | None]) -> list[Got]:
    """Each archive in the first of the ways that can."""
    shutil.rmtree(landed, ignore_errors=True)
    landed.mkdir(parents=True)
    return [next(got for way in ways if (got := way(one, landed))) for one in wanted]


def _appear(landed: Path, folder: Path) -> None:
    """A folder that exists may be somebody's working folder: it stays the same one."""
    if not folder.exists():
        landed.rename(folder)
        return
    for path in landed.iterdir():
        path.rename(folder / path.name)


def _answers(item: Item, access: Access) -> list[ObjectInfo | FailedError]:
    answers = [_answer(ref, access) for ref in item.sources]
    errors = [answer for answer in answers if isinstance(answer, FailedError)]
    if len(errors) == len(answers):
        raise errors[0]
    return answers


def _answer(ref: Ref, access: Access) -> ObjectInfo | FailedError:
    try:
        return source_for(ref, access.reveal).stat(ref)
    except FailedError as error:
        return error


def is_below(url: str) -> bool:
    """Whether an address means all below it."""
    return url.endswith("/") or (scheme_of(url) in FEDERATED and is_folder(url))


def refuse_packing(url: str, instead: str) -> None:
    """`?pack=` is Pelican's own client's."""
    if scheme_of(url) in FEDERATED and "pack" in parse_qs(url.partition("?")[2], keep_blank_values=True):
        raise UsageError(f"{shown(url)}: leave out `pack=` of the address; {instead}")


def targets(names: Sequence[str], output: str | None, *, folder: bool) -> list[Path]:
    """-o as curl and wget have it: a folder if it is one or ends in /, else the file."""
    if output is None:
        found = [Path(name) for name in names]
    elif folder or output.endswith("/") or Path(output).is_dir():
        found = [Path(output, name) for name in names]
    elif len(names) > 1:
        raise UsageError(f"several files need a folder: -o {output}/")
    else:
        found = [Path(output)]
    twice = next((path for path in found if found.count(path) > 1), None)
    if twice is not None:
        raise UsageError(f"two files would both be {twice}; get them one by one, with -o")
    return found


def account_of(fetched: Fetched) -> Account:
    return Account(
        fetched.bytes,
        fetched.seconds,
        tuple(fetched.by_source.items()),
        fetched.retries,
        fetched.stalls,
        fetched.hedges,
        fetched.wasted_bytes,
    )


def refs_of(access: Access, url: str, mirrors: Sequence[str]) -> tuple[Ref, ...]:
    return tuple(access.ref(one, url) for one in (url, *mirrors))
