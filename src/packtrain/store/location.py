"""Find the store file, and tell whether its file system supports a write-ahead log."""

from __future__ import annotations

import os
from pathlib import Path

# SQLite's WAL needs shared memory maps, which these file systems do not share between machines.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "afs", "fuse.sshfs", "9p"}
)


def store_path() -> Path:
    """Return $PACKTRAIN_STORE, or packtrain/store.db in the user's data folder."""
    configured = os.environ.get("PACKTRAIN_STORE")
    if configured:
        return Path(configured)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "packtrain" / "store.db"


def file_system_type(path: Path, mounts: str | None = None) -> str:
    """Return the type of the path's file system, e.g. ext4 or nfs4, or "" if it is unknown."""
    text = mounts if mounts is not None else _read_mounts()
    resolved = path.resolve()
    best = ("", "")
    for line in text.splitlines():
        _, point, kind, *_ = [*line.split(), "", "", ""]
        point = point.replace("\\040", " ")
        if point and (resolved == Path(point) or Path(point) in resolved.parents) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _read_mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def is_network_file_system(file_system: str) -> bool:
    return file_system in _NETWORK_FILE_SYSTEMS
