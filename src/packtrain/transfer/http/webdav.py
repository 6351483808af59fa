"""What is in a folder of a WebDAV server, as its answer to PROPFIND tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.http.client import Request, send
from packtrain.transfer.http.response import failure_of
from packtrain.transfer.urls import checked_name, shown

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_LONGEST_DOCUMENT = 1 << 26
_HOST = re.compile(r"https?://[^/]*", re.IGNORECASE)
# XRootD before 5.6 writes names as they are: what could not stand in an address tells.
_NOT_ESCAPED = re.compile(r"[^!-~]|%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Listed:
    name: str
    size: int | None
    is_folder: bool


def listed(request: Request) -> list[Listed]:
    """What the folder has that a PROPFIND of depth 1 asks for; a folder that is not there has nothing."""
    url = request.url
    answer = send(request)
    try:
        if answer.status in (404, 410):
            return []
        if answer.status in (405, 501):
            raise TransferError("unsupported", f"{shown(url)}: this server does not list what it has", shown(url))
        if answer.status != 207:
            raise failure_of(answer, bool(request.secrets))
        return parsed(answer.text(limit=_LONGEST_DOCUMENT), url)
    finally:
        answer.close()


def parsed(text: str, url: str) -> list[Listed]:
    from xml.etree import ElementTree

    try:
        # It comes from the server that the data come from, and expat bounds entity expansion.
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise TransferError("not_the_data", f"{shown(url)}: the listing is no XML ({error})", shown(url)) from error
    folder = unquote(urlsplit(url).path).rstrip("/")
    return sorted(_below(root, folder, url), key=lambda entry: entry.name)


def _below(root: Element, folder: str, url: str) -> Iterator[Listed]:
    for response in root.iterfind("{*}response"):
        path = _path(response.findtext("{*}href") or "").rstrip("/")
        if path == folder or not path.startswith(f"{folder}/"):
            continue  # the folder itself
        name = checked_name(path[len(folder) + 1 :], url)
        length = response.findtext(".//{*}getcontentlength") or ""
        yield Listed(name, int(length) if length.strip().isdecimal() else None, _is_folder(response))


def _path(href: str) -> str:
    path = _HOST.sub("", href.strip(), count=1)
    return path if _NOT_ESCAPED.search(path) else unquote(path)


def _is_folder(response: Element) -> bool:
    return response.find(".//{*}collection") is not None
