"""Training with PyTorch straight from a remote archive.

    data = loader(batch_size=64, workers=4, decode=my_decode)  # what the workflow gives, or the path of an index
    ckpt = Checkpoint("checkpoint.pt", model=model, optimizer=optimizer, data=data)
    ckpt.resume()
    for epoch in range(data.epoch, epochs + 1):
        for images, labels in data:
            …

Its position is what was *delivered*: batches that workers have ready count only when the training gets them. So a
training goes on in mid-epoch, with as many workers and processes as there are then, and sees every sample once.
`MapDataset` is for those who have a sampler of their own.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

from packtrain.errors import UsageError
from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.index import Index
from packtrain.stream.index_checksums import checksums_from_index
from packtrain.stream.job_config import open_job_stream
from packtrain.stream.read_groups import DEFAULT_READ_BYTES
from packtrain.stream.samples import (
    DEFAULT_PREFETCH_BYTES,
    DEFAULT_TIMEOUT_S,
    RAISE,
    DecodeFn,
    SkippedSample,
    StreamError,
    StreamingSamples,
    StreamSettings,
    identity_decode,
)
from packtrain.stream.shared_memory import BufferCodec, SharedBatchMemory
from packtrain.stream.short_tmpdir import ensure_short_socket_dir
from packtrain.stream.shuffle import DROP, PartitionConfig, SamplePartition
from packtrain.transfer.block_checksums import BlockChecksums, read_checksums

SourcesLike = Union[str, Location, Sequence[Union[str, Location]]]
CollateFn = Callable[[list[Any]], Any]

_DEFAULT_PREFETCH_FACTOR = 2  # batches that it asks each worker for
_EXTRA_SLOTS = 2  # for batches that the training still uses, besides those that are asked for
_SLOT_SIZE_FACTOR = 6  # as large as the bytes of usual samples may a batch be that is handed over: it may be decoded
_MIN_SHARED_BYTES = 1 << 16  # tensors that are smaller are often kept by a training (labels), and would keep the place
_MIN_SHUFFLE_WINDOW = 16  # that samples are mixed from, however little memory there is
_MIN_BLOCKS_PER_READ = 4  # of checksums: what is verified is read in whole blocks


class StreamingMapDataset(Dataset[Any]):
    """Samples by number, for a DataLoader with a sampler of its own. Not as fast as `loader`: nothing is read ahead."""

    def __init__(self, samples: StreamingSamples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return self.samples[number]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return self.samples.__getitems__(numbers)


class _WorkerBatches(IterableDataset[Any]):
    """One worker's batches, ready to be handed out, and the samples that were skipped for each."""

    def __init__(
        self,
        samples: StreamingSamples,
        partition: SamplePartition,
        rank: int,
        batches_done: int,
        collate_fn: CollateFn,
        shared_memory: SharedBatchMemory | None,
    ) -> None:
        self._samples, self._partition, self._rank = samples, partition, rank
        self._batches_done, self._collate_fn, self._shared_memory = batches_done, collate_fn, shared_memory
        self._last_good: list[Any] = []  # the newest that could be used, where other ranks wait for every batch

    def __iter__(self) -> Iterator[tuple[Any, list[SkippedSample]]]:
        info, split = get_worker_info(), self._partition.config
        # The loader asks its workers in turn, from the first on; the next batch may be another one's.
        worker = ((info.id if info else 0) + self._batches_done) % split.num_workers
        done = self._partition.samples_done(worker, self._batches_done)
        items = self._samples.iter_with_skipped(
            self._partition.worker_order(self._rank, worker).skip(done), split.shuffle_window
        )
        left = self._partition.samples_done(worker, self._partition.n_batches) - done
        while left > 0:
            size = min(split.batch_size, left)
            left -= size
            batch, bad = self._make_batch([next(items) for _ in range(size)])
            yield (self._shared_memory.store_batch(batch, info.id) if self._shared_memory and info else batch), bad

    def _make_batch(self, items: list[tuple[Any] | None]) -> tuple[Any, list[SkippedSample]]:
        bad, self._samples.skipped = self._samples.skipped, []
        good = [item[0] for item in items if item is not None]
        if self._partition.config.world_size > 1:
            self._last_good = good[-1:] or self._last_good
            good = good or self._substitute_samples(bad)
        return (self._collate_fn(good) if good else None), bad

    def _substitute_samples(self, skipped: list[SkippedSample]) -> list[Any]:
        """Of a batch that was skipped as a whole. A rank with fewer batches would be waited for forever."""
        if not self._last_good:
            words = "not one sample of a worker's first batch can be used, and the other ranks wait for it"
            raise StreamError(f"{words}: {skipped[-1].name}: {skipped[-1].reason}")
        return self._last_good


