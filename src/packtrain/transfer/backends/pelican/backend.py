"""Source and sink for osdf:///path and pelican://federation/path URLs.

A director names the servers of an object; they are accessed over HTTP. Tokens are sent to the director and to these
servers over https only: a configured token always, a token found on the machine only if it is required and names the
federation (see `credentials`). Objects are immutable: a `put` to an existing name succeeds only if the content is
identical.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location
from packtrain.transfer.api import (
    FULL_RANGE,
    ByteRange,
    ListedObject,
    ObjectInfo,
    ObjectStream,
    Replica,
    SecretResolver,
)
from packtrain.transfer.backends.http import split_secret_headers
from packtrain.transfer.backends.pelican import director
from packtrain.transfer.backends.pelican.director import DirectorResponse
from packtrain.transfer.backends.pelican.server import PelicanServerBackend
from packtrain.transfer.credentials import OSDF_FEDERATION, explain_withheld_token, find_token
from packtrain.transfer.integrity.digests import WEAK_ALGORITHMS, hash_file
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent
from packtrain.transfer.retry import combine_errors
from packtrain.transfer.urls import join_url, redact_url, url_scheme

T = TypeVar("T")
Replicas = list[Replica]  # an alias, because the class below has a method `list`

_DIRECT_READ = "directread"
_ORIGIN_CACHE_S = 30.0
_COMPARE_BLOCK_BYTES = 1 << 20


class PelicanBackend:
    """Implements Source and Sink for Pelican federations."""

    def __init__(self, resolve_secret: SecretResolver) -> None:
        self._resolve_secret = resolve_secret
        self._origin_cache: dict[str, tuple[DirectorResponse, float]] = {}

    def find_replicas(self, location: Location) -> Replicas:
        """Return the caches by priority and the origin as fallback; with `?directread`, only the origin."""
        if _has_flag(location, _DIRECT_READ):
            return self._make_replicas(location, self._find_origin(location))
        response = self._query_director(location, "GET")
        caches = self._make_replicas(location, response)
        namespace = response.namespace.get("namespace", "the object")
        label = urlsplit(response.collections_url or "").netloc or f"origin of {namespace}"
        if label in {replica.label for replica in caches}:
            return caches
        return [*caches, Replica(self, _with_direct_read(location), label, is_fallback=True)]

    def stat(self, location: Location) -> ObjectInfo:
        return self._try_replicas(location, lambda replica: replica.source.stat(replica.location))

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> ObjectStream:
        return self._try_replicas(location, lambda replica: replica.source.open(replica.location, byte_range))

    def fetch_digest(self, location: Location) -> Digest | None:
        """Return the digest that a server computes on request, or None."""
        response = (
            self._find_origin(location) if _has_flag(location, _DIRECT_READ) else self._query_director(location, "GET")
        )
        server = self._make_server_backend(location, response)
        return server.fetch_digest(with_credentials(location, response.server_urls[0]))

    def list(self, location: Location) -> Iterator[ListedObject]:
        response = self._query_director(location, "PROPFIND")
        top = (
            response.collections_url.rstrip("/") + parse_pelican_url(location.url)[1]
            if response.collections_url
            else response.server_urls[0]
        )
        flags = f"?{_DIRECT_READ}" if _has_flag(location, _DIRECT_READ) else ""
        base = location.url.partition("?")[0].rstrip("/")
        for name, size in self._walk(
            self._make_server_backend(location, response), location, top.partition("?")[0].rstrip("/")
        ):
            yield ListedObject(name, size, replace(location, url=join_url(base, name) + flags))

    def put(
        self,
        location: Location,
        path: Path,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        *,
        adopt_uploads: bool = True,
    ) -> None:
        response = self._query_director(location, "PUT")
        server = self._make_server_backend(location, response)
        target = with_credentials(location, response.server_urls[0])
        if not _is_already_stored(server, target, path):
            server.put(target, path, on_bytes_sent)

    def copy(self, source: Location, target: Location, *, digest: Digest | None = None, may_move: bool = False) -> bool:
        """Rename the object at its origin, if that is allowed and nothing has the name; there is no other request."""
        if may_move and not self._exists_at_origin(target):
            source_response, target_response = self._query_director(source, "PUT"), self._query_director(target, "PUT")
            server = self._make_server_backend(source, source_response)
            server.move(with_credentials(source, source_response.server_urls[0]), target_response.server_urls[0])
            return True
        url = redact_url(target.url)
        raise TransferError("unsupported", f"{url}: a federation cannot copy objects on its servers", url)

    def _exists_at_origin(self, location: Location) -> bool:
        try:
            self.stat(_with_direct_read(location))
            return True
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            return False

    def delete(self, location: Location) -> None:
        response = self._query_director(location, "DELETE")
        server = self._make_server_backend(location, response)
        server.delete(with_credentials(location, response.server_urls[0]))

    def _try_replicas(self, location: Location, operation: Callable[[Replica], T]) -> T:
        """Return the result of the first replica that succeeds. Raises the most informative error."""
        errors = []
        for replica in self.find_replicas(location):
            try:
                return operation(replica)
            except TransferError as error:
                errors.append(error)
        raise combine_errors(errors)

    def _make_replicas(self, location: Location, director_response: DirectorResponse) -> Replicas:
        server = self._make_server_backend(location, director_response)
        return [
            Replica(server, with_credentials(location, url), urlsplit(url).netloc)
            for url in director_response.server_urls
        ]

    def _make_server_backend(self, location: Location, director_response: DirectorResponse) -> PelicanServerBackend:
        return PelicanServerBackend(
            self._resolve_secret, director_response.needs_token, parse_pelican_url(location.url)[0]
        )

    def _find_origin(self, location: Location) -> DirectorResponse:
        """Return the origin, cached, because the engine opens many connections."""
        response, expires_at = self._origin_cache.get(location.url, (None, float("-inf")))
        if response is None or time.monotonic() > expires_at:
            response = self._query_director(location, "GET", director.ORIGIN_ENDPOINT)
            self._origin_cache[location.url] = response, time.monotonic() + _ORIGIN_CACHE_S
        return response

    def _query_director(
        self, location: Location, method: str, endpoint: str = director.OBJECT_ENDPOINT
    ) -> DirectorResponse:
        federation, path = parse_pelican_url(location.url)
        public, secrets = split_secret_headers(location, self._resolve_secret)
        try:
            response = director.query(federation, path, method, public, secrets, endpoint)
        except TransferError as error:
            token = find_token(federation) if error.kind == "access_denied" and not secrets else None
            if token is None:
                raise _with_hint(error, "" if secrets else explain_withheld_token(federation)) from None
            return director.query(federation, path, method, public, {"Authorization": f"Bearer {token}"}, endpoint)
        if response.needs_token and not secrets and explain_withheld_token(federation):
            message = f"{redact_url(location.url)} needs a token; {explain_withheld_token(federation)}"
            raise TransferError("access_denied", message, redact_url(location.url))
        return response

    def _walk(
        self, server: PelicanServerBackend, location: Location, folder_url: str
    ) -> Iterator[tuple[str, int | None]]:
        """Yield the names and sizes of all objects below a folder."""
        for entry in server.list_folder(with_credentials(location, folder_url)):
            if not entry.is_folder:
                yield entry.name, entry.size
                continue
            for name, size in self._walk(server, location, join_url(folder_url, entry.name)):
                yield f"{entry.name}/{name}", size


def _with_hint(error: TransferError, hint: str) -> TransferError:
    if error.kind != "access_denied" or not hint:
        return error
    return TransferError(error.kind, f"{error.detail}; {hint}", error.redacted_url, None, error.http_status)


def parse_pelican_url(url: str) -> tuple[str, str]:
    """Return federation and path; users also write osdf://nrp/x for the path /nrp/x."""
    rest = url.partition("://")[2]
    if url_scheme(url) == "osdf":
        return OSDF_FEDERATION, "/" + rest.lstrip("/")
    host, _, path = rest.partition("/")
    return host, "/" + path


