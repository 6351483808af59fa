"""Install one conda package: `.conda` (a zip of two tar.zst) or the older `.tar.bz2`.

The metadata in `info/` is read first. Then each member goes straight to its place in the prefix, and its placeholder is
replaced on the way.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from packtrain.errors import FailedError
from packtrain.pixi.package_extractor import Installation, PackageExtractor, PrefixTooLongError
from packtrain.pixi.prefix_replacement import replace_in_binary, replace_in_text
from packtrain.pixi.scripts import make_script
from packtrain.plan import PixiPackage
from packtrain.transfer.archive.byte_stream import CHUNK_BYTES, ByteStream, stream_from_bytes, stream_from_fd
from packtrain.transfer.archive.decompress import decompress
from packtrain.transfer.archive.extract_tar import extract_tar
from packtrain.transfer.archive.extract_zip import open_zip
from packtrain.transfer.archive.safe_extractor import SafeExtractor

_INFO_FOLDER = "info/"
_JSON_INFO = ("index", "paths", "link")
_MAX_INFO_BYTES = 64 << 20  # of all metadata files together
_ENTRY_POINT_MODE = 0o775
_OLD_PLACEHOLDER = "/opt/anaconda1anaconda2anaconda3"  # where `has_prefix` names only the file


@dataclass(frozen=True)
class Placeholder:
    """The prefix of the machine that built a file."""

    text: bytes
    is_binary: bool


@dataclass(frozen=True)
class PackageInfo:
    """What the files in a package's `info/` folder say."""

    noarch: str = ""
    placeholders: Mapping[str, Placeholder] = field(default_factory=dict)  # by path
    folders: frozenset[str] = frozenset()  # that exist even if they are empty
    entry_points: tuple[str, ...] = ()


def install_conda_package(path: Path, installation: Installation, package: PixiPackage, rank: int) -> None:
    """Install a conda package.

    Raises:
        PrefixTooLongError: The prefix is longer than a placeholder in a binary file.
        FailedError: archive_broken, archive_unsafe, archive_too_large, truncated, disk_full, environment_unsupported.
    """
    with _open_tars(path, package.file_name) as open_tar:
        reader = _InfoReader(package.file_name, installation.folder.max_bytes)
        extract_tar(open_tar(_INFO_FOLDER), reader, installation.check_cancelled)
        info = parse_info(reader.files, package.file_name)
        _check_prefix_length(info, installation.prefix)
        extractor = _CondaExtractor(installation, package, rank, info)
        extract_tar(open_tar("pkg/"), extractor, installation.check_cancelled)
        for entry_point in info.entry_points:
            name, content = make_script(entry_point, installation.interpreter)
            extractor.write_script(name, content, _ENTRY_POINT_MODE)


