"""From log records to sightings: which job of the pool is which attempt, and what happened to it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packtrain.condor.eventlog import Record
from packtrain.condor.eventlog import job_event as codes
from packtrain.condor.eventlog.attributes import (
    FINISHED_IN,
    FINISHED_OUT,
    QUEUED_IN,
    QUEUED_OUT,
    STARTED_IN,
    STARTED_OUT,
    facts,
    transfer_type,
)
from packtrain.condor.hold_codes import meaning
from packtrain.engines.api import Sighting
from packtrain.errors import FormatError
from packtrain.events import Event, kinds

NOTE = "packtrain"  # begins the note of a submission, and each word that an agent writes into the log
REMOVED = "packtrain: cancelled"  # the reason of what we remove ourselves
Native = tuple[int, int]  # cluster and proc
Items = Sequence[tuple[str, str]]  # (job, decision), by proc

# What is no eviction, though the pool calls it one.
_STOPS = {45: ("container_failed", "its container could not be started there")}
_ENDS = ("stopped", "held", "gone")
_MOVES = {
    QUEUED_IN: ("in", "queued"),
    STARTED_IN: ("in", "started"),
    FINISHED_IN: ("in", "finished"),
    QUEUED_OUT: ("out", "queued"),
    STARTED_OUT: ("out", "started"),
    FINISHED_OUT: ("out", "finished"),
}


@dataclass
class Known:
    """One attempt in the pool."""

    job: str
    decision: str
    native: Native
    materialized: bool = False  # false: still an item of its cluster
    starts: int = 0
    running: bool = False
    brings: bool = False  # inputs, for its next start
    held: bool = False
    gone: bool = False
    site: str = ""
    trouble: str = ""  # what a machine said of its own accord, before it let the job go
    emitters: list[str] = field(default_factory=list)  # that spoke during this start
    farewell: tuple[Event, ...] = ()  # an agent's last word, told when the pool has let the job go
    history: list[Sighting] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.native[0]}.{self.native[1]}"

    @property
    def status(self) -> str:
        return "gone" if self.gone else "held" if self.held else "running" if self.running else "queued"


class Tracker:
    """`items_of` gives the items of a cluster by the decision of its first one, `is_home` says of a job's attempt
    whether it succeeded and all that it made has arrived."""

    def __init__(
        self, items_of: Callable[[str], Items], is_home: Callable[[str, str], bool] = lambda job, decision: False
    ) -> None:
        self._items_of, self._is_home = items_of, is_home
        self.surplus: list[str] = []  # jobs of the pool that would do again what is done
        self.by_decision: dict[str, Known] = {}
        self._by_native: dict[Native, Known] = {}
        self._clusters: dict[int, list[Known]] = {}

    def add_cluster(self, cluster: int, items: Items, materialized: bool = False) -> None:
        """A submission: by the log, by the queue, or by ourselves. Known ones stay as they are."""
        for proc, (job, decision) in enumerate(items):
            native = (cluster, proc)
            if native not in self._by_native:
                known = Known(job, decision, native, materialized)
                self._by_native[native] = self.by_decision[decision] = known
                self._clusters.setdefault(cluster, []).append(known)

    def at(self, cluster: int, proc: int) -> Known | None:
        return self._by_native.get((cluster, proc))

    def living(self, cluster: int) -> set[str]:
        """The decisions of a submission that are not gone."""
        return {known.decision for known in self._clusters.get(cluster, ()) if not known.gone}

    def take(self, record: Record) -> list[Sighting]:
        """What the record says, for every attempt that it concerns."""
        if record.proc < 0:
            return list(self._take_cluster(record))
        if record.code == codes.SUBMIT:
            self._note_submission(record)
        known = self._by_native.get((record.cluster, record.proc))
        handler = _HANDLERS.get(record.code)
        if known is None or handler is None or known.gone:
            return []
        seen = [_with_farewell(known, self._settled(known, sighting)) for sighting in handler(known, record)]
        known.history += seen
        return seen

    def _settled(self, known: Known, sighting: Sighting) -> Sighting:
        """Evicted between its last word and the pool's: the pool would start it again from the beginning."""
        if sighting.status != "stopped" or not self._is_home(known.job, known.decision):
            return sighting
        known.gone = True
        self.surplus.append(known.name)
        detail = f"{sighting.detail}, when all that it made was here already"
        return replace(sighting, status="gone", exit_code=0, kind="", detail=detail)

    @staticmethod
    def end(known: Known, detail: str, exit_code: int | None = None, kind: str = "") -> Sighting:
        """Nothing in the log says so, but it is gone."""
        known.gone, known.running = True, False
        seen = _sight(known, "gone", detail=detail, exit_code=exit_code, kind=kind)
        known.history.append(seen)
        return seen

    def _take_cluster(self, record: Record) -> Iterator[Sighting]:
        if record.code == codes.CLUSTER_SUBMIT:
            note = _note(record)
            if note:
                self.add_cluster(record.cluster, self._items_of(note[1]))
        elif record.code == codes.CLUSTER_REMOVE:
            for known in self._clusters.get(record.cluster, ()):
                if not known.materialized and not known.gone:
                    yield self.end(known, "it was removed from the queue before it started", kind="cancelled")
        elif record.code in (codes.FACTORY_PAUSED, codes.FACTORY_RESUMED):
            paused = record.code == codes.FACTORY_PAUSED
            why = f"the schedd makes no more jobs of its cluster ({_first(record)})" if paused else ""
            for known in self._clusters.get(record.cluster, ()):
                if not known.materialized and not known.gone:
                    yield _sight(known, "queued", glimpse=waiting(known.decision, why))

    def _note_submission(self, record: Record) -> None:
        note, native = _note(record), (record.cluster, record.proc)
        if note and native not in self._by_native:
            known = Known(*note, native)
            self._by_native[native] = self.by_decision[known.decision] = known
            self._clusters.setdefault(record.cluster, []).append(known)
        if native in self._by_native:
            self._by_native[native].materialized = True


