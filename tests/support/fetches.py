"""An object, and the shortest way to ask for it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer import crc32c
from packtrain.transfer.fetch import FetchResult, fetch
from testbed.http_server import HttpServer


def crc32c_hex(data: bytes) -> str:
    running = crc32c.PureCrc32c()
    running.update(data)
    return running.hexdigest()


DATA = os.urandom(700_001)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())
MD5 = Digest("md5", hashlib.md5(DATA).hexdigest())
CRC32C = Digest("crc32c", crc32c_hex(DATA))
FILENAME = "data.bin"


def make_remote_file(*urls: str, **more) -> RemoteFile:
    return RemoteFile(FILENAME, tuple(Location(url) for url in urls), **more)


def fetch_file(
    remote_file: RemoteFile,
    target: Path,
    retry_timeout_s: float = 5.0,
    check_cancelled=lambda: None,
    on_progress=lambda d, t: None,
) -> FetchResult:
    return fetch(
        remote_file,
        target,
        str,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=check_cancelled,
        on_progress=on_progress,
    )


def fetch_error(remote_file: RemoteFile, target: Path, retry_timeout_s: float = 0.0) -> FailedError:
    with pytest.raises(FailedError) as caught:
        fetch_file(remote_file, target, retry_timeout_s)
    assert not target.exists()
    return caught.value


def requested_ranges(server: HttpServer) -> list:
    return [seen.headers.get("range") for seen in server.requests]


def copy_with_other_etag(folder: Path, name: str, data: bytes) -> Path:
    other = folder.parent / name
    other.mkdir()
    (other / FILENAME).write_bytes(data)
    os.utime(other / FILENAME, ns=(1, 1))
    return other
