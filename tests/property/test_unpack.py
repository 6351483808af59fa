"""Any tar: what is safe comes out as tarfile has it; what is not leaves nothing outside of the folder."""

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

words = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\"), min_size=1, max_size=12)
steps = words.filter(lambda word: word not in (".", "..") and len(word.encode()) < 100)
names = st.lists(steps, min_size=1, max_size=3).map("/".join)
files = st.dictionaries(names, st.tuples(st.binary(max_size=2000), st.booleans()), min_size=1, max_size=8)


def made(members, form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def described(folder: Path) -> dict:
    """Every path below with what matters: folder, link target, or content and x bit."""
    found = {}
    for where, folders, names in os.walk(folder):
        for path in (Path(where, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                seen = ("link", os.readlink(path))
            elif stat.S_ISDIR(mode):
                seen = ("folder",)
            else:
                seen = ("file", path.read_bytes(), bool(mode & 0o100))
            found[path.relative_to(folder).as_posix()] = seen
    return found


def ours(path: Path, folder: Path, piece: int = 0) -> None:
    """`piece`: from a stream, in pieces of so many bytes."""
    given = {"max_bytes": None, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
    with open(path, "rb", buffering=0) as file:
        if piece and can_stream(file.read(512)):
            file.seek(0)
            unpack_stream(stream_from_fd(file.fileno(), piece), path.name, folder, **given)
        else:
            unpack(path, folder, **given)


pieces = st.sampled_from([0, 64, 513, 4096])


@settings(max_examples=80, deadline=None)
@given(
    files=files,
    form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    packed=st.booleans(),
    piece=pieces,
    links=st.lists(st.tuples(steps, st.integers(0, 7), st.booleans()), max_size=3, unique_by=lambda link: link[0]),
)
def test_a_safe_tar_comes_out_as_tarfile_has_it(files, form, packed, piece, links):
    taken = {part for name in files for part in (name, name.split("/")[0])}
    plain = {n: f for n, f in files.items() if not any(o != n and (o + "/").startswith(n + "/") for o in files)}
    members = []
    for name, (data, executable) in plain.items():
        info = tarfile.TarInfo(name)
        info.mode = 0o755 if executable else 0o644
        members.append((info, data))
    for name, which, hard in links:
        if name not in taken:
            info = tarfile.TarInfo(name)
            info.type = tarfile.LNKTYPE if hard else tarfile.SYMTYPE
            info.linkname = sorted(plain)[which % len(plain)]
            info.mode = 0o755 if plain[info.linkname][1] else 0o644  # one file, so one mode
            members.append((info, b""))
    data = made(members, form)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "archive")
        path.write_bytes(gzip.compress(data) if packed else data)
        with tarfile.open(path) as tar:
            tar.extractall(Path(place, "theirs"))
        ours(path, Path(place, "ours"), piece)
        assert described(Path(place, "ours")) == described(Path(place, "theirs"))


wild_steps = st.sampled_from(["a", "b", "c", "..", ".", "", "a"])
wild_names = st.lists(wild_steps, min_size=1, max_size=5).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])


@settings(max_examples=300, deadline=None)
@given(members=st.lists(st.tuples(wild_names, kinds, wild_names), min_size=1, max_size=8), piece=pieces)
def test_a_wild_tar_leaves_nothing_outside(members, piece):
    prepared = []
    for name, kind, link in members:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        prepared.append((info, b"data" if kind == tarfile.REGTYPE else b""))
    with tempfile.TemporaryDirectory() as place:
        path, folder = Path(place, "archive"), Path(place, "x", "y", "into")
        path.write_bytes(made(prepared, tarfile.GNU_FORMAT))
        try:
            ours(path, folder, piece)
        except FailedError as error:
            assert error.kind in ("archive_unsafe", "archive_broken")
        outside = [p for p in Path(place).rglob("*") if p not in (path, folder, *folder.parents)]
        assert all(folder in p.parents for p in outside)
        for link in (p for p in folder.rglob("*") if p.is_symlink() and not loops(p)):
            assert Path(os.path.realpath(link)).is_relative_to(os.path.realpath(folder))


def loops(link: Path) -> bool:
    """A link in a circle leads nowhere, and realpath says nonsense of it."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


magics = st.sampled_from([b"", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zXZ\0", b"PK\x03\x04"])


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=3000), magic=magics, piece=pieces)
def test_any_bytes_are_judged_and_never_a_traceback(data, magic, piece):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "archive")
        path.write_bytes(magic + data)
        if detect_format(path) is not None:
            try:
                ours(path, Path(place, "into"), piece)
            except FailedError as error:
                assert error.kind in FAILURE_KINDS


@settings(max_examples=60, deadline=None)
@given(outer=st.dictionaries(steps, files, min_size=1, max_size=3), packed=st.booleans(), piece=pieces)
def test_a_tar_of_tars_comes_out_as_if_each_had_been_unpacked_alone(outer, packed, piece):
    inner = {}
    for name, held in outer.items():
        plain = {n: f for n, f in held.items() if not any(o != n and (o + "/").startswith(n + "/") for o in held)}
        tar = made([(tarfile.TarInfo(n), data) for n, (data, _) in plain.items()], tarfile.PAX_FORMAT)
        inner[name] = (plain, gzip.compress(tar) if packed else tar)
    whole = made([(tarfile.TarInfo(f"{name}.tar"), tar) for name, (_, tar) in inner.items()], tarfile.PAX_FORMAT)
    given = {"nested": True, "max_bytes": None, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
    with tempfile.TemporaryDirectory() as place:
        path, folder = Path(place, "archive"), Path(place, "into")
        path.write_bytes(whole)
        with open(path, "rb") as file:
            unpack_stream(stream_from_fd(file.fileno(), piece or 1 << 20), "archive", folder, **given)
        for name, (plain, _) in inner.items():
            found = {p.relative_to(folder / name).as_posix() for p in (folder / name).rglob("*") if p.is_file()}
            assert found == set(plain)
            assert all((folder / name / n).read_bytes() == data for n, (data, _) in plain.items())
        assert {p.name for p in folder.iterdir()} == set(inner)
