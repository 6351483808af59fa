"""From the events of HTCondor's user logs to what happened to jobs. Pure, one event at a time; a job that has ended
takes no more room than what is said of it.

    000 → queued → 040/001 → a stay on a slot → 004/007/024 → queued → … → 005/009
                                 └─ 012 → held → 013 → queued
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from packtrain.condor.eventlog import attributes as transfers
from packtrain.condor.eventlog import job_event as codes
from packtrain.condor.eventlog.attributes import Facts, facts, transfer_type
from packtrain.condor.eventlog.job_event import Key, Raw, Record
from packtrain.errors import FormatError
from packtrain.events import Event
from packtrain.report.history import Category, Job, Outcome, Phase
from packtrain.report.number_format import printable
from packtrain.report.readers import condor_end_status
from packtrain.report.readers.agent_timeline import HEARD, Words
from packtrain.report.readers.condor_end_status import End
from packtrain.report.readers.end_status import end_of_farewell
from packtrain.report.readers.job_timeline import Course
from packtrain.report.readers.site_names import machine_of, site_of, site_told
from packtrain.report.readers.slot_session import Stay
from packtrain.report.readers.values import amount_of, whole_of

_NOWHERE = ("", "")
_OUR_WORD = "packtrain {"  # begins each word that an agent writes into the log


class LogFold:
    """Takes the events of one log, or of one and its rotated parts, in their order."""

    def __init__(self) -> None:
        self._over: dict[Key, list[tuple[Job, str]]] = {}  # a number may be used again
        self._courses: dict[Key, Course] = {}
        self._texts: dict[str, str] = {}  # each text is kept once
        self._newest = 0.0  # of what was told of all jobs that have ended
        self.guessed_sites = False
        self.tells_transfers = False

    def take(self, raws: Iterable[Raw]) -> None:
        """The fields of records: most of them are signs of life, and nothing else."""
        courses, handlers = self._courses, _HANDLERS
        for raw in raws:
            _, code, key, when, _, _ = raw
            course = courses.get(key) or self._opened(code, key, when)
            if course is None:
                continue
            now = when if when > course.last else course.last
            handler = handlers.get(code)
            end = handler(self, course, Record._make(raw), now) if handler is not None else None
            course.last = now
            if end is not None:
                course.finished(now, end)
                self._close(key, over=True)

    def _opened(self, code: int, key: Key, when: float) -> Course | None:
        """A job that was not known: submitted now, or told of by a log whose beginning is lost."""
        fresh = code == codes.SUBMIT or (key not in self._over and code in _TELL)
        if not fresh or key[1] < 0:
            return None
        course = self._courses[key] = Course(when)
        return course

    def _close(self, key: Key, over: bool) -> None:
        course = self._courses.pop(key)
        self._newest = max(self._newest, course.last)
        job = course.drawn(f"{key[0]}.{key[1]}", self._newest, over)
        self._over.setdefault(key, []).append((job, course.host))

    def text(self, text: str) -> str:
        """As it is kept: each once, and nothing in it that a terminal would obey."""
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = printable(text)
        return known

    def settled(self) -> Iterator[tuple[Job, str]]:
        """All jobs with the hosts that they were submitted from, in the order of their numbers. Ends the fold."""
        self._newest = max([self._newest, *(course.last for course in self._courses.values())])
        for key in list(self._courses):
            self._close(key, over=False)
        for key in sorted(self._over):
            yield from self._over[key]


Handler = Callable[[LogFold, Course, Record, float], "End | None"]


def _submitted(fold: LogFold, course: Course, record: Record, now: float) -> None:
    course.submits(now, fold.text(str(facts(record).get("SubmitHost", ""))))


def _transferred(fold: LogFold, course: Course, record: Record, now: float) -> None:
    fold.tells_transfers = True
    handler = _TRANSFERS.get(transfer_type(record))
    if handler is not None:
        handler(course, now)


def _input_waits(course: Course, now: float) -> None:
    _receiving(course, now).input_waits(now)


def _input_starts(course: Course, now: float) -> None:
    _receiving(course, now).input_starts(now)


def _receiving(course: Course, now: float) -> Stay:
    """Another input in one stay is another stay: a shadow died without a word."""
    stay = course.on_slot
    return course.begins(now) if stay is None or stay.executed or stay.receiving else stay


def _on_slot(act: Callable[[Stay, float], None]) -> Callable[[Course, float], None]:
    def handle(course: Course, now: float) -> None:
        if course.on_slot is not None:
            act(course.on_slot, now)

    return handle


_TRANSFERS: Mapping[int, Callable[[Course, float], None]] = {
    transfers.QUEUED_IN: _input_waits,
    transfers.STARTED_IN: _input_starts,
    transfers.FINISHED_IN: _on_slot(Stay.input_ends),
    transfers.QUEUED_OUT: _on_slot(Stay.output_waits),
    transfers.STARTED_OUT: _on_slot(Stay.output_starts),
    transfers.FINISHED_OUT: _on_slot(Stay.output_ends),
}


def _executes(fold: LogFold, course: Course, record: Record, now: float) -> None:
    stay = course.on_slot
    if stay is None or stay.executed:
        stay = course.begins(now)
    stay.executes(now)
    said = facts(record)
    machine = machine_of(said)
    _place(fold, stay, site_told(said), machine)
    stay.gpus = amount_of(said.get("GPUs")) or stay.gpus


def _place(fold: LogFold, stay: Stay, site: str, machine: str) -> None:
    fold.guessed_sites = fold.guessed_sites or not site
    stay.place = (fold.text(site or stay.place[0] or site_of(machine)), fold.text(machine))


def _job_ad(fold: LogFold, course: Course, record: Record, now: float) -> None:
    """Attributes of the job that the submit file asked for."""
    said, stay = facts(record), course.on_slot
    site, machine = site_told(said), machine_of({"SlotName": said.get("RemoteHost", "")})
    if stay is not None and (site or machine):
        _place(fold, stay, site, stay.place[1] or machine)


def _evicted(fold: LogFold, course: Course, record: Record, now: float) -> None:
    said = facts(record)
    code = whole_of(said.get("ReasonCode")) or 0
    if said.get("TerminatedAndRequeued"):
        end = condor_end_status.of_requeue(said.get("ReturnValue"), said.get("TerminatedBySignal"))
    else:
        reason = _reason(said, "Reason") or course.trouble
        end = condor_end_status.of_eviction(code, whole_of(said.get("ReasonSubCode")) or 0, fold.text(reason))
    _note_use(course, said)
    if course.on_slot is not None:
        course.on_slot.code = code
        if said.get("Checkpointed"):
            course.on_slot.saved(now)
    course.leaves(now, end, running=not said.get("TerminatedAndRequeued") and not 0 < code < 1000)


def _note_use(course: Course, said: Facts) -> None:
    stay = course.on_slot
    if stay is None:
        return
    stay.received, stay.sent = whole_of(said.get("ReceivedBytes")), whole_of(said.get("SentBytes"))
    stay.busy_s, stay.execute_s = amount_of(said.get("TimeSlotBusyUsage")), amount_of(said.get("TimeExecuteUsage"))
    stay.gpus = stay.gpus or amount_of(said.get("GPUs")) or 0.0


def _terminated(fold: LogFold, course: Course, record: Record, now: float) -> End:
    said = facts(record)
    stay = course.on_slot or course.begins(now)  # the log lost its beginning: it is another one than those before
    _note_use(course, said)
    agents = list(stay.agents.values())
    told = end_of_farewell(agents[-1].farewell) if agents else None
    end = told or condor_end_status.of_exit(said.get("ReturnValue"), said.get("TerminatedBySignal"))
    return end._replace(reason=fold.text(end.reason))


def _excepted(fold: LogFold, course: Course, record: Record, now: float) -> None:
    said = facts(record)
    _note_use(course, said)
    course.leaves(now, condor_end_status.of_exception(fold.text(_reason(said, "Message") or course.trouble)))


def _aborted(fold: LogFold, course: Course, record: Record, now: float) -> End:
    return condor_end_status.of_removal(fold.text(_reason(facts(record), "Reason")))


def _held(fold: LogFold, course: Course, record: Record, now: float) -> None:
    said = facts(record)
    code, reason = whole_of(said.get("HoldReasonCode")) or 0, fold.text(_reason(said, "HoldReason"))
    end = condor_end_status.of_hold(code, whole_of(said.get("HoldReasonSubCode")) or 0, reason)
    course.is_held(now, end, condor_end_status.strikes_a_running_program(code, reason))


def _released(fold: LogFold, course: Course, record: Record, now: float) -> None:
    course.is_released(now)


def _troubled(fold: LogFold, course: Course, record: Record, now: float) -> None:
    """An error that a machine reports; what follows from it is another event."""
    said = facts(record)
    course.trouble = fold.text(_reason(said, "ErrorMsg"))
    if course.on_slot is not None and course.on_slot.place == _NOWHERE:
        _place(fold, course.on_slot, "", machine_of({"SlotName": said.get("ExecuteHost", "")}))


def _pauses(phase: Phase) -> Handler:
    def handle(fold: LogFold, course: Course, record: Record, now: float) -> None:
        if course.on_slot is not None:
            course.on_slot.pauses(now, phase)

    return handle


def _goes_on(fold: LogFold, course: Course, record: Record, now: float) -> None:
    if course.on_slot is not None:
        course.on_slot.reconnected |= record.code == codes.RECONNECTED
        course.on_slot.goes_on(now)


def _not_found_again(fold: LogFold, course: Course, record: Record, now: float) -> None:
    reason = _reason(facts(record), "Reason") or "the machine was not heard of again"
    course.leaves(now, End(Outcome.LOST, Category.POOL, fold.text(reason)))


def _saved(fold: LogFold, course: Course, record: Record, now: float) -> None:
    if course.on_slot is not None:
        course.on_slot.saved(now)


def _skipped(fold: LogFold, course: Course, record: Record, now: float) -> End:
    return End(Outcome.SUCCEEDED, Category.NONE, "skipped: its outputs are newer than its inputs")


def _said(fold: LogFold, course: Course, record: Record, now: float) -> None:
    """A word of packtrain's agent, if it is a job of packtrain."""
    text = str(facts(record).get("Info", ""))
    if not text.startswith(_OUR_WORD) or course.on_slot is None:
        return
    with contextlib.suppress(FormatError):
        event = Event.from_json(text[len(_OUR_WORD) - 1 :])
        if event.kind in HEARD and amount_of(event.mono) is not None and amount_of(event.wall) is not None:
            course.on_slot.agents.setdefault(event.emitter, Words(event.emitter)).hear(event)


