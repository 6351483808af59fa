"""Data to transfer: random bytes, which reveal misplaced blocks, and a tar of tars like ImageNet."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

_BLOCK_BYTES = 1 << 20
_SIZE_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
N_CLASSES, IMAGES_PER_CLASS, IMAGE_BYTES = 200, 100, 110_000


def parse_size(text: str) -> int:
    """Parse `300M`, `2G` or a number of bytes."""
    return int(float(text[:-1]) * _SIZE_UNITS[text[-1]]) if text[-1] in _SIZE_UNITS else int(text)


def write_random_file(path: Path, n_bytes: int) -> str:
    """Write a file of random bytes and return its sha256."""
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for offset in range(0, n_bytes, _BLOCK_BYTES):
            block = os.urandom(min(_BLOCK_BYTES, n_bytes - offset))
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def write_nested_tar(path: Path, n_classes: int = N_CLASSES) -> None:
    """Write a tar of class tars of images; 2.2 GB with 200 classes."""
    with tarfile.open(path, "w") as outer:
        for number in range(n_classes):
            name = f"n{number:08d}"
            inner = _make_class_tar(name)
            member = tarfile.TarInfo(f"{name}.tar")
            member.size = len(inner)
            outer.addfile(member, io.BytesIO(inner))


def has_all_images(folder: Path, n_classes: int) -> bool:
    """Return True if the folder has the contents of the nested tar."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    n_right = sum(path.stat().st_size == IMAGE_BYTES + 6 - int(path.stem.partition("_")[2]) for path in files)
    return len(files) == n_right == n_classes * IMAGES_PER_CLASS and len(list(folder.iterdir())) == n_classes


def _make_class_tar(name: str) -> bytes:
    buffer, noise = io.BytesIO(), os.urandom(IMAGE_BYTES)
    with tarfile.open(fileobj=buffer, mode="w") as inner:
        for number in range(IMAGES_PER_CLASS):
            image = b"\xff\xd8" + number.to_bytes(4, "big") + noise[number:]
            member = tarfile.TarInfo(f"{name}_{number}.JPEG")
            member.size = len(image)
            inner.addfile(member, io.BytesIO(image))
    return buffer.getvalue()
