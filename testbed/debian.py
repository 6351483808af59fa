"""Install Debian packages of any suite into a folder and make them run from there. Needs no root.

The mirror is the one that apt uses on this machine. The index of a suite is checked against its signature, and every
package against the index. patchelf points the programs to the loader and libraries in the folder, so that they run on
any x86-64 Linux with any libc. The path of the folder is fixed at installation.

    install(folder, PackageSpec(...))    everything, once; later calls only check that the folder exists
    load_package_index, resolve_dependencies, download_packages, unpack_deb, relocate     the steps
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[1]
KEYRING_PATH = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIBRARY_DIR = "usr/lib/x86_64-linux-gnu"
LOADER_PATH = f"{LIBRARY_DIR}/ld-linux-x86-64.so.2"
_PACKAGE_FIELDS = re.compile(r"^(Package|Version|Depends|Pre-Depends|Filename|SHA256): (.*)$", re.MULTILINE)
_APT_MIRROR = re.compile(r"^(?:URIs:|deb(?:\s+\[[^]]*\])?)\s*(https?://\S+/debian)/?\s", re.MULTILINE)
# Libraries of system services, which none of our programs needs.
_SKIPPED_PACKAGES = re.compile(
    r"lib(perl|python|js-|pam|systemd|audit|apt|devmapper|cryptsetup|debconf|selinux|semanage|c-bin|c-gconv)|lib.*-perl$"
)
_SKIPPED_PATHS = tuple(
    f"./{path}"
    for path in (
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
        "usr/share/lintian",
        "usr/share/bash-completion",
        f"{LIBRARY_DIR}/gconv",
    )
)
# With merged /usr these are links; packages still use either path.
_MERGED_USR_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin", "sbin": "usr/sbin"}


@dataclass(frozen=True)
class Package:
    """One entry of a package index."""

    name: str
    version: str
    depends: tuple[str, ...]
    filename: str
    sha256: str


@dataclass(frozen=True)
class PackageSpec:
    """Packages of a suite, and a function that completes the installation.

    `post_install` gets the current path of the folder and its final path. `library_dirs` are searched in addition to
    the usual ones, relative to the folder.
    """

    suite: str
    packages: tuple[str, ...]
    post_install: Callable[[Path, Path], None] = lambda folder, final: None
    library_dirs: tuple[str, ...] = ()


def cache_dir() -> Path:
    """Return the folder for everything that the testbed installs or downloads."""
    return Path(os.environ.get("PACKTRAIN_TESTBED_CACHE") or PROJECT_ROOT / ".cache").resolve()


def install(folder: Path, spec: PackageSpec) -> Path:
    """Return the folder, installed if it does not exist. Safe to call from several processes."""
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            _build(folder, spec)
    return folder


def _build(folder: Path, spec: PackageSpec) -> None:
    mirror = apt_mirror()
    packages = resolve_dependencies(load_package_index(mirror, spec.suite), spec.packages)
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    for link, target in _MERGED_USR_LINKS.items():
        (new / target).mkdir(parents=True)
        (new / link).symlink_to(target)
    for deb in download_packages(mirror, packages.values(), cache_dir() / "debs"):
        unpack_deb(deb, new)
    relocate(new, folder, spec.library_dirs)
    spec.post_install(new, folder)
    new.rename(folder)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def apt_mirror() -> str:
    """Return $DEBIAN_MIRROR, or the mirror in the apt configuration of this machine."""
    if mirror := os.environ.get("DEBIAN_MIRROR"):
        return mirror.rstrip("/")
    apt = Path("/etc/apt")
    for file in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        if file.is_file() and (match := _APT_MIRROR.search(file.read_text(errors="replace"))):
            return match.group(1)
    raise RuntimeError("the apt configuration has no Debian mirror; set DEBIAN_MIRROR")


def load_package_index(mirror: str, suite: str) -> dict[str, Package]:
    """Return all packages in `main` of a suite, by name."""
    release = _download(f"{mirror}/dists/{suite}/InRelease")
    _check_signature(release, suite)
    packed = _download(f"{mirror}/dists/{suite}/main/binary-amd64/Packages.xz")
    if f" {hashlib.sha256(packed).hexdigest()} " not in release.decode():
        raise RuntimeError(f"the package index of {suite} does not match its signed release file; try again")
    return {p.name: p for p in map(_parse_package, lzma.decompress(packed).decode().split("\n\n")) if p}


def _check_signature(release: bytes, suite: str) -> None:
    if not shutil.which("gpgv") or not KEYRING_PATH.exists():
        raise RuntimeError("gpgv or Debian's archive keyring is missing; apt install gpgv debian-archive-keyring")
    result = subprocess.run(["gpgv", "-q", "--keyring", str(KEYRING_PATH), "-"], input=release, capture_output=True)
    if result.returncode:
        raise RuntimeError(f"the release file of {suite} is not signed by Debian: {result.stderr.decode().strip()}")


def _parse_package(paragraph: str) -> Package | None:
    fields = dict(_PACKAGE_FIELDS.findall(paragraph))
    if not fields:
        return None
    depends = f"{fields.get('Depends', '')},{fields.get('Pre-Depends', '')}".split(",")
    # The first of several alternatives is Debian's default.
    names = (re.split(r"[ :(|]", entry.strip())[0] for entry in depends)
    return Package(
        fields["Package"], fields["Version"], tuple(filter(None, names)), fields["Filename"], fields["SHA256"]
    )


def resolve_dependencies(package_index: Mapping[str, Package], names: Iterable[str]) -> dict[str, Package]:
    """Return the named packages and the shared libraries that they need, and no other dependencies."""
    todo, resolved = list(names), {}
    while todo:
        package = package_index.get(todo.pop())
        if package and package.name not in resolved:
            resolved[package.name] = package
            todo += filter(_is_library, package.depends)
    if missing := set(names) - set(resolved):
        raise RuntimeError(f"the suite does not have {', '.join(sorted(missing))}")
    return resolved


def _is_library(name: str) -> bool:
    return name == "zlib1g" or (name.startswith("lib") and not _SKIPPED_PACKAGES.match(name))


def download_packages(mirror: str, packages: Iterable[Package], folder: Path) -> list[Path]:
    """Download package files to a folder that keeps them, because mirrors drop old versions."""
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda package: _download_package(mirror, package, folder), packages))


def _download_package(mirror: str, package: Package, folder: Path) -> Path:
    path = folder / Path(package.filename).name
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == package.sha256:
        return path
    data = _download(f"{mirror}/{package.filename}")
    if hashlib.sha256(data).hexdigest() != package.sha256:
        raise RuntimeError(f"{package.filename} does not match its hash in the index; try again")
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_bytes(data)
    return new.rename(path)


def _download(url: str, max_tries: int = 3) -> bytes:
    for tries_left in reversed(range(max_tries)):
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return bytes(response.read())
        except OSError:
            if not tries_left:
                raise
            time.sleep(max_tries - tries_left)
    raise AssertionError("unreachable")


def unpack_deb(deb: Path, folder: Path) -> None:
    """Unpack a package like `dpkg-deb -x`, for machines without dpkg."""
    name, body = next(member for member in _ar_members(deb.read_bytes()) if member[0].startswith("data.tar"))
    if name.endswith(".zst"):
        raise RuntimeError(f"{deb.name} is packed with zstd, which Python cannot unpack")
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:*") as archive:
        for member in archive:
            if member.name.startswith(_SKIPPED_PATHS) or member.isdev():
                continue
            member.mode |= 0o755 if member.isdir() else 0o200
            _prepare_extraction(folder / member.name, member)
            archive.extract(member, folder, filter="fully_trusted", numeric_owner=True)


def _prepare_extraction(path: Path, member: tarfile.TarInfo) -> None:
    member.uid, member.gid = os.getuid(), os.getgid()
    if not member.isdir() and (path.is_symlink() or path.is_file()):
        path.unlink()


def _ar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    offset = len(b"!<arch>\n")
    while offset < len(data):
        head = data[offset : offset + 60]
        size = int(head[48:58])
        yield head[:16].decode().strip().rstrip("/"), data[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2


def relocate(folder: Path, final: Path, library_dirs: Iterable[str] = ()) -> None:
    """Make the programs in `folder` use the loader and libraries in `final`, the later path of the folder."""
    paths = ":".join(str(final / path) for path in (LIBRARY_DIR, *library_dirs, "usr/lib"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda program: _relocate(program, final / LOADER_PATH, paths), _dynamic_programs(folder)))


def _relocate(program: Path, loader: Path, paths: str) -> None:
    # RPATH, not RUNPATH, because it also applies to indirect libraries. In one pass or in the other order,
    # patchelf 0.19 breaks Debian's python3.9 (no PIE).
    _patchelf("--force-rpath", "--set-rpath", paths, str(program))
    _patchelf("--set-interpreter", str(loader), str(program))


def _dynamic_programs(folder: Path) -> Iterator[Path]:
    for top in ("usr/bin", "usr/sbin", "usr/libexec", "usr/lib"):
        for path in (folder / top).rglob("*"):
            if path.is_file() and not path.is_symlink() and ".so" not in path.name and _is_dynamic(path):
                yield path


def _is_dynamic(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
    return _patchelf("--print-interpreter", str(path), check=False) == 0


def _patchelf(*arguments: str, check: bool = True) -> int:
    program = shutil.which("patchelf") or str(Path(sys.executable).with_name("patchelf"))
    return subprocess.run([program, *arguments], check=check, capture_output=True).returncode
