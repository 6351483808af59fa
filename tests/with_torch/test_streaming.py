"""Tests of streaming loaders with real workers: every sample once, also after a resume mid-epoch."""

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
from packtrain.torch.streaming import StreamingLoader, StreamingMapDataset
from packtrain.transfer.integrity.block_checksums import make_checksums, write_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive, random_content

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
N_SAMPLES, SIZE = 150, 300


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_archive(tmp_path_factory.mktemp("archive"), N_SAMPLES, SIZE)


def number_of(data, label):
    return _NUMBERS[data]


_NUMBERS = {random_content(number, SIZE + number % 7): number for number in range(N_SAMPLES)}


def make_loader(index, **options):
    defaults = {"batch_size": 8, "num_workers": 2, "decode_fn": number_of, "collate_fn": list, "seed": 4}
    return StreamingLoader(index, **{**defaults, "prefetch_bytes": 1 << 20, **options})


def test_every_sample_once_per_epoch(index):
    data = make_loader(index)
    assert (data.epoch, len(data)) == (0, 19)
    first = [number for batch in data for number in batch]
    assert (data.epoch, len(data)) == (1, 19)
    second = [number for batch in data for number in batch]
    assert sorted(first) == sorted(second) == list(range(N_SAMPLES))
    assert first != second
    assert first == [number for batch in make_loader(index) for number in batch]  # the seed decides the order


def test_resume_ignores_prefetched_batches(index):
    data = make_loader(index)
    received = [batch for _, batch in zip(range(5), data, strict=False)]
    state = data.state_dict()
    again = make_loader(index)
    again.load_state_dict(state)
    assert len(again) == 14
    assert received + list(again) == list(make_loader(index))


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_resume_with_other_workers_and_ranks(index, num_workers):
    data = make_loader(index)
    seen = Counter(number for _, batch in zip(range(5), data, strict=False) for number in batch)
    loaders = [make_loader(index, num_workers=num_workers, rank=rank, world_size=2) for rank in range(2)]
    for loader in loaders:
        loader.load_state_dict(data.state_dict())
    batches = [list(loader) for loader in loaders]
    assert len(batches[0]) == len(batches[1])
    seen.update(number for rank in batches for batch in rank for number in batch)
    assert seen == Counter(range(N_SAMPLES))
    assert [loader.epoch for loader in loaders] == [1, 1]


def test_position_is_saved_in_the_checkpoint(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    data = make_loader(index, num_workers=0)
    model = nn.Linear(1, 1)
    with Checkpoint("c.pt", model=model, data=data) as ckpt:
        received = [batch for _, batch in zip(range(7), data, strict=False)]
        ckpt.save(epoch=0, step=7)
    other = make_loader(index, num_workers=0)
    with Checkpoint("c.pt", model=model, data=other) as ckpt:
        ckpt.restore()
    assert received + list(other) == list(make_loader(index, num_workers=0))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_random_numbers_of_the_training_are_left_alone(index, num_workers):
    """Otherwise a resumed training would have other ones. Those of the workers differ in each epoch."""

    def decode(data, label):
        return torch.initial_seed()

    data, before = make_loader(index, num_workers=num_workers, decode_fn=decode), torch.get_rng_state()
    epochs = [{seed for batch in data for seed in batch} for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert [len(seeds) for seeds in epochs] == [1, 1] and (epochs[0] != epochs[1]) == bool(num_workers)


def test_default_collate(index):
    def decode(data, label):
        return torch.tensor(list(data[:10])), label

    numbers, labels = next(iter(make_loader(index, decode_fn=decode, collate_fn=torch.utils.data.default_collate)))
    assert numbers.shape == (8, 10)
    assert labels.dtype == torch.int64


def test_kept_tensors_are_not_overwritten(index):
    """Workers return tensors in torch's shared memory, also of workers that have exited."""

    def decode(data, label):
        return torch.full((5000,), _NUMBERS[data], dtype=torch.uint8)

    def collate(tensors):
        return torch.stack(tensors), [int(tensor[0]) for tensor in tensors]

    batches = list(make_loader(index, decode_fn=decode, collate_fn=collate, batch_size=16))
    assert all(images.is_shared() for images, _ in batches)
    assert all((images == torch.tensor(numbers)[:, None]).all() for images, numbers in batches)
    assert sorted(number for _, numbers in batches for number in numbers) == list(range(N_SAMPLES))


def test_skipped_samples_are_recorded(index):
    def decode(data, label):
        number = _NUMBERS[data]
        if number % 50 == 3:
            raise ValueError("not an image")
        return number

    data = make_loader(index, decode_fn=decode, on_error="skip")
    seen = [number for batch in data for number in batch]
    assert len(seen) == N_SAMPLES - 3
    assert sorted(sample.number for sample in data.skipped) == [3, 53, 103]
    with pytest.raises(StreamError, match="not an image"):
        list(make_loader(index, decode_fn=decode, num_workers=0))


def test_data_loader_of_torch(index, tmp_path):
    dataset = StreamingMapDataset(StreamingSamples(index, number_of))
    seen = [int(number) for batch in DataLoader(dataset, batch_size=10, shuffle=True) for number in batch]
    assert sorted(seen) == list(range(N_SAMPLES))


def test_second_epoch_comes_from_the_cache(index, tmp_path):
    with HttpServer(index.path.parent) as origin:
        data = make_loader(index, sources=f"{origin.url}/data.tar", cache_dir=tmp_path)
        assert sorted(number for batch in data for number in batch) == list(range(N_SAMPLES))
        sent_bytes = origin.sent_bytes
        assert sorted(number for batch in data for number in batch) == list(range(N_SAMPLES))
        assert origin.sent_bytes == sent_bytes > 0


def test_checksums_of_the_index(tmp_path):
    make_archive(tmp_path, N_SAMPLES, SIZE)
    with HttpServer(tmp_path) as origin:
        request = IndexRequest([[Location(f"{origin.url}/data.tar")]], str)
        with pytest.raises(UsageError, match="has no checksums"):
            make_loader(build_index(request, tmp_path / "without").path, checksums=True)
        write_checksums(make_checksums(tmp_path / "data.tar", 4096), tmp_path / "data.tar.checksums.json")
        index = build_index(request, tmp_path / "with")
        origin.faults[:] = [ResponseFault(corrupt_offset=600)]
        data = make_loader(index.path, num_workers=0, checksums=True)
        assert sorted(number for batch in data for number in batch) == list(range(N_SAMPLES))
        assert data.samples.stats.failures + data.samples.stats.hedges >= 1


def test_drop_last(index):
    batches = list(make_loader(index, drop_last=True))
    assert [len(batch) for batch in batches] == [8] * 18
    assert len({number for batch in batches for number in batch}) == 144


def test_too_few_samples(index):
    with pytest.raises(UsageError, match=r"150 samples cannot be split over 151 processes$"):
        make_loader(index, rank=0, world_size=151)
    with pytest.raises(UsageError, match="150 samples cannot be split over 2 processes in full batches of 76"):
        make_loader(index, rank=0, world_size=2, batch_size=76, drop_last=True)


PROGRAM = """
import sys
from packtrain.torch import StreamingLoader

def decode(data, label):
    return len(data), label

for sizes, labels in StreamingLoader(sys.argv[1], batch_size=50, num_workers=1, decode_fn=decode):
    print(len(sizes))
"""


def test_long_temporary_folder(index, tmp_path):
    """As in a pool: the path of a socket would be too long, and torch would hang."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(index.path)]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(deep)}, capture_output=True, text=True)
    assert done.stdout.split() == ["50", "50", "50"], done.stderr
