"""Stages fetch and unpack: every input's files into its folder of the sandbox.

Archives that can be are unpacked behind their download (`behind`), in the stage fetch; the stage unpack has the
rest, and tells what is wrong with an archive, whenever it was seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.agent.context import Context, Tally
from packtrain.agent.live.progress import Progress
from packtrain.agent.stages import hardware
from packtrain.errors import FailedError, FormatError, TransferError
from packtrain.plan import Input, Item, Ref
from packtrain.transfer.api import Entry
from packtrain.transfer.archive.detection import has_archives_name, may_be_archive, may_stream
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import source_for
from packtrain.transfer.retry import Patience
from packtrain.transfer.urls import checked_name, shown

if TYPE_CHECKING:
    from packtrain.agent.stages.streaming_unpack import Download, Opening
    from packtrain.transfer.block_checksums import Checksums

_FREE_SHARE = 0.95  # of the disk, for archives: the steps want to write, too
_NAMES_SHOWN = 3
_REFUSALS = frozenset({"archive_unsafe", "archive_too_large"})


def fetch_inputs(context: Context, tally: Tally) -> None:
    """Raises FailedError: unsupported, archive_unsafe, and all that a transfer may raise."""
    wanted = [(source, item) for source in context.job.inputs for item in _items(context, source)]
    sizes = [item.size for _, item in wanted if item.size is not None]
    progress = Progress(context.journal, "fetch", sum(sizes) if len(sizes) == len(wanted) else None)
    tally.update(bytes=0, files=0, retries=0, source="", unpacked_files=0, unpacked_bytes=0)
    for source, item in wanted:
        if context.behind.refusal is None:
            _bring(context, source, item, progress, tally)
    if wanted:
        progress.finish()


def _items(context: Context, source: Input) -> list[Item]:
    """What has to come before the steps; of data that are streamed, where the samples lie."""
    if source.mode == "stream":
        return [_index_of(source)]
    if source.prefix is None:
        return list(source.items)
    entries = _listed(context, source.prefix)
    items = [Item(e.name, (e.ref,), e.size) for e in entries if e.name and not e.name.endswith("/")]
    if not items:
        context.notice(
            "fetch", f"there is nothing below {shown(source.prefix.url)}; the folder {source.folder} stays empty"
        )
    return items


def _index_of(source: Input) -> Item:
    if source.index is None:
        name = f"the input {source.name!r}" if source.name else "the input"
        raise FailedError("unsupported", f"{name} is to be streamed, but the plan has no index of it: plan it anew")
    return source.index


def _listed(context: Context, prefix: Ref) -> list[Entry]:
    patience = Patience(context.job.patience_s, 1, time.monotonic())
    while True:
        try:
            return list(source_for(prefix, context.secrets.reveal).list(prefix))
        except TransferError as error:
            patience.failed(0, error)
        wait = patience.wait_s(time.monotonic())
        if wait is None:
            raise patience.verdict()
        context.stop.wait(wait)
        context.stop.check()


def _bring(context: Context, source: Input, item: Item, progress: Progress, tally: Tally) -> None:
    """Unpacked on its way where that can be, else as a file."""
    context.stop.check()
    target = context.box.folder_of(source) / checked_name(item.name, item.sources[0].url)
    target.parent.mkdir(parents=True, exist_ok=True)
    sums = _checksums_of(context, item)
    streams = context.depot is None and source.prefix is None and may_stream(source, item)
    streams = streams and (sums is None or sums.streams)
    if not (streams and _stream_item(context, source, item, target, progress, tally, sums)):
        _fetch_item(context, item, target, progress, tally, sums)


def _checksums_of(context: Context, item: Item) -> Checksums | None:
    """As its checksums file says, which comes first."""
    if item.checksums is None:
        return None
    from packtrain.transfer.block_checksums import SUFFIX, read_checksums

    path, given = context.box.tmp / "checksums.json", context.job.patience_s
    wanted = Item(item.name + SUFFIX, (item.checksums,))  # its name allows JSON, which is an error's page elsewhere
    fetch(wanted, path, context.secrets.reveal, patience_s=given, stop=context.stop.check, progress=lambda d, t: None)
    try:
        return read_checksums(path)
    except FormatError as error:
        raise FailedError("not_the_data", f"{shown(item.checksums.url)}: {error}") from error
    finally:
        path.unlink()


def _stream_item(
    context: Context,
    source: Input,
    item: Item,
    target: Path,
    progress: Progress,
    tally: Tally,
    sums: Checksums | None,
) -> bool:
    """False: it has to come as a file."""
    from packtrain.agent.stages.streaming_unpack import unpack_behind

    behind, limit = context.behind, _room(context, context.behind.bytes)
    opening = _opening(context, progress, sums)
    try:
        arrived = unpack_behind(context, source, item, target.parent, opening, limit)
    except FailedError as error:
        if error.kind not in _REFUSALS:
            raise
        behind.refusal = error
        return True
    if arrived is None:
        return False
    behind.paths.add(target)
    behind.files += arrived.unpacked.files
    behind.bytes += arrived.unpacked.bytes
    _count(tally, progress, arrived.bytes, arrived.retries, arrived.source)
    tally.update(unpacked_files=behind.files, unpacked_bytes=behind.bytes)
    return True


def _opening(context: Context, progress: Progress, sums: Checksums | None) -> Opening:
    from packtrain.transfer.ordered_download import Ordered

    def opening(item: Item) -> AbstractContextManager[Download]:
        return Ordered(
            item,
            context.secrets.reveal,
            patience_s=context.job.patience_s,
            stop=context.stop.check,
            progress=progress.part(item.name),
            checksums=sums,
        )

    return opening


def _fetch_item(
    context: Context, item: Item, target: Path, progress: Progress, tally: Tally, sums: Checksums | None
) -> None:
    bring = fetch if context.depot is None else context.depot.get
    got = bring(
        item,
        target,
        context.secrets.reveal,
        patience_s=context.job.patience_s,
        stop=context.stop.check,
        progress=progress.part(item.name),
        checksums=sums,
    )
    _count(tally, progress, got.bytes, got.retries, got.source)


def _count(tally: Tally, progress: Progress, size: int, retries: int, source: str) -> None:
    progress.finish_part(size)
    tally.update(
        bytes=tally["bytes"] + size, files=tally["files"] + 1, retries=tally["retries"] + retries, source=source
    )


def unpack_inputs(context: Context, tally: Tally) -> None:
    """Raises FailedError: archive_unsafe, archive_broken, archive_too_large, truncated, disk_full."""
    behind = context.behind
    tally.update(bytes=behind.bytes, files=behind.files)
    if behind.refusal is not None:
        raise behind.refusal
    progress = Progress(context.journal, "unpack", None)
    progress.finish_part(behind.bytes)
    for source in context.job.inputs:
        if source.unpack == "auto" and source.mode != "stream":
            _unpack_input(context, source, progress, tally)
        if source.chmod is not None:
            _chmod(context.box.folder_of(source), source.chmod)
    if tally["files"]:
        progress.finish()


def _unpack_input(context: Context, source: Input, progress: Progress, tally: Tally) -> None:
    folder = context.box.folder_of(source)
    misnamed = []
    for path in [path for path in _files_of(source, folder) if path not in context.behind.paths]:
        if _kind_of(path) is not None:
            _unpack_archive(context, source, path, progress, tally)
        elif has_archives_name(path.name):
            misnamed.append(path.name)
    if misnamed:
        names = ", ".join(misnamed[:_NAMES_SHOWN]) + (", …" if len(misnamed) > _NAMES_SHOWN else "")
        what = "is no archive, whatever its name says, and stays as it is"
        what = what if len(misnamed) == 1 else "are no archives, whatever their names say, and stay as they are"
        context.notice("unpack", f"{names} in {source.folder} {what}")


def _files_of(source: Input, folder: Path) -> Iterator[Path]:
    if source.prefix is None:
        return (folder / item.name for item in source.items)
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _kind_of(path: Path) -> str | None:
    if not may_be_archive(path):
        return None
    from packtrain.transfer.archive.unpack import kind_of

    return kind_of(path)


def _unpack_archive(context: Context, source: Input, path: Path, progress: Progress, tally: Tally) -> None:
    from packtrain.transfer.archive.unpack import unpack

    archive = _set_aside(context, path)
    done = unpack(
        archive,
        path.parent,
        nested=source.nested,
        limit_bytes=_room(context, tally["bytes"]),
        stop=context.stop.check,
        progress=progress.part(path.name),
    )
    archive.unlink()
    progress.finish_part(done.bytes)
    tally.update(bytes=tally["bytes"] + done.bytes, files=tally["files"] + done.files)


def _set_aside(context: Context, path: Path) -> Path:
    """An archive may hold a member of its own name: it is read from elsewhere."""
    aside = context.box.tmp / "unpack" / path.name
    aside.parent.mkdir(exist_ok=True)
    return path.replace(aside)


def _room(context: Context, used: int) -> int:
    free = int(hardware.disk_free(context.box.root) * _FREE_SHARE)
    promised = context.job.limits.disk_bytes
    return free if promised is None else min(free, max(promised - used, 0))


def _chmod(folder: Path, mode: int) -> None:
    """Like chmod -R, from the leaves up: a folder may lose its own x bit."""
    for where, folders, files in os.walk(folder, topdown=False):
        for path in (Path(where, name) for name in (*files, *folders)):
            if not path.is_symlink():
                path.chmod(mode)
    folder.chmod(mode)
