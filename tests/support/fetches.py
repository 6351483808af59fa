"""A test object, and helpers that download it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.integrity import crc32c
from testbed.http_server import HttpServer


def crc32c_hex(data: bytes) -> str:
    hasher = crc32c.Crc32c()
    hasher.update(data)
    return hasher.hexdigest()


DATA = os.urandom(700_001)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())
MD5 = Digest("md5", hashlib.md5(DATA).hexdigest())
CRC32C = Digest("crc32c", crc32c_hex(DATA))
FILENAME = "data.bin"


def make_remote_file(*urls: str, **options) -> RemoteFile:
    """A RemoteFile of the test object with one location per URL."""
    return RemoteFile(FILENAME, tuple(Location(url) for url in urls), **options)


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
    """The error of a download that must fail and leave no target."""
    with pytest.raises(FailedError) as caught:
        fetch_file(remote_file, target, retry_timeout_s)
    assert not target.exists()
    return caught.value


def requested_ranges(server: HttpServer) -> list:
    """The Range header of each request."""
    return [request.headers.get("range") for request in server.requests]


def copy_with_other_etag(folder: Path, name: str, data: bytes) -> Path:
    """A folder with `data` under the name of the test object; its server reports a different ETag."""
    other = folder.parent / name
    other.mkdir()
    (other / FILENAME).write_bytes(data)
    os.utime(other / FILENAME, ns=(1, 1))
    return other
