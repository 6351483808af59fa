"""Removes sandboxes that killed agents left on a node's disk, where the engine does not do it.

A sandbox in the scratch folder names the claim file of its execution. If the claim is free, its agent is dead.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packtrain.agent.cleanup import remove_tree
from packtrain.fileutil import atomic_write

SANDBOX_PREFIX = "packtrain-"
_OWNER_FILE = ".claim"


def write_owner(sandbox: Path, claim: Path) -> None:
    """Create a sandbox that names the claim file of its execution."""
    sandbox.mkdir(parents=True, exist_ok=True)
    atomic_write(sandbox / _OWNER_FILE, str(claim))


def remove_abandoned_sandboxes(scratch: Path) -> Iterator[Path]:
    """Remove the sandboxes of dead agents of this user, and yield their paths."""
    for owner_file in scratch.glob(f"{SANDBOX_PREFIX}*/{_OWNER_FILE}"):
        with suppress(OSError):
            is_own = owner_file.lstat().st_uid == os.getuid()
            if is_own and _is_free(Path(owner_file.read_text(encoding="utf-8"))):
                remove_tree(owner_file.parent)
                yield owner_file.parent


def _is_free(claim: Path) -> bool:
    """Return whether no agent holds the claim. Raises OSError if the file system has no locks."""
    try:
        with open(claim, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:  # the run was removed
        return True
    except BlockingIOError:
        return False
    return True