def _reason(said: Facts, name: str) -> str:
    """One line, of a length that a table bears."""
    text = " ".join(str(said.get(name, "")).split())
    return text if len(text) <= 500 else text[:499] + "…"


_HANDLERS: Mapping[int, Handler] = {
    codes.SUBMIT: _submitted,
    codes.EXECUTE: _executes,
    codes.CHECKPOINTED: _saved,
    codes.EVICTED: _evicted,
    codes.TERMINATED: _terminated,
    codes.SHADOW_EXCEPTION: _excepted,
    codes.GENERIC: _said,
    codes.ABORTED: _aborted,
    codes.SUSPENDED: _pauses(Phase.SUSPENDED),
    codes.UNSUSPENDED: _goes_on,
    codes.HELD: _held,
    codes.RELEASED: _released,
    codes.REMOTE_ERROR: _troubled,
    codes.DISCONNECTED: _pauses(Phase.DISCONNECTED),
    codes.RECONNECTED: _goes_on,
    codes.RECONNECT_FAILED: _not_found_again,
    codes.JOB_AD: _job_ad,
    codes.FILE_TRANSFER: _transferred,
    codes.DATAFLOW_SKIPPED: _skipped,
}
_TELL = frozenset(
    {*_HANDLERS, codes.IMAGE_SIZE} - {codes.GENERIC}
)  # that there is a job, even if nothing was told of it before
