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
from packtrain.plan import Ref
from packtrain.stream.cursor import Cursor
from packtrain.stream.index import Index
from packtrain.stream.index_checksums import checksums_of
from packtrain.stream.job_config import given
from packtrain.stream.read_groups import SPAN
from packtrain.stream.samples import MEMORY, PATIENCE_S, RAISE, Bad, Decode, Samples, Settings, StreamError, as_it_is
from packtrain.stream.shared_memory import Kind, Memory
from packtrain.stream.short_tmpdir import make_room
from packtrain.stream.shuffle import DROP, Dealt, Split
from packtrain.transfer.block_checksums import Checksums, read_checksums

Where = Union[str, Ref, Sequence[Union[str, Ref]]]
Collate = Callable[[list[Any]], Any]

_TORCHS_PREFETCH = 2  # batches that it asks each worker for
_MORE_PLACES = 2  # for batches that the training still uses, besides those that are asked for
_TIMES_USUAL = 6  # as large as the bytes of usual samples may a batch be that is handed over: it may be decoded
_SMALL = 1 << 16  # tensors that are smaller are often kept by a training (labels), and would keep the place
_FEWEST_RUNS = 16  # that samples are mixed from, however little memory there is
_BLOCKS_TOGETHER = 4  # of checksums: what is verified is read in whole blocks


class MapDataset(Dataset[Any]):
    """Samples by number, for a DataLoader with a sampler of its own. Not as fast as `loader`: nothing is read ahead."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return self.samples[number]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return self.samples.__getitems__(numbers)


class _Batches(IterableDataset[Any]):
    """One worker's batches, ready to be handed out, and the samples that were skipped for each."""

    def __init__(
        self, samples: Samples, dealt: Dealt, rank: int, delivered: int, collate: Collate, memory: Memory | None
    ) -> None:
        self._samples, self._dealt, self._rank = samples, dealt, rank
        self._delivered, self._collate, self._memory = delivered, collate, memory
        self._last: list[Any] = []  # the newest that could be used, where other ranks wait for every batch

    def __iter__(self) -> Iterator[tuple[Any, list[Bad]]]:
        info, split = get_worker_info(), self._dealt.split
        # The loader asks its workers in turn, from the first on; the next batch may be another one's.
        worker = ((info.id if info else 0) + self._delivered) % split.workers
        done = self._dealt.done(worker, self._delivered)
        items = self._samples.each(self._dealt.stream(self._rank, worker).after(done), split.pool)
        left = self._dealt.done(worker, self._dealt.batches) - done
        while left > 0:
            size = min(split.batch, left)
            left -= size
            batch, bad = self._batch([next(items) for _ in range(size)])
            yield (self._memory.lent(batch, info.id) if self._memory and info else batch), bad

    def _batch(self, items: list[tuple[Any] | None]) -> tuple[Any, list[Bad]]:
        bad, self._samples.bad = self._samples.bad, []
        good = [item[0] for item in items if item is not None]
        if self._dealt.split.ranks > 1:
            self._last = good[-1:] or self._last
            good = good or self._instead(bad)
        return (self._collate(good) if good else None), bad

    def _instead(self, bad: list[Bad]) -> list[Any]:
        """Of a batch that was skipped as a whole. A rank with fewer batches would be waited for forever."""
        if not self._last:
            words = "not one sample of a worker's first batch can be used, and the other ranks wait for it"
            raise StreamError(f"{words}: {bad[-1].name}: {bad[-1].reason}")
        return self._last


class Loader:
    """Batches of one epoch after the other: each pass over it goes on where the last ended.

    Has a state for `packtrain.torch.Checkpoint`. `bad` are the samples that were skipped.
    """

    def __init__(self, samples: Samples, cursor: Cursor, rank: int, processes: int, collate: Collate, **more: Any):
        self._samples, self._cursor, self._rank = samples, cursor, rank
        self._processes, self._collate, self._more = processes, collate, more
        self.bad: list[Bad] = []

    @property
    def epoch(self) -> int:
        """The one that the next batch is of, counted from 1."""
        return self._cursor.epoch

    @property
    def classes(self) -> tuple[str, ...]:
        return self._samples.index.class_names

    @property
    def samples(self) -> Samples:
        return self._samples

    def __len__(self) -> int:
        """Batches to come in this epoch."""
        return self._cursor.left

    def __iter__(self) -> Iterator[Any]:
        cursor = self._cursor
        dealt = cursor.dealt()
        batches = _Batches(self._samples, dealt, self._rank, cursor.batch, self._collate, self._memory())
        more = {"collate_fn": _as_it_is, **self._more}  # torch would look into each batch once more
        if self._processes:
            make_room()
        for batch, bad in DataLoader(batches, batch_size=None, num_workers=self._processes, **more):
            self.bad += bad
            cursor.delivered()
            if batch is not None:
                yield batch

    def _memory(self) -> Memory | None:
        """To hand batches over, where workers are forked."""
        context = self._more.get("multiprocessing_context") or multiprocessing
        method = context if isinstance(context, str) else context.get_start_method()
        if not self._processes or method != "fork":
            return None
        index = self._samples.index
        usual = sum(archive.size for archive in index.archives) // max(1, len(index))
        places = (self._more.get("prefetch_factor") or _TORCHS_PREFETCH) + _MORE_PLACES
        size = _TIMES_USUAL * usual * self._cursor.dealt().split.batch
        try:
            return Memory(self._processes, places, size, {torch.Tensor: _TENSORS})
        except OSError:
            return None

    def state_dict(self) -> dict[str, Any]:
        return self._cursor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._cursor.load_state_dict(state)


