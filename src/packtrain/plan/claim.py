"""The claim file of an attempt, which lets exactly one agent run it. Both sides of the protocol are here.

A claim says which agent runs an attempt; it never expires, and a free lock proves that the agent has ended. A
lease (`supervise.lease`) says which supervisor follows a run; it is a row of the store that must be renewed.

The agent that creates the file *holds* the claim. It keeps the file locked, and the kernel frees the lock when the
agent and its guard have ended. So the existence of the file shows that the attempt was started once, and the lock shows
that it still runs. The file appears already locked, so that no other process can find it free while its holder lives.
A file system without locks is reported by the agent's probe; there the content of the file decides alone.

There is one exception: an agent that exits to resume in place (exit code 85) *hands over* the claim. The next agent
that gets the lock, which is free once the previous holder and its programs have ended, becomes the holder.

The first line of the file is `PID HOSTNAME` of the holder; `handed over` follows when the claim is free to take.
Agents call `acquire_claim` and `hand_over_claim`, engines the other functions.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from packtrain.fileutil import durable_mkdir, lock_exclusive, sync_folder, temporary_path
from packtrain.plan.run_folder import AttemptFolder

_HANDED_OVER = b"handed over\n"


def acquire_claim(path: Path) -> int | None:
    """Return the descriptor of the locked claim file, or None if another process started the attempt before.

    The caller must keep the descriptor open until it ends.
    """
    durable_mkdir(path.parent)
    own_file = temporary_path(path)
    claim_fd = os.open(own_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    lock_exclusive(claim_fd)
    os.write(claim_fd, _holder_line())
    is_first = _publish_claim(own_file, path)
    own_file.unlink(missing_ok=True)
    if is_first:
        sync_folder(path.parent)  # its content means nothing after a power cut, but the attempt must not start again
        return claim_fd
    os.close(claim_fd)
    return _take_over(path)


def hand_over_claim(claim_fd: int) -> None:
    """Allow another agent to take the claim once this one has ended."""
    os.write(claim_fd, _HANDED_OVER)


def is_claimed(attempt_folder: AttemptFolder) -> bool:
    """Return True if an agent has started the attempt, even if it has ended since."""
    return attempt_folder.claim.exists()


def is_claim_held(attempt_folder: AttemptFolder, execution: int = 1) -> bool:
    """Return True while the agent of an execution, or the guard that ends its steps, is alive."""
    try:
        with open(attempt_folder.execution_claim(execution), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        return claim_holder_pid(attempt_folder) is not None
    return False


def claim_holder_pid(attempt_folder: AttemptFolder) -> int | None:
    """Return the process id of the live agent that holds the claim, or None if that is not certain."""
    try:
        pid = int(attempt_folder.claim.read_text(encoding="utf-8").split()[0])
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, IndexError):
        return None
    # Another program may have got the same process id since.
    return pid if os.fsencode(attempt_folder.root) in argv else None


def _take_over(path: Path) -> int | None:
    claim_fd = os.open(path, os.O_RDWR)
    try:
        lock_exclusive(claim_fd)
        if os.pread(claim_fd, 1 << 10, 0).endswith(_HANDED_OVER):
            os.ftruncate(claim_fd, 0)
            os.pwrite(claim_fd, _holder_line(), 0)
            os.lseek(claim_fd, 0, os.SEEK_END)
            return claim_fd
    except BlockingIOError:
        pass
    os.close(claim_fd)
    return None


def _holder_line() -> bytes:
    return f"{os.getpid()} {os.uname().nodename}\n".encode()


def _publish_claim(own_file: Path, path: Path) -> bool:
    """Give the file its final name. Return False if another process was first."""
    try:
        os.link(own_file, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links, e.g. AFS across folders or some FUSE ones
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return False
        own_file.replace(path)
    return True
