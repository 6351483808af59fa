"""Which backend an address belongs to. Backends are loaded when an address asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Union
from urllib.parse import urlsplit

from packtrain.errors import FailedError
from packtrain.plan import Ref
from packtrain.transfer.api import Place, Reveal, Sink, Source
from packtrain.transfer.urls import invalid, origin_of, scheme_of, shown

if TYPE_CHECKING:
    from packtrain.transfer.backends.file import FileStore
    from packtrain.transfer.backends.http import HttpStore
    from packtrain.transfer.backends.pelican.backend import PelicanStore
    from packtrain.transfer.backends.s3.backend import S3Store

    Store = Union[FileStore, HttpStore, S3Store, PelicanStore]


def _file(reveal: Reveal) -> Store:
    from packtrain.transfer.backends.file import FileStore

    return FileStore()


def _http(reveal: Reveal) -> Store:
    from packtrain.transfer.backends.http import HttpStore

    return HttpStore(reveal)


def _s3(reveal: Reveal) -> Store:
    from packtrain.transfer.backends.s3.backend import S3Store

    return S3Store(reveal)


def _pelican(reveal: Reveal) -> Store:
    from packtrain.transfer.backends.pelican.backend import PelicanStore

    return PelicanStore(reveal)


_STORES: Mapping[str, Callable[[Reveal], Store]] = {
    "file": _file,
    "http": _http,
    "https": _http,
    "s3": _s3,
    "osdf": _pelican,
    "pelican": _pelican,
}


def source_for(ref: Ref, reveal: Reveal) -> Source:
    return _store_for(ref, reveal)


def places_for(ref: Ref, reveal: Reveal) -> list[Place]:
    """Every server that has the object, the best first. Asks the director where there is one."""
    store = _store_for(ref, reveal)
    places = getattr(store, "places", None)
    return places(ref) if places is not None else [Place(store, ref, _label(ref))]


def _label(ref: Ref) -> str:
    url = shown(ref.url)
    return urlsplit(url).netloc or url


def sink_for(ref: Ref, reveal: Reveal) -> Sink:
    return _store_for(ref, reveal)


def _store_for(ref: Ref, reveal: Reveal) -> Store:
    make = _STORES.get(scheme_of(ref.url))
    if make is None:
        known = ", ".join(sorted(_STORES))
        raise FailedError("unsupported", f"{shown(ref.url)} has a scheme that is not one of {known}")
    try:
        origin_of(ref.url)
    except ValueError as error:
        raise invalid(ref.url, error) from error
    return make(reveal)
