"""Unpacks an archive behind its download: of the archive itself nothing comes to the disk.

What arrives is unpacked in a folder apart, and moves to its place when the download's end has proven it. An
archive that is not what it should be is removed, and fetched once more the ordinary way, as a file: it is that
file, verified, of which a stage says that it is broken.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import Context
from packtrain.errors import FailedError
from packtrain.plan import Input, Item
from packtrain.transfer.archive.byte_stream import Flow, Reader, of_reader
from packtrain.transfer.archive.unpack import Unpacked, can_stream, unpack_stream
from packtrain.transfer.ordered_download import is_doubtful

_HEAD_BYTES = 512


class Download(Reader, Protocol):
    """What `transfer.ordered.Ordered` is to us; it raises at its end if the bytes were wrong."""

    @property
    def source(self) -> str: ...

    @property
    def retries(self) -> int: ...


Opening = Callable[[Item], AbstractContextManager[Download]]


@dataclass(frozen=True)
class Arrived:
    """A download that was unpacked on its way."""

    bytes: int
    source: str
    retries: int
    unpacked: Unpacked


def unpack_behind(
    context: Context, source: Input, item: Item, folder: Path, opening: Opening, limit_bytes: int
) -> Arrived | None:
    """The content of the item stands in the folder. None: it has to be fetched the ordinary way.

    Raises FailedError: archive_unsafe, archive_too_large, disk_full, and all that a transfer may raise.
    """
    apart = context.box.tmp / "behind"
    try:
        arrived = _unpacked(context, source, item, apart, opening, limit_bytes)
        if arrived is not None:
            merge(apart, folder, item.name)
        return arrived
    except FailedError as error:
        if not is_doubtful(error):
            raise
        context.notice("fetch", f"{error.detail}; {item.name} is fetched once more, this time as a file")
        return None
    finally:
        if apart.exists():
            remove_tree(apart)


def _unpacked(
    context: Context, source: Input, item: Item, apart: Path, opening: Opening, limit_bytes: int
) -> Arrived | None:
    with opening(item) as download:
        flow: Flow = of_reader(download)
        if not can_stream(flow.peek(_HEAD_BYTES)):
            return None
        done = unpack_stream(
            flow,
            item.name,
            apart,
            nested=source.nested,
            limit_bytes=limit_bytes,
            stop=context.stop.check,
            progress=lambda done, total: None,  # the download tells of its own
        )
    return Arrived(flow.position, download.source, download.retries, done)


def merge(apart: Path, folder: Path, archive: str) -> None:
    """Move all that is in `apart` into the folder, where other inputs may already be. Newer files replace older."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(apart):
        target = folder / entry.name
        there, comes = _type_of(target), _type_of(Path(entry.path))
        if there == comes == stat.S_IFDIR:
            merge(Path(entry.path), target, archive)
        elif there and stat.S_IFDIR in (there, comes):
            words = f"the member {entry.name!r} of {archive} is a folder, and {target} is none, or the reverse"
            raise FailedError("archive_unsafe", words)
        else:
            Path(entry.path).replace(target)


def _type_of(path: Path) -> int:
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return 0
