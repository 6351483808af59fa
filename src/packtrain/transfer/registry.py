"""The table from URL scheme to backend. A backend is imported when a URL first needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Union

from packtrain.errors import FailedError
from packtrain.plan import Location
from packtrain.transfer.api import Replica, SecretResolver, Sink, Source
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.urls import host_label, invalid_url_error, redact_url, url_origin, url_scheme

if TYPE_CHECKING:
    from packtrain.transfer.backends.file import FileBackend
    from packtrain.transfer.backends.http import HttpBackend
    from packtrain.transfer.backends.pelican.backend import PelicanBackend
    from packtrain.transfer.backends.s3.backend import S3Backend

    Backend = Union[FileBackend, HttpBackend, S3Backend, PelicanBackend]


def _make_file_backend(resolve_secret: SecretResolver) -> Backend:
    from packtrain.transfer.backends.file import FileBackend

    return FileBackend()


def _make_http_backend(resolve_secret: SecretResolver) -> Backend:
    from packtrain.transfer.backends.http import HttpBackend

    return HttpBackend(resolve_secret)


def _make_s3_backend(resolve_secret: SecretResolver) -> Backend:
    from packtrain.transfer.backends.s3.backend import S3Backend

    return S3Backend(resolve_secret)


def _make_pelican_backend(resolve_secret: SecretResolver) -> Backend:
    from packtrain.transfer.backends.pelican.backend import PelicanBackend

    return PelicanBackend(resolve_secret)


_BACKEND_FACTORIES: Mapping[str, Callable[[SecretResolver], Backend]] = {
    "file": _make_file_backend,
    "http": _make_http_backend,
    "https": _make_http_backend,
    "s3": _make_s3_backend,
    "osdf": _make_pelican_backend,
    "pelican": _make_pelican_backend,
}


def get_source(location: Location, resolve_secret: SecretResolver) -> Source:
    """Return the backend that reads from a location."""
    return _make_backend(location, resolve_secret)


def get_sink(location: Location, resolve_secret: SecretResolver) -> Sink:
    """Return the backend that writes to a location."""
    return _make_backend(location, resolve_secret)


def find_replicas(location: Location, resolve_secret: SecretResolver) -> list[Replica]:
    """Return every server that has the object, the best first.

    For a federation this queries its director over the network.
    """
    backend = _make_backend(location, resolve_secret)
    query_director = getattr(backend, "find_replicas", None)
    if query_director is not None:
        replicas: list[Replica] = query_director(location)
        return replicas
    return [Replica(backend, location, host_label(location.url))]


def keep_connections() -> AbstractContextManager[None]:
    """Keep the backends' idle connections open for further requests, until the end of the block."""
    return connection_pool()


def _make_backend(location: Location, resolve_secret: SecretResolver) -> Backend:
    make = _BACKEND_FACTORIES.get(url_scheme(location.url))
    if make is None:
        schemes = ", ".join(sorted(_BACKEND_FACTORIES))
        raise FailedError("unsupported", f"{redact_url(location.url)} has a scheme that is not one of {schemes}")
    try:
        url_origin(location.url)
    except ValueError as error:
        raise invalid_url_error(location.url, error) from error
    return make(resolve_secret)
