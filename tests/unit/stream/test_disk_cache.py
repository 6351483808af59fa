"""Tests of the disk cache of samples."""

import pytest

from packtrain.stream.disk_cache import SampleCache
from packtrain.stream.read_groups import make_read_group
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.transfer.integrity.block_checksums import make_checksums
from tests.support.stream_indexes import make_archive, make_index_without_archive, random_content


@pytest.fixture
def index(tmp_path):
    return make_archive(tmp_path, 20)


def read_all(index, cache_dir):
    """Read all samples, and return how many bytes came from the archive."""
    samples = StreamingSamples(index, settings=StreamSettings(cache_dir=cache_dir, cache_limit_bytes=1 << 20))
    contents = [data for data, _ in samples.__getitems__(range(len(index)))]
    assert contents == [random_content(number, 700 + number % 7) for number in range(20)]
    return samples.stats.bytes_read


def test_changed_bytes_are_read_again(index, tmp_path):
    cache_dir = tmp_path / "cache"
    assert read_all(index, cache_dir) > 0
    assert read_all(index, cache_dir) == 0
    with open(
        cache_dir / index.fingerprint / "data", "r+b"
    ) as file:  # as after a crash: only the checksums were written
        file.seek(index.offsets[3])
        file.write(bytes(index.sizes[3]))
    assert read_all(index, cache_dir) > 0
    assert read_all(index, cache_dir) == 0


def test_missing_bytes_are_read_again(index, tmp_path):
    cache_dir = tmp_path / "cache"
    read_all(index, cache_dir)
    with open(cache_dir / index.fingerprint / "data", "r+b") as file:
        file.truncate(index.offsets[5])
    assert read_all(index, cache_dir) > 0


def test_wrong_checksum_is_removed(index, tmp_path):
    read_all(index, tmp_path / "cache")
    cache = SampleCache(tmp_path / "cache", index, 1 << 20)
    (tmp_path / "cache" / index.fingerprint / "data").write_bytes(b"")
    assert cache.has_all([3])
    with pytest.raises(OSError, match="the checksum of the cached sample 3 is wrong"):
        cache.read([3])
    assert not cache.has_all([3]) and cache.has_all([4])
    cache.close()


def test_second_epoch_with_checksums(index, tmp_path):
    """Neighbours share blocks, because whole blocks are read. Each cached byte counts once."""
    checksums = make_checksums(tmp_path / "data.tar", 4096)
    size = index.archives[0].size
    groups = [range(start, start + 2) for start in range(0, 20, 2)]
    bytes_read = []
    for _ in range(2):
        samples = StreamingSamples(
            index, settings=StreamSettings(cache_dir=tmp_path / "cache", cache_limit_bytes=size, checksums=(checksums,))
        )
        for group in groups:
            samples.__getitems__(group)
        bytes_read.append(samples.stats.bytes_read)
    assert bytes_read[0] > size and bytes_read[1] == 0


def test_overlapping_groups_count_once(index, tmp_path):
    max_bytes = index.offsets[19] + index.sizes[19] - index.offsets[0]
    cache = SampleCache(tmp_path / "cache", index, max_bytes)
    archive = (tmp_path / "data.tar").read_bytes()
    for first, stop in ((0, 6), (4, 12), (2, 10), (10, 20), (0, 20)):
        group = make_read_group(index, range(first, stop))
        cache.store(group, memoryview(archive)[group.start : group.stop])
    assert cache.used_bytes == max_bytes
    assert cache.read(range(20)) == [random_content(number, 700 + number % 7) for number in range(20)]
    cache.close()


def test_checksums_are_preallocated(tmp_path):
    """On a full disk, writing to a hole of a mapped file would kill the process."""
    index = make_index_without_archive(tmp_path, 50_000)
    SampleCache(tmp_path / "cache", index, 1000).close()
    status = (tmp_path / "cache" / index.fingerprint / "checksums").stat()
    assert status.st_blocks * 512 >= status.st_size == 8 + 4 * 50_000
