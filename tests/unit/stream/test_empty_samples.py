"""Tests of empty samples, for which there is no byte range to request."""

from __future__ import annotations

import io
import tarfile

import pytest

from packtrain.stream.samples import SKIP, StreamError, StreamingSamples, StreamSettings
from testbed.http_server import HttpServer
from tests.support.stream_indexes import index_folder, index_tars, random_content

EMPTY = (0, 3, 4, 9)  # the first, the last, and two neighbours
CONTENTS = [b"" if number in EMPTY else random_content(number, 700) for number in range(10)]


@pytest.fixture
def origin(tmp_path):
    with tarfile.open(tmp_path / "data.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, data in enumerate(CONTENTS):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with HttpServer(tmp_path) as origin:
        yield origin


@pytest.fixture
def index(origin, tmp_path):
    return index_tars({f"{origin.url}/data.tar": tmp_path / "data.tar"}, tmp_path / "index")


def test_empty_samples_are_returned(index):
    samples = StreamingSamples(index)
    assert [samples[number][0] for number in range(10)] == CONTENTS
    assert [data for data, _ in samples.__getitems__(range(10))] == CONTENTS


@pytest.mark.parametrize("is_folder", [False, True])
def test_undecodable_empty_sample(index, is_folder, origin, tmp_path):
    """An empty sample that cannot be decoded is fetched again, raised or skipped."""
    if is_folder:
        (tmp_path / "files").mkdir()
        for number, data in enumerate(CONTENTS):
            (tmp_path / "files" / f"{number}.bin").write_bytes(data)
        index = index_folder(tmp_path / "files", tmp_path / "other")

    def decode(data, label):
        if not data:
            raise ValueError("nothing to decode")
        return data

    with pytest.raises(StreamError, match=r"0\.bin \(number 0\) cannot be decoded: ValueError\('nothing to decode'\)"):
        StreamingSamples(index, decode)[0]
    skipping = StreamingSamples(index, decode, StreamSettings(on_error=SKIP))
    with pytest.raises(StreamError, match="not skipped"):
        skipping[3]
    assert [sample.number for sample in skipping.skipped] == [3]
    assert skipping[1] == CONTENTS[1], "the server is still used"
