"""Tars of class tars, as ImageNet's own file is one, for tests of streaming."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path

from tests.support.stream_indexes import content

CLASSES = ("cat", "dog", "owl")


def nested(path: Path, classes=CLASSES, each: int = 12, size: int = 900) -> list[list[int]]:
    """What a reader sees of it: checksum and class of each sample."""
    seen = []
    with tarfile.open(path, "w") as outer:
        for label, name in enumerate(classes):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(each):
                    data = content(label * each + number, size)
                    add(tar, f"{name}_{number:03}.bin", data)
                    seen.append([zlib.crc32(data), label])
            add(outer, f"{name}.tar", inner.getvalue())
    return seen


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
