"""A short name for the folder of temporary files.

Programs put sockets there, whose paths have at most 107 bytes: with longer ones the data loaders of PyTorch wait for
ever without a word. The scratch of a pool, which HTCondor names as TMPDIR, often lies deeper.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_MAX_TMPDIR_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")
_SHORT_ROOT = Path("/tmp")  # noqa: S108 - what lies there is a link with a name of its own


@contextmanager
def short_tmpdir(environ: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """The variables that lead programs to `folder` by a short way, where they would get a long one."""
    if len(os.fsencode(environ.get("TMPDIR", ""))) <= _MAX_TMPDIR_BYTES:
        yield {}
        return
    link = _SHORT_ROOT / f"packtrain-{os.urandom(4).hex()}"
    try:
        link.symlink_to(folder)
    except OSError:
        yield {"TMPDIR": str(_SHORT_ROOT)}
        return
    try:
        yield {"TMPDIR": str(link)}
    finally:
        with suppress(OSError):
            link.unlink()
