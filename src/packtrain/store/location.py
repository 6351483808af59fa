"""Where the store lies, and whether its file system can carry a write-ahead log."""

from __future__ import annotations

import os
from pathlib import Path

# File systems whose memory mapping is not shared between machines: SQLite's WAL breaks there.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "afs", "fuse.sshfs", "9p"}
)


def store_path() -> Path:
    """$PACKTRAIN_STORE, or packtrain/store.db in the user's data folder."""
    named = os.environ.get("PACKTRAIN_STORE")
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "packtrain" / "store.db"


def file_system_type(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds the path, e.g. ext4 or nfs4; "" where nobody says."""
    text = mounts if mounts is not None else _read_mounts()
    where = path.resolve()
    found = ("", "")
    for line in text.splitlines():
        _, point, kind, *_ = [*line.split(), "", "", ""]
        point = point.replace("\\040", " ")
        if point and (where == Path(point) or Path(point) in where.parents) and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


def _read_mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def is_network_file_system(file_system: str) -> bool:
    return file_system in _NETWORK_FILE_SYSTEMS
