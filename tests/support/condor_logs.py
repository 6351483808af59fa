"""Makes user logs as HTCondor 25.14 writes them."""

from __future__ import annotations

from packtrain.events import Event

_TIME = "2026-11-16 02:13:{:02}"
_MOVES = {
    "queued": "Entered queue to transfer {}put files",
    "started": "Started transferring {}put files",
    "finished": "Finished transferring {}put files",
}
HELD = (
    b"012 (012.000.000) 2026-11-16 02:13:28 Job was held.\n\tvia condor_hold (by user games)\n\tCode 1 Subcode 0\n...\n"
)
EVICTED = b"004 (012.000.000) 2026-11-16 02:13:28 Job was evicted. Code 1023 Subcode 0\n\t(0) CPU times\n...\n"


class Log:
    """Each call appends an event of cluster 12."""

    def __init__(self, cluster: int = 12) -> None:
        self.data = b""
        self.second = 28
        self._cluster = cluster

    def _add(self, code: int, proc: int, text: str, *lines: str) -> Log:
        head = f"{code:03} ({self._cluster:03}.{proc:03}.000) {_TIME.format(self.second)} {text}"
        self.data += "".join(f"{line}\n" for line in (head, *lines, "...")).encode()
        return self

    def cluster_submit(self, decision: str, job: str = "0") -> Log:
        return self._add(35, -1, "Cluster submitted from host: <127.0.0.1:1>", f"    packtrain {job} {decision}")

    def cluster_remove(self, made: int) -> Log:
        return self._add(36, -1, "Cluster removed", f"\tMaterialized {made} jobs from -1 items.\tComplete")

    def submit(self, proc: int, job: str, decision: str) -> Log:
        return self._add(0, proc, "Job submitted from host: <127.0.0.1:1>", f"    packtrain {job} {decision}")

    def execute(self, proc: int, site: str = "CHTC-Spark-CE1") -> Log:
        return self._add(
            1,
            proc,
            "Job executing on host: <127.0.0.1:2?sock=site2>",
            "\tSlotName: slot1_1@worker7",
            "\tCpus = 1",
            f'\tGLIDEIN_ResourceName = "{site}"',
        )

    def word(self, proc: int, event: Event) -> Log:
        return self._add(8, proc, f"packtrain {event.to_json()}")

    def evict(self, proc: int) -> Log:
        return self._add(4, proc, "Job was evicted. Code 1023 Subcode 0", "\t(0) CPU times")

    def transfer(self, proc: int, direction: str, what: str) -> Log:
        return self._add(40, proc, _MOVES[what].format(direction))

    def at(self, second: int) -> Log:
        """When the next events happen."""
        self.second = second
        return self

    def trouble(self, proc: int, text: str) -> Log:
        return self._add(21, proc, "Error from slot1_1@worker7:", f"\t{text}", "\tCode 45 Subcode -1000")

    def lost_contact(self, proc: int) -> Log:
        return self._add(24, proc, "Job reconnection failed", "    Job not found at execution machine")

    def hold(self, proc: int, reason: str, code: int, subcode: int = 0) -> Log:
        return self._add(12, proc, "Job was held.", f"\t{reason}", f"\tCode {code} Subcode {subcode}")

    def release(self, proc: int) -> Log:
        return self._add(13, proc, "Job was released.", "\tvia condor_release (by user games)")

    def end(self, proc: int, code: int) -> Log:
        return self._add(5, proc, "Job terminated.", f"\t(1) Normal termination (return value {code})")

    def killed(self, proc: int, signal: int) -> Log:
        return self._add(5, proc, "Job terminated.", f"\t(0) Abnormal termination (signal {signal})")

    def remove(self, proc: int, reason: str = "via condor_rm (by user games)") -> Log:
        return self._add(9, proc, "Job was aborted.", f"\t{reason}")
