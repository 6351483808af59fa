"""A short path for TMPDIR.

Programs create sockets in TMPDIR, and the path of a socket has at most 107 bytes. With a longer path, PyTorch's data
loaders hang without a message. The scratch folder that HTCondor names in TMPDIR often has a longer path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_MAX_TMPDIR_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")
_SHORT_ROOT = Path("/tmp")  # noqa: S108 - only a link with a random name is created there


@contextmanager
def short_tmpdir(environ: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """Yield variables that give programs a short TMPDIR, if the one in `environ` is too long.

    Args:
        environ: The agent's environment.
        folder: The folder to use, by a short symbolic link.
    """
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
