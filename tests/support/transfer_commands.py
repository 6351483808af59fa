"""Test data and helpers for the commands `get` and `put`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

DATA = bytes(i * 7919 % 251 for i in range(300_000))
SHA256 = hashlib.sha256(DATA).hexdigest()


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def serve_large_file(folder: Path, n_bytes: int = 8_000_000) -> bytes:
    data = os.urandom(n_bytes)
    (folder / "large.bin").write_bytes(data)
    return data
