"""Installed prefixes are complete or absent, also when several jobs on several machines want the same one at once.

    KEY                   a complete prefix; it appears by renaming and never changes
    KEY.claim/            held by the job that installs: the folder TOKEN is what it installs,
                          TOKEN.alive is locked and changes as long as the job lives
    KEY.claim-TOKEN/      a claim that is being made: it is renamed to KEY.claim, which only one job can do
    KEY.dead-TOKEN/       the claim of a job that died; the next job removes it

Nothing relies on file locks, which some network file systems do not have: where a lock cannot show that the holder of
a claim is dead, an unchanged TOKEN.alive does, after a while. A holder that was only slow then finds its folder gone
and starts over, so even then no prefix is half of one job and half of another.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from packtrain.fileutil import lock_exclusive, unlock_and_close
from packtrain.transfer.tasks.cancellation import CancelCheck

_HEARTBEAT_S = 2.0
_CLAIM_TIMEOUT_S = 60.0  # without a heartbeat; longer than network file systems cache what they read
_POLL_INTERVAL_S = 0.2
_EXISTS_ERRNOS = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.EPERM})


def ensure_prefix(
    path: Path,
    install: Callable[[Path], None],
    check_cancelled: CancelCheck,
    on_wait: Callable[[], None] = lambda: None,
    claim_timeout_s: float = _CLAIM_TIMEOUT_S,
) -> bool:
    """Install a prefix unless it is there, or wait for the job that installs it.

    Args:
        path: The prefix. Its folder must exist.
        install: Installs into the folder that it receives, which does not exist yet and is then renamed to `path`.
        check_cancelled: Called several times a second; raises to cancel.
        on_wait: Called once before waiting for another job.
        claim_timeout_s: How long a job on another machine may be silent before another one takes over.

    Returns:
        Whether this call installed it.
    """
    silence = _SilenceTimer()
    while not path.is_dir():
        check_cancelled()
        with _try_claim(path) as claim:
            if claim is not None:
                if path.is_dir():  # another job finished between the two checks
                    break
                _remove_dead_claims(path)
                with _raise_unless_lost(claim):
                    install(claim.folder)
                    claim.publish(path)
                    return True
                continue
        if silence.is_new:
            on_wait()
        if _is_dead(_claim_path(path)) or silence.seconds(_claim_path(path)) > claim_timeout_s:
            _bury(_claim_path(path), path)
        else:
            time.sleep(_POLL_INTERVAL_S)
    return False


class _Claim:
    """The right to install a prefix, as long as its folder is in place."""

    def __init__(self, path: Path, token: str) -> None:
        self.path = path
        self.folder = path / token
        self.alive_file = path / f"{token}.alive"

    @property
    def is_held(self) -> bool:
        return self.alive_file.exists()

    def publish(self, prefix: Path) -> None:
        """Give the installed folder its name. Raises FileNotFoundError if the claim was lost."""
        _sync_file_system(self.folder)
        self.folder.rename(prefix)


@contextlib.contextmanager
def _try_claim(prefix: Path) -> Iterator[_Claim | None]:
    """Claim the right to install, and keep it alive inside the block; None: another job has it."""
    token = f"{os.uname().nodename[:40]}-{os.getpid()}-{os.urandom(4).hex()}"
    preparing = prefix.with_name(f"{prefix.name}.claim-{token}")
    preparing.mkdir()
    fd = os.open(preparing / f"{token}.alive", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    os.write(fd, _boot_id())
    lock_exclusive(fd)
    claim = _Claim(_claim_path(prefix), token)
    try:
        preparing.rename(claim.path)
    except OSError as error:
        unlock_and_close(fd)
        shutil.rmtree(preparing, ignore_errors=True)
        if error.errno not in _EXISTS_ERRNOS:
            raise
        yield None
        return
    stopped = threading.Event()
    heart = threading.Thread(target=_beat, args=(fd, stopped), name="claim", daemon=True)
    heart.start()
    try:
        yield claim
    finally:
        stopped.set()
        heart.join()
        if claim.is_held:
            _bury(claim.path, prefix)
        unlock_and_close(fd)


def _beat(fd: int, stopped: threading.Event) -> None:
    n_beats = 0
    while not stopped.wait(_HEARTBEAT_S):
        n_beats += 1
        with contextlib.suppress(OSError):  # a full disk: another job may take over
            os.pwrite(fd, _boot_id() + f" {n_beats}".encode(), 0)


@contextlib.contextmanager
def _raise_unless_lost(claim: _Claim) -> Iterator[None]:
    """Let errors pass, unless another job took the claim over while this one was suspended."""
    try:
        yield
    except Exception:
        if claim.is_held:
            raise


class _SilenceTimer:
    """Measures, by this machine's own clock, how long a claim has not changed."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = time.monotonic()

    @property
    def is_new(self) -> bool:
        return self._seen is None

    def seconds(self, claim_path: Path) -> float:
        seen = [(path.name, _read(path)) for path in sorted(claim_path.glob("*.alive"))]
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since


def _is_dead(claim_path: Path) -> bool:
    """Return whether the holder of a claim is certainly dead: it was on this machine, and its lock is free."""
    for path in claim_path.glob("*.alive"):
        if _read(path).split(b" ")[0] != _boot_id():
            return False
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
        except OSError:  # locked, or a file system without locks, or the claim has gone
            return False
    return False


def _bury(claim_path: Path, prefix: Path) -> None:
    """Remove a claim. It is renamed first, so that a new claim can be made at once."""
    grave = prefix.with_name(f"{prefix.name}.dead-{os.urandom(8).hex()}")
    with contextlib.suppress(FileNotFoundError):  # another job was first
        claim_path.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


def _remove_dead_claims(prefix: Path) -> None:
    """Remove what jobs left behind that were killed while they removed or made a claim."""
    for path in prefix.parent.glob(f"{prefix.name}.dead-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in prefix.parent.glob(f"{prefix.name}.claim-*"):
        if _is_dead(path):
            shutil.rmtree(path, ignore_errors=True)


def _claim_path(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.claim")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _boot_id() -> bytes:
    """Return what identifies this machine since its start."""
    return _read(Path("/proc/sys/kernel/random/boot_id")).strip() or os.uname().nodename.encode()


def _sync_file_system(folder: Path) -> None:
    """Write the file system's data to disk, so that a prefix that is there is complete even after a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).syncfs(fd)
    finally:
        os.close(fd)
