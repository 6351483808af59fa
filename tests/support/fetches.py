"""An object, and the shortest way to ask for it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer import crc32c
from packtrain.transfer.fetch import Fetched, fetch
from testbed.http_server import Origin


def crc32c_of(data: bytes) -> str:
    running = crc32c.Crc32c()
    running.update(data)
    return running.hexdigest()


DATA = os.urandom(700_001)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())
MD5 = Digest("md5", hashlib.md5(DATA).hexdigest())
CRC32C = Digest("crc32c", crc32c_of(DATA))
NAME = "data.bin"


def item(*urls: str, **more) -> Item:
    return Item(NAME, tuple(Ref(url) for url in urls), **more)


def run(thing: Item, target: Path, patience_s: float = 5.0, stop=lambda: None, progress=lambda d, t: None) -> Fetched:
    return fetch(thing, target, str, patience_s=patience_s, stop=stop, progress=progress)


def failure(thing: Item, target: Path, patience_s: float = 0.0) -> FailedError:
    with pytest.raises(FailedError) as caught:
        run(thing, target, patience_s)
    assert not target.exists()
    return caught.value


def ranges(origin: Origin) -> list:
    return [seen.headers.get("range") for seen in origin.seen]


def other_etag(folder: Path, name: str, data: bytes) -> Path:
    other = folder.parent / name
    other.mkdir()
    (other / NAME).write_bytes(data)
    os.utime(other / NAME, ns=(1, 1))
    return other
