"""Where the generations of a job's checkpoints stand: below its output, on any sink that can list what it has.

One that cannot (http) has room for one generation: the file at its address, and the record beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from packtrain.agent.checkpoints.record import (
    BESIDE,
    ENDED,
    LEFT,
    RECORD,
    Record,
    ended_json,
    ended_step,
    generation_prefix,
    job_prefix,
    left_folder,
)
from packtrain.agent.context import Context
from packtrain.errors import FailedError, FormatError, TransferError
from packtrain.plan import Digest, Item, Output, Ref
from packtrain.transfer.api import Reveal, Sink, Source
from packtrain.transfer.registry import source_for
from packtrain.transfer.upload import confirm
from packtrain.transfer.urls import beside, checked_name, joined, scheme_of, shown

_ONE_URL = ("http", "https")  # takes one file, and lists nothing
_LARGEST_RECORD = 1 << 20
_REFUSALS = frozenset({"token_refused", "unsupported", "object_missing", "not_the_data"})
_NOT_NOW = (408, 425, 429)

Stop = Callable[[], None]


class RecordRefusedError(Exception):
    """A server that takes one file does not take its record: nobody can go on from it."""


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
    return Shelf(place.ref, store, run, context.job.id, emitter, context.carried is None, context.saved.void)


def note_end(context: Context) -> None:
    """Before the outputs of an attempt appear: its last save has no record, so that an attempt that is late would take
    its own for the furthest, and put it in the place of the final one."""
    place, step = context.job.output, context.saved.reached
    if context.job.checkpoint is None or place is None or step < 0 or not can_list(place.ref):
        return
    try:
        shelf_of(context, place).end(step, context.box.aside / ENDED)
    except (FailedError, OSError) as error:  # the outputs matter more
        context.log.line(f"sync: other attempts could not be told of the end: {error}")


class Shelf:
    def __init__(
        self,
        ref: Ref,
        store: Store,
        run: str,
        job: str,
        emitter: str = "",
        shows: bool = True,
        void: Set[str] = frozenset(),
    ) -> None:
        """`shows`: there is a path of the user's own, at which the newest complete one appears. `void`: generations
        that are not whole, so that nobody is behind them."""
        self._ref, self._store, self.lists, self.shows = ref, store, can_list(ref), shows
        self.run, self.job, self.emitter, self._void = run, job, emitter, void
        self._known: dict[str, Record] = {}  # a record that stands never changes
        self._ends: dict[str, int] = {}  # by name: the steps at which attempts of the job came to their end
        self.broken: list[str] = []  # what is no record, and why

    # Writing, below our own emitter's prefix

    def send(self, generation: int, name: str, path: Path, stop: Stop) -> None:
        """Atomic and repeatable, and looked at afterwards. Raises FailedError, or what `stop` raises."""
        self._put(f"{self._prefix(generation)}/{name}", path, stop)

    def seal(self, generation: int, record: Path, stop: Stop) -> None:
        """Raises RecordRefusedError too, where there is one address."""
        if self.lists:
            self._put(f"{self._prefix(generation)}/{RECORD}", record, stop)
        else:
            self._seal_beside(record, stop)

    def _seal_beside(self, record: Path, stop: Stop) -> None:
        """Read afterwards: a server that takes anything need not give it back."""
        ref = self._beside()
        try:
            self._put_at(ref, record, stop)
            stands = self._text(ref) == record.read_text(encoding="utf-8")
        except TransferError as error:
            if not _is_refusal(error):
                raise
            raise RecordRefusedError(f"its record was refused: {error}") from error
        if not stands:
            raise RecordRefusedError(f"its record was taken, but {shown(ref.url)} does not give it back")

    def end(self, step: int, scratch: Path) -> None:
        scratch.write_text(ended_json(step), encoding="utf-8")
        self._put(f"{job_prefix(self.run, self.job)}/{self.emitter}/{ENDED}", scratch, lambda: None)

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
        self.broken = []
        return self._listed() if self.lists else self._the_one()

    def _the_one(self) -> list[Record]:
        """Never remembered: the next one takes its place. That of another run or job is not ours."""
        ref = self._beside()
        try:
            record = Record.from_json(self._text(ref))
        except FormatError as error:
            self.broken.append(f"{shown(ref.url)}: {error}")
            return []
        except TransferError as error:
            return self._unread(error)
        if len(record.files) > 1:
            self.broken.append(f"{shown(ref.url)}: it names several files")
            return []
        return [record] if (record.run, record.job) == (self.run, self.job) else []

    @staticmethod
    def _unread(error: TransferError) -> list[Record]:
        if error.kind == "object_missing":
            return []
        if _is_refusal(error):
            raise TransferError("unsupported", error.detail, error.source) from error
        raise error

    def _listed(self) -> list[Record]:
        below = self._at(job_prefix(self.run, self.job))
        try:
            names = [entry.name for entry in self._store.list(below)]
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            names = []
        for name in names:
            if name.endswith(f"/{ENDED}") and name.count("/") == 1 and name not in self._ends:
                self._ends[name] = self._read_end(name)
        found = (self._known.get(name) or self._read(name) for name in names if name.endswith(f"/{RECORD}"))
        return [record for record in found if record is not None]

    def _read_end(self, name: str) -> int:
        try:
            return ended_step(self._text(self._at(f"{job_prefix(self.run, self.job)}/{name}")))
        except FormatError:
            return -1
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            return -1

    def furthest_of_others(self) -> int:
        """The highest training step of other attempts; -1 if there is none, or nobody may look."""
        others = [record for record in self.records() if record.emitter != self.emitter]
        steps = [record.step for record in others if record.prefix not in self._void]
        return max([*steps, *self._ends.values()], default=-1)

    def items(self, record: Record) -> list[Item]:
        """What has to be fetched in order to go on from it."""
        return [Item(f.name, (self._of(record, f.name),), f.size, Digest("sha256", f.sha256)) for f in record.files]

    def _of(self, record: Record, name: str) -> Ref:
        return self._at(f"{record.prefix}/{name}") if self.lists else self._ref

    def left_by(self, emitter: str) -> list[Item]:
        """The other outputs of an attempt that left in time; one address has no room for them."""
        if not self.lists:
            return []
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
        self._put_at(self._at(name), path, stop)

    def _put_at(self, ref: Ref, path: Path, stop: Stop) -> None:
        stop()
        self._store.put(ref, path, lambda count: stop())
        confirm(self._store, ref, path)

    def _prefix(self, generation: int) -> str:
        return generation_prefix(self.run, self.job, self.emitter, generation)

    def _at(self, name: str) -> Ref:
        return replace(self._ref, url=joined(self._ref.url, name))

    def _beside(self) -> Ref:
        return replace(self._ref, url=beside(self._ref.url, BESIDE))


def _is_refusal(error: TransferError) -> bool:
    """Whether the server answered, and will not answer otherwise."""
    refused = error.status is not None and 400 <= error.status < 500 and error.status not in _NOT_NOW
    return refused or error.kind in _REFUSALS