def parse_info(files: Mapping[str, bytes], file_name: str) -> PackageInfo:
    """Parse the metadata of a package: its files by name, without `info/`. Raises FailedError: archive_broken."""
    try:
        index, paths, link = (json.loads(files.get(f"{name}.json", b"{}")) for name in _JSON_INFO)
        noarch_link = link.get("noarch") or {}
        entries = paths.get("paths", [])
        return PackageInfo(
            # Before `noarch: python` there was `noarch: true`, which is generic.
            noarch=index["noarch"] if isinstance(index.get("noarch"), str) else "",
            placeholders=_placeholders(entries) if paths else _old_placeholders(files.get("has_prefix", b"").decode()),
            folders=frozenset(entry["_path"].strip("/") for entry in entries if entry.get("path_type") == "directory"),
            entry_points=tuple(map(str, noarch_link.get("entry_points") or ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        detail = f"the metadata of {file_name} cannot be read: {type(error).__name__}: {error}"
        raise FailedError("archive_broken", detail) from error


def _placeholders(entries: list[dict[str, Any]]) -> dict[str, Placeholder]:
    return {
        entry["_path"]: Placeholder(entry["prefix_placeholder"].encode(), entry.get("file_mode") == "binary")
        for entry in entries
        if entry.get("prefix_placeholder")
    }


def _old_placeholders(has_prefix: str) -> dict[str, Placeholder]:
    """Parse lines of `PLACEHOLDER MODE PATH`, or only `PATH`."""
    found = {}
    for line in filter(str.strip, has_prefix.splitlines()):
        parts = [part.strip("\"'") for part in line.split(" ", 2)]
        placeholder, mode, path = parts if len(parts) == 3 else (_OLD_PLACEHOLDER, "text", line.strip().strip("\"'"))
        found[path] = Placeholder(placeholder.encode(), mode == "binary")
    return found


def _check_prefix_length(info: PackageInfo, prefix: str) -> None:
    lengths = [len(placeholder.text) for placeholder in info.placeholders.values() if placeholder.is_binary]
    if lengths and min(lengths) < len(prefix.encode()):
        raise PrefixTooLongError(prefix, min(lengths))


@contextlib.contextmanager
def _open_tars(path: Path, file_name: str) -> Iterator[Callable[[str], ByteStream]]:
    """Yield a function that opens the tar of "info/" or of "pkg/"; in a `.tar.bz2` they are the same."""
    if file_name.endswith(".tar.bz2"):
        with open(path, "rb", buffering=0) as file:

            def open_bz2(part: str) -> ByteStream:
                file.seek(0)
                return decompress(stream_from_fd(file.fileno()), "bz2")

            yield open_bz2
        return
    with open_zip(path, file_name) as archive, contextlib.ExitStack() as members:

        def open_zst(part: str) -> ByteStream:
            names = [name for name in archive.namelist() if name.startswith(f"{part[:-1]}-")]
            if len(names) != 1 or not names[0].endswith(".tar.zst"):
                raise FailedError("archive_broken", f"{file_name} has no member {part[:-1]}-….tar.zst")
            member = members.enter_context(archive.open(names[0]))
            return decompress(ByteStream(lambda: member.read(CHUNK_BYTES)), "zst")

        yield open_zst


class _InfoReader(SafeExtractor):
    """Keeps the metadata files in memory and skips everything else.

    Args:
        archive_name: The name of the package.
        max_bytes: Limit for what is skipped: the size of the installed package.
    """

    def __init__(self, archive_name: str, max_bytes: int) -> None:
        self.archive_name = archive_name
        self.files: dict[str, bytes] = {}  # by name, without `info/`
        self._max_bytes, self._kept_bytes, self._skipped_bytes = max_bytes, 0, 0

    def write_small_file(self, name: str, mode: int, views: list[memoryview], size: int) -> None:
        self._read(name, iter(views))

    def write_file(self, name: str, mode: int, data: ByteStream) -> None:
        self._read(name, iter(data.read_chunk, memoryview(b"")))

    def make_folder(self, name: str) -> None: ...

    def make_symlink(self, name: str, target: str) -> None: ...

    def make_hardlink(self, name: str, target: str) -> None: ...

    def _read(self, name: str, chunks: Iterator[memoryview]) -> None:
        is_kept = name.startswith(_INFO_FOLDER)
        content = []
        for chunk in chunks:
            if is_kept:
                self._kept_bytes += len(chunk)
                content.append(bytes(chunk))
            else:
                self._skipped_bytes += len(chunk)
            if self._kept_bytes > _MAX_INFO_BYTES or self._skipped_bytes > self._max_bytes:
                limit = _MAX_INFO_BYTES if is_kept else self._max_bytes
                detail = f"{self.archive_name} unpacks to more than its limit of {limit} bytes"
                raise FailedError("archive_too_large", detail)
        if is_kept:
            self.files[name[len(_INFO_FOLDER) :]] = b"".join(content)


class _CondaExtractor(PackageExtractor):
    """Writes the files of a package, without its metadata."""

    def __init__(self, installation: Installation, package: PixiPackage, rank: int, info: PackageInfo) -> None:
        super().__init__(installation, package, rank)
        self._info = info

    def write_small_file(self, name: str, mode: int, views: list[memoryview], size: int) -> None:
        if name in self._info.placeholders:
            self.write_file(name, mode, stream_from_bytes(*views))
        elif not _is_metadata(name):
            super().write_small_file(self._place(name), mode, views, size)

    def write_file(self, name: str, mode: int, data: ByteStream) -> None:
        if _is_metadata(name):
            for chunk in iter(data.read_chunk, memoryview(b"")):  # it counts, so that it cannot go on forever
                self.installation.folder.reserve(len(chunk))
            return
        placeholder = self._info.placeholders.get(name)
        if placeholder is not None:
            replace = replace_in_binary if placeholder.is_binary else replace_in_text
            data = replace(data, placeholder.text, self.installation.prefix.encode())
        super().write_file(self._place(name), mode, data)

    def make_folder(self, name: str) -> None:
        if name.strip("/") in self._info.folders:
            super().make_folder(self._place(name))

    def make_symlink(self, name: str, target: str) -> None:
        if not _is_metadata(name):
            super().make_symlink(self._place(name), target)

    def make_hardlink(self, name: str, target: str) -> None:
        if not _is_metadata(name):
            super().make_hardlink(self._place(name), self._place(target))

    def _place(self, name: str) -> str:
        """Return where a member goes: `noarch: python` packages do not know the folder of the environment's Python."""
        if self._info.noarch == "python":
            top, slash, rest = name.partition("/")
            if slash and top == "site-packages":
                return f"{self.installation.site_packages}/{rest}"
            if slash and top == "python-scripts":
                return f"bin/{rest}"
        return name


def _is_metadata(name: str) -> bool:
    return name.startswith(_INFO_FOLDER)
