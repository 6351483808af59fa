"""Any tar: a safe one is extracted as by tarfile, an unsafe one writes nothing outside of the folder."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.errors import FailedError
from packtrain.events import FAILURE_KINDS
from packtrain.transfer.archive.byte_stream import stream_from_fd
from packtrain.transfer.archive.unpack import can_stream, detect_format, unpack, unpack_stream

texts = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\"), min_size=1, max_size=12)
steps = texts.filter(lambda text: text not in (".", "..") and len(text.encode()) < 100)
names = st.lists(steps, min_size=1, max_size=3).map("/".join)
files = st.dictionaries(names, st.tuples(st.binary(max_size=2000), st.booleans()), min_size=1, max_size=8)


def make_tar(members, tar_format: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def describe(folder: Path) -> dict:
    """The kind of each path below a folder, with its link target, or its content and execute bit."""
    paths = {}
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                entry = ("link", os.readlink(path))
            elif stat.S_ISDIR(mode):
                entry = ("folder",)
            else:
                entry = ("file", path.read_bytes(), bool(mode & 0o100))
            paths[path.relative_to(folder).as_posix()] = entry
    return paths


def unpack_archive(path: Path, folder: Path, chunk_bytes: int = 0) -> None:
    """Unpack from a file, or from a stream in chunks of `chunk_bytes`."""
    options = {"max_bytes": None, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
    with open(path, "rb", buffering=0) as file:
        if chunk_bytes and can_stream(file.read(512)):
            file.seek(0)
            unpack_stream(stream_from_fd(file.fileno(), chunk_bytes), path.name, folder, **options)
        else:
            unpack(path, folder, **options)


chunk_sizes = st.sampled_from([0, 64, 513, 4096])


@settings(max_examples=80, deadline=None)
@given(
    files=files,
    tar_format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    is_compressed=st.booleans(),
    chunk_bytes=chunk_sizes,
    links=st.lists(st.tuples(steps, st.integers(0, 7), st.booleans()), max_size=3, unique_by=lambda link: link[0]),
)
def test_safe_tar_matches_tarfile(files, tar_format, is_compressed, chunk_bytes, links):
    used_names = {part for name in files for part in (name, name.split("/")[0])}
    plain = {n: f for n, f in files.items() if not any(o != n and (o + "/").startswith(n + "/") for o in files)}
    members = []
    for name, (data, is_executable) in plain.items():
        info = tarfile.TarInfo(name)
        info.mode = 0o755 if is_executable else 0o644
        members.append((info, data))
    for name, index, is_hard in links:
        if name not in used_names:
            info = tarfile.TarInfo(name)
            info.type = tarfile.LNKTYPE if is_hard else tarfile.SYMTYPE
            info.linkname = sorted(plain)[index % len(plain)]
            info.mode = 0o755 if plain[info.linkname][1] else 0o644  # one file, so one mode
            members.append((info, b""))
    data = make_tar(members, tar_format)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "archive")
        path.write_bytes(gzip.compress(data) if is_compressed else data)
        with tarfile.open(path) as tar:
            tar.extractall(Path(folder, "theirs"))
        unpack_archive(path, Path(folder, "ours"), chunk_bytes)
        assert describe(Path(folder, "ours")) == describe(Path(folder, "theirs"))


wild_steps = st.sampled_from(["a", "b", "c", "..", ".", "", "a"])
wild_names = st.lists(wild_steps, min_size=1, max_size=5).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])


@settings(max_examples=300, deadline=None)
@given(members=st.lists(st.tuples(wild_names, kinds, wild_names), min_size=1, max_size=8), chunk_bytes=chunk_sizes)
def test_unsafe_tar_writes_nothing_outside(members, chunk_bytes):
    prepared = []
    for name, kind, link in members:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        prepared.append((info, b"data" if kind == tarfile.REGTYPE else b""))
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder, "archive"), Path(folder, "x", "y", "into")
        path.write_bytes(make_tar(prepared, tarfile.GNU_FORMAT))
        try:
            unpack_archive(path, target, chunk_bytes)
        except FailedError as error:
            assert error.kind in ("archive_unsafe", "archive_broken")
        created = [p for p in Path(folder).rglob("*") if p not in (path, target, *target.parents)]
        assert all(target in p.parents for p in created)
        for link in (p for p in target.rglob("*") if p.is_symlink() and not is_link_loop(p)):
            assert Path(os.path.realpath(link)).is_relative_to(os.path.realpath(target))


def is_link_loop(link: Path) -> bool:
    """Whether a link refers to itself; realpath returns nonsense for it."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


magics = st.sampled_from([b"", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zXZ\0", b"PK\x03\x04"])


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=3000), magic=magics, chunk_bytes=chunk_sizes)
def test_any_bytes_give_a_failure_kind(data, magic, chunk_bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "archive")
        path.write_bytes(magic + data)
        if detect_format(path) is not None:
            try:
                unpack_archive(path, Path(folder, "into"), chunk_bytes)
            except FailedError as error:
                assert error.kind in FAILURE_KINDS


@settings(max_examples=60, deadline=None)
@given(
    outer=st.dictionaries(steps, files, min_size=1, max_size=3), is_compressed=st.booleans(), chunk_bytes=chunk_sizes
)
def test_nested_tars_match_single_ones(outer, is_compressed, chunk_bytes):
    inner = {}
    for name, content in outer.items():
        plain = {n: f for n, f in content.items() if not any(o != n and (o + "/").startswith(n + "/") for o in content)}
        tar = make_tar([(tarfile.TarInfo(n), data) for n, (data, _) in plain.items()], tarfile.PAX_FORMAT)
        inner[name] = (plain, gzip.compress(tar) if is_compressed else tar)
    archive = make_tar([(tarfile.TarInfo(f"{name}.tar"), tar) for name, (_, tar) in inner.items()], tarfile.PAX_FORMAT)
    options = {
        "nested": True,
        "max_bytes": None,
        "check_cancelled": lambda: None,
        "on_progress": lambda done, total: None,
    }
    with tempfile.TemporaryDirectory() as parent:
        path, folder = Path(parent, "archive"), Path(parent, "into")
        path.write_bytes(archive)
        with open(path, "rb") as file:
            unpack_stream(stream_from_fd(file.fileno(), chunk_bytes or 1 << 20), "archive", folder, **options)
        for name, (plain, _) in inner.items():
            names = {p.relative_to(folder / name).as_posix() for p in (folder / name).rglob("*") if p.is_file()}
            assert names == set(plain)
            assert all((folder / name / n).read_bytes() == data for n, (data, _) in plain.items())
        assert {p.name for p in folder.iterdir()} == set(inner)
