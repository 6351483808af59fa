"""Install one wheel: a zip of Python packages; what is in its `NAME.data` folder goes elsewhere (PEP 427)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import queue
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.pixi.package_extractor import Installation, PackageExtractor
from packtrain.pixi.prefix_replacement import shebang_line
from packtrain.pixi.scripts import make_script, parse_entry_points
from packtrain.plan import PixiPackage
from packtrain.transfer.archive.byte_stream import ByteStream, prepend, stream_from_bytes
from packtrain.transfer.archive.extract_zip import extract_zip_member, open_zip
from packtrain.transfer.tasks.parallel import run_parallel

if TYPE_CHECKING:
    import zipfile

_MIN_PARALLEL_BYTES = 32 << 20  # unpacked size from which threads pay
_MAX_THREADS = 4
_FILE_MODE, _EXECUTABLE_MODE = 0o644, 0o755
_EXECUTE_BITS = 0o111
_MAX_METADATA_BYTES = 64 << 20
_SCRIPT_SHEBANG = re.compile(rb"#!pythonw?\b[^\n]*")
_METADATA_FILES = ("RECORD", "entry_points.txt")


def install_wheel(path: Path, installation: Installation, package: PixiPackage, rank: int) -> None:
    """Install a wheel. Raises FailedError: archive_broken, archive_unsafe, archive_too_large, truncated, disk_full."""
    extractor = _WheelExtractor(installation, package, rank)
    with open_zip(path, package.file_name) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) < len(members):
            raise FailedError("archive_broken", f"{package.file_name} has two members of the same name")
        _extract_members(archive, members, extractor)
    extractor.finish()


def _extract_members(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], extractor: _WheelExtractor) -> None:
    """Extract the largest members first, in several threads: one wheel may be most of an environment."""
    check_cancelled = extractor.installation.check_cancelled
    pending: queue.SimpleQueue[zipfile.ZipInfo] = queue.SimpleQueue()
    for member in sorted(members, key=lambda member: -member.file_size):
        pending.put(member)
    has_failed = threading.Event()

    def work() -> None:
        while not has_failed.is_set():
            try:
                member = pending.get_nowait()
            except queue.Empty:
                return
            check_cancelled()
            extract_zip_member(archive, member, extractor, check_cancelled)

    is_large = sum(member.file_size for member in members) > _MIN_PARALLEL_BYTES
    n_threads = min(len(os.sched_getaffinity(0)), _MAX_THREADS) if is_large else 1
    run_parallel([work] * n_threads, has_failed.set)


class _WheelExtractor(PackageExtractor):
    """Writes the files of a wheel, then its scripts and its RECORD, which lists what was installed."""

    def __init__(self, installation: Installation, package: PixiPackage, rank: int) -> None:
        super().__init__(installation, package, rank)
        self._name = package.file_name.split("-")[0]
        self._metadata: dict[str, bytes] = {}  # by path in the wheel
        self._scripts: list[tuple[str, bytes]] = []  # path in the prefix, content

    def write_file(self, name: str, mode: int, data: ByteStream) -> None:
        folder, _, last = name.rpartition("/")
        if folder.endswith(".dist-info") and "/" not in folder and last in _METADATA_FILES:
            self._metadata[name] = self._read_metadata(name, data)
            if last == "RECORD":
                return
            data = stream_from_bytes(self._metadata[name])
        place = self._place(name)
        is_script = place.startswith("bin/") and ".data/scripts/" in name
        if is_script:
            data = _with_interpreter(data, self.installation.interpreter)
        new_mode = _EXECUTABLE_MODE if is_script or mode & _EXECUTE_BITS else _FILE_MODE
        super().write_file(place, new_mode | mode & ~0o777, data)

    def make_folder(self, name: str) -> None:
        """Skip folders: only those of files are needed."""

    def make_symlink(self, name: str, target: str) -> None:
        self.reject(name, "a link, which wheels cannot have")

    def finish(self) -> None:
        """Write the scripts of the entry points, and RECORD."""
        for path, content in list(self._metadata.items()):
            if path.endswith("/entry_points.txt"):
                for entry_point in parse_entry_points(content.decode("utf-8", "replace")):
                    self._write_entry_point(entry_point)
        for path, content in self._metadata.items():
            if path.endswith("/RECORD"):
                record = self._make_record(content.decode("utf-8", "replace"))
                super().write_small_file(self._place(path), _FILE_MODE, [memoryview(record)], len(record))

    def _write_entry_point(self, entry_point: str) -> None:
        try:
            name, content = make_script(entry_point, self.installation.interpreter)
        except ValueError as error:
            raise FailedError("archive_broken", f"{self.archive_name}: {error}") from error
        self.write_script(name, content, _EXECUTABLE_MODE)
        self._scripts.append((f"bin/{name}", content))

    def _place(self, name: str) -> str:
        """Return where a member goes, relative to the prefix."""
        site_packages = self.installation.site_packages
        top, _, rest = name.partition("/")
        if not top.endswith(".data"):
            return f"{site_packages}/{name}"
        kind, _, inside = rest.partition("/")
        folders = {
            "purelib": f"{site_packages}/",
            "platlib": f"{site_packages}/",
            "scripts": "bin/",
            "headers": f"include/python{self.installation.python}/{self._name}/",
            "data": "",
        }
        if kind not in folders or not inside:
            raise FailedError("archive_broken", f"{self.archive_name} has {name!r} in a folder that wheels do not have")
        return folders[kind] + inside

    def _make_record(self, record: str) -> bytes:
        """Return RECORD with the paths as installed, and the scripts that were written."""
        site_packages = self.installation.site_packages
        rows = []
        for row in csv.reader(record.splitlines()):
            if row:
                path = os.path.relpath(self._place(row[0]), site_packages)
                # The interpreter in a script has changed, so its digest is no longer the one of the wheel.
                rows.append([path, "", ""] if ".data/scripts/" in row[0] else [path, *row[1:]])
        for path, content in self._scripts:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append([os.path.relpath(path, site_packages), f"sha256={digest}", str(len(content))])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()

    def _read_metadata(self, name: str, data: ByteStream) -> bytes:
        content = data.read(_MAX_METADATA_BYTES + 1)
        if len(content) > _MAX_METADATA_BYTES:
            detail = f"the member {name!r} of {self.archive_name} has more than {_MAX_METADATA_BYTES} bytes"
            raise FailedError("archive_too_large", detail)
        return content


def _with_interpreter(data: ByteStream, interpreter: str) -> ByteStream:
    """Replace `#!python` by the path of the environment's Python."""
    head = data.peek(1 << 10)
    match = _SCRIPT_SHEBANG.match(head)
    if match is None:
        return data
    data.skip(match.end())
    return prepend(shebang_line(interpreter).encode(), data)
