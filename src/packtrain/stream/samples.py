"""Return the samples of an index by number, or as an iterator in a given order. Works without torch.

    samples = StreamingSamples(Index.open("train.packtrain-index"))
    data, label = samples[17]
    for data, label in samples.iter_samples(partition.worker_order(rank=0, worker=0)): …

`packtrain.torch.streaming` makes batches of them for PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from packtrain.errors import FailedError, PacktrainError, UsageError
from packtrain.plan import Location
from packtrain.stream.disk_cache import SampleCache
from packtrain.stream.index import Index
from packtrain.stream.prefetch import OnMessage, Prefetcher
from packtrain.stream.read_groups import DEFAULT_READ_BYTES, ReadGroups, SampleNumbers
from packtrain.stream.read_plan import GroupContent, ReadStats
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.stream.shuffle import SampleOrder
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.integrity.block_checksums import BlockChecksums
from packtrain.transfer.registry import get_source

RAISE, SKIP = "raise", "skip"
DEFAULT_PREFETCH_BYTES = 256 << 20
DEFAULT_TIMEOUT_S = 600.0
SampleData = Union[bytes, dict[str, bytes]]
DecodeFn = Callable[[SampleData, int], Any]


class StreamError(PacktrainError):
    """Samples could not be read, or not be decoded."""


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be decoded.

    Attributes:
        number: Its number in the index.
        name: Its name in the archive.
        reason: The exception of the decoder.
    """

    number: int
    name: str
    reason: str


