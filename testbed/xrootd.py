"""Real XRootD servers, the software behind every origin and cache of the OSDF, each up in a fraction of a second.

    with XRootDOrigin(folder / "origin", pair) as origin, XRootDCache(folder / "cache", origin, pair) as cache:
        (origin.objects / "x").write_bytes(…); … cache.url + "/data/x" …
        origin.stop()      # SIGSTOP: connections stay open, and nothing comes any more
        origin.cont()

`pair` is a certificate and its key: then the servers speak https on the same port as http. What they say is in `log`.
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
from testbed.child_lifetime import KILLED_WITH_US
from testbed.ports import free_ports

NAMESPACE = "/data"
RECIPE = debian.Recipe("bookworm", ("xrootd-server", "xrootd-plugins", "xrootd-server-plugins"))
_READY_WITHIN_S = 30.0
_READY = "initialization completed."
# XRootD refuses to run as root; here it is nobody, who may do with root's files what root may.
_AS_NOBODY = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
_COMMON = """\
all.role server
all.export {namespace}
all.adminpath {short}
all.pidpath {short}
oss.localroot {folder}/store
xrd.port {root_port}
xrd.protocol XrdHttp:{http_port} libXrdHttp.so
"""
_TLS = """\
xrd.tls {certificate} {key}
xrd.tlsca noverify
"""
# An upload that is cut off vanishes (ofs.persist), as at the origins of the OSDF.
_ORIGIN = """\
xrootd.chksum max 2 md5 adler32 crc32c
ofs.persist auto hold 0
"""
_CACHE = """\
ofs.osslib libXrdPss.so
pss.cachelib libXrdPfc.so
pss.origin localhost:{origin_port}
pfc.ram 1g
pfc.blocksize 1m
pfc.prefetch 0
pfc.diskusage 0.98 0.99
"""
Me = TypeVar("Me", bound="XRootD")


def program() -> Path:
    return debian.install(debian.cache() / "xrootd", RECIPE) / "usr/bin/xrootd"


class XRootD:
    """One server; `folder` is its own."""

    def __init__(self, folder: Path, tls: tuple[Path, Path] | None, directives: str) -> None:
        self.log = folder / "log"
        self.root_port, self.http_port = free_ports(2)
        self.url = f"{'https' if tls else 'http'}://localhost:{self.http_port}"
        self._config = folder / "xrootd.cfg"
        self._process: subprocess.Popen[bytes] | None = None
        # Its sockets lie in the admin path, and the path of a socket has at most 107 bytes.
        self._short = tempfile.mkdtemp(prefix="xrd-")
        (folder / "store").mkdir(parents=True)
        ports = {"root_port": self.root_port, "http_port": self.http_port}
        text = _COMMON.format(namespace=NAMESPACE, folder=folder, short=self._short, **ports)
        text += _TLS.format(certificate=tls[0], key=tls[1]) if tls else ""
        self._config.write_text(text + directives)

    def __enter__(self: Me) -> Me:
        _check_host_name()
        command = [str(program()), "-c", str(self._config)]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [*(_AS_NOBODY if os.geteuid() == 0 else ()), *KILLED_WITH_US, *command],
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
        shutil.rmtree(self._short, ignore_errors=True)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        ready = f":{self.http_port} {_READY}", f":{self.root_port} {_READY}"
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline and self._process.poll() is None:
            said = self.log.read_text(errors="replace")
            if any(words in said for words in ready):
                return
            time.sleep(0.02)
        raise TimeoutError(f"XRootD did not start:\n{self.log.read_text(errors='replace')[-3000:]}")


class XRootDOrigin(XRootD):
    """Has the objects as files in `objects`, which is the namespace /data."""

    def __init__(self, folder: Path, tls: tuple[Path, Path] | None = None) -> None:
        super().__init__(folder, tls, _ORIGIN)
        self.objects = folder / "store" / NAMESPACE.lstrip("/")
        self.objects.mkdir()


class XRootDCache(XRootD):
    """Fetches from the origin what it is asked for, in blocks of 1 MiB, and keeps it."""

    def __init__(self, folder: Path, origin: XRootDOrigin, tls: tuple[Path, Path] | None = None) -> None:
        super().__init__(folder, tls, _CACHE.format(origin_port=origin.root_port))


def _check_host_name() -> None:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        raise RuntimeError(f"XRootD needs this host's name to resolve: add '127.0.0.1 {name}' to /etc/hosts") from None
