"""Train with PyTorch on samples that are read from a remote archive.

    loader = StreamingLoader(batch_size=64, num_workers=4, decode_fn=decode)  # the workflow's streamed input
    ckpt = Checkpoint("checkpoint.pt", model=model, optimizer=optimizer, loader=loader)
    ckpt.restore()
    for epoch in range(loader.epoch, epochs):
        for images, labels in loader:
            …

The loader's state counts the batches that the training received, not those that workers have prepared. A training
therefore resumes mid-epoch, with any number of workers and ranks, and sees every sample of an epoch once.
`StreamingMapDataset` is for programs that bring their own sampler.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

from packtrain.errors import UsageError
from packtrain.fileutil import can_hold_sockets
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
from packtrain.stream.shuffle import PartitionConfig, SamplePartition
from packtrain.torch.distributed import resolve_rank
from packtrain.torch.rng_state import seeded_generator
from packtrain.transfer.integrity.block_checksums import BlockChecksums, read_checksums

SourcesLike = Union[str, Location, Sequence[Union[str, Location]]]
CollateFn = Callable[[list[Any]], Any]

_MIN_SHUFFLE_WINDOW = 16  # read groups to mix, even with little memory
_MIN_BLOCKS_PER_READ = 4  # checksum blocks per request, because verified data is read in whole blocks
_SHORT_TEMP_DIR = "/tmp"  # noqa: S108 - multiprocessing makes a folder in it that only its owner can read


class StreamingMapDataset(Dataset[Any]):
    """Samples by number, for a DataLoader with its own sampler. Slower than a loader, because nothing is prefetched.

    Args:
        samples: The samples to read.
    """

    def __init__(self, samples: StreamingSamples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return self.samples[number]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return self.samples.__getitems__(numbers)


class _WorkerBatches(IterableDataset[Any]):
    """The collated batches of one worker, each with the samples that were skipped for it."""

    def __init__(
        self,
        samples: StreamingSamples,
        partition: SamplePartition,
        rank: int,
        batches_done: int,
        collate_fn: CollateFn,
    ) -> None:
        self._samples, self._partition, self._rank = samples, partition, rank
        self._batches_done, self._collate_fn = batches_done, collate_fn
        self._last_good: list[Any] = []  # the last usable sample, for a batch that has none; used with several ranks

    def __iter__(self) -> Iterator[tuple[Any, list[SkippedSample]]]:
        info, config = get_worker_info(), self._partition.config
        # torch takes batches from its workers in turn, starting with worker 0; the next batch may be another worker's.
        worker = ((info.id if info else 0) + self._batches_done) % config.num_workers
        n_done = self._partition.samples_done(worker, self._batches_done)
        items = self._samples.iter_with_skipped(
            self._partition.worker_order(self._rank, worker).skip(n_done), config.shuffle_window
        )
        n_left = self._partition.samples_done(worker, self._partition.n_batches) - n_done
        while n_left > 0:
            size = min(config.batch_size, n_left)
            n_left -= size
            yield self._make_batch([next(items) for _ in range(size)])

    def _make_batch(self, items: list[tuple[Any] | None]) -> tuple[Any, list[SkippedSample]]:
        skipped, self._samples.skipped = self._samples.skipped, []
        good = [item[0] for item in items if item is not None]
        if self._partition.config.world_size > 1:
            self._last_good = good[-1:] or self._last_good
            good = good or self._substitute_samples(skipped)
        return (self._collate_fn(good) if good else None), skipped

    def _substitute_samples(self, skipped: list[SkippedSample]) -> list[Any]:
        """Return a sample for a batch without usable samples. With fewer batches, the other ranks would hang."""
        if not self._last_good:
            last = skipped[-1]
            raise StreamError(
                "no sample of a worker's first batch can be used, and the other ranks wait for this batch: "
                f"{last.name}: {last.reason}"
            )
        return self._last_good


class StreamingLoader:
    """An iterator over the batches of this process. Each pass over it covers the rest of the current epoch.

    Then the epoch increases. Pass the loader to `packtrain.torch.Checkpoint` to save its position.

    Args:
        index: An index, or the path of one. Default: the workflow's input with `mode: stream`.
        sources: URLs of the archive, all with the same content. Default: those in the index.
        batch_size: Samples per batch of one process.
        num_workers: Number of worker processes that read and decode; 0: read in this process.
        decode_fn: Called with the bytes of a sample (or a dict of its files, by extension) and its label; returns what
            `collate_fn` gets. Default: returns both unchanged.
        collate_fn: Makes a batch of a list of decoded samples.
        shuffle: Whether to shuffle; otherwise samples come in the order of the archive.
        seed: Decides the order, together with the epoch.
        drop_last: Whether to drop the samples that fill no batch of all processes. Otherwise the last batch is
            smaller, and up to `world_size` - 1 samples come twice, so that all processes get the same number.
        indices: Numbers of the samples to use. Default: all.
        prefetch_bytes: Memory for prefetched samples, in bytes, of each worker. It also limits how well samples mix.
        read_bytes: About how many bytes one request reads.
        cache_dir: Folder that keeps what was read; "": no cache; None: the setting of the workflow.
        cache_limit: Maximum size of the cache, in bytes. Default: all samples.
        on_error: What to do with a sample that `decode_fn` rejects: "raise" or "skip".
        timeout_s: How long to wait, in seconds, while no source delivers.
        checksums: Verify each block before use: checksum files (one per archive), or True for those in the index.
        rank: The number of this process, from 0. Default: that of torch's process group.
        world_size: The number of processes. Default: that of torch's process group.
        **dataloader_kwargs: Other arguments of torch's DataLoader.

    Attributes:
        samples: The samples that the loader reads.
        skipped: The samples that were skipped so far.

    Raises:
        UsageError: An argument is invalid, or there is nothing to stream.
        FormatError: The index is damaged.
    """

    def __init__(
        self,
        index: str | Path | Index | None = None,
        sources: SourcesLike = (),
        *,
        batch_size: int = 1,
        num_workers: int = 0,
        decode_fn: DecodeFn = identity_decode,
        collate_fn: CollateFn = default_collate,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        indices: Sequence[int] | None = None,
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
        read_bytes: int = DEFAULT_READ_BYTES,
        cache_dir: str | Path | None = None,
        cache_limit: int | None = None,
        on_error: str = RAISE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        checksums: bool | Sequence[str | Path | BlockChecksums] = (),
        rank: int | None = None,
        world_size: int | None = None,
        **dataloader_kwargs: Any,
    ) -> None:
        if not dataloader_kwargs.get("in_order", True):
            raise UsageError("in_order=False is not supported: the loader counts batches in order, to resume exactly")
        self._rank, world_size = resolve_rank(rank, world_size)
        opened, settings = (index, StreamSettings()) if isinstance(index, Index) else open_job_stream(index)
        block_checksums = _load_checksums(opened, checksums)
        read_bytes = max([read_bytes, *(_MIN_BLOCKS_PER_READ * archive.block_bytes for archive in block_checksums)])
        config = PartitionConfig(
            world_size=world_size,
            num_workers=max(1, num_workers),
            batch_size=batch_size,
            shuffle_window=_shuffle_window(opened, prefetch_bytes, read_bytes),
            read_bytes=read_bytes,
            shuffle=shuffle,
            drop_last=drop_last,
        )
        self._cursor = Cursor(opened, config, seed, None if indices is None else sorted(set(indices)))
        if cache_dir is not None:
            limit = sum(archive.size for archive in opened.archives) if cache_limit is None else cache_limit
            settings = replace(settings, cache_dir=Path(cache_dir) if cache_dir else None, cache_limit_bytes=limit)
        settings = replace(
            settings,
            sources=_parse_sources(sources),
            prefetch_bytes=prefetch_bytes,
            timeout_s=timeout_s,
            on_error=on_error,
            checksums=block_checksums,
        )
        self.samples = StreamingSamples(opened, decode_fn, settings)
        self.samples.prepare()
        self.skipped: list[SkippedSample] = []
        self._num_workers, self._collate_fn, self._dataloader_kwargs = num_workers, collate_fn, dataloader_kwargs

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._cursor.epoch

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names; a label is a position in this tuple."""
        return self.samples.index.class_names

    def __len__(self) -> int:
        """Return the number of batches left in this epoch."""
        return self._cursor.batches_left

    def __iter__(self) -> Iterator[Any]:
        cursor = self._cursor
        batches = _WorkerBatches(self.samples, cursor.partition(), self._rank, cursor.batches_done, self._collate_fn)
        # Batches are collated already; torch's default would convert each of them again. With a generator of its own,
        # the DataLoader draws no random number of the training, which therefore resumes exactly.
        generator = seeded_generator(cursor.seed, cursor.epoch, cursor.batches_done, self._rank)
        kwargs = {"collate_fn": _identity_collate, "generator": generator, **self._dataloader_kwargs}
        if self._num_workers:
            _ensure_short_socket_dir()
        for batch, skipped in DataLoader(batches, batch_size=None, num_workers=self._num_workers, **kwargs):
            self.skipped += skipped
            cursor.advance()
            if batch is not None:
                yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, as plain types."""
        return self._cursor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position.

        Args:
            state: The result of `state_dict`, possibly of a loader with another number of workers or ranks.

        Raises:
            UsageError: The state belongs to other samples or to another seed.
        """
        self._cursor.load_state_dict(state)