@dataclass(frozen=True)
class StreamSettings:
    """How samples are read.

    Attributes:
        sources: URLs of the archive, used before `archive_sources`. Empty: those in the index.
        prefetch_bytes: Memory for prefetched samples, in bytes, of each process.
        cache_dir: Folder of the disk cache; None: no cache.
        cache_limit_bytes: Maximum size of the disk cache, in bytes.
        timeout_s: How long to wait, in seconds, while no server delivers.
        on_error: What to do with a sample that cannot be decoded: RAISE or SKIP.
        checksums: The checksums of each archive, to verify each block; empty: no verification.
        resolve_secret: Returns the value of a secret.
        archive_sources: URLs of each archive, in the order of the index.
    """

    sources: tuple[Location, ...] = ()
    prefetch_bytes: int = DEFAULT_PREFETCH_BYTES
    cache_dir: Path | None = None
    cache_limit_bytes: int = 0
    timeout_s: float = DEFAULT_TIMEOUT_S
    on_error: str = RAISE
    checksums: tuple[BlockChecksums, ...] = ()
    resolve_secret: SecretResolver = str
    archive_sources: tuple[tuple[Location, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.on_error not in (RAISE, SKIP):
            raise UsageError(f"on_error must be {RAISE!r} or {SKIP!r}, not {self.on_error!r}")


_DEFAULT_SETTINGS = StreamSettings()


def identity_decode(data: SampleData, label: int) -> tuple[SampleData, int]:
    """Return a sample unchanged.

    Args:
        data: The bytes of the sample, or a dict of its files by extension.
        label: Its label.
    """
    return data, label


def print_to_stderr(message: str) -> None:
    """Print a message for the user.

    Args:
        message: The message.
    """
    print(f"packtrain: {message}", file=sys.stderr, flush=True)  # noqa: T201


class StreamingSamples:
    """The samples of an index. Processes may fork at any time: each opens its own connections.

    Args:
        index: The index.
        decode_fn: Called with the bytes of a sample (or a dict of its files, by extension) and its label; returns what
            the training uses. Default: returns both unchanged.
        settings: How samples are read.
        on_message: Called with messages for the user, for example while no server delivers.

    Attributes:
        skipped: The samples that were skipped so far.
        stats: Counts of what was read.
    """

    def __init__(
        self,
        index: Index,
        decode_fn: DecodeFn = identity_decode,
        settings: StreamSettings = _DEFAULT_SETTINGS,
        on_message: OnMessage = print_to_stderr,
    ) -> None:
        self.index, self._decode_fn, self.settings, self._on_message = index, decode_fn, settings, on_message
        if settings.checksums and len(settings.checksums) != len(index.archives):
            raise UsageError(f"there are {len(index.archives)} archives, but {len(settings.checksums)} checksums")
        self.skipped: list[SkippedSample] = []
        self.stats = ReadStats()
        self._owner_pid = -1  # the process that opened the next two
        self._replicas: ArchiveReplicas | None = None
        self._cache: SampleCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_owner_pid": -1, "_replicas": None, "_cache": None}

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return self.__getitems__([number % len(self)])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples, as torch's DataLoader requests them. Neighbours are read together.

        Args:
            numbers: Numbers of samples.

        Raises:
            StreamError: A sample could not be read or decoded.
        """
        unique = sorted(set(numbers))
        starts = ReadGroups(self.index, unique, DEFAULT_READ_BYTES).starts
        groups = [unique[start:stop] for start, stop in zip(starts, starts[1:])]
        samples = dict(zip(unique, self.iter_samples(SampleOrder.sequential(groups))))
        if len(samples) < len(unique):
            raise StreamError(
                f"a sample cannot be decoded, and samples requested by number are not skipped: {self.skipped[-1]}"
            )
        return [samples[number] for number in numbers]

    def iter_samples(self, order: SampleOrder, shuffle_window: int | None = None) -> Iterator[Any]:
        """Yield decoded samples in order, without those that are skipped.

        Args:
            order: The order.
            shuffle_window: The window of the order (see `PartitionConfig`), which limits how many groups are held in
                memory. Default: all groups.

        Raises:
            StreamError: A sample could not be read or decoded.
        """
        for item in self.iter_with_skipped(order, shuffle_window):
            if item is not None:
                yield item[0]

    def iter_with_skipped(self, order: SampleOrder, shuffle_window: int | None = None) -> Iterator[tuple[Any] | None]:
        """Yield decoded samples in order, each in a tuple of one, or None for a sample that is skipped.

        Args:
            order: The order.
            shuffle_window: As in `iter_samples`.

        Raises:
            StreamError: A sample could not be read or decoded.
        """
        prefetcher = self._make_prefetcher(order.groups)
        held_groups: dict[int, GroupContent] = {}
        labels, decode, is_plain = self.index.labels, self._decode_fn, not self.index.has_parts
        groups, max_held = order.groups, (shuffle_window or len(order.groups)) + 2
        try:
            for group, position in order:
                if group not in held_groups:
                    held_groups[group] = prefetcher.take(group)
                    held_groups.pop(group - max_held, None)
                contents, source_stats = held_groups[group]
                data, contents[position] = contents[position], b""
                prefetcher.free(len(data))
                number = groups[group][position]
                item: tuple[Any] | None
                try:
                    item = (decode(data if is_plain else self._split_parts(number, data), labels[number]),)
                except Exception as error:
                    item = self._refetch_and_decode(number, data, error, source_stats)
                yield item
        except FailedError as error:
            raise StreamError(f"samples cannot be read ({error.kind}): {error}") from error
        finally:
            prefetcher.close()
            self.stats.add(prefetcher.stats)

    def _refetch_and_decode(
        self, number: int, data: bytes, error: Exception, source_stats: SourceStats | None
    ) -> tuple[Any] | None:
        """Fetch a sample that cannot be decoded again, from another server if possible, and decode it."""
        new_data = self._refetch(number, source_stats)
        if new_data is not None and new_data != data:
            try:
                return (self._decode_fn(self._split_parts(number, new_data), self.index.labels[number]),)
            except Exception as second_error:
                error = second_error
        name = self.index.name(number)
        if self.settings.on_error == RAISE:
            raise StreamError(f"the sample {name} (number {number}) cannot be decoded: {error!r}") from error
        self.skipped.append(SkippedSample(number, name, repr(error)))
        return None

    def _refetch(self, number: int, source_stats: SourceStats | None) -> bytes | None:
        if source_stats is not None:
            source_stats.is_suspect = True
        prefetcher = self._make_prefetcher([[number]], use_cache=False)
        try:
            samples, _ = prefetcher.take(0)
            return samples[0]
        except FailedError:
            return None
        finally:
            prefetcher.close()
            self.stats.add(prefetcher.stats)
            if source_stats is not None:
                source_stats.is_suspect = False

    def _split_parts(self, number: int, data: bytes) -> SampleData:
        if not self.index.has_parts:
            return data
        base = self.index.offsets[number]
        return {
            part.extension: data[part.offset - base : part.offset - base + part.size]
            for part in self.index.parts(number)
        }

    def _make_prefetcher(self, groups: Sequence[SampleNumbers], use_cache: bool = True) -> Prefetcher:
        self._open_in_process()
        assert self._replicas is not None
        return Prefetcher(
            self.index,
            groups,
            self._replicas,
            prefetch_bytes=self.settings.prefetch_bytes,
            timeout_s=self.settings.timeout_s,
            on_message=self._on_message,
            cache=self._cache if use_cache else None,
            checksums=self.settings.checksums,
        )

    def prepare(self) -> None:
        """Import the modules that reading needs, so that forked workers share them."""
        for location in self._make_replicas().locations(0):
            get_source(location, self.settings.resolve_secret)

    def _make_replicas(self) -> ArchiveReplicas:
        settings = self.settings
        return ArchiveReplicas(self.index, settings.sources, settings.resolve_secret, settings.archive_sources)

    def _open_in_process(self) -> None:
        """Open connections and cache, once in each process."""
        if self._owner_pid == os.getpid():
            return
        self._owner_pid = os.getpid()
        self._replicas = self._make_replicas()
        self._cache = None
        if self.settings.cache_dir is not None and self.settings.cache_limit_bytes > 0:
            try:
                self._cache = SampleCache(self.settings.cache_dir, self.index, self.settings.cache_limit_bytes)
            except OSError as error:
                self._on_message(f"samples are not cached, because {self.settings.cache_dir} cannot be used: {error}")
