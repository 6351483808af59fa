"""An index made over any backend is the one that is made of the file itself."""

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


def plain(value) -> str:
    assert isinstance(value, str)
    return value


def nested(path: Path) -> bytes:
    """A tar of two tars, in the manner of ImageNet."""
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


def contents(index: Index) -> tuple:
    names, samples = list(index.names()), range(len(index))
    return names, [index.sample(number)[1:] for number in samples], index.class_names, index.archives[0].size


def test_the_same_over_every_backend(backend, tmp_path):
    data = nested(tmp_path / "train.tar")
    of_the_file = build_index(IndexRequest([[Location((tmp_path / "train.tar").as_uri())]], plain), tmp_path / "own")
    ref = backend.put("train.tar", data, tmp_path)
    if backend.name == "memory":  # no scheme of an address: only tests have it
        with pytest.raises(FailedError, match="scheme"):
            build_index(IndexRequest([[ref]], plain), tmp_path / "index")
        return
    index = build_index(IndexRequest([[ref]], plain), tmp_path / "index")
    assert contents(index) == contents(of_the_file)
    assert bool(index.archives[0].etag or index.archives[0].modified) is not backend.immutable
    one = index.sample(7)
    stream = backend.store.open(ref, ByteRange(one.offset, one.offset + one.size))
    assert stream.read(100) == data[one.offset : one.offset + 100]
    stream.close()


def test_a_folder_of_every_backend_that_lists(backend, tmp_path):
    names = ("cat/1.jpg", "dog/2.jpg")
    for name in names:
        backend.put(f"data/{name}", name.encode(), tmp_path)
    folder = backend.make_location("data")
    wish = IndexRequest([[replace(folder, url=folder.url + "/")]], plain, retry_timeout_s=0.1)
    if not backend.can_list or backend.name == "memory":
        with pytest.raises(FailedError):
            build_index(wish, tmp_path / "index")
        return
    index = build_index(wish, tmp_path / "index")
    assert (index.layout, list(index.names()), index.class_names) == (LAYOUT_FILES, list(names), ("cat", "dog"))
    stream = backend.store.open(replace(folder, url=index.sample_url(1)))
    assert stream.read(100) == b"dog/2.jpg"
    stream.close()


@pytest.mark.slow
@pytest.mark.xdist_group("pelican")
def test_the_headers_are_read_at_the_origin(real_federation, tmp_path, monkeypatch):
    """A cache would fetch a block of the file for every one of them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(real_federation.ca))
    name = f"{uuid.uuid4().hex}.tar"
    PelicanBackend(plain).put(Location(real_federation.url(name)), _made(tmp_path / "train.tar"))
    real_federation.director.seen.clear()
    assert len(build_index(IndexRequest([[Location(real_federation.url(name))]], plain), tmp_path / "index")) == 10
    asked = [seen.path for seen in real_federation.director.seen if name in seen.path]
    assert asked and all("/director/origin/" in path for path in asked)


def _made(path: Path) -> Path:
    nested(path)
    return path