class StreamingLoader:
    """Batches of one epoch after the other: each pass over it goes on where the last ended.

    Has a state for `packtrain.torch.Checkpoint`. `bad` are the samples that were skipped.
    """

    def __init__(
        self,
        samples: StreamingSamples,
        cursor: Cursor,
        rank: int,
        num_workers: int,
        collate_fn: CollateFn,
        **dataloader_kwargs: Any,
    ):
        self._samples, self._cursor, self._rank = samples, cursor, rank
        self._num_workers, self._collate_fn, self._dataloader_kwargs = num_workers, collate_fn, dataloader_kwargs
        self.skipped: list[SkippedSample] = []

    @property
    def epoch(self) -> int:
        """The one that the next batch is of, counted from 1."""
        return self._cursor.epoch

    @property
    def classes(self) -> tuple[str, ...]:
        return self._samples.index.class_names

    @property
    def samples(self) -> StreamingSamples:
        return self._samples

    def __len__(self) -> int:
        """Batches to come in this epoch."""
        return self._cursor.batches_left

    def __iter__(self) -> Iterator[Any]:
        cursor = self._cursor
        dealt = cursor.partition()
        batches = _WorkerBatches(
            self._samples, dealt, self._rank, cursor.batches_done, self._collate_fn, self._make_shared_memory()
        )
        more = {
            "collate_fn": _identity_collate,
            **self._dataloader_kwargs,
        }  # torch would look into each batch once more
        if self._num_workers:
            ensure_short_socket_dir()
        for batch, bad in DataLoader(batches, batch_size=None, num_workers=self._num_workers, **more):
            self.skipped += bad
            cursor.advance()
            if batch is not None:
                yield batch

    def _make_shared_memory(self) -> SharedBatchMemory | None:
        """To hand batches over, where workers are forked."""
        context = self._dataloader_kwargs.get("multiprocessing_context") or multiprocessing
        method = context if isinstance(context, str) else context.get_start_method()
        if not self._num_workers or method != "fork":
            return None
        index = self._samples.index
        usual = sum(archive.size for archive in index.archives) // max(1, len(index))
        places = (self._dataloader_kwargs.get("prefetch_factor") or _DEFAULT_PREFETCH_FACTOR) + _EXTRA_SLOTS
        size = _SLOT_SIZE_FACTOR * usual * self._cursor.partition().config.batch_size
        try:
            return SharedBatchMemory(self._num_workers, places, size, {torch.Tensor: _TENSOR_CODEC})
        except OSError:
            return None

    def state_dict(self) -> dict[str, Any]:
        return self._cursor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._cursor.load_state_dict(state)


