"""Builds event logs as HTCondor 25.14 writes them."""

from __future__ import annotations

import time

from packtrain.condor.eventlog import JobEvent
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import TimestampParser
from packtrain.events import Event

_TIME = "2026-11-16 02:13:{:02}"
_TRANSFER_TEXTS = {
    "queued": "Entered queue to transfer {}put files",
    "started": "Started transferring {}put files",
    "finished": "Finished transferring {}put files",
}
HELD_EVENT = (
    b"012 (012.000.000) 2026-11-16 02:13:28 Job was held.\n\tvia condor_hold (by user games)\n\tCode 1 Subcode 0\n...\n"
)
EVICTED_EVENT = b"004 (012.000.000) 2026-11-16 02:13:28 Job was evicted. Code 1023 Subcode 0\n\t(0) CPU times\n...\n"


def parse_events(data: bytes) -> list[JobEvent]:
    parser = TextLogParser(TimestampParser(time.time()))
    return [JobEvent(*event) for event in parser.feed(data) + parser.finish()]


class UserLogBuilder:
    """Builds the log of one cluster, 12 by default. Each method appends an event."""

    def __init__(self, cluster: int = 12) -> None:
        self.data = b""
        self.second_of_minute = 28
        self._cluster = cluster

    def add_event(self, code: int, proc: int, text: str, *lines: str) -> UserLogBuilder:
        """Append an event of any type."""
        head = f"{code:03} ({self._cluster:03}.{proc:03}.000) {_TIME.format(self.second_of_minute)} {text}"
        self.data += "".join(f"{line}\n" for line in (head, *lines, "...")).encode()
        return self

    def cluster_submit(self, attempt_id: str, job: str = "0") -> UserLogBuilder:
        return self.add_event(35, -1, "Cluster submitted from host: <127.0.0.1:1>", f"    packtrain {job} {attempt_id}")

    def cluster_remove(self, n_jobs: int) -> UserLogBuilder:
        return self.add_event(36, -1, "Cluster removed", f"\tMaterialized {n_jobs} jobs from -1 items.\tComplete")

    def submit(self, proc: int, job: str, attempt_id: str) -> UserLogBuilder:
        return self.add_event(0, proc, "Job submitted from host: <127.0.0.1:1>", f"    packtrain {job} {attempt_id}")

    def execute(self, proc: int, site: str = "CHTC-Spark-CE1") -> UserLogBuilder:
        return self.add_event(
            1,
            proc,
            "Job executing on host: <127.0.0.1:2?sock=site2>",
            "\tSlotName: slot1_1@worker7",
            "\tCpus = 1",
            f'\tGLIDEIN_ResourceName = "{site}"',
        )

    def agent_event(self, proc: int, event: Event) -> UserLogBuilder:
        return self.add_event(8, proc, f"packtrain {event.to_json()}")

    def evict(self, proc: int) -> UserLogBuilder:
        return self.add_event(4, proc, "Job was evicted. Code 1023 Subcode 0", "\t(0) CPU times")

    def transfer(self, proc: int, direction: str, state: str) -> UserLogBuilder:
        return self.add_event(40, proc, _TRANSFER_TEXTS[state].format(direction))

    def set_second(self, second: int) -> UserLogBuilder:
        """Set the time of the next events."""
        self.second_of_minute = second
        return self

    def error_event(self, proc: int, text: str) -> UserLogBuilder:
        return self.add_event(21, proc, "Error from slot1_1@worker7:", f"\t{text}", "\tCode 45 Subcode -1000")

    def reconnect_failed(self, proc: int) -> UserLogBuilder:
        return self.add_event(24, proc, "Job reconnection failed", "    Job not found at execution machine")

    def hold(self, proc: int, reason: str, code: int, subcode: int = 0) -> UserLogBuilder:
        return self.add_event(12, proc, "Job was held.", f"\t{reason}", f"\tCode {code} Subcode {subcode}")

    def release(self, proc: int) -> UserLogBuilder:
        return self.add_event(13, proc, "Job was released.", "\tvia condor_release (by user games)")

    def terminate(self, proc: int, exit_code: int) -> UserLogBuilder:
        return self.add_event(5, proc, "Job terminated.", f"\t(1) Normal termination (return value {exit_code})")

    def terminate_by_signal(self, proc: int, signum: int) -> UserLogBuilder:
        return self.add_event(5, proc, "Job terminated.", f"\t(0) Abnormal termination (signal {signum})")

    def remove(self, proc: int, reason: str = "via condor_rm (by user games)") -> UserLogBuilder:
        return self.add_event(9, proc, "Job was aborted.", f"\t{reason}")
