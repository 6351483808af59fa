"""Tars of class tars, like ImageNet's, for tests of streaming."""

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
    """Write a tar of one tar per class. Return the CRC-32 and the label of each sample."""
    expected = []
    with tarfile.open(path, "w") as outer:
        for label, name in enumerate(class_names):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(samples_per_class):
                    data = random_content(label * samples_per_class + number, size)
                    add_member(tar, f"{name}_{number:03}.bin", data)
                    expected.append([zlib.crc32(data), label])
            add_member(outer, f"{name}.tar", inner.getvalue())
    return expected


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file to a tar."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
