"""A small dataset in the format of ImageNet: a tar of class tars of images with incompressible data."""

from __future__ import annotations

import io
import random
import tarfile

_FIRST_WORDNET_ID = 1_440_764


def make_archive(megabytes: float, n_classes: int = 10, seed: int = 1) -> bytes:
    """Return the archive."""
    rng = random.Random(seed)
    outer = io.BytesIO()
    with tarfile.open(fileobj=outer, mode="w") as outer_tar:
        for number in range(n_classes):
            name = f"n{_FIRST_WORDNET_ID + 11 * number:08}"
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as class_tar:
                _add_member(
                    class_tar, f"{name}_{number}.JPEG", b"\xff\xd8" + rng.randbytes(int(megabytes * 1e6 / n_classes))
                )
            _add_member(outer_tar, f"{name}.tar", inner.getvalue())
    return outer.getvalue()


def _add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
