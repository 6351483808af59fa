"""Which backend an address belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Union

from packtrain.errors import FailedError
from packtrain.plan import Ref
from packtrain.transfer.address import scheme_of, shown
from packtrain.transfer.api import Reveal, Sink, Source
from packtrain.transfer.file import FileStore
from packtrain.transfer.http import HttpStore
from packtrain.transfer.pelican import PelicanStore
from packtrain.transfer.s3 import S3Store

Store = Union[FileStore, HttpStore, S3Store, PelicanStore]

_STORES: Mapping[str, Callable[[Reveal], Store]] = {
    "file": lambda reveal: FileStore(),
    "http": HttpStore,
    "https": HttpStore,
    "s3": S3Store,
    "osdf": PelicanStore,
    "pelican": PelicanStore,
}


def source_for(ref: Ref, reveal: Reveal) -> Source:
    return _store_for(ref, reveal)


def sink_for(ref: Ref, reveal: Reveal) -> Sink:
    return _store_for(ref, reveal)


def _store_for(ref: Ref, reveal: Reveal) -> Store:
    make = _STORES.get(scheme_of(ref.url))
    if make is None:
        known = ", ".join(sorted(_STORES))
        raise FailedError("unsupported", f"{shown(ref.url)} has a scheme that is not one of {known}")
    return make(reveal)
