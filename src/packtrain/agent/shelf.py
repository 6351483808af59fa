"""Where the generations of a job's checkpoints stand: below its output, on any sink that can list what it has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from packtrain.agent.context import Context
from packtrain.agent.generations import LEFT, RECORD, Record, generation_prefix, job_prefix, left_folder
from packtrain.errors import FormatError, TransferError
from packtrain.plan import Digest, Item, Output, Ref
from packtrain.transfer.address import checked_name, joined, scheme_of
from packtrain.transfer.api import Reveal, Sink, Source
from packtrain.transfer.registry import source_for
from packtrain.transfer.upload import confirm

_ONE_URL = ("http", "https")  # takes one file, and lists nothing
_LARGEST_RECORD = 1 << 20

Stop = Callable[[], None]


class Store(Source, Sink, Protocol):
    """All our backends are both."""


def store_for(ref: Ref, reveal: Reveal) -> Store:
    return cast(Store, source_for(ref, reveal))


def can_list(ref: Ref) -> bool:
    return scheme_of(ref.url) not in _ONE_URL


def place_of(context: Context) -> Output | None:
    """Where checkpoints go: to the job's output, or into the folder that the engine carries."""
    return context.job.output if context.carried is None else Output(Ref(context.carried.as_uri()))


def shelf_of(context: Context, place: Output) -> Shelf:
    store, run, emitter = store_for(place.ref, context.secrets.reveal), context.journal.run, context.journal.emitter
    return Shelf(place.ref, store, run, context.job.id, emitter, shows=context.carried is None)


class Shelf:
    def __init__(self, ref: Ref, store: Store, run: str, job: str, emitter: str = "", shows: bool = True) -> None:
        """`shows`: there is a path of the user's own, at which the newest complete one appears."""
        self._ref, self._store, self.lists, self.shows = ref, store, can_list(ref), shows
        self.run, self.job, self.emitter = run, job, emitter
        self._known: dict[str, Record] = {}  # a record that stands never changes
        self.broken: list[str] = []  # what is no record, and why

    # Writing, below our own emitter's prefix

    def send(self, generation: int, name: str, path: Path, stop: Stop) -> None:
        """Atomic and repeatable, and looked at afterwards. Raises FailedError, or what `stop` raises."""
        self._put(f"{self._prefix(generation)}/{name}", path, stop)

    def seal(self, generation: int, record: Path, stop: Stop) -> None:
        self._put(f"{self._prefix(generation)}/{RECORD}", record, stop)

    def drop(self, generation: int, names: tuple[str, ...]) -> None:
        """The record first: what is not whole is never visible."""
        for name in (RECORD, *names):
            ref = self._at(f"{self._prefix(generation)}/{name}")
            self._store.delete(ref)
            if name != RECORD:
                self._abandon(ref)

    def drop_others(self) -> None:
        """What earlier starts left, now that we have something newer. Only where no other attempt can be alive."""
        for record in [record for record in self.records() if record.emitter != self.emitter]:
            for name in (RECORD, *(file.name for file in record.files)):
                self._store.delete(self._at(f"{record.prefix}/{name}"))
        for entry in list(self._store.list(self._at(LEFT))):
            if not entry.name.startswith(f"{self.emitter}/"):
                self._store.delete(entry.ref)

    def _abandon(self, ref: Ref) -> None:
        """Parts of an upload that did not end are not left behind to be paid for, where that can be asked for."""
        abandon = getattr(self._store, "abandon", None)
        if abandon is not None:
            with suppress(TransferError):
                abandon(ref)

    def show(self, name: str, path: Path, stop: Stop) -> None:
        """Under the name that the user knows; where there is one address only, at that."""
        self._put(name if self.lists else "", path, stop)

    # Reading, of all emitters

    def records(self) -> list[Record]:
        """Those of the job, of all its attempts; none at all is no error. Raises TransferError."""
        below = self._at(job_prefix(self.run, self.job))
        self.broken = []
        try:
            names = [entry.name for entry in self._store.list(below) if entry.name.endswith(f"/{RECORD}")]
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            names = []
        found = (self._known.get(name) or self._read(name) for name in names)
        return [record for record in found if record is not None]

    def furthest_of_others(self) -> int:
        """The highest training step of other attempts; -1 if there is none, or nobody may look."""
        steps = [record.step for record in self.records() if record.emitter != self.emitter]
        return max(steps, default=-1)

    def items(self, record: Record) -> list[Item]:
        """What has to be fetched in order to go on from it."""
        return [
            Item(f.name, (self._at(f"{record.prefix}/{f.name}"),), f.size, Digest("sha256", f.sha256))
            for f in record.files
        ]

    def left_by(self, emitter: str) -> list[Item]:
        """The other outputs of an attempt that left in time."""
        below = self._at(left_folder(emitter))
        return [Item(checked_name(e.name, e.ref.url), (e.ref,), e.size) for e in self._store.list(below)]

    def _read(self, name: str) -> Record | None:
        try:
            text = self._text(self._at(f"{job_prefix(self.run, self.job)}/{name}"))
            record = Record.from_json(text)
        except FormatError as error:
            self.broken.append(f"{name}: {error}")
            return None
        except TransferError as error:
            if error.kind != "object_missing":  # else it was removed meanwhile
                raise
            return None
        if f"{record.prefix}/{RECORD}" != f"{job_prefix(self.run, self.job)}/{name}":
            self.broken.append(f"{name}: it is the record of {record.prefix}")
            return None
        self._known[name] = record
        return record

    def _text(self, ref: Ref) -> str:
        stream = self._store.open(ref)
        data = b""
        try:
            while len(data) < _LARGEST_RECORD:
                block = stream.read(_LARGEST_RECORD)
                if not block:
                    break
                data += block
        finally:
            with suppress(OSError):
                stream.close()
        return data.decode("utf-8", "replace")

    def _put(self, name: str, path: Path, stop: Stop) -> None:
        ref = self._at(name)
        stop()
        self._store.put(ref, path, lambda count: stop())
        confirm(self._store, ref, path)

    def _prefix(self, generation: int) -> str:
        return generation_prefix(self.run, self.job, self.emitter, generation)

    def _at(self, name: str) -> Ref:
        return replace(self._ref, url=joined(self._ref.url, name))
