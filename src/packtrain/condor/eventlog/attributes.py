"""What an event tells, by the names that HTCondor's own ClassAds of events have (`HoldReasonCode`, `SlotName`, …).

The forms of ads have them as they are; of text the lines are read. Names that no report and no engine asks for are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from packtrain.condor.eventlog import job_event as codes
from packtrain.condor.eventlog.job_event import Record

Facts = Mapping[str, Any]

QUEUED_IN, STARTED_IN, FINISHED_IN, QUEUED_OUT, STARTED_OUT, FINISHED_OUT = range(1, 7)
_TRANSFERS = {
    "Entered queue to transfer input files": QUEUED_IN,
    "Started transferring input files": STARTED_IN,
    "Finished transferring input files": FINISHED_IN,
    "Entered queue to transfer output files": QUEUED_OUT,
    "Started transferring output files": STARTED_OUT,
    "Finished transferring output files": FINISHED_OUT,
}
# All begin with a line's end: what looks for that alone is quick. A number of more digits than these is none.
_CODES = re.compile(r"Code (-?\d{1,18}) Subcode (-?\d{1,18})(?!\d)", re.ASCII)
_TERMINATION = re.compile(
    r"\n\s*\((?:1\) Normal termination \(return value (-?\d{1,18})|0\) Abnormal termination \(signal (-?\d{1,18}))\)",
    re.ASCII,
)
_BYTES = re.compile(r"\n\s*(\d{1,18})  -  Run Bytes (Sent|Received) By (?:Job|Node)(?=\n|$)", re.ASCII)
_ATTRIBUTE = re.compile(r"\n\s*([A-Za-z_]\w*) = ([^\n]*)")
_RESOURCES = {"TimeExecute (s)": "TimeExecuteUsage", "TimeSlotBusy (s)": "TimeSlotBusyUsage", "GPUs": "GPUs"}
_RESOURCE = re.compile(r"\n\s*(TimeExecute \(s\)|TimeSlotBusy \(s\)|GPUs)\s*:([^\n\"]*)")
_FROM = re.compile(r"(?:Error|Warning) from (\S+) on (.*?):?\s*$")
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d+)?", re.ASCII)


def facts(record: Record) -> Facts:
    """What it tells beyond its head."""
    if record.ad is not None:
        return record.ad
    read = _READERS.get(record.code)
    return dict(read(record)) if read else {}


def transfer_type(record: Record) -> int:
    """Of a file transfer: one of the six, 0 if it is none that we know."""
    if record.ad is not None:
        told = record.ad.get("Type", 0)
        return told if isinstance(told, int) else 0
    return _TRANSFERS.get(record.text.strip(), 0)


Told = Iterator[tuple[str, Any]]


def _submit(record: Record) -> Told:
    yield "SubmitHost", record.text.partition("from host: ")[2].strip()
    notes = next((line for line in record.lines if line), "")
    if notes:
        yield "LogNotes", notes


def _execute(record: Record) -> Told:
    host = record.text.partition(": ")[2].strip()
    if host:
        yield "ExecuteHost", host
    slot = _line_behind(record, "SlotName: ")
    if slot:
        yield "SlotName", slot
    yield from _attributes(record)


def _attributes(record: Record) -> Told:
    for name, value in _ATTRIBUTE.findall(record.body):
        yield name, _plain(value.strip())


def _plain(text: str) -> Any:
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return text[1:-1].replace('\\"', '"')
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _ended(record: Record) -> Told:
    """Of 004 and 005: how it ended, what it moved, how long the slot was busy."""
    body = record.body
    for returned, signalled in _TERMINATION.findall(body):
        yield "TerminatedNormally", bool(returned)
        yield ("ReturnValue", int(returned)) if returned else ("TerminatedBySignal", int(signalled))
    yield from _bytes(body)
    for name, row in _RESOURCE.findall(body):
        numbers = row.split()
        if numbers and _NUMBER.fullmatch(numbers[-1]):  # of GPUs the last one is how many were allocated
            yield _RESOURCES[name], int(float(numbers[-1]))


def _evicted(record: Record) -> Told:
    body = record.body
    reason_codes = _CODES.search(record.text)
    if reason_codes:
        yield "ReasonCode", int(reason_codes[1])
        yield "ReasonSubCode", int(reason_codes[2])
    yield "Checkpointed", "(1) Job was checkpointed." in body
    requeued = "(0) Job terminated and was requeued" in body
    yield "TerminatedAndRequeued", requeued
    reason = _rule(body) if requeued else _line_behind(record, "Reason: ")
    if reason:
        yield "Reason", reason
    yield from _ended(record)


def _line_behind(record: Record, label: str) -> str:
    _, found, rest = record.body.partition(label)
    return rest.partition("\n")[0].strip() if found else ""


def _rule(body: str) -> str:
    """Why it was requeued: behind how it terminated, and before the table."""
    lines = [line.strip() for line in body.rpartition("ermination (")[2].split("\n")[1:]]
    return next((line for line in lines if line and not line.startswith(("(", "Partitionable Resources"))), "")


def _bytes(body: str) -> Told:
    for count, direction in _BYTES.findall(body):
        yield f"{direction}Bytes", int(count)


def _exception(record: Record) -> Told:
    message = next((line for line in record.lines if line), "")
    if message:
        yield "Message", message
    yield from _bytes(record.body)


def _held(record: Record) -> Told:
    found = _CODES.search(record.body)
    reason = next((line for line in record.lines if line and not _CODES.fullmatch(line)), "")
    if reason and reason != "Reason unspecified":
        yield "HoldReason", reason
    if found:
        yield "HoldReasonCode", int(found[1])
        yield "HoldReasonSubCode", int(found[2])


def _reason(record: Record) -> Told:
    reason = next((line for line in record.lines if line), "")
    if reason:
        yield "Reason", reason


def _error(record: Record) -> Told:
    found = _FROM.match(record.text)
    if found:
        yield "Daemon", found[1]
        yield "ExecuteHost", found[2]
    lines = [line for line in record.lines if line and not _CODES.fullmatch(line)]
    if lines:
        yield "ErrorMsg", "\n".join(lines)
    found = _CODES.search(record.body)
    if found:
        yield "HoldReasonCode", int(found[1])
        yield "HoldReasonSubCode", int(found[2])


def _disconnected(record: Record) -> Told:
    lines = [line for line in record.lines if line]
    if lines:
        yield "DisconnectReason", lines[0]


def _generic(record: Record) -> Told:
    yield "Info", record.text.strip()


def _transfer(record: Record) -> Told:
    yield "Type", transfer_type(record)
    delay, host = _line_behind(record, "Seconds spent in queue: "), _line_behind(record, "Transferring to host: ")
    if _WHOLE.fullmatch(delay):
        yield "QueueingDelay", int(delay)
    if host:
        yield "Host", host


_READERS: Mapping[int, Callable[[Record], Told]] = {
    codes.SUBMIT: _submit,
    codes.CLUSTER_SUBMIT: _submit,
    codes.EXECUTE: _execute,
    codes.EVICTED: _evicted,
    codes.TERMINATED: _ended,
    codes.SHADOW_EXCEPTION: _exception,
    codes.GENERIC: _generic,
    codes.ABORTED: _reason,
    codes.HELD: _held,
    codes.RELEASED: _reason,
    codes.REMOTE_ERROR: _error,
    codes.DISCONNECTED: _disconnected,
    codes.RECONNECT_FAILED: _reason,
    codes.JOB_AD: _attributes,
    codes.FILE_TRANSFER: _transfer,
}
