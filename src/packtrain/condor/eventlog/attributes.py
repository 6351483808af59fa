"""Extracts attributes of an event under the names of HTCondor's own event ClassAds (`HoldReasonCode`, `SlotName`, …).

The JSON and XML formats contain these attributes; in the text format they are parsed from the lines of the body.
Attributes that packtrain does not use are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from packtrain.condor.eventlog import event_types
from packtrain.condor.eventlog.job_event import JobEvent

EventAttributes = Mapping[str, Any]

IN_QUEUED, IN_STARTED, IN_FINISHED, OUT_QUEUED, OUT_STARTED, OUT_FINISHED = range(1, 7)
_TRANSFER_TYPES = {
    "Entered queue to transfer input files": IN_QUEUED,
    "Started transferring input files": IN_STARTED,
    "Finished transferring input files": IN_FINISHED,
    "Entered queue to transfer output files": OUT_QUEUED,
    "Started transferring output files": OUT_STARTED,
    "Finished transferring output files": OUT_FINISHED,
}
# The patterns begin with a newline, because a search for one character is fast. Numbers have at most 18 digits.
_REASON_CODES = re.compile(r"Code (-?\d{1,18}) Subcode (-?\d{1,18})(?!\d)", re.ASCII)
_TERMINATION = re.compile(
    r"\n\s*\((?:1\) Normal termination \(return value (-?\d{1,18})|0\) Abnormal termination \(signal (-?\d{1,18}))\)",
    re.ASCII,
)
_RUN_BYTES = re.compile(r"\n\s*(\d{1,18})  -  Run Bytes (Sent|Received) By (?:Job|Node)(?=\n|$)", re.ASCII)
_ATTRIBUTE = re.compile(r"\n\s*([A-Za-z_]\w*) = ([^\n]*)")
_RESOURCE_ATTRIBUTES = {"TimeExecute (s)": "TimeExecuteUsage", "TimeSlotBusy (s)": "TimeSlotBusyUsage", "GPUs": "GPUs"}
_RESOURCE_ROW = re.compile(r"\n\s*(TimeExecute \(s\)|TimeSlotBusy \(s\)|GPUs)\s*:([^\n\"]*)")
_ERROR_SOURCE = re.compile(r"(?:Error|Warning) from (\S+) on (.*?):?\s*$")
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d+)?", re.ASCII)


def event_attributes(event: JobEvent) -> EventAttributes:
    """Return the attributes of an event, other than its type, job id and time."""
    if event.ad is not None:
        return event.ad
    parse = _PARSERS.get(event.event_type)
    return dict(parse(event)) if parse else {}


def transfer_type(event: JobEvent) -> int:
    """Return the type of a file transfer event, IN_QUEUED to OUT_FINISHED, or 0 if it is unknown."""
    if event.ad is not None:
        value = event.ad.get("Type", 0)
        return value if isinstance(value, int) else 0
    return _TRANSFER_TYPES.get(event.first_line.strip(), 0)


AttributePairs = Iterator[tuple[str, Any]]


def _parse_submit(event: JobEvent) -> AttributePairs:
    yield "SubmitHost", event.first_line.partition("from host: ")[2].strip()
    notes = event.first_detail_line
    if notes:
        yield "LogNotes", notes


def _parse_execute(event: JobEvent) -> AttributePairs:
    host = event.first_line.partition(": ")[2].strip()
    if host:
        yield "ExecuteHost", host
    slot = _text_after(event, "SlotName: ")
    if slot:
        yield "SlotName", slot
    yield from _parse_assignments(event)


def _parse_assignments(event: JobEvent) -> AttributePairs:
    for name, value in _ATTRIBUTE.findall(event.body):
        yield name, _parse_value(value.strip())


def _parse_value(text: str) -> Any:
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return text[1:-1].replace('\\"', '"')
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _parse_termination(event: JobEvent) -> AttributePairs:
    """Parse the end of an execution (004, 005): exit code or signal, transferred bytes, and slot time."""
    body = event.body
    for returned, signalled in _TERMINATION.findall(body):
        yield "TerminatedNormally", bool(returned)
        yield ("ReturnValue", int(returned)) if returned else ("TerminatedBySignal", int(signalled))
    yield from _parse_run_bytes(body)
    for name, row in _RESOURCE_ROW.findall(body):
        numbers = row.split()
        if numbers and _NUMBER.fullmatch(numbers[-1]):  # for GPUs, the last column is the number of allocated ones
            yield _RESOURCE_ATTRIBUTES[name], int(float(numbers[-1]))


def _parse_evicted(event: JobEvent) -> AttributePairs:
    body = event.body
    reason_codes = _REASON_CODES.search(event.first_line)
    if reason_codes:
        yield "ReasonCode", int(reason_codes[1])
        yield "ReasonSubCode", int(reason_codes[2])
    yield "Checkpointed", "(1) Job was checkpointed." in body
    requeued = "(0) Job terminated and was requeued" in body
    yield "TerminatedAndRequeued", requeued
    reason = _requeue_reason(body) if requeued else _text_after(event, "Reason: ")
    if reason:
        yield "Reason", reason
    yield from _parse_termination(event)


def _text_after(event: JobEvent, label: str) -> str:
    _, separator, rest = event.body.partition(label)
    return rest.partition("\n")[0].strip() if separator else ""


def _requeue_reason(body: str) -> str:
    """Return the reason for a requeue, which is between the termination and the resource table."""
    lines = [line.strip() for line in body.rpartition("ermination (")[2].split("\n")[1:]]
    return next((line for line in lines if line and not line.startswith(("(", "Partitionable Resources"))), "")


def _parse_run_bytes(body: str) -> AttributePairs:
    for count, direction in _RUN_BYTES.findall(body):
        yield f"{direction}Bytes", int(count)


def _parse_shadow_exception(event: JobEvent) -> AttributePairs:
    message = event.first_detail_line
    if message:
        yield "Message", message
    yield from _parse_run_bytes(event.body)


def _parse_held(event: JobEvent) -> AttributePairs:
    codes = _REASON_CODES.search(event.body)
    reason = next((line for line in event.detail_lines if line and not _REASON_CODES.fullmatch(line)), "")
    if reason and reason != "Reason unspecified":
        yield "HoldReason", reason
    if codes:
        yield "HoldReasonCode", int(codes[1])
        yield "HoldReasonSubCode", int(codes[2])


def _parse_reason(event: JobEvent) -> AttributePairs:
    reason = event.first_detail_line
    if reason:
        yield "Reason", reason


def _parse_remote_error(event: JobEvent) -> AttributePairs:
    source = _ERROR_SOURCE.match(event.first_line)
    if source:
        yield "Daemon", source[1]
        yield "ExecuteHost", source[2]
    lines = [line for line in event.detail_lines if line and not _REASON_CODES.fullmatch(line)]
    if lines:
        yield "ErrorMsg", "\n".join(lines)
    codes = _REASON_CODES.search(event.body)
    if codes:
        yield "HoldReasonCode", int(codes[1])
        yield "HoldReasonSubCode", int(codes[2])


def _parse_disconnected(event: JobEvent) -> AttributePairs:
    lines = [line for line in event.detail_lines if line]
    if lines:
        yield "DisconnectReason", lines[0]


def _parse_generic(event: JobEvent) -> AttributePairs:
    yield "Info", event.first_line.strip()


def _parse_file_transfer(event: JobEvent) -> AttributePairs:
    yield "Type", transfer_type(event)
    delay, host = _text_after(event, "Seconds spent in queue: "), _text_after(event, "Transferring to host: ")
    if _INTEGER.fullmatch(delay):
        yield "QueueingDelay", int(delay)
    if host:
        yield "Host", host


_PARSERS: Mapping[int, Callable[[JobEvent], AttributePairs]] = {
    event_types.SUBMIT: _parse_submit,
    event_types.CLUSTER_SUBMIT: _parse_submit,
    event_types.EXECUTE: _parse_execute,
    event_types.EVICTED: _parse_evicted,
    event_types.TERMINATED: _parse_termination,
    event_types.SHADOW_EXCEPTION: _parse_shadow_exception,
    event_types.GENERIC: _parse_generic,
    event_types.ABORTED: _parse_reason,
    event_types.HELD: _parse_held,
    event_types.RELEASED: _parse_reason,
    event_types.REMOTE_ERROR: _parse_remote_error,
    event_types.DISCONNECTED: _parse_disconnected,
    event_types.RECONNECT_FAILED: _parse_reason,
    event_types.JOB_AD: _parse_assignments,
    event_types.FILE_TRANSFER: _parse_file_transfer,
}
