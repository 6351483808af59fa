"""The engine's own log of what Slurm reported, because Slurm forgets ended jobs after minutes.

Each line is a status that differs from the one before, or a request to cancel. Lines are appended in one write, so
several engine objects may write. The offset of a line is the position that every reader sees.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packtrain.slurm.squeue import TaskStatus

# States that Slurm does not have, for records of the engine's own.
LOST = "LOST"  # Slurm no longer knows the task, and its end was not seen
REJECTED = "REJECTED"  # sbatch refused the array; the reason is its message


@dataclass(frozen=True)
class StatusRecord:
    """One line of the log.

    Attributes:
        name: Job name of the submission.
        index: Index of the task in the array.
        observed_at: Unix time.
        status: What Slurm reported; None for a request to cancel.
        position: Offset of the line in the log, from 1.
    """

    name: str
    index: int
    observed_at: float
    status: TaskStatus | None
    position: int = 0


class StatusLog:
    """Appends records and reads new ones."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def append(self, records: list[StatusRecord]) -> None:
        """Write records durably."""
        if not records:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(json.dumps(_to_json(record), separators=(",", ":")) + "\n" for record in records).encode()
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self) -> list[StatusRecord]:
        """Return complete records that this object has not returned yet."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        records: list[StatusRecord] = []
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            records += _parse_line(line, self._offset + 1)
            self._offset += len(line)
        return records


def _to_json(record: StatusRecord) -> dict[str, Any]:
    status = asdict(record.status) if record.status else None
    return {"name": record.name, "index": record.index, "at": round(record.observed_at, 3), "status": status}


def _parse_line(line: bytes, position: int) -> list[StatusRecord]:
    """Return the record of a line; none for a line that a crash or a full disk cut short."""
    try:
        data = json.loads(line)
        status = TaskStatus(**data["status"]) if data["status"] else None
        return [StatusRecord(data["name"], data["index"], data["at"], status, position)]
    except (ValueError, KeyError, TypeError):
        return []
