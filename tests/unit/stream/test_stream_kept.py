"""What is kept on the disk is what was read, or is not used."""

import pytest
from reading import await_kept
from streams import archive_of, content

from packtrain.stream.dataset import Samples, Settings
from packtrain.stream.kept import Kept


@pytest.fixture
def index(tmp_path):
    return archive_of(tmp_path, 20)


def everything(index, keep):
    """All samples, and how many bytes came from the archive."""
    samples = Samples(index, settings=Settings(keep=keep, keep_bytes=1 << 20))
    found = [data for data, _ in samples.__getitems__(range(len(index)))]
    assert found == [content(number, 700 + number % 7) for number in range(20)]
    await_kept(samples)
    return samples.counts.bytes


def test_bytes_that_changed_are_read_again(index, tmp_path):
    keep = tmp_path / "keep"
    assert everything(index, keep) > 0
    assert everything(index, keep) == 0
    with open(keep / index.mark / "data", "r+b") as file:  # as after a crash: the sums were written, the bytes were not
        file.seek(index.offsets[3])
        file.write(bytes(index.sizes[3]))
    assert everything(index, keep) > 0
    assert everything(index, keep) == 0


def test_bytes_that_are_gone_are_read_again(index, tmp_path):
    keep = tmp_path / "keep"
    everything(index, keep)
    with open(keep / index.mark / "data", "r+b") as file:
        file.truncate(index.offsets[5])
    assert everything(index, keep) > 0


def test_what_is_bad_is_forgotten(index, tmp_path):
    everything(index, tmp_path / "keep")
    kept = Kept(tmp_path / "keep", index, 1 << 20)
    (tmp_path / "keep" / index.mark / "data").write_bytes(b"")
    assert kept.has([3])
    with pytest.raises(OSError, match="not what was read"):
        kept.read([3])
    assert not kept.has([3]) and kept.has([4])
    kept.close()
