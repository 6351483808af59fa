"""The lease that makes sure that a run has only one supervisor: a row of the store that expires unless it is renewed.

For agents and attempts, `plan.claim` has the same purpose: a locked file that never expires.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from packtrain.fileutil import boot_id
from packtrain.store import Lease, Store

LEASE_TTL_S = 30.0


def acquire_lease(store: Store, run: str) -> Lease:
    """Acquire the lease of a run for this process.

    Raises:
        UnavailableError: Another supervisor holds the lease.
    """
    host, pid = socket.gethostname(), os.getpid()
    return store.acquire_lease(run, process_identity(pid), host, pid, LEASE_TTL_S, is_holder_alive)


def process_identity(pid: int) -> str:
    """Return a string that identifies a process uniquely, "" if there is no such process.

    Process ids are reused. A process id together with its start time, boot id and PID namespace is not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        start_time = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{pid}/{start_time}/{boot_id()}/{_pid_namespace()}"


def _pid_namespace() -> str:
    """Return the PID namespace of this process. A schedd may run its jobs in another one than the user's shell."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_holder_alive(lease: Lease) -> bool:
    """Return whether the holder of a lease may be alive.

    A holder on another host or in another PID namespace cannot be checked. It counts as alive until its lease expires.
    """
    is_other_namespace = lease.holder.rpartition("/")[2] != _pid_namespace()
    cannot_check = lease.host != socket.gethostname() or is_other_namespace
    return cannot_check or process_identity(lease.pid) == lease.holder