def _load_checksums(
    index: Index, checksums: bool | Sequence[str | Path | BlockChecksums]
) -> tuple[BlockChecksums, ...]:
    if isinstance(checksums, bool):
        return checksums_from_index(index) if checksums else ()
    return tuple(item if isinstance(item, BlockChecksums) else read_checksums(Path(item)) for item in checksums)


def _shuffle_window(index: Index, prefetch_bytes: int, read_bytes: int) -> int:
    """Return how many read groups fit into half of the memory. A sample larger than `read_bytes` is its own group."""
    large = [size for size in index.sizes if size > read_bytes]
    small_bytes = sum(index.sizes) - sum(large)
    mean_group_bytes = (small_bytes + sum(large)) // max(1, len(large) + -(-small_bytes // read_bytes))
    return max(
        1,
        prefetch_bytes // (2 * max(read_bytes, mean_group_bytes)),
        min(_MIN_SHUFFLE_WINDOW, prefetch_bytes // max(1, mean_group_bytes)),
    )


def _ensure_short_socket_dir() -> None:
    """Make multiprocessing put its sockets into /tmp if the temporary folder's path is too long for a socket.

    Workers pass tensors through sockets in the temporary folder. The agent already gives its steps a short TMPDIR; this
    is for programs that run without it. The folder is removed when the process ends.
    """
    if can_hold_sockets(tempfile.gettempdir()):
        return
    previous, tempfile.tempdir = tempfile.tempdir, _SHORT_TEMP_DIR
    try:
        with contextlib.suppress(OSError):
            multiprocessing.util.get_temp_dir()  # created once; multiprocessing reuses it from then on
    finally:
        tempfile.tempdir = previous


def _identity_collate(batch: Any) -> Any:
    return batch


def _parse_sources(sources: SourcesLike) -> tuple[Location, ...]:
    several = [sources] if isinstance(sources, (str, Location)) else sources
    return tuple(source if isinstance(source, Location) else Location(source) for source in several)
