"""A Pelican federation in small: discovery and director over https with a CA of its own, in front of an Origin.

The director answers 307 with the origin's address, as a real one does. `with Federation(folder) as f:`
gives `f.host`, the CA file `f.ca` (for SSL_CERT_FILE) and the `f.origin` behind it.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from testbed.origin import Origin

DISCOVERY = "/.well-known/pelican-configuration"
NAMESPACE = "/data"


class Authority:
    """A CA, and a certificate of it for localhost, made by the `openssl` command."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.certificate, self.key = folder / "ca.pem", folder / "host.pem", folder / "host.key"
        request, extensions, ca_key = folder / "host.csr", folder / "host.ext", folder / "ca.key"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-batch")
        _run(*new, "-x509", "-days", "2", "-subj", "/CN=testbed CA", "-keyout", ca_key, "-out", self.ca)
        _run(*new, "-subj", "/CN=localhost", "-keyout", self.key, "-out", request)
        _run(
            *("openssl", "x509", "-req", "-days", "2", "-in", request, "-CA", self.ca, "-CAkey", ca_key),
            *("-CAcreateserial", "-extfile", extensions, "-out", self.certificate),
        )


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


class Federation:
    def __init__(self, folder: Path, *, token: str | None = None) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="testbed-federation-")
        authority = Authority(Path(self._made.name))
        pair = (authority.certificate, authority.key)
        self.ca = authority.ca
        self.origin = Origin(folder, host="localhost", token=token, writable=True, tls=pair)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Director,), {"federation": self}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.host = f"localhost:{self._server.server_address[1]}"

    def __enter__(self) -> Federation:
        self.origin.__enter__()
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.origin.__exit__()
        self._made.cleanup()


class _Director(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    federation: Federation

    def log_message(self, *args: Any) -> None:
        """Silence."""

    def handle_any(self) -> None:
        if self.path == DISCOVERY:
            self._say(200, {}, json.dumps({"director_endpoint": f"https://{self.federation.host}"}).encode())
        elif self.path.startswith(NAMESPACE + "/"):
            location = self.federation.origin.url + self.path
            link = f'<{location}>; rel="duplicate"; pri=1; depth=1'
            self._say(307, {"Location": location, "Link": link, "X-Pelican-Namespace": f"namespace={NAMESPACE}"})
        else:
            self._say(404, {}, b'{"status":"error","msg":"No namespace found for path"}')

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_any  # noqa: N815 - names of the base class

    def _say(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