def with_credentials(location: Location, server_url: str) -> Location:
    """Return the location at a server of the director; credentials are included over https only."""
    if urlsplit(server_url).scheme == "https":
        return replace(location, url=server_url)
    return Location(server_url)


def _has_flag(location: Location, flag: str) -> bool:
    return flag in parse_qs(location.url.partition("?")[2], keep_blank_values=True)


def _with_direct_read(location: Location) -> Location:
    return replace(location, url=f"{location.url}{'&' if '?' in location.url else '?'}{_DIRECT_READ}")


def _is_already_stored(server: PelicanServerBackend, location: Location, path: Path) -> bool:
    """Return whether an identical object exists. Raises TransferError if a different one has the name."""
    try:
        info = server.stat(location)
    except TransferError as error:
        if error.kind in ("object_missing", "access_denied"):
            return False
        raise
    size = path.stat().st_size
    if info.size == size and _has_same_content(server, location, path):
        return True
    if info.size is not None and info.size < size and _starts_with_stream(path, server.open(location)):
        return False  # the remains of an interrupted upload
    url = redact_url(location.url)
    message = f"{url} exists with different content, and objects of a federation are immutable; use a new name"
    raise TransferError("unsupported", message, url)


def _has_same_content(server: PelicanServerBackend, location: Location, path: Path) -> bool:
    digest = server.fetch_digest(location)
    if digest is not None and digest.algorithm not in WEAK_ALGORITHMS:
        return hash_file(path, digest.algorithm) == digest.value
    return _starts_with_stream(path, server.open(location))


def _starts_with_stream(path: Path, stream: ObjectStream) -> bool:
    try:
        with open(path, "rb") as file:
            while True:
                block = stream.read(_COMPARE_BLOCK_BYTES)
                if not block:
                    return True
                if file.read(len(block)) != block:
                    return False
    finally:
        stream.close()