def waiting(decision: str, why: str) -> dict[str, str]:
    """Why it is not in the queue yet; "": it is, or soon will be."""
    return {"decision": decision, "waits": why}


def _note(record: Record) -> tuple[str, str] | None:
    """The job and decision in the note that the submit description puts into the log."""
    words = next((line.split() for line in record.lines if line.startswith(f"{NOTE} ")), [])
    return (words[1], words[2]) if len(words) == 3 else None


def _sight(known: Known, status: str, record: Record | None = None, **more: object) -> Sighting:
    place = {"serial": record.offset + 1, "when": record.when} if record else {}
    return Sighting(known.decision, known.job, status, known.name, known.site, **place, **more)  # type: ignore[arg-type]


def _execute(known: Known, record: Record) -> Iterator[Sighting]:
    known.site = record.attribute("GLIDEIN_ResourceName") or record.attribute("GLIDEIN_Site") or known.site
    known.starts, known.running, known.held, known.emitters = known.starts + 1, True, False, []
    known.trouble, known.brings = "", False
    slot = record.attribute("SlotName")
    # A pilot's name stands between the two: slot1_2@glidein_9@w17.example.org
    host = slot.rpartition("@")[2] if "@" in slot else record.text.rpartition(": ")[2]
    yield _sight(known, "placed", record, start=known.starts, host=host)


def _transfer(known: Known, record: Record) -> Iterator[Sighting]:
    """Inputs come before the start that they are for; after a shadow was killed, without a word about the last one."""
    direction, what = _MOVES.get(transfer_type(record), ("", ""))
    if not what:
        return
    if direction == "in" and what != "finished":
        known.brings = True
    if not (known.brings or known.running):
        return
    yield Sighting(
        known.decision,
        known.job,
        "transfer",
        serial=record.offset + 1,
        when=record.when,
        start=known.starts + known.brings,
        direction=direction,
        what=what,
    )


def _stopped(reason: Callable[[Record], str], usual: str = "evicted") -> Callable[[Known, Record], Iterator[Sighting]]:
    def handle(known: Known, record: Record) -> Iterator[Sighting]:
        brought, known.brings = known.brings, False
        if brought and not known.running:
            why = record.attribute("Reason") or reason(record)
            yield _sight(known, "stopped", record, kind="evicted", detail=f"it was ended before it started: {why}")
        if known.running:
            known.running = False
            emitters = tuple(known.emitters)
            code = facts(record).get("ReasonCode", 0)
            kind, what = _STOPS.get(code, (usual, reason(record)))
            detail = f"{what}{_because(known)}"
            yield _sight(known, "stopped", record, start=known.starts, kind=kind, detail=detail, emitters=emitters)

    return handle


