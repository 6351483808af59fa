"""A TMPDIR in which programs can create sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from packtrain.fileutil import can_hold_sockets

_SHORT_ROOT = Path("/tmp")  # noqa: S108 - only a link with a random name is created there


@contextmanager
def short_tmpdir(environ: Mapping[str, str], folder: Path, short_root: Path = _SHORT_ROOT) -> Iterator[dict[str, str]]:
    """Yield variables that give programs a short TMPDIR, if the one in `environ` is too long.

    Args:
        environ: The agent's environment.
        folder: The folder to use, by a short symbolic link.
        short_root: Holds the link.
    """
    if can_hold_sockets(environ.get("TMPDIR", "")):
        yield {}
        return
    link = short_root / f"packtrain-{os.urandom(4).hex()}"
    try:
        link.symlink_to(folder)
    except OSError:
        yield {"TMPDIR": str(short_root)}
        return
    try:
        yield {"TMPDIR": str(link)}
    finally:
        with suppress(OSError):
            link.unlink()
