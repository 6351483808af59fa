"""Generate HTCondor user logs of any length, with the events of concurrent jobs interleaved."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

EVENTS_PER_JOB = 100
_CONCURRENT_JOBS = 2000  # jobs that run at the same time
_EVENT_INTERVAL_S = 97  # between two events of one job
_HOST_ADDRESS = "<10.0.0.{}:9618?addrs=10.0.0.{}-9618&alias=node{}.example.edu&noUDP&sock=slot1_1_65_8c5c_2>"
_SITES = ("CHTC-Spark-CE1", "PDX-Coeus-CE1", "GP-ARGO-ksu-backfill", "SU-ITS-CE2")

_SUBMIT = "Job submitted from host: <10.0.0.1:9618?addrs=10.0.0.1-9618&alias=ap.example.edu&noUDP&sock=schedd_1_43af>\n"
_IMAGE_SIZE = "Image size of job updated: {}\n\t5  -  MemoryUsage of job (MB)\n\t4992  -  ResidentSetSize of job (KB)\n"
_INPUT_STARTED = "Started transferring input files\n\tTransferring to host: {host}\n"
_EXECUTE = (
    "Job executing on host: {host}\n\tSlotName: slot1_1@node{node}.example.edu\n\tCondorScratchDir = "
    '"/home/alice/pool/execute/dir_161/scratch"\n\tCpus = 1\n\tDisk = 1024\n\tGLIDEIN_ResourceName = "{site}"\n'
    "\tGPUs = 1\n\tMemory = 128\n"
)
_USAGE = (
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n"
)
_RESOURCE_TABLE = """\
\tPartitionable Resources :    Usage  Request Allocated\x20
\t   Cpus                 :        0        1         1\x20
\t   Disk (KB)            :       15     1024      1024\x20
\t   GPUs                 :                 1         1\x20
\t   Memory (MB)          :        5       64       128\x20
\t   TimeExecute (s)      :     {execute:>4}                   \x20
\t   TimeSlotBusy (s)     :     {busy:>4}                   \x20
"""
_BYTES_TABLE = "\t8  -  Run Bytes Sent By Job\n\t137438953472  -  Run Bytes Received By Job\n"
_EVICTED = (
    f"Job was evicted. Code 1022 Subcode 0\n\t(0) CPU times\n{_USAGE}{_BYTES_TABLE}"
    f"\tReason: Job vacated by schedd\n{_RESOURCE_TABLE}"
)
_TERMINATED = (
    f"Job terminated.\n\t(1) Normal termination (return value 0)\n{_USAGE}{_USAGE.replace('Run', 'Total')}"
    f"{_BYTES_TABLE}{_BYTES_TABLE.replace('Run', 'Total')}{_RESOURCE_TABLE}"
)
_DISCONNECTED = (
    "Job disconnected, attempting to reconnect\n    Socket between submit and execute hosts closed unexpectedly\n"
    "    Trying to reconnect to slot1_1@node{node}.example.edu {host}\n"
)
_RECONNECTED = (
    "Job reconnected to slot1_1@node{node}.example.edu\n    startd address: {host}\n    starter address: {host}\n"
)


def _job_events() -> list[tuple[str, str]]:
    """Return codes and texts of one job that is evicted once, disconnected once, and then succeeds."""
    start = [("040", _INPUT_STARTED), ("040", "Finished transferring input files\n"), ("001", _EXECUTE)]
    image = [("006", _IMAGE_SIZE)]
    first = [("000", _SUBMIT), *start, *image * 40, ("004", _EVICTED)]
    outputs = [("040", "Started transferring output files\n"), ("040", "Finished transferring output files\n")]
    last = [*outputs, ("005", _TERMINATED)]
    middle = [*start, *image * 20, ("022", _DISCONNECTED), ("023", _RECONNECTED)]
    n_fill = EVENTS_PER_JOB - len(first) - len(middle) - len(last)
    return [*first, *middle, *image * n_fill, *last]


def write_log(path: Path, n_jobs: int) -> int:
    """Write a log and return its number of events."""
    events = _job_events()
    started_at = datetime(2026, 1, 1)
    with open(path, "w", encoding="utf-8") as file:
        for wave in range(0, n_jobs, _CONCURRENT_JOBS):
            file.writelines(_interleaved_events(range(wave, min(n_jobs, wave + _CONCURRENT_JOBS)), events, started_at))
            started_at += timedelta(seconds=_EVENT_INTERVAL_S * len(events))
    return n_jobs * len(events)


def _interleaved_events(jobs: range, job_events: list[tuple[str, str]], started_at: datetime) -> Iterator[str]:
    session_start = 0  # index of the event that began the current slot session
    for number, (code, text) in enumerate(job_events):
        session_start = number if text is _INPUT_STARTED else session_start
        busy = _EVENT_INTERVAL_S * (number - session_start)
        timestamp = (started_at + timedelta(seconds=_EVENT_INTERVAL_S * number)).isoformat(" ")
        for job in jobs:
            node = job % 250
            host = _HOST_ADDRESS.format(node, node, node)
            body = text.format(
                5292, host=host, node=node, site=_SITES[job % 4], execute=busy - 2 * _EVENT_INTERVAL_S, busy=busy
            )
            yield f"{code} ({794569 + job // 10000}.{job % 10000:03}.000) {timestamp} {body}...\n"
