"""Conda packages and wheels are installed by the rules of rattler and uv."""

from __future__ import annotations

import csv
import json
import os
import stat
import warnings
import zipfile
from functools import partial
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.pixi import installer, prefix_folder, wheel
from packtrain.pixi.package_extractor import PrefixTooLongError
from packtrain.transfer.archive import zstd
from testbed.pixi.packages import CondaPackage, build_wheel
from tests.support.pixi_environments import PLACEHOLDER, SITE_PACKAGES, install_files

SUFFIXES = (".conda", ".tar.bz2")


def tree(folder):
    """Return mode and content of each file, and the targets of links."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(parent, one)))]:
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, folder)
            mode = os.lstat(path).st_mode
            found[inside] = os.readlink(path) if stat.S_ISLNK(mode) else (stat.S_IMODE(mode), Path(path).read_bytes())
    found.pop("conda-meta/history")
    return found


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_links_and_modes(tmp_path, suffix):
    package = CondaPackage("a").add("share/plain", "x", 0o600).add("share/read-only", "y", 0o444)
    package.add("share/empty").add("bin/program", "#!/bin/sh\n", 0o775)
    package.add("share/soft", symlink="read-only").add("share/dangling", symlink="../nowhere")
    package.add("share/hard", mode=0o444, hardlink="share/read-only")
    result = install_files([package.write(tmp_path, suffix)], tmp_path / "p")
    assert tree(tmp_path / "p") == {
        "share/plain": (0o600, b"x"),
        "share/read-only": (0o444, b"y"),
        "share/empty": (0o644, b""),
        "bin/program": (0o775, b"#!/bin/sh\n"),
        "share/soft": "read-only",
        "share/dangling": "../nowhere",
        "share/hard": (0o444, b"y"),
    }
    assert (result.packages, result.files) == (1, 7)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_placeholders(tmp_path, suffix):
    held = PLACEHOLDER
    package = CondaPackage("a")
    package.add("bin/text", f"#!{held}/bin/python\n{held}\n", 0o755, placeholder=held)
    package.add("lib/binary", f"\0{held}/lib\0end".encode(), placeholder=held, file_mode="binary")
    package.add("share/other", held)
    large = bytes(range(256)) * (5 << 12)  # more than is written at once
    package.add("lib/large", large + held.encode() + b"/x\0" + large, placeholder=held, file_mode="binary")
    install_files([package.write(tmp_path, suffix)], tmp_path / "p", "/new")
    n_zeros = len(held) - len("/new")
    assert tree(tmp_path / "p") == {
        "bin/text": (0o755, b"#!/new/bin/python\n/new\n"),
        "lib/binary": (0o644, b"\0/new/lib" + bytes(n_zeros) + b"\0end"),
        "share/other": (0o644, held.encode()),
        "lib/large": (0o644, large + b"/new/x" + bytes(n_zeros) + b"\0" + large),
    }


def test_prefix_longer_than_the_placeholder(tmp_path):
    package = CondaPackage("a").add("lib/x.so", b"/short\0", placeholder="/short", file_mode="binary")
    path = package.write(tmp_path)
    install_files([path], tmp_path / "fits", "/three")
    with pytest.raises(PrefixTooLongError, match=r"the path /longer has 7 bytes, but may have only 6"):
        install_files([path], tmp_path / "p", "/longer")
    assert not list((tmp_path / "p").iterdir())


def test_noarch_python(tmp_path):
    package = CondaPackage("a", noarch="python", subdir="noarch")
    package.add("site-packages/a/__init__.py", "x").add("python-scripts/a-old", "y", 0o755).add("share/a", "z")
    package.link_json = {"noarch": {"type": "python", "entry_points": ["a = a:main"]}}
    install_files([package.write(tmp_path)], tmp_path / "p", "/new")
    found = tree(tmp_path / "p")
    mode, script = found.pop("bin/a")
    assert (mode, script.splitlines()[0]) == (0o775, b"#!/new/bin/python3.12")
    assert found == {
        f"{SITE_PACKAGES}/a/__init__.py": (0o644, b"x"),
        "bin/a-old": (0o755, b"y"),
        "share/a": (0o644, b"z"),
    }


def write_package(path, members, info=None):
    """Write a `.tar.bz2` with any members: (TarInfo, data)."""
    import io
    import tarfile

    with tarfile.open(path, "w:bz2") as tar:
        index = json.dumps({"name": "x"}).encode()
        for name, data in {"info/index.json": index, **(info or {})}.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
        for header, data in members:
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return path


def member(name, data=b"", mode=0o644, kind=b"0", target=""):
    import tarfile

    header = tarfile.TarInfo(name)
    header.mode, header.type, header.linkname = mode, kind, target
    return header, data


def test_package_without_paths_json(tmp_path):
    """Old packages list their placeholders in `has_prefix`."""
    old = "/opt/anaconda1anaconda2anaconda3"
    has_prefix = b'"/held" "text" "a b"\n/held binary lib/x\netc/default\n'
    members = [member("a b", b"/held"), member("lib/x", b"/held/y\0"), member("etc/default", old.encode())]
    path = write_package(tmp_path / "a-1-0.tar.bz2", members, {"info/has_prefix": has_prefix})
    install_files([path], tmp_path / "p", "/p")
    contents = {name: content for name, (_, content) in tree(tmp_path / "p").items()}
    assert contents == {"a b": b"/p", "lib/x": b"/p/y\0\0\0\0", "etc/default": b"/p"}


@pytest.mark.parametrize("sizes", [(0, 50_000, 100_000), (100_000, 50_000, 0)])
def test_later_package_owns_a_shared_file(tmp_path, monkeypatch, sizes):
    """Whichever is written first; a link may replace a file, and a file a link."""
    monkeypatch.setattr(installer, "_n_threads", lambda packages: 1)
    packages = [
        CondaPackage("a").add("share/x", "a" * 1000).add("share/y", symlink="a"),
        CondaPackage("b").add("share/x", symlink="b").add("share/y", "b"),
        CondaPackage("c").add("share/x", "c"),
    ]
    # The largest is installed first.
    paths = [package.add("own", os.urandom(size)).write(tmp_path) for package, size in zip(packages, sizes)]  # noqa: B905
    install_files(paths, tmp_path / "p")
    found = tree(tmp_path / "p")
    assert (found["share/x"][1], found["share/y"][1]) == (b"c", b"b")
    assert len(found["own"][1]) == sizes[2]


@pytest.mark.parametrize("reverse", [False, True])
def test_file_and_folder_of_one_name(tmp_path, reverse):
    packages = [CondaPackage("a").add("share/x", "file"), CondaPackage("b").add("share/x/inside", os.urandom(9000))]
    paths = [package.write(tmp_path) for package in (reversed(packages) if reverse else packages)]
    with pytest.raises(
        FailedError, match=r"of (a|b)-1.0-0.conda is a (file|folder), but a (file|folder) of that name"
    ) as error:
        install_files(paths, tmp_path / "p")
    assert error.value.kind == "package_broken"


def test_wheel(tmp_path):
    data = "native-1.0.data"
    files = {
        "native/__init__.py": "",
        f"{data}/scripts/run": "#!python -u\nprint(1)\n",
        f"{data}/scripts/plain": "#!/bin/sh\n",
        f"{data}/data/share/native.txt": "shared",
        f"{data}/headers/native.h": "int x;",
        f"{data}/platlib/extra.py": "y",
    }
    path = build_wheel(tmp_path, "native", files=files, scripts={"tool": "native:main"})
    with zipfile.ZipFile(path, "a") as archive:
        header = zipfile.ZipInfo("native/program")
        header.external_attr = 0o100755 << 16
        archive.writestr(header, "binary")
    install_files([path], tmp_path / "p", "/new")
    found = tree(tmp_path / "p")
    info = f"{SITE_PACKAGES}/native-1.0.dist-info"
    assert found["bin/run"] == (0o755, b"#!/new/bin/python3.12\nprint(1)\n")
    assert found["bin/plain"] == (0o755, b"#!/bin/sh\n")
    assert found["bin/tool"][0] == 0o755
    assert found["share/native.txt"] == (0o644, b"shared")
    assert found["include/python3.12/native/native.h"] == (0o644, b"int x;")
    assert found[f"{SITE_PACKAGES}/extra.py"] == (0o644, b"y")
    assert found[f"{SITE_PACKAGES}/native/program"] == (0o755, b"binary")
    rows = list(csv.reader(found[f"{info}/RECORD"][1].decode().splitlines()))
    paths = {os.path.normpath(f"{SITE_PACKAGES}/{row[0]}") for row in rows}
    assert paths == set(found) - {f"{SITE_PACKAGES}/native/program"}


def refuse(path, folder, **options):
    with pytest.raises(FailedError) as error:
        install_files([path], folder, **options)
    assert not (folder.parent / "evil").exists()
    return error.value


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([member("../evil", b"x")], "outside"),
        ([member("/tmp/evil", b"x")], "outside"),
        ([member("a/../../evil", b"x")], "outside"),
        ([member("link", kind=b"2", target="../evil")], "leaves the folder"),
        ([member("link", kind=b"2", target="/etc/passwd")], "leaves the folder"),
        ([member("link", kind=b"2", target="a/../../evil")], "leaves the folder"),
        ([member("share", kind=b"2", target="lib"), member("share/x", b"x")], "leads through it"),
        ([member("hard", kind=b"1", target="../evil")], "outside"),
        ([member("hard", kind=b"1", target="/etc/passwd")], "outside"),
        ([member("bin/su", b"x", 0o4755)], "setuid"),
        ([member("bin/su", b"x", 0o2755)], "setgid"),
        ([member("pipe", kind=b"6")], "device or pipe"),
        ([member("disk", kind=b"3")], "device or pipe"),
    ],
)
def test_hostile_conda_package(tmp_path, members, problem):
    error = refuse(write_package(tmp_path / "x-1-0.tar.bz2", members), tmp_path / "p")
    assert error.kind == "package_broken"
    assert problem in error.detail


@pytest.mark.parametrize(
    ("name", "mode", "problem"),
    [
        ("../../../../evil", 0o644, "outside"),
        ("/tmp/evil", 0o644, ""),
        ("x-1.data/data/../../../evil", 0o644, "outside"),
        ("x-1.data/other/x", 0o644, "wheels do not have"),
        ("bin", 0o120777, "link"),
        ("su", 0o104755, "setuid"),
        ("pipe", 0o010644, "device or pipe"),
    ],
)
def test_hostile_wheel(tmp_path, name, mode, problem):
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        header = zipfile.ZipInfo(name)
        header.external_attr = mode << 16
        archive.writestr(header, "/etc/passwd")
    if name.startswith("/"):  # below the folder of Python packages, like every name
        install_files([path], tmp_path / "p")
        assert (tmp_path / "p" / SITE_PACKAGES / name[1:]).exists()
        return
    error = refuse(path, tmp_path / "p")
    assert (error.kind, problem in error.detail) == ("package_broken", True)


@pytest.mark.parametrize("entry_point", ["../evil = a:b", "a/b = a:b", "x"])
def test_hostile_entry_point(tmp_path, entry_point):
    package = CondaPackage("a", noarch="python")
    package.link_json = {"noarch": {"type": "python", "entry_points": [entry_point]}}
    path = package.write(tmp_path)
    if entry_point == "a/b = a:b":
        install_files([path], tmp_path / "p")  # a folder inside of the prefix does no harm
    else:
        assert refuse(path, tmp_path / "p").kind == "package_broken"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("where", ["share/zeros", "info/zeros"])
def test_conda_bomb(tmp_path, suffix, where):
    """80 MB of zeros in a package of a few kB."""
    path = CondaPackage("a").add(where, bytes(80 << 20)).write(tmp_path, suffix)
    assert path.stat().st_size < 1 << 20
    error = refuse(path, tmp_path / "p", max_bytes=20 << 20)
    assert error.kind == "archive_too_large"
    assert "unpacks to more than its limit of" in error.detail
    assert sum(os.path.getsize(one) for one in (tmp_path / "p").rglob("*")) < 30 << 20


def test_wheel_bomb(tmp_path):
    path = build_wheel(tmp_path, "bomb", files={"bomb.py": "0" * (100 << 20)})
    error = refuse(path, tmp_path / "p", max_bytes=10 << 20)
    assert error.kind == "archive_too_large"


def test_placeholder_bomb(tmp_path):
    """Each byte of a file is the placeholder, and the prefix is long."""
    path = CondaPackage("a").add("x", b"a" * (1 << 20), placeholder="a").write(tmp_path)
    assert refuse(path, tmp_path / "p", prefix="/" + "x" * 99, max_bytes=10 << 20).kind == "archive_too_large"


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(prefix_folder, "SpaceBudget", partial(prefix_folder.SpaceBudget, min_file_limit=100))
    package = CondaPackage("a")
    for number in range(120):
        package.add(f"share/{number}")
    error = refuse(package.write(tmp_path), tmp_path / "p", max_bytes=1 << 16)
    assert "100 files, the limit" in error.detail


@pytest.mark.parametrize("cut", [0.2, 0.7, 0.99])
@pytest.mark.parametrize("kind", ["conda", "bz2", "wheel"])
def test_truncated_package(tmp_path, kind, cut):
    package = CondaPackage("a").add("share/x", os.urandom(100_000))
    path = (
        build_wheel(tmp_path, "a")
        if kind == "wheel"
        else package.write(tmp_path, f".{kind}".replace(".bz2", ".tar.bz2"))
    )
    os.truncate(path, int(path.stat().st_size * cut))
    assert refuse(path, tmp_path / "p").kind == "package_broken"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_metadata(tmp_path, suffix):
    package = CondaPackage("a").add("share/x")
    package.link_json = {"noarch": "text", "x": 1}
    assert "metadata of a-1.0-0" in refuse(package.write(tmp_path, suffix), tmp_path / "p").detail


def test_damaged_zstd(tmp_path):
    path = CondaPackage("a").add("share/x", os.urandom(100_000)).write(tmp_path)
    data = bytearray(path.read_bytes())
    data[60_000] ^= 0xFF
    path.write_bytes(data)
    assert refuse(path, tmp_path / "p").kind == "package_broken"


def test_no_libzstd(tmp_path, monkeypatch):
    monkeypatch.setattr(zstd, "_LIBRARY", "libzstd-that-is-missing.so.1")
    zstd._load_library.cache_clear()
    try:
        error = refuse(CondaPackage("a").add("share/x").write(tmp_path), tmp_path / "p")
        assert error.kind == "environment_unsupported"
        assert "libzstd-that-is-missing.so.1 is missing" in error.detail and "install the package" in error.detail
        install_files([CondaPackage("b").add("x").write(tmp_path, ".tar.bz2")], tmp_path / "q")
    finally:
        zstd._load_library.cache_clear()


def test_members_of_one_name(tmp_path):
    """Threads would write them in any order."""
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("x.py", "1")
        archive.writestr("x.py", "2")
    assert "two members of the same name" in refuse(path, tmp_path / "p").detail


def test_large_wheel_is_extracted_by_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "_MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(wheel.os, "sched_getaffinity", lambda pid: {0, 1, 2})
    files = {f"x/{number}.py": str(number) * (1 + 1000 * (number % 7)) for number in range(200)}
    install_files([build_wheel(tmp_path, "x", files=files)], tmp_path / "p")
    found = tree(tmp_path / "p")
    assert {name: found[f"{SITE_PACKAGES}/{name}"][1].decode() for name in files} == files
