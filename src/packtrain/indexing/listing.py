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
from packtrain.indexing.grouping import ArchiveFile
from packtrain.plan import Location
from packtrain.transfer.api import ListedObject, SecretResolver
from packtrain.transfer.backends.http import HttpBackend, split_secret_headers
from packtrain.transfer.http import webdav
from packtrain.transfer.http.client import Request, send_request
from packtrain.transfer.http.response import error_from_response
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import RetryTracker, cancellable_sleep
from packtrain.transfer.urls import check_listed_name, redact_url, url_scheme

_HREF_PATTERN = re.compile(r"<a\s[^>]*?href\s*=\s*[\"']([^\"'#?]+)[\"']", re.IGNORECASE)
_MAX_REQUESTS = 16
_MAX_PAGE_BYTES = 1 << 26
_MAX_DEPTH = 32


def list_folder(
    location: Location, resolve_secret: SecretResolver, retry_timeout_s: float, check_cancelled: Callable[[], None]
) -> list[ListedObject]:
    """All files below, with their sizes, in the order of their names. A server that fails is asked again."""
    patience = RetryTracker(retry_timeout_s, 1, time.monotonic())
    while True:
        try:
            return _list_once(location, resolve_secret)
        except TransferError as error:
            patience.record_failure(0, error)
            wait_s = patience.next_wait_s(time.monotonic())
            if wait_s is None:
                raise
            cancellable_sleep(wait_s, check_cancelled)


def _list_once(location: Location, resolve_secret: SecretResolver) -> list[ListedObject]:
    found = (
        _list_http(location, resolve_secret)
        if url_scheme(location.url) in ("http", "https")
        else get_source(location, resolve_secret).list(location)
    )
    return sorted(found, key=lambda entry: entry.name)


def files_from_entries(entries: Iterable[ListedObject]) -> Iterator[ArchiveFile]:
    for entry in entries:
        yield ArchiveFile(entry.name, entry.name.rpartition("/")[0], 0, entry.size or 0)


def _list_http(location: Location, resolve_secret: SecretResolver) -> list[ListedObject]:
    """As WebDAV tells; else as the pages with the folders' links, which the servers make."""
    try:
        names = list(_list_webdav(location, resolve_secret, "", 0))
        names = names or [(name, None) for name in _list_html(location, resolve_secret, "", 0)]
    except TransferError as error:
        if error.kind not in ("unsupported", "access_denied"):
            raise
        names = [(name, None) for name in _list_html(location, resolve_secret, "", 0)]
    with ThreadPoolExecutor(_MAX_REQUESTS, "list") as pool:
        return list(pool.map(lambda pair: _entry_with_size(location, resolve_secret, *pair), names))


def _entry_with_size(location: Location, resolve_secret: SecretResolver, name: str, size: int | None) -> ListedObject:
    there = replace(location, url=urljoin(location.url, name))
    size = HttpBackend(resolve_secret).stat(there).size if size is None else size
    if size is None:
        raise TransferError(
            "unsupported", f"{redact_url(there.url)}: the server does not say how large it is", there.url
        )
    return ListedObject(check_listed_name(unquote(name), location.url), size, there)


def _list_webdav(
    location: Location, resolve_secret: SecretResolver, prefix: str, depth: int
) -> Iterator[tuple[str, int | None]]:
    """Names as they are written in addresses."""
    public, secrets = split_secret_headers(location, resolve_secret)
    for one in webdav.list_folder(
        Request(urljoin(location.url, prefix), "PROPFIND", {**public, "Depth": "1"}, secrets)
    ):
        name = prefix + quote(one.name)
        if one.is_folder:
            _check_depth(location, depth)
            yield from _list_webdav(location, resolve_secret, f"{name}/", depth + 1)
        else:
            yield name, one.size


def _list_html(location: Location, resolve_secret: SecretResolver, prefix: str, depth: int) -> Iterator[str]:
    url = urljoin(location.url, prefix)
    public, secrets = split_secret_headers(location, resolve_secret)
    answer = send_request(Request(url, "GET", public, secrets))
    try:
        if answer.status != 200:
            raise error_from_response(answer, bool(secrets))
        page = answer.read_text(_MAX_PAGE_BYTES)
    finally:
        answer.close()
    names = parse_links(page, url)
    if not names and not prefix:
        raise FailedError(
            "unsupported", f"{redact_url(url)}: there are no files, or the server does not list what it has"
        )
    for name in names:
        if name.endswith("/"):
            _check_depth(location, depth)
            yield from _list_html(location, resolve_secret, prefix + name, depth + 1)
        else:
            yield prefix + name


def parse_links(page: str, url: str) -> list[str]:
    """Of files and folders that links of a page lead to, if they are right below it."""
    base = urlsplit(url)
    found = set()
    for link in _HREF_PATTERN.findall(page):
        target = urlsplit(urljoin(url, html.unescape(link)))
        if target.netloc == base.netloc and target.path.startswith(base.path):
            name = target.path[len(base.path) :]
            if name and "/" not in name.rstrip("/"):
                found.add(name)
    return sorted(found)


def _check_depth(location: Location, depth: int) -> None:
    if depth >= _MAX_DEPTH:
        raise FailedError("unsupported", f"{redact_url(location.url)} has folders in folders without end")
