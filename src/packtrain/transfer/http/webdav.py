"""List folders of WebDAV servers with PROPFIND."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.http.client import Request, send_request
from packtrain.transfer.http.headers import parse_number
from packtrain.transfer.http.response import error_from_response
from packtrain.transfer.urls import check_listed_name, redact_url

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_DOCUMENT_BYTES = 1 << 26
_SCHEME_AND_HOST = re.compile(r"https?://[^/]*", re.IGNORECASE)
# XRootD before 5.6 does not escape names, which shows in characters that URLs cannot contain.
_UNESCAPED = re.compile(r"[^!-~]|%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class WebDavEntry:
    """A file or folder."""

    name: str
    size: int | None
    is_folder: bool


def list_folder(request: Request) -> list[WebDavEntry]:
    """Send a PROPFIND of depth 1 and return the entries; a missing folder is empty."""
    url = request.url
    response = send_request(request)
    try:
        if response.status in (404, 410):
            return []
        if response.status in (405, 501):
            raise TransferError(
                "unsupported", f"{redact_url(url)}: this server does not support folder listings", redact_url(url)
            )
        if response.status != 207:
            raise error_from_response(response, bool(request.secret_headers))
        return parse_multistatus(response.read_text(max_bytes=_MAX_DOCUMENT_BYTES), url)
    finally:
        response.close()


def parse_multistatus(text: str, url: str) -> list[WebDavEntry]:
    """Parse the response to a PROPFIND. Raises TransferError if it is not XML."""
    from xml.etree import ElementTree

    try:
        # The document comes from the data server, and expat limits entity expansion.
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise TransferError(
            "unexpected_content", f"{redact_url(url)}: the listing is not XML ({error})", redact_url(url)
        ) from error
    folder = unquote(urlsplit(url).path).rstrip("/")
    return sorted(_parse_entries(root, folder, url), key=lambda entry: entry.name)


def _parse_entries(root: Element, folder: str, url: str) -> Iterator[WebDavEntry]:
    for response in root.iterfind("{*}response"):
        path = _decode_href(response.findtext("{*}href") or "").rstrip("/")
        if path == folder or not path.startswith(f"{folder}/"):
            continue  # the folder itself
        name = check_listed_name(path[len(folder) + 1 :], url)
        size = parse_number(response.findtext(".//{*}getcontentlength") or "")
        yield WebDavEntry(name, size, _is_folder(response))


def _decode_href(href: str) -> str:
    path = _SCHEME_AND_HOST.sub("", href.strip(), count=1)
    return path if _UNESCAPED.search(path) else unquote(path)


def _is_folder(response: Element) -> bool:
    return response.find(".//{*}collection") is not None
