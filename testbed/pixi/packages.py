"""Builds conda packages (.conda, .tar.bz2) and wheels without conda: every byte of them is known to the tests."""

from __future__ import annotations

import base64
import bz2
import ctypes
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_EPOCH = 1_700_000_000
_ZIP_EPOCH = (2020, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class _Member:
    """A file of a package, a symbolic link, or a hard link to another file of the package."""

    data: bytes = b""
    mode: int = 0o644
    symlink: str = ""
    hardlink: str = ""


@dataclass
class CondaPackage:
    """A conda package. `add` its files, then `write` it into a channel."""

    name: str
    version: str = "1.0"
    build: str = "0"
    subdir: str = "linux-64"
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    noarch: str = ""
    site_packages: str = ""  # of a Python: where it looks for packages
    link_json: Mapping[str, Any] | None = None  # entry points of a noarch Python package
    _members: dict[str, _Member] = field(default_factory=dict)
    _paths: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        path: str,
        data: bytes | str = b"",
        mode: int = 0o644,
        *,
        placeholder: str = "",
        file_mode: str = "text",
        symlink: str = "",
        hardlink: str = "",
    ) -> CondaPackage:
        """Add a file. `placeholder` is the prefix in its bytes, which the installation replaces."""
        content = data.encode() if isinstance(data, str) else data
        self._members[path] = _Member(content, mode, symlink, hardlink)
        linked = self._members[hardlink].data if hardlink else content
        entry = {
            "_path": path,
            "path_type": "softlink" if symlink else "hardlink",
            "sha256": hashlib.sha256(linked).hexdigest(),
            "size_in_bytes": len(linked),
        }
        if placeholder:
            entry.update(prefix_placeholder=placeholder, file_mode=file_mode)
        self._paths.append(entry)
        return self

    def write(self, channel: Path, suffix: str = ".conda") -> Path:
        """Write the package below the folder of a channel, as `.conda` or `.tar.bz2`."""
        info = {path: _Member(json.dumps(value).encode()) for path, value in self._info().items()}
        info["info/files"] = _Member("\n".join(self._members).encode())
        stem = f"{self.name}-{self.version}-{self.build}"
        path = channel / self.subdir / f"{stem}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".tar.bz2":
            path.write_bytes(bz2.compress(_make_tar({**self._members, **info})))
            return path
        with zipfile.ZipFile(path, "w") as archive:  # stored: its members are compressed already
            archive.writestr(zipfile.ZipInfo("metadata.json", _ZIP_EPOCH), '{"conda_pkg_format_version": 2}')
            for prefix, members in (("pkg", self._members), ("info", info)):
                data = compress_zstd(_make_tar(members))
                archive.writestr(zipfile.ZipInfo(f"{prefix}-{stem}.tar.zst", _ZIP_EPOCH), data)
        return path

    def _info(self) -> dict[str, Any]:
        index = {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": 0,
            "subdir": self.subdir,
            "depends": list(self.depends),
            "constrains": list(self.constrains),
            "noarch": self.noarch,
            "python_site_packages_path": self.site_packages,
        }
        info: dict[str, Any] = {
            "info/index.json": {key: value for key, value in index.items() if value != ""},
            "info/paths.json": {"paths": self._paths, "paths_version": 1},
            "info/about.json": {},
        }
        if self.link_json:
            info["info/link.json"] = self.link_json
        return info


def _make_tar(members: Mapping[str, _Member]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, member in members.items():
            header = tarfile.TarInfo(path)
            header.mode, header.mtime = member.mode, _EPOCH
            if member.symlink or member.hardlink:
                header.type = tarfile.SYMTYPE if member.symlink else tarfile.LNKTYPE
                header.linkname = member.symlink or member.hardlink
            else:
                header.size = len(member.data)
            tar.addfile(header, io.BytesIO(member.data))
    return out.getvalue()


def compress_zstd(data: bytes) -> bytes:
    """Compress with the system's libzstd, because Python has no zstd before 3.14."""
    libzstd = ctypes.CDLL("libzstd.so.1")
    libzstd.ZSTD_compressBound.restype = libzstd.ZSTD_compress.restype = ctypes.c_size_t
    max_bytes = libzstd.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    buffer = ctypes.create_string_buffer(max_bytes)
    size = libzstd.ZSTD_compress(buffer, ctypes.c_size_t(max_bytes), data, ctypes.c_size_t(len(data)), 3)
    return buffer.raw[:size]


def build_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
    scripts: Mapping[str, str] | None = None,
    requires: tuple[str, ...] = (),
) -> Path:
    """Write a wheel.

    Args:
        folder: Where to write it.
        name: The name of the package.
        version: Its version.
        tag: Python, ABI and platform, e.g. "cp311-cp311-manylinux_2_28_x86_64".
        files: Its files by path; without any, a module that has the package's name.
        scripts: Entry points by name, e.g. {"tool": "tool:main"}.
        requires: What it requires.
    """
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    members = dict(files or {f"{module}.py": f"VERSION = {version!r}\n\n\ndef main():\n    print({name!r}, VERSION)\n"})
    required = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}"
    members[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: testbed\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    record = "".join(f"{path},{_record_hash(text)},{len(text.encode())}\n" for path, text in members.items())
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in members.items():
            header = zipfile.ZipInfo(path, _ZIP_EPOCH)
            header.external_attr = 0o644 << 16
            archive.writestr(header, text, zipfile.ZIP_DEFLATED)
    return wheel


def _record_hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"
