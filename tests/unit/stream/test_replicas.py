"""Who is asked for what: a server that has another archive, or refuses one, is not asked for that one again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.stream.samples import StreamError, StreamingSamples, StreamSettings
from packtrain.transfer.api import Replica
from packtrain.transfer.registry import get_source
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive, random_content


@pytest.fixture
def two(tmp_path):
    """Two archives of one server, and samples of both."""
    (tmp_path / "www").mkdir()
    for name in ("a.tar", "b.tar"):
        make_archive(tmp_path / "www", 20, name=name)
    with HttpServer(tmp_path / "www") as origin:
        refs = [[Location(f"{origin.url}/{name}")] for name in ("a.tar", "b.tar")]
        yield origin, StreamingSamples(build_index(IndexRequest(refs, str), tmp_path / "index"))


def test_an_archive_that_changed_is_told_each_time_and_others_can_be_had(two):
    origin, samples = two
    (origin.folder / "a.tar").write_bytes((origin.folder / "a.tar").read_bytes() + bytes(512))
    for _ in range(2):
        with pytest.raises(StreamError, match=r"unexpected_content.*a\.tar is not the archive that was indexed"):
            samples[3]
    assert samples[23][0] == random_content(3, 703)


def test_a_refusal_is_told_each_time_and_others_can_be_had(two):
    origin, samples = two
    origin.faults[:] = [ResponseFault(status=403)]
    for _ in range(2):
        with pytest.raises(StreamError, match=r"access_denied.*a\.tar"):
            samples[3]
    assert samples[23][0] == random_content(3, 703)


def test_a_file_of_a_folder_that_changed_is_told(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"{number}.bin").write_bytes(random_content(number, 50))
    index = build_index(IndexRequest([[Location((tmp_path / "data").as_uri() + "/")]], str), tmp_path / "index")
    (tmp_path / "data" / "1.bin").write_bytes(random_content(9, 60))
    assert StreamingSamples(index)[0][0] == random_content(0, 50)
    with pytest.raises(StreamError, match=r"1\.bin is not the file that was indexed: it had 50 bytes and now has 60"):
        StreamingSamples(index)[1]


def test_files_of_a_folder_stand_before_the_query_of_its_address(tmp_path):
    (tmp_path / "data/cat").mkdir(parents=True)
    (tmp_path / "data/cat/1.jpg").write_bytes(b"a cat")
    folder = Location((tmp_path / "data").as_uri() + "/")
    index = build_index(IndexRequest([[folder]], str), tmp_path / "index")
    ref = Location("https://origin.example/train/?directread")
    place = Replica(source=get_source(ref, str), location=ref, label="origin.example")
    assert (
        ArchiveReplicas(index, (), str).sample_location(place, 0).url
        == "https://origin.example/train/cat/1.jpg?directread"
    )


@pytest.mark.parametrize("more", ["?signature=1", ""])
def test_the_etag_is_looked_at_whatever_the_address_has_besides(tmp_path, more):
    with HttpServer(tmp_path) as origin:
        index = make_archive(tmp_path, 20, url=f"{origin.url}/data.tar")
        index.archives = (replace(index.archives[0], etag='"another"'),)
        with pytest.raises(StreamError, match='its ETag was "another" and now is'):
            StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/data.tar{more}"),)))[0]


def test_the_etag_of_a_mirror_is_not_taken_for_the_first_addresss(tmp_path):
    """The first fails when the index is made, and answers in the training."""
    for name in ("first", "mirror"):
        (tmp_path / name).mkdir()
        make_archive(tmp_path / name, 20)
    with HttpServer(tmp_path / "first", headers={"ETag": '"one"'}) as first, HttpServer(tmp_path / "mirror") as mirror:
        first.faults[:] = [ResponseFault(status=503)] * 1000
        refs = [Location(f"{origin.url}/data.tar") for origin in (first, mirror)]
        index = build_index(IndexRequest([refs], str), tmp_path / "index")
        first.faults.clear()
        assert len(StreamingSamples(index).__getitems__(range(20))) == 20
        assert [seen for seen in first.requests if seen.headers.get("range")]
    assert index.archives[0].etag == ""
    assert StreamingSamples(index).index.archives[0].mirrors == (f"{mirror.url}/data.tar",)


@pytest.mark.parametrize(
    ("urls", "here"),
    [
        (["http://127.0.0.1:1/a.tar", "http://localhost:2/a.tar"], True),
        (["http://127.0.0.1:1/a.tar", "http://192.0.2.1/a.tar"], False),
        (["osdf:///ospool/a.tar"], False),
    ],
)
def test_servers_are_here_if_all_of_them_are(tmp_path, urls, here):
    index = make_archive(tmp_path, 3)
    assert ArchiveReplicas(index, [Location(url) for url in urls], str).are_all_local == here
