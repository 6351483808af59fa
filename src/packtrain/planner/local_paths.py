"""Local paths as users write them, and what is there."""

from __future__ import annotations

import os.path
import stat
from pathlib import Path

FOLDER, FILE, OTHER, MISSING = "folder", "file", "other", "nothing"


def resolve_path(base_dir: Path, text: str) -> Path:
    """A path relative to the folder `where`; `~/` is the home folder. Links stay: it is the path the user knows."""
    path = Path.home() / text[2:] if text.startswith("~/") else Path(text)
    return Path(os.path.normpath(base_dir.absolute() / path))


def classify_path(path: Path) -> tuple[str, str]:
    """What is at a path; for NOTHING also the reason, which may be that we are not allowed to see it."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return MISSING, "does not exist"
    except (OSError, ValueError) as error:
        return MISSING, f"cannot be seen ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISDIR(mode):
        return FOLDER, ""
    return (FILE, "") if stat.S_ISREG(mode) else (OTHER, "")
