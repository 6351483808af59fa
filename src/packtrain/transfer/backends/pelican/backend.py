"""osdf:///path and pelican://federation/path: a director names the servers, HTTP does the rest.

Tokens are sent to the director and to the servers that it names, over https only: one that the workflow names always,
one that is found on the machine only where it is needed, and where it is meant for (see `tokens`).
Objects are immutable by rule: a `put` under a name that is taken succeeds only if the content is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Digest, Ref
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Place, Reveal, Span, Stream
from packtrain.transfer.backends.http import credentials_apart
from packtrain.transfer.backends.pelican import director
from packtrain.transfer.backends.pelican.director import Directions
from packtrain.transfer.backends.pelican.server import ServerStore
from packtrain.transfer.bearer_tokens import OSDF_FEDERATION, held_back, own_token
from packtrain.transfer.digests import WEAK, digest_of_file
from packtrain.transfer.http.request_body import Sent, unwatched
from packtrain.transfer.retry import verdict_of
from packtrain.transfer.urls import joined, scheme_of, shown

T = TypeVar("T")
Places = list[Place]  # a name for it outside of a class that has a `list` of its own

_DIRECT = "directread"
_ORIGIN_KNOWN_S = 30.0
_COMPARED_AT_ONCE = 1 << 20


class PelicanStore:
    """Source and Sink over a Pelican federation."""

    def __init__(self, reveal: Reveal) -> None:
        self._reveal = reveal
        self._origins: dict[str, tuple[Directions, float]] = {}

    def places(self, ref: Ref) -> Places:
        """The caches as the director ranks them, and the origin as last resort; with `?directread`, only the origin."""
        if _flagged(ref, _DIRECT):
            return self._servers(ref, self._origin_of(ref))
        given = self._ask(ref, "GET")
        found = self._servers(ref, given)
        label = urlsplit(given.collections or "").netloc or f"origin of {given.namespace.get('namespace', 'it')}"
        if label in {place.label for place in found}:
            return found
        return [*found, Place(self, _directly(ref), label, last_resort=True)]

    def stat(self, ref: Ref) -> ObjectInfo:
        return self._first(ref, lambda place: place.source.stat(place.ref))

    def open(self, ref: Ref, span: Span = WHOLE) -> Stream:
        return self._first(ref, lambda place: place.source.open(place.ref, span))

    def digest(self, ref: Ref) -> Digest | None:
        """As a server makes it when asked, if one does."""
        given = self._origin_of(ref) if _flagged(ref, _DIRECT) else self._ask(ref, "GET")
        return self._store(ref, given).digest(let_in(ref, given.servers[0]))

    def list(self, ref: Ref) -> Iterator[Entry]:
        given = self._ask(ref, "PROPFIND")
        top = given.collections.rstrip("/") + split(ref.url)[1] if given.collections else given.servers[0]
        flags = f"?{_DIRECT}" if _flagged(ref, _DIRECT) else ""
        base = ref.url.partition("?")[0].rstrip("/")
        for name, size in self._below(self._store(ref, given), ref, top.partition("?")[0].rstrip("/")):
            yield Entry(name, size, replace(ref, url=joined(base, name) + flags))

    def put(self, ref: Ref, path: Path, sent: Sent = unwatched) -> None:
        given = self._ask(ref, "PUT")
        store, there = self._store(ref, given), let_in(ref, given.servers[0])
        if not _stands(store, there, path):
            store.put(there, path, sent)

    def delete(self, ref: Ref) -> None:
        given = self._ask(ref, "DELETE")
        self._store(ref, given).delete(let_in(ref, given.servers[0]))

    def _first(self, ref: Ref, act: Callable[[Place], T]) -> T:
        """From the best server that can; if none can, the most telling of their reasons."""
        errors = []
        for place in self.places(ref):
            try:
                return act(place)
            except TransferError as error:
                errors.append(error)
        raise verdict_of(errors)

    def _servers(self, ref: Ref, given: Directions) -> Places:
        store = self._store(ref, given)
        return [Place(store, let_in(ref, url), urlsplit(url).netloc) for url in given.servers]

    def _store(self, ref: Ref, given: Directions) -> ServerStore:
        return ServerStore(self._reveal, given.needs_token, split(ref.url)[0])

    def _origin_of(self, ref: Ref) -> Directions:
        """Asked seldom: the engine opens many connections, and a director serves everybody."""
        given, until = self._origins.get(ref.url, (None, float("-inf")))
        if given is None or time.monotonic() > until:
            given = self._ask(ref, "GET", director.ORIGIN)
            self._origins[ref.url] = given, time.monotonic() + _ORIGIN_KNOWN_S
        return given

    def _ask(self, ref: Ref, method: str, kind: str = director.OBJECT) -> Directions:
        federation, path = split(ref.url)
        public, secrets = credentials_apart(ref, self._reveal)
        try:
            given = director.ask(federation, path, method, public, secrets, kind)
        except TransferError as error:
            mine = own_token(federation) if error.kind == "token_refused" and not secrets else None
            if mine is None:
                raise _explained(error, "" if secrets else held_back(federation)) from None
            return director.ask(federation, path, method, public, {"Authorization": f"Bearer {mine}"}, kind)
        if given.needs_token and not secrets and held_back(federation):
            words = f"{shown(ref.url)} needs a token; {held_back(federation)}"
            raise TransferError("token_refused", words, shown(ref.url))
        return given

    def _below(self, store: ServerStore, ref: Ref, top: str) -> Iterator[tuple[str, int | None]]:
        """Names and sizes of all objects below a folder."""
        for entry in store.folder(let_in(ref, top)):
            if not entry.is_folder:
                yield entry.name, entry.size
                continue
            for name, size in self._below(store, ref, joined(top, entry.name)):
                yield f"{entry.name}/{name}", size


def _explained(error: TransferError, why: str) -> TransferError:
    if error.kind != "token_refused" or not why:
        return error
    return TransferError(error.kind, f"{error.detail}; {why}", error.source, None, error.status)


def split(url: str) -> tuple[str, str]:
    """Federation and path. People write osdf://nrp/x and mean the path /nrp/x."""
    rest = url.partition("://")[2]
    if scheme_of(url) == "osdf":
        return OSDF_FEDERATION, "/" + rest.lstrip("/")
    host, _, path = rest.partition("/")
    return host, "/" + path


