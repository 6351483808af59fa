"""Tars of class tars, as ImageNet's own file is one, for tests of streaming."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path

from tests.support.stream_indexes import random_content

CLASS_NAMES = ("cat", "dog", "owl")


def write_nested_tar(
    path: Path, class_names=CLASS_NAMES, samples_per_class: int = 12, size: int = 900
) -> list[list[int]]:
    """What a reader sees of it: checksum and class of each sample."""
    seen = []
    with tarfile.open(path, "w") as outer:
        for label, name in enumerate(class_names):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(samples_per_class):
                    data = random_content(label * samples_per_class + number, size)
                    add_member(tar, f"{name}_{number:03}.bin", data)
                    seen.append([zlib.crc32(data), label])
            add_member(outer, f"{name}.tar", inner.getvalue())
    return seen


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
