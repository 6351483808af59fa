"""packtrain.torch.streaming with real workers: every sample once, resumed in mid-epoch on any number of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from packtrain.errors import UsageError
from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.samples import StreamError, StreamingSamples
from packtrain.torch import Checkpoint
from packtrain.torch.streaming import StreamingMapDataset, make_streaming_loader
from packtrain.transfer.block_checksums import make_checksums, write_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive, random_content

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
SAMPLES, SIZE = 150, 300


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_archive(tmp_path_factory.mktemp("archive"), SAMPLES, SIZE)


def number_of(data, label):
    return _NUMBERS[data]


_NUMBERS = {random_content(number, SIZE + number % 7): number for number in range(SAMPLES)}


def _loader(index, **settings):
    given = {"batch_size": 8, "workers": 2, "decode": number_of, "collate": list, "seed": 4, "memory": 1 << 20}
    return make_streaming_loader(index, **{**given, **settings})


def test_one_epoch_has_every_sample_once_and_the_next_another_order(index):
    data = _loader(index)
    assert (data.epoch, len(data)) == (1, 19)
    first = [number for batch in data for number in batch]
    assert (data.epoch, len(data)) == (2, 19)
    second = [number for batch in data for number in batch]
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second
    assert first == [number for batch in _loader(index) for number in batch]  # the seed decides


def test_it_resumes_with_what_was_delivered_not_with_what_was_read_ahead(index):
    data = _loader(index)
    given = [batch for _, batch in zip(range(5), data, strict=False)]
    state = data.state_dict()
    again = _loader(index)
    again.load_state_dict(state)
    assert len(again) == 14
    assert given + list(again) == list(_loader(index))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_it_resumes_with_another_number_of_workers_and_ranks(index, workers):
    data = _loader(index)
    seen = Counter(number for _, batch in zip(range(5), data, strict=False) for number in batch)
    ranks = [_loader(index, workers=workers, rank_and_world=(rank, 2), uneven="pad") for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(data.state_dict())
    batches = [list(rank) for rank in ranks]
    assert len(batches[0]) == len(batches[1])
    seen.update(number for rank in batches for batch in rank for number in batch)
    assert seen == Counter(range(SAMPLES))
    assert [rank.epoch for rank in ranks] == [2, 2]


def test_its_position_goes_into_the_checkpoint_by_itself(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    data = _loader(index, workers=0)
    model = nn.Linear(1, 1)
    with Checkpoint("c.pt", model=model, data=data) as ckpt:
        given = [batch for _, batch in zip(range(7), data, strict=False)]
        ckpt.save(epoch=1, step=7)
    other = _loader(index, workers=0)
    with Checkpoint("c.pt", model=model, data=other) as ckpt:
        ckpt.restore()
    assert given + list(other) == list(_loader(index, workers=0))


def test_batches_are_collated_as_torch_does(index):
    def decode(data, label):
        return torch.tensor(list(data[:10])), label

    numbers, labels = next(iter(_loader(index, decode=decode, collate=torch.utils.data.default_collate)))
    assert numbers.shape == (8, 10)
    assert labels.dtype == torch.int64


def _in_tensors(index, **settings):
    """Full batches are large enough to be handed over, and fit; labels are too small for it."""

    def decode(data, label):
        return torch.full((5000,), _NUMBERS[data], dtype=torch.uint8)

    def collate(tensors):
        return [torch.stack(tensors), torch.stack([one[:1] for one in tensors])]

    return _loader(index, decode=decode, collate=collate, batch_size=16, **settings)


def _numbers(batches):
    assert all((images == numbers).all() for images, numbers in batches)
    return sorted(int(number) for _, numbers in batches for number in numbers)


def test_tensors_that_the_training_keeps_are_not_overwritten(index):
    batches = list(_in_tensors(index))
    assert _numbers(batches) == list(range(SAMPLES))
    ours = [not images.is_shared() for images, _ in batches]
    assert ours == [True] * 8 + [False] * 2  # then no place is left; the last batch is a small one


def test_tensors_come_through_memory_of_ours_again_and_again(index):
    assert all(not images.is_shared() for images, _ in _in_tensors(index) if len(images) == 16)


def test_skipped_samples_are_told_by_the_loader(index):
    def decode(data, label):
        number = _NUMBERS[data]
        if number % 50 == 3:
            raise ValueError("not an image")
        return number

    data = _loader(index, decode=decode, bad="skip")
    seen = [number for batch in data for number in batch]
    assert len(seen) == SAMPLES - 3
    assert sorted(bad.number for bad in data.skipped) == [3, 53, 103]
    with pytest.raises(StreamError, match="not an image"):
        list(_loader(index, decode=decode, workers=0))


def test_torchs_own_loader_takes_samples_by_number(index, tmp_path):
    samples = StreamingSamples(index, number_of)
    seen = [
        int(number)
        for batch in DataLoader(StreamingMapDataset(samples), batch_size=10, shuffle=True)
        for number in batch
    ]
    assert sorted(seen) == list(range(SAMPLES))


def test_kept_samples_cost_no_network_in_the_second_epoch(index, tmp_path):
    with HttpServer(index.path.parent) as origin:
        data = _loader(index, sources=f"{origin.url}/data.tar", keep=tmp_path)
        assert sorted(number for batch in data for number in batch) == list(range(SAMPLES))
        sent = origin.sent_bytes
        assert sorted(number for batch in data for number in batch) == list(range(SAMPLES))
        assert origin.sent_bytes == sent > 0


def test_by_the_checksums_that_the_index_carries_a_wrong_byte_is_seen(tmp_path):
    make_archive(tmp_path, SAMPLES, SIZE)
    with HttpServer(tmp_path) as origin:
        refs = [[Location(f"{origin.url}/data.tar")]]
        with pytest.raises(UsageError, match="has no checksums"):
            _loader(build_index(IndexRequest(refs, str), tmp_path / "without").path, checksums=True)
        write_checksums(make_checksums(tmp_path / "data.tar", 4096), tmp_path / "data.tar.checksums.json")
        index = build_index(IndexRequest(refs, str), tmp_path / "with")
        origin.faults[:] = [ResponseFault(corrupt_offset=600)]
        data = _loader(index.path, workers=0, checksums=True)
        assert sorted(number for batch in data for number in batch) == list(range(SAMPLES))
        assert data.samples.stats.failures + data.samples.stats.hedges >= 1


def test_more_processes_than_samples_are_refused(index):
    with pytest.raises(UsageError, match="150 samples cannot be split over 151"):
        _loader(index, rank_and_world=(0, 151))


LONG_WAY = """
import sys
from packtrain.torch.streaming import loader
for numbers, labels in loader(sys.argv[1], batch_size=50, workers=1, decode=lambda data, label: (len(data), label)):
    print(len(numbers))
"""


def test_workers_hand_over_tensors_where_temporary_files_lie_deep(index, tmp_path):
    """As in a pool: the path of a socket would be too long, and torch would wait forever."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    command = [sys.executable, "-c", LONG_WAY, str(index.path)]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(deep)}, capture_output=True, text=True)
    assert done.stdout.split() == ["50", "50", "50"], done.stderr
