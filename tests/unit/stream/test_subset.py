"""A stream of some of the samples: each of those once, whoever goes on with it."""

import pytest

from packtrain.errors import UsageError
from packtrain.stream.cursor import Cursor
from packtrain.stream.shuffle import PartitionConfig
from tests.support.stream_indexes import make_index_without_archive

SAMPLES = 100
TRAINED = [number for number in range(SAMPLES) if (number + 1) % 8]


def split(workers=1):
    return PartitionConfig(num_workers=workers, batch_size=4, shuffle_window=3, read_bytes=1000)


def epoch(cursor, batches=None):
    """Numbers of the next so many batches; of the rest of the epoch, if not given."""
    dealt, first = cursor.partition(), cursor.batches_done
    count = dealt.batches - first if batches is None else batches
    before, after = list(dealt.delivered(first)), list(dealt.delivered(first + count))
    cursor.delivered(count)
    return sorted(set(after) - set(before))


@pytest.fixture
def index(tmp_path):
    return make_index_without_archive(tmp_path, SAMPLES)


def test_each_of_them_once_in_each_epoch(index):
    cursor = Cursor(index, split(), 1, TRAINED)
    assert epoch(cursor) == TRAINED
    assert cursor.epoch == 2
    assert epoch(cursor) == TRAINED


def test_another_number_of_workers_gives_the_rest(index):
    first = Cursor(index, split(), 1, TRAINED)
    seen = epoch(first, 5)
    second = Cursor(index, split(workers=3), 1, TRAINED)
    second.load_state_dict(first.state_dict())
    rest = epoch(second)
    assert not set(seen) & set(rest)
    assert sorted(seen + rest) == TRAINED


@pytest.mark.parametrize("other", [None, TRAINED[1:]])
def test_the_position_is_of_these_samples_only(index, other):
    state = Cursor(index, split(), 1, TRAINED).state_dict()
    with pytest.raises(UsageError, match="it does not fit"):
        Cursor(index, split(), 1, other).load_state_dict(state)
