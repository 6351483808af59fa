"""packtrain.torch.streaming in several processes: ranks of a real process group, and workers of every kind."""

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
from packtrain.torch.streaming import StreamingMapDataset, make_streaming_loader
from tests.support.programs import stream_ranks
from tests.support.stream_indexes import decode_to_crc, make_archive, make_index_without_archive, random_content

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
SAMPLES, SIZE, RANKS, BATCH = 151, 300, 2, 8
CRCS = [zlib.crc32(random_content(number, SIZE + number % 7)) for number in range(SAMPLES)]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_archive(tmp_path_factory.mktemp("archive"), SAMPLES, SIZE)


def of_rank(index, rank, **settings):
    given = {"batch_size": BATCH, "workers": 0, "decode": decode_to_crc, "collate": list, "seed": 4}
    return make_streaming_loader(index, rank_and_world_size=(rank, RANKS), **{**given, **settings})


def ranks(index, group, workers, unusable=()):
    """What each rank says."""
    command = [sys.executable, stream_ranks.__file__, str(index.path), str(group), str(BATCH), str(workers)]
    running = []
    for rank in range(RANKS):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        arguments = [*command, *map(str, unusable)]
        running.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment))
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * RANKS
    return [json.loads(words) for words in said]


def test_ranks_of_a_process_group_share_an_epoch(index, tmp_path):
    """151 samples over two: each gets 75, and none waits for the other."""
    first, second = ranks(index, tmp_path / "group", workers=2)
    assert [len(rank["batches"]) for rank in (first, second)] == [10, 10]
    seen = [crc for rank in (first, second) for batch in rank["batches"] for crc in batch]
    assert len(seen) == len(set(seen)) == 150 and set(seen) <= set(CRCS)


def test_a_rank_whose_batch_is_skipped_as_a_whole_is_not_waited_for(index, tmp_path):
    batches = list(of_rank(index, 0))
    assert of_rank(index, 0).state_dict()["phases"][0]["workers"] == 1  # as in the processes
    first, second = ranks(index, tmp_path / "group", workers=0, unusable=batches[3])
    assert first["batches"] == [*batches[:3], batches[2][-1:], *batches[4:]]
    assert sorted(CRCS[number] for number in first["bad"]) == sorted(batches[3])
    assert second == {"batches": list(of_rank(index, 1)), "bad": []}


def test_a_rank_with_nothing_to_give_says_so(index):
    unusable = set(next(iter(of_rank(index, 0))))

    def decode(data, label):
        if decode_to_crc(data, label) in unusable:
            raise ValueError("not an image")
        return decode_to_crc(data, label)

    with pytest.raises(Exception, match=r"not one sample .* can be used, and the other ranks wait.*not an image"):
        next(iter(of_rank(index, 0, decode=decode, bad="skip")))


def test_without_a_process_group_several_processes_are_refused(index, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"2 processes \(WORLD_SIZE\), but no process group yet.*init_process_group"):
        make_streaming_loader(index)
    assert len(make_streaming_loader(index, rank_and_world_size=(0, 1))) == SAMPLES


def test_batches_out_of_their_order_are_refused(index):
    with pytest.raises(UsageError, match="in_order=False is refused"):
        make_streaming_loader(index, num_workers=2, in_order=False)


@pytest.mark.parametrize("more", [{"multiprocessing_context": "spawn"}, {"persistent_workers": True}])
def test_workers_of_other_kinds(index, more):
    data = make_streaming_loader(index, batch_size=20, num_workers=1, decode_fn=decode_to_crc, collate_fn=list, **more)
    assert sorted(crc for batch in data for crc in batch) == sorted(CRCS)
    assert data.epoch == 2


def test_torchs_own_loader_with_workers(index):
    batches = DataLoader(
        StreamingMapDataset(StreamingSamples(index, decode_to_crc)), batch_size=10, shuffle=True, num_workers=2
    )
    assert sorted(int(crc) for batch in batches for crc in batch) == sorted(CRCS)


@pytest.mark.parametrize(
    ("size", "memory", "pool"), [(5_000_000, 256 << 20, 26), (110_000, 256 << 20, 128), (110_000, 4 << 20, 4)]
)
def test_what_is_mixed_fits_into_the_memory(tmp_path, size, memory, pool):
    """Samples that are larger than what is read at once are pieces of their own."""
    (phase,) = make_streaming_loader(
        make_index_without_archive(tmp_path, 200, size), prefetch_bytes=memory
    ).state_dict()["phases"]
    assert phase["pool"] == pool and pool * max(size, phase["span"]) <= memory
