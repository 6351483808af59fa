"""Packages from Debian's mirrors: what is pure is tested so, the rest against the real mirror."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile

import pytest

from testbed import apptainer, debian, python39


def package(name, *depends):
    return debian.Package(name, "1", depends, f"pool/{name}.deb", "")


def test_the_closure_has_the_libraries_and_nothing_else():
    known = [
        package("tool", "libone", "bash", "libperl5", "libc6"),
        package("libone", "zlib1g", "libtwo"),
        package("zlib1g", "libc6"),
        package("libc6", "libone"),
        package("libtwo", "libnowhere"),
        package("bash"),
        package("libperl5"),
    ]
    found = debian.resolve_dependencies({p.name: p for p in known}, ["tool"])
    assert set(found) == {"tool", "libone", "libtwo", "zlib1g", "libc6"}


def test_a_package_that_the_suite_does_not_have():
    with pytest.raises(RuntimeError, match="does not have nowhere"):
        debian.resolve_dependencies({}, ["nowhere"])


def test_alternatives_versions_and_architectures_in_an_index():
    text = "Package: p\nVersion: 2\nPre-Depends: libc6 (>= 2.3)\nDepends: a | b, c:any, d (= 1)\nFilename: f\nSHA256: s"
    assert debian._parse_package(text) == debian.Package("p", "2", ("a", "c", "d", "libc6"), "f", "s")
    assert debian._parse_package("\n") is None


def deb_of(**files) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"./{name.replace('__', '/')}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    members = b""
    for name, body in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), ("data.tar.xz", data.getvalue())):
        members += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
        )
    return b"!<arch>\n" + members


def test_a_package_is_unpacked_without_its_papers(tmp_path):
    deb = tmp_path / "a.deb"
    deb.write_bytes(deb_of(usr__bin__tool=b"#!", usr__share__doc__tool__README=b"read me"))
    debian.unpack_deb(deb, tmp_path / "out")
    assert [str(p.relative_to(tmp_path)) for p in (tmp_path / "out").rglob("*") if p.is_file()] == ["out/usr/bin/tool"]


def test_another_mirror_can_be_named(monkeypatch):
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
def test_the_mirror_in_apts_configuration(text):
    found = debian._APT_MIRROR.search(text)
    assert found
    assert found.group(1) == "http://new.example/debian"


@pytest.mark.skipif(
    not shutil.which("gpgv") or not debian.KEYRING_PATH.exists(), reason="needs gpgv and Debian's keyring"
)
def test_an_unsigned_index_is_refused():
    with pytest.raises(RuntimeError, match="not signed by Debian"):
        debian._check_signature(b"Origin: Debian\n", "sid")


@pytest.mark.slow
def test_python_3_9_runs_by_itself():
    say = "import ssl, lzma, bz2, sqlite3, ctypes, sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run(
        [python39.python_path(), "-I", "-S", "-c", say], env={}, capture_output=True, text=True, check=True
    )
    assert said.stdout == "3.9\n"


@pytest.mark.slow
def test_apptainer_runs_an_image(tmp_path):
    image = apptainer.build_sif(tmp_path / "image.sif", runscript="echo hello from inside")
    said = subprocess.run([apptainer.apptainer_path(), "-q", "run", image], capture_output=True, text=True, check=True)
    assert said.stdout == "hello from inside\n"
