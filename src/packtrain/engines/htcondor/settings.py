"""What a run on a pool was started with; kept in the run's folder, so that later attempts are submitted alike."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from packtrain.errors import FormatError


@dataclass(frozen=True)
class RunSettings:
    project: str = ""
    duration: str = ""  # a category
    lease_s: int = 6 * 3600
    max_jobs: int = 5000
    max_idle: int = 1000
    starts: int = 10
    disk_mb: int = 4096
    lines: tuple[tuple[str, str], ...] = ()  # of the person's settings, then of the workflow

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> RunSettings:
        """Raises FormatError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            known = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            return cls(**{**known, "lines": tuple((str(k), str(v)) for k, v in known.get("lines", ()))})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FormatError(f"the settings {path} of the run cannot be read: {error}") from None
