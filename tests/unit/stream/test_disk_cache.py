"""What is kept on the disk is what was read, or is not used."""

import pytest

from packtrain.stream.disk_cache import SampleCache
from packtrain.stream.read_groups import make_read_group
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.transfer.block_checksums import make_checksums
from tests.support.stream_indexes import make_archive, make_index_without_archive, random_content


@pytest.fixture
def index(tmp_path):
    return make_archive(tmp_path, 20)


def everything(index, keep):
    """All samples, and how many bytes came from the archive."""
    samples = StreamingSamples(index, settings=StreamSettings(cache_dir=keep, cache_limit_bytes=1 << 20))
    found = [data for data, _ in samples.__getitems__(range(len(index)))]
    assert found == [random_content(number, 700 + number % 7) for number in range(20)]
    return samples.stats.bytes_read


def test_bytes_that_changed_are_read_again(index, tmp_path):
    keep = tmp_path / "keep"
    assert everything(index, keep) > 0
    assert everything(index, keep) == 0
    with open(keep / index.fingerprint / "data", "r+b") as file:  # as after a crash: only the sums were written
        file.seek(index.offsets[3])
        file.write(bytes(index.sizes[3]))
    assert everything(index, keep) > 0
    assert everything(index, keep) == 0


def test_bytes_that_are_gone_are_read_again(index, tmp_path):
    keep = tmp_path / "keep"
    everything(index, keep)
    with open(keep / index.fingerprint / "data", "r+b") as file:
        file.truncate(index.offsets[5])
    assert everything(index, keep) > 0


def test_what_is_bad_is_forgotten(index, tmp_path):
    everything(index, tmp_path / "keep")
    kept = SampleCache(tmp_path / "keep", index, 1 << 20)
    (tmp_path / "keep" / index.fingerprint / "data").write_bytes(b"")
    assert kept.has_all([3])
    with pytest.raises(OSError, match="not what was read"):
        kept.read([3])
    assert not kept.has_all([3]) and kept.has_all([4])
    kept.close()


def test_with_checksums_the_second_epoch_costs_no_network(index, tmp_path):
    """Blocks are read whole, so that neighbours share some; what is kept is counted once."""
    sums = make_checksums(tmp_path / "data.tar", 4096)
    size = index.archives[0].size
    pieces = [range(start, start + 2) for start in range(0, 20, 2)]
    came = []
    for _ in range(2):
        samples = StreamingSamples(
            index, settings=StreamSettings(cache_dir=tmp_path / "keep", cache_limit_bytes=size, checksums=(sums,))
        )
        for piece in pieces:
            samples.__getitems__(piece)
        came.append(samples.stats.bytes_read)
    assert came[0] > size and came[1] == 0


def test_pieces_that_are_cut_elsewhere_take_no_room_twice(index, tmp_path):
    most = index.offsets[19] + index.sizes[19] - index.offsets[0]
    kept = SampleCache(tmp_path / "keep", index, most)
    archive = (tmp_path / "data.tar").read_bytes()
    for first, stop in ((0, 6), (4, 12), (2, 10), (10, 20), (0, 20)):
        piece = make_read_group(index, range(first, stop))
        kept.store(piece, memoryview(archive)[piece.start : piece.stop])
    assert kept.used_bytes == most
    assert kept.read(range(20)) == [random_content(number, 700 + number % 7) for number in range(20)]
    kept.close()


def test_the_disk_gives_the_room_for_the_sums_at_once(tmp_path):
    """On a full disk, writing into a hole of a file that is mapped would kill the process."""
    index = make_index_without_archive(tmp_path, 50_000)
    SampleCache(tmp_path / "keep", index, 1000).close()
    sums = (tmp_path / "keep" / index.fingerprint / "sums").stat()
    assert sums.st_blocks * 512 >= sums.st_size == 8 + 4 * 50_000
