"""Folders whose files are the samples: on a disk, below an S3 prefix, in a federation, on a web server."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import quote, unquote, urljoin, urlsplit

from packtrain.errors import FailedError, TransferError
from packtrain.indexing.grouping import File
from packtrain.plan import Ref
from packtrain.transfer.api import Entry, Reveal
from packtrain.transfer.backends.http import HttpStore, credentials_apart
from packtrain.transfer.http.client import Request, send
from packtrain.transfer.http.response import failure_of
from packtrain.transfer.http.webdav import listed
from packtrain.transfer.registry import source_for
from packtrain.transfer.retry import Patience, pause
from packtrain.transfer.urls import checked_name, scheme_of, shown

_LINK = re.compile(r"<a\s[^>]*?href\s*=\s*[\"']([^\"'#?]+)[\"']", re.IGNORECASE)
_ASKED_AT_ONCE = 16
_LONGEST_PAGE = 1 << 26
_DEEPEST = 32


def entries(ref: Ref, reveal: Reveal, patience_s: float, stop: Callable[[], None]) -> list[Entry]:
    """All files below, with their sizes, in the order of their names. A server that fails is asked again."""
    patience = Patience(patience_s, 1, time.monotonic())
    while True:
        try:
            return _entries(ref, reveal)
        except TransferError as error:
            patience.failed(0, error)
            wait_s = patience.wait_s(time.monotonic())
            if wait_s is None:
                raise
            pause(wait_s, stop)


def _entries(ref: Ref, reveal: Reveal) -> list[Entry]:
    found = _on_the_web(ref, reveal) if scheme_of(ref.url) in ("http", "https") else source_for(ref, reveal).list(ref)
    return sorted(found, key=lambda entry: entry.name)


def files_of(found: Iterable[Entry]) -> Iterator[File]:
    for entry in found:
        yield File(entry.name, entry.name.rpartition("/")[0], 0, entry.size or 0)


def _on_the_web(ref: Ref, reveal: Reveal) -> list[Entry]:
    """As WebDAV tells; else as the pages with the folders' links, which the servers make."""
    try:
        names = list(_by_propfind(ref, reveal, "", 0))
        names = names or [(name, None) for name in _by_links(ref, reveal, "", 0)]
    except TransferError as error:
        if error.kind not in ("unsupported", "token_refused"):
            raise
        names = [(name, None) for name in _by_links(ref, reveal, "", 0)]
    with ThreadPoolExecutor(_ASKED_AT_ONCE, "list") as pool:
        return list(pool.map(lambda pair: _sized(ref, reveal, *pair), names))


def _sized(ref: Ref, reveal: Reveal, name: str, size: int | None) -> Entry:
    there = replace(ref, url=urljoin(ref.url, name))
    size = HttpStore(reveal).stat(there).size if size is None else size
    if size is None:
        raise TransferError("unsupported", f"{shown(there.url)}: the server does not say how large it is", there.url)
    return Entry(checked_name(unquote(name), ref.url), size, there)


def _by_propfind(ref: Ref, reveal: Reveal, below: str, depth: int) -> Iterator[tuple[str, int | None]]:
    """Names as they are written in addresses."""
    public, secrets = credentials_apart(ref, reveal)
    for one in listed(Request(urljoin(ref.url, below), "PROPFIND", {**public, "Depth": "1"}, secrets)):
        name = below + quote(one.name)
        if one.is_folder:
            _refuse_depth(ref, depth)
            yield from _by_propfind(ref, reveal, f"{name}/", depth + 1)
        else:
            yield name, one.size


def _by_links(ref: Ref, reveal: Reveal, below: str, depth: int) -> Iterator[str]:
    url = urljoin(ref.url, below)
    public, secrets = credentials_apart(ref, reveal)
    answer = send(Request(url, "GET", public, secrets))
    try:
        if answer.status != 200:
            raise failure_of(answer, bool(secrets))
        page = answer.text(_LONGEST_PAGE)
    finally:
        answer.close()
    names = names_in(page, url)
    if not names and not below:
        raise FailedError("unsupported", f"{shown(url)}: there are no files, or the server does not list what it has")
    for name in names:
        if name.endswith("/"):
            _refuse_depth(ref, depth)
            yield from _by_links(ref, reveal, below + name, depth + 1)
        else:
            yield below + name


def names_in(page: str, url: str) -> list[str]:
    """Of files and folders that links of a page lead to, if they are right below it."""
    base = urlsplit(url)
    found = set()
    for link in _LINK.findall(page):
        target = urlsplit(urljoin(url, html.unescape(link)))
        if target.netloc == base.netloc and target.path.startswith(base.path):
            name = target.path[len(base.path) :]
            if name and "/" not in name.rstrip("/"):
                found.add(name)
    return sorted(found)


def _refuse_depth(ref: Ref, depth: int) -> None:
    if depth >= _DEEPEST:
        raise FailedError("unsupported", f"{shown(ref.url)} has folders in folders without end")
