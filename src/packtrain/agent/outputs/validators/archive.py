"""Validate an archive by reading it to its end with all checksums. Nothing is written."""

from __future__ import annotations

from pathlib import Path

from packtrain.agent.outputs.validators import CancelCheck
from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import ByteStream, stream_from_fd
from packtrain.transfer.archive.decompress import decompress
from packtrain.transfer.archive.extract_tar import extract_tar
from packtrain.transfer.archive.extract_zip import extract_zip
from packtrain.transfer.archive.safe_extractor import SafeExtractor, map_archive_errors
from packtrain.transfer.archive.unpack import detect_format

_ZIP_MAGIC = b"PK"  # also finds .npz and other zip files that packtrain does not unpack


def validate(path: Path, check_cancelled: CancelCheck) -> str | None:
    """Return what is wrong with the archive, or None."""
    archive_format = detect_format(path) or _detect_zip(path)
    if archive_format is None:
        return "it is not an archive of a known format"
    if archive_format in ("7z", "rar"):
        return f"it is a {archive_format} archive, which cannot be checked; use tar or zip"
    try:
        _read_archive(path, archive_format, check_cancelled)
    except FailedError as error:
        if error.kind not in ("truncated", "archive_broken", "archive_unsafe"):
            raise
        return error.detail
    return None


def _detect_zip(path: Path) -> str | None:
    with open(path, "rb") as file:
        return "zip" if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC else None


def _read_archive(path: Path, archive_format: str, check_cancelled: CancelCheck) -> None:
    if archive_format == "zip":
        extract_zip(path, _NullExtractor(path.name), check_cancelled)
        return
    with open(path, "rb", buffering=0) as file:
        compression = archive_format.rpartition(".")[2] if archive_format != "tar" else ""
        stream = decompress(stream_from_fd(file.fileno()), compression)
        if archive_format.startswith("tar"):
            extract_tar(stream, _NullExtractor(path.name), check_cancelled)
        else:
            _drain_stream(stream, path.name, check_cancelled)


def _drain_stream(stream: ByteStream, name: str, check_cancelled: CancelCheck) -> None:
    with map_archive_errors(name):
        while len(stream.read_chunk()):
            check_cancelled()


class _NullExtractor(SafeExtractor):
    """Read all members and write nothing."""

    def __init__(self, archive_name: str) -> None:
        self.archive_name = archive_name

    def make_folder(self, name: str) -> None: ...

    def write_small_file(self, name: str, mode: int, views: list[memoryview], size: int) -> None: ...

    def write_file(self, name: str, mode: int, data: ByteStream) -> None:
        data.drain()

    def make_symlink(self, name: str, target: str) -> None: ...

    def make_hardlink(self, name: str, target: str) -> None: ...
