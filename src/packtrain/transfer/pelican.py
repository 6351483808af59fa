"""osdf:///path and pelican://federation/path: a director names the server, HTTP does the rest.

The federation's discovery document names the director, the director answers 307 with the address
of a cache (or, for PUT, of the origin). In this protocol the token is meant for that server too,
so it goes along, over https only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Ref
from packtrain.transfer.address import scheme_of, shown
from packtrain.transfer.answers import failure_of
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.exchange import Request, send
from packtrain.transfer.http import HttpStore, credentials_apart

OSDF_FEDERATION = "osg-htc.org"
_WELL_KNOWN = "/.well-known/pelican-configuration"


class PelicanStore:
    """Source and Sink over a Pelican federation."""

    def __init__(self, reveal: Reveal) -> None:
        self._reveal = reveal
        self._http = HttpStore(reveal)
        self._directors: dict[str, str] = {}

    def stat(self, ref: Ref) -> ObjectInfo:
        return self._http.stat(self._located(ref, "HEAD"))

    def open(self, ref: Ref, span: Span = WHOLE) -> Stream:
        return self._http.open(self._located(ref, "GET"), span)

    def list(self, ref: Ref) -> Iterable[Entry]:
        raise TransferError(
            "unsupported", f"{shown(ref.url)}: listing a federation is not possible yet", shown(ref.url)
        )

    def put(self, ref: Ref, path: Path) -> None:
        self._http.put(self._located(ref, "PUT"), path)

    def delete(self, ref: Ref) -> None:
        self._http.delete(self._located(ref, "DELETE"))

    def _located(self, ref: Ref, method: str) -> Ref:
        """The ref at the server that the director names."""
        federation, path = split(ref.url)
        asked = urljoin(self._director(federation) + "/", path.lstrip("/"))
        public, secrets = credentials_apart(replace(ref, url=asked), self._reveal)
        answer = send(Request(asked, method, public, secrets), hops=0)
        answer.close()
        location = answer.headers.get("Location")
        if answer.status not in (302, 307) or not location:
            raise failure_of(answer, bool(secrets))
        return let_in(ref, urljoin(asked, location))

    def _director(self, federation: str) -> str:
        if federation not in self._directors:
            self._directors[federation] = _discovered(federation)
        return self._directors[federation]


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


def _discovered(federation: str) -> str:
    url = f"https://{federation}{_WELL_KNOWN}"
    answer = send(Request(url))
    try:
        if answer.status != 200:
            raise failure_of(answer, secrets=False)
        return str(json.loads(answer.text())["director_endpoint"]).rstrip("/")
    except (ValueError, KeyError, TypeError) as error:
        words = f"{url} is not the discovery document of a Pelican federation; is {federation!r} one?"
        raise TransferError("not_the_data", words, url) from error
    finally:
        answer.close()
