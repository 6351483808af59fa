"""Debian packages: pure functions, and programs installed from the real mirror."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile

import pytest

from testbed import apptainer, debian, python39


def package(name, *depends):
    return debian.Package(name, "1", depends, f"pool/{name}.deb", "")


def test_dependencies_are_libraries_only():
    packages = [
        package("tool", "libone", "bash", "libperl5", "libc6"),
        package("libone", "zlib1g", "libtwo"),
        package("zlib1g", "libc6"),
        package("libc6", "libone"),
        package("libtwo", "libnowhere"),
        package("bash"),
        package("libperl5"),
    ]
    resolved = debian.resolve_dependencies({p.name: p for p in packages}, ["tool"])
    assert set(resolved) == {"tool", "libone", "libtwo", "zlib1g", "libc6"}


def test_unknown_package():
    with pytest.raises(RuntimeError, match="does not have nowhere"):
        debian.resolve_dependencies({}, ["nowhere"])


def test_parse_package():
    text = "Package: p\nVersion: 2\nPre-Depends: libc6 (>= 2.3)\nDepends: a | b, c:any, d (= 1)\nFilename: f\nSHA256: s"
    assert debian._parse_package(text) == debian.Package("p", "2", ("a", "c", "d", "libc6"), "f", "s")
    assert debian._parse_package("\n") is None


def make_deb(**files) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"./{name.replace('__', '/')}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    members = b""
    for name, body in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"x"), ("data.tar.xz", data.getvalue())):
        members += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
        )
    return b"!<arch>\n" + members


def test_unpack_skips_documentation(tmp_path):
    deb = tmp_path / "a.deb"
    deb.write_bytes(make_deb(usr__bin__tool=b"#!", usr__share__doc__tool__README=b"read me"))
    debian.unpack_deb(deb, tmp_path / "out")
    assert [str(p.relative_to(tmp_path)) for p in (tmp_path / "out").rglob("*") if p.is_file()] == ["out/usr/bin/tool"]


def test_mirror_from_environment(monkeypatch):
    monkeypatch.setenv("DEBIAN_MIRROR", "http://mirror.example/debian/")
    assert debian.apt_mirror() == "http://mirror.example/debian"


@pytest.mark.parametrize(
    "text",
    [
        "# http://old.example/debian\nTypes: deb\nURIs: http://new.example/debian\nSuites: bookworm\n",
        "deb [signed-by=/x.gpg] http://new.example/debian bookworm main\n",
        "deb http://other.example/apt x main\ndeb http://new.example/debian/ bookworm main\n",
    ],
)
def test_mirror_from_apt_configuration(text):
    match = debian._APT_MIRROR.search(text)
    assert match
    assert match.group(1) == "http://new.example/debian"


@pytest.mark.skipif(
    not shutil.which("gpgv") or not debian.KEYRING_PATH.exists(), reason="needs gpgv and Debian's keyring"
)
def test_unsigned_index_is_rejected():
    with pytest.raises(RuntimeError, match="not signed by Debian"):
        debian._check_signature(b"Origin: Debian\n", "sid")


@pytest.mark.slow
def test_python39():
    code = "import ssl, lzma, bz2, sqlite3, ctypes, sys; print('%d.%d' % sys.version_info[:2])"
    result = subprocess.run(
        [python39.python_path(), "-I", "-S", "-c", code], env={}, capture_output=True, text=True, check=True
    )
    assert result.stdout == "3.9\n"


@pytest.mark.slow
def test_apptainer(tmp_path):
    image = apptainer.build_sif(tmp_path / "image.sif", runscript="echo hello from inside")
    result = subprocess.run(
        [apptainer.apptainer_path(), "-q", "run", image], capture_output=True, text=True, check=True
    )
    assert result.stdout == "hello from inside\n"
