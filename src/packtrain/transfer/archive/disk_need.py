"""The disk space that inputs need: the planner requests it, and the worker checks it before it downloads."""

from __future__ import annotations

from packtrain.plan import Input, RemoteFile
from packtrain.transfer.archive.formats import can_unpack_while_downloading, unpacked_format


def staged_disk_bytes(
    job_input: Input, remote_file: RemoteFile, size: int, *, typical: bool, can_stream: bool = True
) -> int:
    """Return the disk space that one file of an input needs, with its content if it is unpacked.

    Args:
        job_input: The input.
        remote_file: The file.
        size: Its size.
        typical: Assume the usual compression of its format, as for a request; otherwise that the content is only as
            large as the archive, which is the least that is needed.
        can_stream: Archives may be unpacked while they are downloaded, so that they are never stored.
    """
    archive_format = unpacked_format(remote_file.name) if job_input.unpack == "auto" else None
    if archive_format is None:
        return size
    content_bytes = int(size * archive_format.growth) if typical else size
    is_streamed = can_stream and can_unpack_while_downloading(job_input, remote_file)
    return content_bytes if is_streamed else size + content_bytes
