"""Repack the samples for other systems: `python repack.py SYSTEM TAR FOLDER`, run in their environment.

webdataset and MosaicML's streaming get shards of 64 MB or more, litdata chunks of 64 MB, as their documentation says.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

_N_SHARDS = 20


def read_shuffled_samples(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the samples of a tar of class tars in random order, since these systems shuffle when they write shards."""
    import random

    samples = []
    with tarfile.open(path) as outer:
        for label, member in enumerate(outer):
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                samples += [(member.offset_data + image.offset_data, image.size, label) for image in inner]
    random.Random(1).shuffle(samples)
    with open(path, "rb") as file:
        for offset, size, label in samples:
            file.seek(offset)
            yield file.read(size), label


def write_webdataset(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as opened:
        shards = [opened.enter_context(tarfile.open(folder / f"s-{n:06}.tar", "w")) for n in range(_N_SHARDS)]
        for number, (data, label) in enumerate(read_shuffled_samples(path)):
            for extension, content in (("jpg", data), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{number:08}.{extension}")
                member.size = len(content)
                shards[number % _N_SHARDS].addfile(member, io.BytesIO(content))


def write_mosaicml(path: Path, folder: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"jpg": "bytes", "cls": "int"}) as out:
        for data, label in read_shuffled_samples(path):
            out.write({"jpg": data, "cls": label})


def write_litdata(path: Path, folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    folder.mkdir(parents=True)
    writer = BinaryWriter(str(folder), chunk_bytes="64MB")
    for number, (data, label) in enumerate(read_shuffled_samples(path)):
        writer[number] = {"jpg": data, "cls": label}
    writer.done()
    writer.merge()


if __name__ == "__main__":
    writers = {"webdataset": write_webdataset, "mosaicml": write_mosaicml, "litdata": write_litdata}
    writers[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
