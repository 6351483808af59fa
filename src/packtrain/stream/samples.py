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
from packtrain.plan import Ref
from packtrain.stream.disk_cache import Kept
from packtrain.stream.index import Index
from packtrain.stream.prefetch import Counts, Prefetch, Tell
from packtrain.stream.read_groups import SPAN, Numbers, Runs
from packtrain.stream.replicas import Hosts
from packtrain.stream.shuffle import Stream
from packtrain.transfer.api import Reveal
from packtrain.transfer.block_checksums import Checksums
from packtrain.transfer.engine.source_stats import Standing
from packtrain.transfer.registry import source_for

RAISE, SKIP = "raise", "skip"
MEMORY = 256 << 20
PATIENCE_S = 600.0
Data = Union[bytes, dict[str, bytes]]
Decode = Callable[[Data, int], Any]


class StreamError(PacktrainError):
    """Data that did not come, or cannot be used."""


@dataclass(frozen=True)
class Bad:
    """A sample that `decode` could not use, from wherever it came."""

    number: int
    name: str
    reason: str


@dataclass(frozen=True)
class Settings:
    """How samples are read. All but `memory` is the same for each process."""

    sources: tuple[Ref, ...] = ()  # addresses of the archive; none: those that the index names
    memory: int = MEMORY  # bytes, of each process, for what is read ahead and mixed
    keep: Path | None = None  # a folder to keep what was read
    keep_bytes: int = 0
    patience_s: float = PATIENCE_S  # how long to wait while nobody delivers
    bad: str = RAISE  # what to do about a sample that cannot be used: raise, or skip
    checksums: tuple[Checksums, ...] = ()  # of each archive, in their order
    reveal: Reveal = str
    archives: tuple[tuple[Ref, ...], ...] = ()  # addresses of each archive, in their order; `sources` go before them

    def __post_init__(self) -> None:
        if self.bad not in (RAISE, SKIP):
            raise UsageError(f"bad is {RAISE!r} or {SKIP!r}, not {self.bad!r}")


_PLAIN = Settings()


def as_it_is(data: Data, label: int) -> tuple[Data, int]:
    return data, label


def on_stderr(words: str) -> None:
    print(f"packtrain: {words}", file=sys.stderr, flush=True)  # noqa: T201


class Samples:
    """`decode(data, label)` makes of a sample what the training wants; without it, the bytes and the class's number.

    Of samples with several parts `data` is a dict: the kind (`jpg`, `cls`) and the bytes of each. Processes may be
    forked at any time: each reads by connections of its own.
    """

    def __init__(
        self, index: Index, decode: Decode = as_it_is, settings: Settings = _PLAIN, tell: Tell = on_stderr
    ) -> None:
        self.index, self._decode, self.settings, self._tell = index, decode, settings, tell
        if settings.checksums and len(settings.checksums) != len(index.archives):
            raise UsageError(f"there are {len(index.archives)} archives, but {len(settings.checksums)} checksums")
        self.bad: list[Bad] = []
        self.counts = Counts()
        self._process = -1  # to which the next two belong
        self._hosts: Hosts | None = None
        self._kept: Kept | None = None

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
        runs = Runs(self.index, chosen, SPAN)
        pieces = [chosen[runs.starts[at] : runs.starts[at + 1]] for at in range(len(runs))]
        found = dict(zip(chosen, self.stream(_as_they_lie(pieces))))
        if len(found) < len(chosen):
            raise StreamError(f"a sample cannot be used, and those asked for by number are not skipped: {self.bad[-1]}")
        return [found[number] for number in numbers]

    def stream(self, stream: Stream, pool: int | None = None) -> Iterator[Any]:
        """The samples of a stream, in its order. Those that are bad and skipped are left out."""
        for item in self.each(stream, pool):
            if item is not None:
                yield item[0]

    def each(self, stream: Stream, pool: int | None = None) -> Iterator[tuple[Any] | None]:
        """Like `stream`, but with None for a sample that was skipped. `pool`: see `order.Split`."""
        ahead = self._prefetch(stream.pieces)
        held: dict[int, list[bytes]] = {}
        classes, decode, plain = self.index.classes, self._decode, not self.index.grouped
        pieces, behind = stream.pieces, (pool or len(stream.pieces)) + 2
        try:
            for at, place in stream:
                found = held.get(at)
                if found is None:
                    found = held[at] = ahead.take(at)
                    held.pop(at - behind, None)
                data, found[place] = found[place], b""
                ahead.freed += len(data)
                number = pieces[at][place]
                item: tuple[Any] | None
                try:
                    item = (decode(data if plain else self._parts(number, data), classes[number]),)
                except Exception as error:
                    item = self._mended(number, data, error, ahead.given_by(at))
                yield item
        except FailedError as error:
            raise StreamError(f"the samples do not come ({error.kind}): {error}") from error
        finally:
            ahead.close()
            self._count(ahead.counts)

    def _mended(self, number: int, data: bytes, error: Exception, by: Standing | None) -> tuple[Any] | None:
        """A sample that cannot be used is fetched once more, elsewhere if there is another place."""
        again = self._once_more(number, by)
        if again is not None and again != data:
            try:
                return (self._decode(self._parts(number, again), self.index.classes[number]),)
            except Exception as second:
                error = second
        name = self.index.name(number)
        if self.settings.bad == RAISE:
            raise StreamError(f"the sample {name} (number {number}) cannot be used: {error!r}") from error
        self.bad.append(Bad(number, name, repr(error)))
        return None

    def _once_more(self, number: int, by: Standing | None) -> bytes | None:
        if by is not None:
            by.suspect = True
        ahead = self._prefetch([[number]], kept=False)
        try:
            return ahead.take(0)[0]
        except FailedError:
            return None
        finally:
            ahead.close()
            self._count(ahead.counts)
            if by is not None:
                by.suspect = False

    def _parts(self, number: int, data: bytes) -> Data:
        if not self.index.grouped:
            return data
        base = self.index.offsets[number]
        return {
            part.kind: data[part.offset - base : part.offset - base + part.size] for part in self.index.parts(number)
        }

    def _prefetch(self, pieces: Sequence[Numbers], kept: bool = True) -> Prefetch:
        self._open()
        assert self._hosts is not None
        settings = self.settings
        return Prefetch(
            self.index, pieces, self._hosts, memory=settings.memory, patience_s=settings.patience_s, tell=self._tell,
            kept=self._kept if kept else None, checksums=settings.checksums,
        )  # fmt: skip

    def prepare(self) -> None:
        """Load what reading needs, so that processes forked afterwards need not."""
        for ref in self._new_hosts().refs(0):
            source_for(ref, self.settings.reveal)

    def _new_hosts(self) -> Hosts:
        settings = self.settings
        return Hosts(self.index, settings.sources, settings.reveal, settings.archives)

    def _open(self) -> None:
        """What belongs to one process."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._hosts = self._new_hosts()
        self._kept = None
        if self.settings.keep is not None and self.settings.keep_bytes > 0:
            try:
                self._kept = Kept(self.settings.keep, self.index, self.settings.keep_bytes)
            except OSError as error:
                self._tell(f"nothing that is read can be kept in {self.settings.keep}: {error}")

    def _count(self, counts: Counts) -> None:
        for name, value in vars(counts).items():
            setattr(self.counts, name, getattr(self.counts, name) + value)


def _as_they_lie(pieces: Sequence[Numbers]) -> Stream:
    return Stream(pieces, lambda: ((at, place) for at, some in enumerate(pieces) for place in range(len(some))))
