"""List the files of a folder: on a disk, under an S3 prefix, in a federation, or on a web server."""

from __future__ import annotations

import html
import re
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
from packtrain.transfer.retry import retry
from packtrain.transfer.urls import check_listed_name, redact_url, url_scheme

_HREF_PATTERN = re.compile(r"<a\s[^>]*?href\s*=\s*[\"']([^\"'#?]+)[\"']", re.IGNORECASE)
_MAX_REQUESTS = 16
_MAX_PAGE_BYTES = 1 << 26
_MAX_DEPTH = 32


def list_folder(
    location: Location, resolve_secret: SecretResolver, retry_timeout_s: float, check_cancelled: Callable[[], None]
) -> list[ListedObject]:
    """Return all files under a folder, with their sizes, sorted by name. Retries until the retry timeout expires."""
    return retry(lambda: _list_once(location, resolve_secret), retry_timeout_s, check_cancelled)


def _list_once(location: Location, resolve_secret: SecretResolver) -> list[ListedObject]:
    is_http = url_scheme(location.url) in ("http", "https")
    source = get_source(location, resolve_secret)
    entries = _list_http(location, resolve_secret) if is_http else source.list(location)
    return sorted(entries, key=lambda entry: entry.name)


def files_from_entries(entries: Iterable[ListedObject]) -> Iterator[ArchiveFile]:
    """Yield the listed objects as files, each with its folder as its class."""
    for entry in entries:
        yield ArchiveFile(entry.name, entry.name.rpartition("/")[0], 0, entry.size or 0)


def _list_http(location: Location, resolve_secret: SecretResolver) -> list[ListedObject]:
    """List by WebDAV; if the server does not support it, from the links on its HTML pages."""
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
    file_location = replace(location, url=urljoin(location.url, name))
    size = HttpBackend(resolve_secret).stat(file_location).size if size is None else size
    if size is None:
        raise TransferError(
            "unsupported", f"{redact_url(file_location.url)}: the server does not report its size", file_location.url
        )
    return ListedObject(check_listed_name(unquote(name), location.url), size, file_location)


def _list_webdav(
    location: Location, resolve_secret: SecretResolver, prefix: str, depth: int
) -> Iterator[tuple[str, int | None]]:
    """Yield the names, URL-quoted, and sizes of all files."""
    public, secrets = split_secret_headers(location, resolve_secret)
    request = Request(urljoin(location.url, prefix), "PROPFIND", {**public, "Depth": "1"}, secrets)
    for entry in webdav.list_folder(request):
        name = prefix + quote(entry.name)
        if entry.is_folder:
            _check_depth(location, depth)
            yield from _list_webdav(location, resolve_secret, f"{name}/", depth + 1)
        else:
            yield name, entry.size


def _list_html(location: Location, resolve_secret: SecretResolver, prefix: str, depth: int) -> Iterator[str]:
    """Yield the names, URL-quoted, of all files that the HTML pages of the folder link to."""
    url = urljoin(location.url, prefix)
    public, secrets = split_secret_headers(location, resolve_secret)
    response = send_request(Request(url, "GET", public, secrets))
    try:
        if response.status != 200:
            raise error_from_response(response, bool(secrets))
        page = response.read_text(_MAX_PAGE_BYTES)
    finally:
        response.close()
    names = parse_links(page, url)
    if not names and not prefix:
        raise FailedError("unsupported", f"{redact_url(url)}: there are no files, or the server does not list them")
    for name in names:
        if name.endswith("/"):
            _check_depth(location, depth)
            yield from _list_html(location, resolve_secret, prefix + name, depth + 1)
        else:
            yield prefix + name


def parse_links(page: str, url: str) -> list[str]:
    """Return the names of the files and folders directly under `url` that a page links to."""
    base = urlsplit(url)
    names = set()
    for link in _HREF_PATTERN.findall(page):
        target = urlsplit(urljoin(url, html.unescape(link)))
        if target.netloc == base.netloc and target.path.startswith(base.path):
            name = target.path[len(base.path) :]
            if name and "/" not in name.rstrip("/"):
                names.add(name)
    return sorted(names)


def _check_depth(location: Location, depth: int) -> None:
    if depth >= _MAX_DEPTH:
        raise FailedError("unsupported", f"{redact_url(location.url)} has folders nested more than {_MAX_DEPTH} deep")
