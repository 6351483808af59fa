"""Tests of streaming loaders with a real process group, and with workers of every kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib

import pytest
from torch.utils.data import DataLoader

from packtrain.errors import UsageError
from packtrain.stream.samples import StreamingSamples
from packtrain.torch.streaming import StreamingLoader, StreamingMapDataset
from tests.support.programs import stream_ranks
from tests.support.stream_indexes import decode_to_crc, make_archive, make_index_without_archive, random_content

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
N_SAMPLES, SIZE, WORLD_SIZE, BATCH_SIZE = 151, 300, 2, 8
CRCS = [zlib.crc32(random_content(number, SIZE + number % 7)) for number in range(N_SAMPLES)]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_archive(tmp_path_factory.mktemp("archive"), N_SAMPLES, SIZE)


def make_rank_loader(index, rank, **options):
    defaults = {"batch_size": BATCH_SIZE, "num_workers": 0, "decode_fn": decode_to_crc, "collate_fn": list, "seed": 4}
    return StreamingLoader(index, rank=rank, world_size=WORLD_SIZE, **{**defaults, **options})


def run_ranks(index, group, num_workers, undecodable=()):
    """Run all ranks, and return what each printed."""
    program = [sys.executable, stream_ranks.__file__]
    arguments = [str(index.path), str(group), str(BATCH_SIZE), str(num_workers), *map(str, undecodable)]
    processes = []
    for rank in range(WORLD_SIZE):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)}
        processes.append(subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True, env=environment))
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * WORLD_SIZE
    return [json.loads(output) for output in outputs]


def test_ranks_share_an_epoch(index, tmp_path):
    """Of 151 samples each of two ranks gets 76, one of them twice, and no rank hangs."""
    first, second = run_ranks(index, tmp_path / "group", num_workers=2)
    assert [len(rank["batches"]) for rank in (first, second)] == [10, 10]
    seen = [crc for rank in (first, second) for batch in rank["batches"] for crc in batch]
    assert len(seen) == 152 and set(seen) == set(CRCS)


def test_batch_without_usable_samples(index, tmp_path):
    """It is replaced, so that the other rank does not hang."""
    batches = list(make_rank_loader(index, 0))
    assert make_rank_loader(index, 0).state_dict()["phases"][0]["num_workers"] == 1  # as in the processes
    first, second = run_ranks(index, tmp_path / "group", num_workers=0, undecodable=batches[3])
    assert first["batches"] == [*batches[:3], batches[2][-1:], *batches[4:]]
    assert sorted(CRCS[number] for number in first["skipped"]) == sorted(batches[3])
    assert second == {"batches": list(make_rank_loader(index, 1)), "skipped": []}


def test_first_batch_without_usable_samples(index):
    undecodable = set(next(iter(make_rank_loader(index, 0))))

    def decode(data, label):
        if decode_to_crc(data, label) in undecodable:
            raise ValueError("not an image")
        return decode_to_crc(data, label)

    with pytest.raises(Exception, match=r"no sample .* can be used, and the other ranks wait.*not an image"):
        next(iter(make_rank_loader(index, 0, decode_fn=decode, on_error="skip")))


def test_several_processes_need_a_process_group(index, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"2 processes \(WORLD_SIZE\), but no process group yet.*init_process_group"):
        StreamingLoader(index)
    assert len(StreamingLoader(index, rank=0, world_size=1)) == N_SAMPLES


def test_in_order_is_required(index):
    with pytest.raises(UsageError, match="in_order=False is not supported"):
        StreamingLoader(index, num_workers=2, in_order=False)


@pytest.mark.parametrize("options", [{"multiprocessing_context": "spawn"}, {"persistent_workers": True}])
def test_other_kinds_of_workers(index, options):
    data = StreamingLoader(index, batch_size=20, num_workers=1, decode_fn=decode_to_crc, collate_fn=list, **options)
    assert sorted(crc for batch in data for crc in batch) == sorted(CRCS)
    assert data.epoch == 1


def test_data_loader_of_torch_with_workers(index):
    batches = DataLoader(
        StreamingMapDataset(StreamingSamples(index, decode_to_crc)), batch_size=10, shuffle=True, num_workers=2
    )
    assert sorted(int(crc) for batch in batches for crc in batch) == sorted(CRCS)


@pytest.mark.parametrize(
    ("size", "prefetch_bytes", "window"), [(5_000_000, 256 << 20, 26), (110_000, 256 << 20, 128), (110_000, 4 << 20, 4)]
)
def test_shuffle_window_fits_into_memory(tmp_path, size, prefetch_bytes, window):
    """A sample that is larger than a read is a group of its own."""
    data = StreamingLoader(make_index_without_archive(tmp_path, 200, size), prefetch_bytes=prefetch_bytes)
    (phase,) = data.state_dict()["phases"]
    assert phase["shuffle_window"] == window and window * max(size, phase["read_bytes"]) <= prefetch_bytes