def make_streaming_loader(
    index: str | Path | Index | None = None,
    sources: SourcesLike = (),
    *,
    batch_size: int = 1,
    num_workers: int = 0,
    decode_fn: DecodeFn = identity_decode,
    collate_fn: CollateFn = default_collate,
    shuffle: bool = True,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
    read_bytes: int = DEFAULT_READ_BYTES,
    cache_dir: str | Path | None = None,
    cache_limit: int | None = None,
    on_error: str = RAISE,
    remainder: str = DROP,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    checksums: bool | Sequence[str | Path | BlockChecksums] = (),
    rank_and_world_size: tuple[int, int] | None = None,  # default: of torch's process group
    **dataloader_kwargs: Any,
) -> StreamingLoader:
    """Batches of `batch_size` samples for this process, each made by `collate` of what `decode` gives.

    Without an index: of the workflow's input with `mode: stream`. `only`: the numbers of the samples that are meant.
    `memory` is for each worker; about `span` bytes are read at once. What is read is kept in `keep` ("": nowhere; None:
    as the workflow says), at most `keep_bytes` of it (all, if not given). `bad`: what to do about samples that
    `decode` cannot use, `raise` or `skip`.
    `checksums`: verify each block before it is used, by these files, or (True) by those that the index carries.
    `uneven`: whether samples that are too few for all ranks are left out (`drop`) or some are given twice (`pad`).
    `more` goes to torch's DataLoader.
    """
    if not dataloader_kwargs.get("in_order", True):
        raise UsageError("in_order=False is refused: batches are counted in their order, so that a training can go on")
    opened, told = (index, StreamSettings()) if isinstance(index, Index) else open_job_stream(index)
    rank, world = rank_and_world_size or _rank_and_world_size()
    sums = _load_checksums(opened, checksums)
    read_bytes = max([read_bytes, *(_MIN_BLOCKS_PER_READ * one.block_bytes for one in sums)])
    if cache_dir is not None:
        told = replace(
            told,
            cache_dir=Path(cache_dir) if cache_dir else None,
            cache_limit_bytes=_resolve_cache_limit(opened, cache_limit),
        )
    settings = replace(
        told,
        sources=_parse_sources(sources),
        prefetch_bytes=prefetch_bytes,
        timeout_s=timeout_s,
        on_error=on_error,
        checksums=sums,
    )
    split = PartitionConfig(
        world,
        max(1, num_workers),
        batch_size,
        _shuffle_window(opened, prefetch_bytes, read_bytes),
        read_bytes,
        shuffle,
        remainder,
    )
    chosen = None if indices is None else sorted(set(indices))
    count = len(opened) if chosen is None else len(chosen)
    if count < max(1, world):
        raise UsageError(f"{count} samples cannot be split over {world} processes")
    samples = StreamingSamples(opened, decode_fn, settings)
    samples.prepare()
    return StreamingLoader(
        samples, Cursor(opened, split, seed, chosen), rank, num_workers, collate_fn, **dataloader_kwargs
    )


def _load_checksums(
    index: Index, checksums: bool | Sequence[str | Path | BlockChecksums]
) -> tuple[BlockChecksums, ...]:
    if isinstance(checksums, bool):
        return checksums_from_index(index) if checksums else ()
    return tuple(one if isinstance(one, BlockChecksums) else read_checksums(Path(one)) for one in checksums)


def _shuffle_window(index: Index, prefetch_bytes: int, read_bytes: int) -> int:
    """As many runs as fit into half of the memory. A sample that is larger than a span is a run of its own."""
    large = [size for size in index.sizes if size > read_bytes]
    small = sum(index.sizes) - sum(large)
    usual = (small + sum(large)) // max(1, len(large) + -(-small // read_bytes))  # bytes of a run, on average
    return max(
        1, prefetch_bytes // (2 * max(read_bytes, usual)), min(_MIN_SHUFFLE_WINDOW, prefetch_bytes // max(1, usual))
    )


def _shareable_bytes(tensor: torch.Tensor) -> int:
    """That are worth handing over: not what torch has in shared memory already."""
    size = tensor.numel() * tensor.element_size()
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or size < _MIN_SHARED_BYTES or not tensor.is_contiguous() or tensor.requires_grad:
        return 0
    return 0 if tensor.is_shared() else size  # type: ignore[no-untyped-call]


def _write_tensor(tensor: torch.Tensor, view: memoryview) -> tuple[torch.dtype, tuple[int, ...]]:
    about = tensor.dtype, tuple(tensor.shape)
    _read_tensor(view, about).copy_(tensor)
    return about


def _read_tensor(view: memoryview, metadata: tuple[torch.dtype, tuple[int, ...]]) -> torch.Tensor:
    dtype, shape = metadata
    return torch.frombuffer(view, dtype=dtype).view(shape)


_TENSOR_CODEC = BufferCodec(_shareable_bytes, _write_tensor, _read_tensor)


def _identity_collate(batch: Any) -> Any:
    return batch


def _parse_sources(sources: SourcesLike) -> tuple[Location, ...]:
    several = [sources] if isinstance(sources, (str, Location)) else sources
    return tuple(one if isinstance(one, Location) else Location(one) for one in several)


def _resolve_cache_limit(index: Index, cache_limit: int | None) -> int:
    return sum(archive.size for archive in index.archives) if cache_limit is None else cache_limit


def _rank_and_world_size() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdigit() and int(world) > 1:
        words = f"there are {world} processes (WORLD_SIZE), but no process group yet: each would get all samples"
        raise UsageError(f"{words}; call init_process_group first, or give `rank_and_world`")
    return 0, 1