def loader(
    index: str | Path | Index | None = None,
    sources: Where = (),
    *,
    batch_size: int = 1,
    workers: int = 0,
    decode: Decode = as_it_is,
    collate: Collate = default_collate,
    shuffle: bool = True,
    seed: int = 0,
    only: Sequence[int] | None = None,
    memory: int = MEMORY,
    span: int = SPAN,
    keep: str | Path | None = None,
    keep_bytes: int | None = None,
    bad: str = RAISE,
    uneven: str = DROP,
    patience_s: float = PATIENCE_S,
    checksums: bool | Sequence[str | Path | Checksums] = (),
    rank_and_world: tuple[int, int] | None = None,  # default: of torch's process group
    **more: Any,
) -> Loader:
    """Batches of `batch_size` samples for this process, each made by `collate` of what `decode` gives.

    Without an index: of the workflow's input with `mode: stream`. `only`: the numbers of the samples that are meant.
    `memory` is for each worker; about `span` bytes are read at once. What is read is kept in `keep` ("": nowhere; None:
    as the workflow says), at most `keep_bytes` of it (all, if not given). `bad`: what to do about samples that
    `decode` cannot use, `raise` or `skip`.
    `checksums`: verify each block before it is used, by these files, or (True) by those that the index carries.
    `uneven`: whether samples that are too few for all ranks are left out (`drop`) or some are given twice (`pad`).
    `more` goes to torch's DataLoader.
    """
    if not more.get("in_order", True):
        raise UsageError("in_order=False is refused: batches are counted in their order, so that a training can go on")
    opened, told = (index, Settings()) if isinstance(index, Index) else given(index)
    rank, world = rank_and_world or _rank_and_world()
    sums = _checksums(opened, checksums)
    span = max([span, *(_BLOCKS_TOGETHER * one.block for one in sums)])
    if keep is not None:
        told = replace(told, keep=Path(keep) if keep else None, keep_bytes=_kept_bytes(opened, keep_bytes))
    settings = replace(told, sources=_refs(sources), memory=memory, patience_s=patience_s, bad=bad, checksums=sums)
    split = Split(world, max(1, workers), batch_size, _pool(opened, memory, span), span, shuffle, uneven)
    chosen = None if only is None else sorted(set(only))
    count = len(opened) if chosen is None else len(chosen)
    if count < max(1, world):
        raise UsageError(f"{count} samples cannot be split over {world} processes")
    samples = Samples(opened, decode, settings)
    samples.prepare()
    return Loader(samples, Cursor(opened, split, seed, chosen), rank, workers, collate, **more)


def _checksums(index: Index, given: bool | Sequence[str | Path | Checksums]) -> tuple[Checksums, ...]:
    if isinstance(given, bool):
        return checksums_of(index) if given else ()
    return tuple(one if isinstance(one, Checksums) else read_checksums(Path(one)) for one in given)


def _pool(index: Index, memory: int, span: int) -> int:
    """As many runs as fit into half of the memory. A sample that is larger than a span is a run of its own."""
    large = [size for size in index.sizes if size > span]
    small = sum(index.sizes) - sum(large)
    usual = (small + sum(large)) // max(1, len(large) + -(-small // span))  # bytes of a run, on average
    return max(1, memory // (2 * max(span, usual)), min(_FEWEST_RUNS, memory // max(1, usual)))


def _bytes_of(tensor: torch.Tensor) -> int:
    """That are worth handing over: not what torch has in shared memory already."""
    size = tensor.numel() * tensor.element_size()
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or size < _SMALL or not tensor.is_contiguous() or tensor.requires_grad:
        return 0
    return 0 if tensor.is_shared() else size  # type: ignore[no-untyped-call]


def _write(tensor: torch.Tensor, view: memoryview) -> tuple[torch.dtype, tuple[int, ...]]:
    about = tensor.dtype, tuple(tensor.shape)
    _read(view, about).copy_(tensor)
    return about


def _read(view: memoryview, about: tuple[torch.dtype, tuple[int, ...]]) -> torch.Tensor:
    dtype, shape = about
    return torch.frombuffer(view, dtype=dtype).view(shape)


_TENSORS = Kind(_bytes_of, _write, _read)


def _as_it_is(batch: Any) -> Any:
    return batch


def _refs(sources: Where) -> tuple[Ref, ...]:
    several = [sources] if isinstance(sources, (str, Ref)) else sources
    return tuple(one if isinstance(one, Ref) else Ref(one) for one in several)


def _kept_bytes(index: Index, given: int | None) -> int:
    return sum(archive.size for archive in index.archives) if given is None else given


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdigit() and int(world) > 1:
        words = f"there are {world} processes (WORLD_SIZE), but no process group yet: each would get all samples"
        raise UsageError(f"{words}; call init_process_group first, or give `rank_and_world`")
    return 0, 1
