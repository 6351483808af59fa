"""Room for the sockets of torch's workers.

Tensors are handed over by sockets in the folder for temporary files, and the path of a socket has at most 107 bytes.
The scratch of a pool, which HTCondor names as TMPDIR, often lies deeper: then torch's queue fails in the background,
and the training waits forever.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import tempfile

_MAX_TEMP_DIR_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")
_SHORT_TEMP_DIR = "/tmp"  # noqa: S108 - a folder of its own is made in it, readable by its owner only


def ensure_short_socket_dir() -> None:
    """Choose another folder for sockets where the usual one lies too deep. It is removed when the process ends."""
    if len(os.fsencode(tempfile.gettempdir())) <= _MAX_TEMP_DIR_BYTES:
        return
    before, tempfile.tempdir = tempfile.tempdir, _SHORT_TEMP_DIR
    try:
        with contextlib.suppress(OSError):
            multiprocessing.util.get_temp_dir()  # made once, and used from then on
    finally:
        tempfile.tempdir = before
