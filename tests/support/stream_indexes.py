"""Small archives with an index, for tests of the stream."""

from __future__ import annotations

import io
import random
import tarfile
import zlib
from array import array
from pathlib import Path

from packtrain.stream.index import Archive, Draft, Index, write

CLASSES = 20


def content(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


def archive_of(folder: Path, samples: int, size: int = 700, url: str = "", name: str = "data.tar") -> Index:
    """A class-sorted tar of so many samples, and its index, beside it."""
    draft = Draft((), tuple(f"n{number:03}" for number in range(CLASSES)))
    names = []
    with tarfile.open(folder / name, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(samples):
            data = content(number, size + number % 7)
            label = number * CLASSES // samples
            info = tarfile.TarInfo(f"n{label:03}/{number}.bin")
            info.size = len(data)
            draft.offsets.append(tar.offset + tarfile.BLOCKSIZE)
            tar.addfile(info, io.BytesIO(data))
            draft.sizes.append(len(data))
            draft.labels.append(label)
            draft.archive.append(0)
            names.append(info.name)
    draft.names = names
    draft.archives = (Archive(url or (folder / name).as_uri(), (folder / name).stat().st_size),)
    return write(draft, folder / f"{name}.packtrain-index")


def numbers_only(folder: Path, samples: int, size: int = 100) -> Index:
    """An index of an archive that is not there."""
    each = array("Q", [size] * samples)
    offsets = array("Q", range(512, 512 + (size + 20) * samples, size + 20))
    zeros = array("Q", [0] * samples)
    draft = Draft((Archive("http://127.0.0.1/none.tar", 1 << 40),), ("one",), offsets, each, zeros, zeros)
    draft.names = [str(number) for number in range(samples)]
    return write(draft, folder / f"{samples}.packtrain-index")


def crc_of(data: bytes, label: int) -> int:
    """To be found by processes that are not forked, too."""
    return zlib.crc32(data)