def let_in(ref: Ref, location: str) -> Ref:
    """The ref at a server that the director named, with what lets one in over https, and nothing else without."""
    if urlsplit(location).scheme == "https":
        return replace(ref, url=location)
    return Ref(location)


def _flagged(ref: Ref, flag: str) -> bool:
    return flag in parse_qs(ref.url.partition("?")[2], keep_blank_values=True)


def _directly(ref: Ref) -> Ref:
    return replace(ref, url=f"{ref.url}{'&' if '?' in ref.url else '?'}{_DIRECT}")


def _stands(store: ServerStore, there: Ref, path: Path) -> bool:
    """Whether the object is there already. Another one under its name is an error, for objects are never changed."""
    try:
        info = store.stat(there)
    except TransferError as error:
        if error.kind in ("object_missing", "token_refused"):
            return False
        raise
    size = path.stat().st_size
    if info.size == size and _same(store, there, path):
        return True
    if info.size is not None and info.size < size and _begins_with(path, store.open(there)):
        return False  # what an upload left that was cut off
    where = shown(there.url)
    words = f"{where} exists already with other content, and objects of a federation are never changed: use a new name"
    raise TransferError("unsupported", words, where)


def _same(store: ServerStore, there: Ref, path: Path) -> bool:
    digest = store.digest(there)
    if digest is not None and digest.algorithm not in WEAK:
        return digest_of_file(path, digest.algorithm) == digest.value
    return _begins_with(path, store.open(there))


def _begins_with(path: Path, stream: Stream) -> bool:
    try:
        with open(path, "rb") as file:
            while True:
                block = stream.read(_COMPARED_AT_ONCE)
                if not block:
                    return True
                if file.read(len(block)) != block:
                    return False
    finally:
        stream.close()
