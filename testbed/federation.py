"""Pelican federations: discovery and director over https with their own CA, in front of real servers.

    with Federation(folder, token="t") as f:    one HttpServer, `f.origin`, that requires a token
    with XRootDFederation(folder) as f:         an XRootD origin, `f.origin`, and two caches, `f.caches`

`f.host` is the name of the federation and `f.ca` the file of its CA (for SSL_CERT_FILE). `f.director` responds like a
real director and can be made to fail.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from testbed.http_server import HttpServer, RecordedRequest
from testbed.xrootd import NAMESPACE, XRootDCache, XRootDOrigin

DISCOVERY = "/.well-known/pelican-configuration"
# Faults of a director: it was just restarted; another server responds instead of it.
DIRECTOR_BUSY, DIRECTOR_UNREACHABLE = "busy", "unreachable"
_DIRECTOR_API = "/api/v1.0/director/"
_ORIGIN_ONLY_METHODS = ("PUT", "DELETE", "PROPFIND")


class CertificateAuthority:
    """A CA and a certificate for localhost, created with the `openssl` command."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
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

    @property
    def cert_and_key(self) -> tuple[Path, Path]:
        return self.certificate, self.key


def _run(*command: str | Path) -> None:
    subprocess.run([str(argument) for argument in command], check=True, capture_output=True)


class Director:
    """Discovery and director in one server. `origin` and `caches` are URLs of servers, the nearest cache first.

    Each request to the director takes the next entry of `queued_faults`, if there is one.
    """

    def __init__(
        self, cert_and_key: tuple[Path, Path], origin: str, caches: list[str], *, require_token: bool = False
    ) -> None:
        self.origin, self.caches, self.require_token = origin, caches, require_token
        self.queued_faults: list[str] = []
        self.requests: list[RecordedRequest] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_DirectorHandler,), {"director": self}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*cert_and_key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.host = f"localhost:{self._server.server_address[1]}"

    def __enter__(self) -> Director:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def record_request(self, request: RecordedRequest) -> str | None:
        """Record a request and return its fault."""
        with self._lock:
            self.requests.append(request)
            return self.queued_faults.pop(0) if self.queued_faults and request.path != DISCOVERY else None

    def servers_for(self, method: str, kind: str, query: str) -> list[str]:
        """Return the servers that have the object, nearest first."""
        direct = kind == "origin" or "directread" in parse_qs(query, keep_blank_values=True)
        return [self.origin] if direct or method in _ORIGIN_ONLY_METHODS or not self.caches else self.caches

    def namespace_headers(self) -> dict[str, str]:
        """Return the headers that describe the namespace."""
        require_token = str(self.require_token).lower()
        headers = {
            "X-Pelican-Namespace": f"namespace={NAMESPACE}, require-token={require_token}, "
            f"collections-url={self.origin}"
        }
        if self.require_token:
            headers["X-Pelican-Authorization"] = f"issuer=https://{self.host}"
            headers["X-Pelican-Token-Generation"] = f"issuer=https://{self.host}, max-scope-depth=3, strategy=OAuth2"
        return headers


class _DirectorHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # like real servers; otherwise small responses take 40 ms
    director: Director

    def log_message(self, *args: Any) -> None:
        """Log nothing: tests read `Director.requests`."""

    def version_string(self) -> str:
        return "pelican/7.18.0"

    def handle_request(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = self.director.record_request(RecordedRequest(self.command, self.path, headers, self.client_address))
        if fault == DIRECTOR_UNREACHABLE:
            self._respond_as_proxy(b"404 page not found\n")
        elif fault == DIRECTOR_BUSY:
            self._respond(429, {}, b'{"status":"error","msg":"The director was just restarted"}')
        elif self.path == DISCOVERY:
            self._respond(200, {"Content-Type": "application/json"}, json.dumps(self._discovery_document()).encode())
        else:
            self._redirect()

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PROPFIND = handle_request  # noqa: N815 - names of the base class

    def _discovery_document(self) -> dict[str, str]:
        url = f"https://{self.director.host}"
        return {
            "director_endpoint": url,
            "namespace_registration_endpoint": url,
            "broker_endpoint": url,
            "jwks_uri": f"{url}/.well-known/issuer.jwks",
        }

    def _redirect(self) -> None:
        url = urlsplit(self.path)
        kind, path = "object", url.path
        if path.startswith(_DIRECTOR_API):
            kind, _, rest = path[len(_DIRECTOR_API) :].partition("/")
            path = f"/{rest.lstrip('/')}"
        if not f"{path}/".startswith(f"{NAMESPACE}/"):
            self._respond(404, {}, b'{"status":"error","msg":"No namespace found for path"}')
            return
        path_and_query = f"{path}?{url.query}" if url.query else path
        replicas = [server + path_and_query for server in self.director.servers_for(self.command, kind, url.query)]
        links = (f'<{replica}>; rel="duplicate"; pri={rank}; depth=1' for rank, replica in enumerate(replicas, start=1))
        self._respond(307, {"Location": replicas[0], "Link": ", ".join(links), **self.director.namespace_headers()})

    def _respond(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        self._finish_response(headers, body)

    def _respond_as_proxy(self, body: bytes) -> None:
        """Respond like the proxy in front of a director that is down: without Server header and JSON."""
        self.send_response_only(404)
        self._finish_response({"Content-Type": "text/plain"}, body)

    def _finish_response(self, headers: Mapping[str, str], body: bytes) -> None:
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Federation:
    """A federation of one HttpServer without caches. With a token, the server requires it."""

    def __init__(self, folder: Path, *, token: str | None = None) -> None:
        self._temp_dir = tempfile.TemporaryDirectory(prefix="testbed-federation-")
        authority = CertificateAuthority(Path(self._temp_dir.name))
        self.ca = authority.ca
        self.origin = HttpServer(folder, host="localhost", token=token, writable=True, tls=authority.cert_and_key)
        self.director = Director(authority.cert_and_key, self.origin.url, [], require_token=token is not None)
        self.host = self.director.host
        self._exit_stack = contextlib.ExitStack()

    def __enter__(self) -> Federation:
        self._exit_stack.enter_context(self.origin)
        self._exit_stack.enter_context(self.director)
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit_stack.close()
        self._temp_dir.cleanup()


class XRootDFederation:
    """A federation of an XRootD origin and two XRootD caches, all with https."""

    def __init__(self, folder: Path, *, require_token: bool = False) -> None:
        authority = CertificateAuthority(folder)
        self.ca = authority.ca
        self.origin = XRootDOrigin(folder / "origin", authority.cert_and_key)
        self.caches = [XRootDCache(folder / f"cache{number}", self.origin, authority.cert_and_key) for number in (1, 2)]
        cache_urls = [cache.url for cache in self.caches]
        self.director = Director(authority.cert_and_key, self.origin.url, cache_urls, require_token=require_token)
        self.host = self.director.host
        self._exit_stack = contextlib.ExitStack()

    def url(self, name: str) -> str:
        """Return the pelican:// URL of an object."""
        return f"pelican://{self.host}{NAMESPACE}/{name}"

    def __enter__(self) -> XRootDFederation:
        with contextlib.ExitStack() as starting:
            starting.enter_context(self.origin)
            for cache in self.caches:
                starting.enter_context(cache)
            starting.enter_context(self.director)
            self._exit_stack = starting.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit_stack.close()
