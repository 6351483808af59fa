"""Real XRootD servers, the software behind every origin and cache of the OSDF. They start in a fraction of a second.

    with XRootDOrigin(folder / "origin", pair) as origin, XRootDCache(folder / "cache", origin, pair) as cache:
        (origin.object_dir / "x").write_bytes(…); … cache.url + "/data/x" …
        origin.pause()      # SIGSTOP: connections remain open, but nothing is sent
        origin.resume()

`pair` is a certificate and its key; with it, the servers use https on the port of http. Their output is in `log`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TypeVar

from testbed import debian
from testbed.child_lifetime import KILL_WITH_PARENT
from testbed.ports import reserve_ports

NAMESPACE = "/data"
PACKAGE_SPEC = debian.PackageSpec("bookworm", ("xrootd-server", "xrootd-plugins", "xrootd-server-plugins"))
_READY_TIMEOUT_S = 60.0
_READY_MESSAGE = "initialization completed."
# XRootD refuses to run as root. In a user namespace it runs as nobody, with root's permissions on files.
_AS_NOBODY_PREFIX = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
_COMMON_CONFIG = """\
all.role server
all.export {namespace}
all.adminpath {short}
all.pidpath {short}
oss.localroot {folder}/store
xrd.port {root_port}
xrd.protocol XrdHttp:{http_port} libXrdHttp.so
"""
_TLS_CONFIG = """\
xrd.tls {certificate} {key}
xrd.tlsca noverify
"""
# An interrupted upload is removed (ofs.persist), as on the origins of the OSDF.
_ORIGIN_CONFIG = """\
xrootd.chksum max 2 md5 adler32 crc32c
ofs.persist auto hold 0
"""
_CACHE_CONFIG = """\
ofs.osslib libXrdPss.so
pss.cachelib libXrdPfc.so
pss.origin localhost:{origin_port}
pfc.ram 1g
pfc.blocksize 1m
pfc.prefetch 0
pfc.diskusage 0.98 0.99
"""
XRootDT = TypeVar("XRootDT", bound="XRootDServer")


def xrootd_path() -> Path:
    """Return the path of `xrootd`, installed if needed."""
    return debian.install(debian.cache_dir() / "xrootd", PACKAGE_SPEC) / "usr/bin/xrootd"


class XRootDServer:
    """One server. `folder` holds its files."""

    def __init__(self, folder: Path, tls: tuple[Path, Path] | None, directives: str) -> None:
        self.log = folder / "log"
        self.root_port, self.http_port = reserve_ports(2)
        self.url = f"{'https' if tls else 'http'}://localhost:{self.http_port}"
        self._config = folder / "xrootd.cfg"
        self._process: subprocess.Popen[bytes] | None = None
        # Sockets are in the admin path, and socket paths have at most 107 bytes.
        self._admin_dir = tempfile.mkdtemp(prefix="xrd-")
        (folder / "store").mkdir(parents=True)
        ports = {"root_port": self.root_port, "http_port": self.http_port}
        text = _COMMON_CONFIG.format(namespace=NAMESPACE, folder=folder, short=self._admin_dir, **ports)
        text += _TLS_CONFIG.format(certificate=tls[0], key=tls[1]) if tls else ""
        self._config.write_text(text + directives)

    def __enter__(self: XRootDT) -> XRootDT:
        _check_hostname_resolves()
        command = [str(xrootd_path()), "-c", str(self._config)]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [*(_AS_NOBODY_PREFIX if os.geteuid() == 0 else ()), *KILL_WITH_PARENT, *command],
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._admin_dir, ignore_errors=True)

    def pause(self) -> None:
        """Stop the process; connections remain open."""
        self._send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process."""
        self._send_signal(signal.SIGCONT)

    def _send_signal(self, signum: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(signum)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        ready_messages = f":{self.http_port} {_READY_MESSAGE}", f":{self.root_port} {_READY_MESSAGE}"
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            log = self.log.read_text(errors="replace")
            if any(message in log for message in ready_messages):
                return
            time.sleep(0.02)
        raise TimeoutError(f"XRootD did not start:\n{self.log.read_text(errors='replace')[-3000:]}")


class XRootDOrigin(XRootDServer):
    """An origin. Its objects are files in `object_dir`, which is the namespace /data."""

    def __init__(self, folder: Path, tls: tuple[Path, Path] | None = None) -> None:
        super().__init__(folder, tls, _ORIGIN_CONFIG)
        self.object_dir = folder / "store" / NAMESPACE.lstrip("/")
        self.object_dir.mkdir()


class XRootDCache(XRootDServer):
    """A cache. It downloads requested objects from the origin, in blocks of 1 MiB, and keeps them."""

    def __init__(self, folder: Path, origin: XRootDOrigin, tls: tuple[Path, Path] | None = None) -> None:
        super().__init__(folder, tls, _CACHE_CONFIG.format(origin_port=origin.root_port))


def _check_hostname_resolves() -> None:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        raise RuntimeError(f"XRootD needs this host's name to resolve: add '127.0.0.1 {name}' to /etc/hosts") from None
