"""Tests of the choice of servers: one that refuses an archive, or has a different one, is not used for it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.plan import Location
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.stream.samples import StreamError, StreamingSamples, StreamSettings
from packtrain.transfer.api import Replica
from packtrain.transfer.registry import get_source
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import index_folder, index_tars, make_archive, random_content


@pytest.fixture
def two_archives(tmp_path):
    """A server with two archives, and the samples of both."""
    (tmp_path / "www").mkdir()
    for name in ("a.tar", "b.tar"):
        make_archive(tmp_path / "www", 20, name=name)
    with HttpServer(tmp_path / "www") as origin:
        tars = {f"{origin.url}/{name}": tmp_path / "www" / name for name in ("a.tar", "b.tar")}
        yield origin, StreamingSamples(index_tars(tars, tmp_path / "index"))


def test_changed_archive(two_archives):
    """The error is raised each time; the other archive can still be read."""
    origin, samples = two_archives
    (origin.folder / "a.tar").write_bytes((origin.folder / "a.tar").read_bytes() + bytes(512))
    for _ in range(2):
        with pytest.raises(StreamError, match=r"unexpected_content.*a\.tar is not the archive that was indexed"):
            samples[3]
    assert samples[23][0] == random_content(3, 703)


def test_denied_archive(two_archives):
    """The error is raised each time; the other archive can still be read."""
    origin, samples = two_archives
    origin.faults[:] = [ResponseFault(status=403)]
    for _ in range(2):
        with pytest.raises(StreamError, match=r"access_denied.*a\.tar"):
            samples[3]
    assert samples[23][0] == random_content(3, 703)


def test_changed_file_of_a_folder(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"{number}.bin").write_bytes(random_content(number, 50))
    index = index_folder(tmp_path / "data", tmp_path / "index")
    (tmp_path / "data" / "1.bin").write_bytes(random_content(9, 60))
    assert StreamingSamples(index)[0][0] == random_content(0, 50)
    with pytest.raises(StreamError, match=r"1\.bin is not the file that was indexed: it had 50 bytes and now has 60"):
        StreamingSamples(index)[1]


def test_query_of_a_folder_url_is_kept(tmp_path):
    (tmp_path / "data/cat").mkdir(parents=True)
    (tmp_path / "data/cat/1.jpg").write_bytes(b"a cat")
    index = index_folder(tmp_path / "data", tmp_path / "index")
    location = Location("https://origin.example/train/?directread")
    replica = Replica(source=get_source(location, str), location=location, label="origin.example")
    url = ArchiveReplicas(index, (), str).sample_location(replica, 0).url
    assert url == "https://origin.example/train/cat/1.jpg?directread"


@pytest.mark.parametrize("query", ["?signature=1", ""])
def test_etag_is_checked_despite_a_query(tmp_path, query):
    with HttpServer(tmp_path) as origin:
        index = make_archive(tmp_path, 20, url=f"{origin.url}/data.tar")
        index.archives = (replace(index.archives[0], etag='"another"'),)
        with pytest.raises(StreamError, match='its ETag was "another" and now is'):
            StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/data.tar{query}"),)))[0]


@pytest.mark.parametrize(
    ("urls", "are_local"),
    [
        (["http://127.0.0.1:1/a.tar", "http://localhost:2/a.tar"], True),
        (["http://127.0.0.1:1/a.tar", "http://192.0.2.1/a.tar"], False),
        (["osdf:///ospool/a.tar"], False),
    ],
)
def test_are_all_local(tmp_path, urls, are_local):
    index = make_archive(tmp_path, 3)
    assert ArchiveReplicas(index, [Location(url) for url in urls], str).are_all_local == are_local