def _terminated(known: Known, record: Record) -> Iterator[Sighting]:
    known.gone, known.running = True, False
    told = facts(record)
    returned, signal = told.get("ReturnValue"), told.get("TerminatedBySignal", 0)
    if returned is not None:
        yield _sight(known, "gone", record, exit_code=returned, detail=f"the agent ended with exit code {returned}")
    else:
        detail = f"the agent was killed by signal {signal}"
        yield _sight(known, "gone", record, exit_code=-signal or None, detail=detail)


def _aborted(known: Known, record: Record) -> Iterator[Sighting]:
    known.gone, known.running = True, False
    reason = _first(record) or "it was removed from the queue"
    yield _sight(known, "gone", record, kind="" if reason.startswith(REMOVED) else "cancelled", detail=reason)


def _held(known: Known, record: Record) -> Iterator[Sighting]:
    """Of one that ran, this is the end of that start, too."""
    told = facts(record)
    code, subcode = told.get("HoldReasonCode", 0), told.get("HoldReasonSubCode", 0)
    reason = told.get("HoldReason", "") or "the pool does not say why"
    start, emitters = (known.starts, tuple(known.emitters)) if known.running else (0, ())
    known.running, known.brings, known.held = False, False, True
    means = meaning(code, subcode, reason)
    yield _sight(
        known,
        "held",
        record,
        start=start,
        emitters=emitters,
        kind=means.kind,
        action=means.action,
        code=(code, subcode),
        detail=f"the pool holds it: {reason}{_because(known)}",
    )


def _trouble(known: Known, record: Record) -> Iterator[Sighting]:
    """An error that a machine reports; what follows from it is another event."""
    known.trouble = facts(record).get("ErrorMsg", "").partition("\n")[0] or record.text
    yield from ()


def _because(known: Known) -> str:
    return f" ({known.trouble})" if known.trouble else ""


def _released(known: Known, record: Record) -> Iterator[Sighting]:
    known.held = False
    yield _sight(known, "released", record)


def _generic(known: Known, record: Record) -> Iterator[Sighting]:
    """A word of the agent itself."""
    text = next((line for line in (record.text, *record.lines) if line.startswith(f"{NOTE} {{")), "")
    try:
        event = Event.from_json(text[len(NOTE) + 1 :])
    except FormatError:
        return
    if event.job == known.job:
        if event.emitter not in known.emitters:
            known.emitters.append(event.emitter)
        if event.kind == kinds.ATTEMPT_ENDED:
            known.farewell = (*known.farewell, event)
            return
        yield _sight(known, "running", record, events=(event,))


def _with_farewell(known: Known, sighting: Sighting) -> Sighting:
    """Only when the pool says so are the outputs home, and is the attempt over."""
    if not known.farewell or sighting.status not in _ENDS:
        return sighting
    words, known.farewell = known.farewell, ()
    return replace(sighting, events=(*sighting.events, *words))


def _first(record: Record) -> str:
    return next((line for line in record.lines if line), "")


_HANDLERS: Mapping[int, Callable[[Known, Record], Iterator[Sighting]]] = {
    codes.EXECUTE: _execute,
    codes.EVICTED: _stopped(lambda record: "the pool took the machine back"),
    codes.SHADOW_EXCEPTION: _stopped(lambda record: f"the pool lost it: {_first(record) or 'no reason was given'}"),
    codes.REMOTE_ERROR: _trouble,
    codes.RECONNECT_FAILED: _stopped(
        lambda record: "the machine was not heard of again within the job's lease", "lease_expired"
    ),
    codes.TERMINATED: _terminated,
    codes.ABORTED: _aborted,
    codes.HELD: _held,
    codes.RELEASED: _released,
    codes.GENERIC: _generic,
    codes.FILE_TRANSFER: _transfer,
}
