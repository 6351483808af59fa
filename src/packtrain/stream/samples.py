"""Samples of a remote archive as a plain Python object: by number, or as a stream in a given order. Without torch.

    samples = Samples(Index.open("train.packtrain-index"))
    data, label = samples[17]
    for data, label in samples.stream(dealt.stream(rank=0, worker=0)): …

`packtrain.torch.streaming` has what a training with PyTorch uses.
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
from packtrain.stream.prefetch import OnMessage, Prefetcher, ReadStats
from packtrain.stream.read_groups import DEFAULT_READ_BYTES, ReadGroups, SampleNumbers
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.stream.shuffle import SampleOrder
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.block_checksums import BlockChecksums
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.registry import get_source

RAISE, SKIP = "raise", "skip"
DEFAULT_PREFETCH_BYTES = 256 << 20
DEFAULT_TIMEOUT_S = 600.0
SampleData = Union[bytes, dict[str, bytes]]
DecodeFn = Callable[[SampleData, int], Any]


class StreamError(PacktrainError):
    """Data that did not come, or cannot be used."""


@dataclass(frozen=True)
class SkippedSample:
    """A sample that `decode` could not use, from wherever it came."""

    number: int
    name: str
    reason: str


@dataclass(frozen=True)
class StreamSettings:
    """How samples are read. All but `memory` is the same for each process."""

    sources: tuple[Location, ...] = ()  # addresses of the archive; none: those that the index names
    prefetch_bytes: int = DEFAULT_PREFETCH_BYTES  # bytes, of each process, for what is read ahead and mixed
    cache_dir: Path | None = None  # a folder to keep what was read
    cache_limit_bytes: int = 0
    timeout_s: float = DEFAULT_TIMEOUT_S  # how long to wait while nobody delivers
    on_error: str = RAISE  # what to do about a sample that cannot be used: raise, or skip
    checksums: tuple[BlockChecksums, ...] = ()  # of each archive, in their order
    resolve_secret: SecretResolver = str
    archive_sources: tuple[
        tuple[Location, ...], ...
    ] = ()  # addresses of each archive, in their order; `sources` go before them

    def __post_init__(self) -> None:
        if self.on_error not in (RAISE, SKIP):
            raise UsageError(f"bad is {RAISE!r} or {SKIP!r}, not {self.on_error!r}")


_DEFAULT_SETTINGS = StreamSettings()


def identity_decode(data: SampleData, label: int) -> tuple[SampleData, int]:
    return data, label


def print_to_stderr(message: str) -> None:
    print(f"packtrain: {message}", file=sys.stderr, flush=True)  # noqa: T201


class StreamingSamples:
    """`decode(data, label)` makes of a sample what the training wants; without it, the bytes and the class's number.

    Of samples with several parts `data` is a dict: the kind (`jpg`, `cls`) and the bytes of each. Processes may be
    forked at any time: each reads by connections of its own.
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
        self._owner_pid = -1  # to which the next two belong
        self._replicas: ArchiveReplicas | None = None
        self._cache: SampleCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_process": -1, "_hosts": None, "_kept": None}

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return self.__getitems__([number % len(self)])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once, as torch's DataLoader asks for them: neighbours are read together."""
        chosen = sorted(set(numbers))
        runs = ReadGroups(self.index, chosen, DEFAULT_READ_BYTES)
        pieces = [chosen[runs.starts[at] : runs.starts[at + 1]] for at in range(len(runs))]
        found = dict(zip(chosen, self.iter_samples(_sequential_order(pieces))))
        if len(found) < len(chosen):
            raise StreamError(
                f"a sample cannot be used, and those asked for by number are not skipped: {self.skipped[-1]}"
            )
        return [found[number] for number in numbers]

    def iter_samples(self, order: SampleOrder, shuffle_window: int | None = None) -> Iterator[Any]:
        """The samples of a stream, in its order. Those that are bad and skipped are left out."""
        for item in self.iter_with_skipped(order, shuffle_window):
            if item is not None:
                yield item[0]

    def iter_with_skipped(self, order: SampleOrder, shuffle_window: int | None = None) -> Iterator[tuple[Any] | None]:
        """Like `stream`, but with None for a sample that was skipped. `pool`: see `order.Split`."""
        ahead = self._make_prefetcher(order.groups)
        held: dict[int, list[bytes]] = {}
        classes, decode, plain = self.index.labels, self._decode_fn, not self.index.has_parts
        pieces, behind = order.groups, (shuffle_window or len(order.groups)) + 2
        try:
            for at, place in order:
                found = held.get(at)
                if found is None:
                    found = held[at] = ahead.take(at)
                    held.pop(at - behind, None)
                data, found[place] = found[place], b""
                ahead.freed_bytes += len(data)
                number = pieces[at][place]
                item: tuple[Any] | None
                try:
                    item = (decode(data if plain else self._split_parts(number, data), classes[number]),)
                except Exception as error:
                    item = self._refetch_and_decode(number, data, error, ahead.source_of(at))
                yield item
        except FailedError as error:
            raise StreamError(f"samples cannot be read ({error.kind}): {error}") from error
        finally:
            ahead.close()
            self._add_stats(ahead.stats)

    def _refetch_and_decode(
        self, number: int, data: bytes, error: Exception, source_stats: SourceStats | None
    ) -> tuple[Any] | None:
        """A sample that cannot be used is fetched once more, elsewhere if there is another place."""
        again = self._refetch(number, source_stats)
        if again is not None and again != data:
            try:
                return (self._decode_fn(self._split_parts(number, again), self.index.labels[number]),)
            except Exception as second:
                error = second
        name = self.index.name(number)
        if self.settings.on_error == RAISE:
            raise StreamError(f"the sample {name} (number {number}) cannot be used: {error!r}") from error
        self.skipped.append(SkippedSample(number, name, repr(error)))
        return None

    def _refetch(self, number: int, source_stats: SourceStats | None) -> bytes | None:
        if source_stats is not None:
            source_stats.is_suspect = True
        ahead = self._make_prefetcher([[number]], use_cache=False)
        try:
            return ahead.take(0)[0]
        except FailedError:
            return None
        finally:
            ahead.close()
            self._add_stats(ahead.stats)
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
        settings = self.settings
        return Prefetcher(
            self.index, groups, self._replicas, prefetch_bytes=settings.prefetch_bytes, timeout_s=settings.timeout_s, on_message=self._on_message,
            cache=self._cache if use_cache else None, checksums=settings.checksums,
        )  # fmt: skip

    def prepare(self) -> None:
        """Load what reading needs, so that processes forked afterwards need not."""
        for ref in self._make_replicas().locations(0):
            get_source(ref, self.settings.resolve_secret)

    def _make_replicas(self) -> ArchiveReplicas:
        settings = self.settings
        return ArchiveReplicas(self.index, settings.sources, settings.resolve_secret, settings.archive_sources)

    def _open_in_process(self) -> None:
        """What belongs to one process."""
        if self._owner_pid == os.getpid():
            return
        self._owner_pid = os.getpid()
        self._replicas = self._make_replicas()
        self._cache = None
        if self.settings.cache_dir is not None and self.settings.cache_limit_bytes > 0:
            try:
                self._cache = SampleCache(self.settings.cache_dir, self.index, self.settings.cache_limit_bytes)
            except OSError as error:
                self._on_message(f"nothing that is read can be kept in {self.settings.cache_dir}: {error}")

    def _add_stats(self, stats: ReadStats) -> None:
        for name, value in vars(stats).items():
            setattr(self.stats, name, getattr(self.stats, name) + value)


def _sequential_order(groups: Sequence[SampleNumbers]) -> SampleOrder:
    return SampleOrder(groups, lambda: ((at, place) for at, some in enumerate(groups) for place in range(len(some))))
