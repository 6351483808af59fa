"""Contract: an index built over any backend equals the index of the local file."""

from __future__ import annotations

import io
import os
import tarfile
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.index import LAYOUT_FILES, Index
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.pelican.backend import PelicanBackend


def resolve_plain(value) -> str:
    assert isinstance(value, str)
    return value


def write_nested(path: Path) -> bytes:
    """Write a tar of two tars, like ImageNet's, and return its content."""
    with tarfile.open(path, "w") as outer:
        for label in ("n01", "n02"):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(5):
                    info = tarfile.TarInfo(f"{label}_{number}.JPEG")
                    info.size = 70_000 + number
                    tar.addfile(info, io.BytesIO(os.urandom(info.size)))
            info = tarfile.TarInfo(f"{label}.tar")
            info.size = len(inner.getvalue())
            outer.addfile(info, io.BytesIO(inner.getvalue()))
    return path.read_bytes()


def describe(index: Index) -> tuple:
    samples = [index.sample(number) for number in range(len(index))]
    return samples, index.class_names, index.archives[0].size


def test_archive(backend, tmp_path):
    data = write_nested(tmp_path / "train.tar")
    local_request = IndexRequest([[Location((tmp_path / "train.tar").as_uri())]], resolve_plain)
    local_index = build_index(local_request, tmp_path / "local")
    location = backend.put("train.tar", data, tmp_path)
    if backend.name == "memory":  # it has no URL scheme
        with pytest.raises(FailedError, match="scheme"):
            build_index(IndexRequest([[location]], resolve_plain), tmp_path / "index")
        return
    index = build_index(IndexRequest([[location]], resolve_plain), tmp_path / "index")
    assert describe(index) == describe(local_index)
    assert bool(index.archives[0].etag or index.archives[0].modified) is not backend.immutable
    sample = index.sample(7)
    stream = backend.store.open(location, ByteRange(sample.offset, sample.offset + sample.size))
    assert stream.read(100) == data[sample.offset : sample.offset + 100]
    stream.close()


def test_folder(backend, tmp_path):
    names = ("cat/1.jpg", "dog/2.jpg")
    for name in names:
        backend.put(f"data/{name}", name.encode(), tmp_path)
    folder = backend.make_location("data")
    request = IndexRequest([[replace(folder, url=folder.url + "/")]], resolve_plain, retry_timeout_s=0.1)
    if not backend.can_list or backend.name == "memory":
        with pytest.raises(FailedError):
            build_index(request, tmp_path / "index")
        return
    index = build_index(request, tmp_path / "index")
    assert (index.layout, list(index.names()), index.class_names) == (LAYOUT_FILES, list(names), ("cat", "dog"))
    stream = backend.store.open(replace(folder, url=index.sample_url(1)))
    assert stream.read(100) == b"dog/2.jpg"
    stream.close()


@pytest.mark.slow
@pytest.mark.xdist_group("pelican")
def test_headers_are_read_from_the_origin(real_federation, tmp_path, monkeypatch):
    """A cache would fetch a whole block of the file for every header."""
    monkeypatch.setenv("SSL_CERT_FILE", str(real_federation.ca))
    name = f"{uuid.uuid4().hex}.tar"
    location = Location(real_federation.url(name))
    write_nested(tmp_path / "train.tar")
    PelicanBackend(resolve_plain).put(location, tmp_path / "train.tar")
    real_federation.director.requests.clear()
    assert len(build_index(IndexRequest([[location]], resolve_plain), tmp_path / "index")) == 10
    paths = [request.path for request in real_federation.director.requests if name in request.path]
    assert paths and all("/director/origin/" in path for path in paths)
