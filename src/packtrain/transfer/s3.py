"""s3://bucket/key as source and sink, at any endpoint that speaks S3.

Keys are written in addresses as they are, not percent-encoded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Ref, S3Access
from packtrain.transfer.address import checked_name, joined
from packtrain.transfer.answers import failure_of, info_of
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.exchange import Answer, Request, send
from packtrain.transfer.http import range_header, stream_of
from packtrain.transfer.sigv4 import EMPTY_SHA256, UNSIGNED_PAYLOAD, Keys, signed_headers

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_PUT_BYTES = 5 * 1024**3  # the most that S3 takes in one request
_ERROR = re.compile(r"<(Code|Message)>([^<]*)</")


class S3Store:
    """Source and Sink over S3."""

    def __init__(self, reveal: Reveal) -> None:
        self._reveal = reveal

    def stat(self, ref: Ref) -> ObjectInfo:
        answer = self._ask(ref, "HEAD", _url(ref))
        answer.close()
        return info_of(answer)

    def open(self, ref: Ref, span: Span = WHOLE) -> Stream:
        answer = self._ask(ref, "GET", _url(ref), range_header(span), accepted=(200, 206, 416))
        try:
            return stream_of(answer, span, _signs(ref))
        except BaseException:
            answer.close()
            raise

    def list(self, ref: Ref) -> Iterator[Entry]:
        bucket, key = _bucket_and_key(ref)
        below = f"{key.rstrip('/')}/" if key else ""
        query = {"list-type": "2", "prefix": below}
        while True:
            page = self._page(ref, query)
            yield from _entries(page, ref, bucket, below)
            token = page.findtext("{*}NextContinuationToken")
            if not token:
                return
            query = {**query, "continuation-token": token}

    def put(self, ref: Ref, path: Path) -> None:
        size = path.stat().st_size
        if size > MAX_PUT_BYTES:
            words = f"{ref.url}: {path.name} has {size} bytes; more than {MAX_PUT_BYTES} cannot be put at once yet"
            raise TransferError("unsupported", words, ref.url)
        self._ask(ref, "PUT", _url(ref), body=path).close()

    def delete(self, ref: Ref) -> None:
        self._ask(ref, "DELETE", _url(ref), accepted=(200, 204, 404)).close()

    def _page(self, ref: Ref, query: dict[str, str]) -> Element:
        from xml.etree import ElementTree

        answer = self._ask(ref, "GET", f"{_url(ref, key='')}?{urlencode(sorted(query.items()), quote_via=quote)}")
        try:
            # The document comes from the user's own endpoint, and expat bounds entity expansion.
            return ElementTree.fromstring(answer.text(limit=1 << 26))  # noqa: S314
        except ElementTree.ParseError as error:
            words = f"{ref.url}: the listing is not the XML of S3 ({error}); is the endpoint right?"
            raise TransferError("not_the_data", words, ref.url) from error
        finally:
            answer.close()

    def _ask(
        self,
        ref: Ref,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        body: Path | None = None,
        accepted: tuple[int, ...] = (200, 204),
    ) -> Answer:
        public = dict(headers or {})
        secrets = self._signature(_access(ref), method, url, public, body)
        answer = send(Request(url, method, public, secrets, body), hops=0)
        if answer.status in accepted:
            return answer
        try:
            raise _refusal(answer, ref, method)
        finally:
            answer.close()

    def _signature(
        self, access: S3Access, method: str, url: str, headers: dict[str, str], body: Path | None
    ) -> dict[str, str]:
        """Made anew for each request: keys are renewed under a running job. Empty without keys."""
        if access.access_key is None or access.secret_key is None:
            return {}
        session = self._reveal(access.session_token).strip() if access.session_token is not None else None
        keys = Keys(self._reveal(access.access_key).strip(), self._reveal(access.secret_key).strip(), session)
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return signed_headers(method, url, headers, _payload(url, body), keys, access.region, moment)


def _payload(url: str, body: Path | None) -> str:
    """TLS protects the body already; without TLS it is signed."""
    if body is None:
        return EMPTY_SHA256
    if urlsplit(url).scheme == "https":
        return UNSIGNED_PAYLOAD
    from packtrain.transfer.verify import sha256_of

    return sha256_of(body)


def _access(ref: Ref) -> S3Access:
    if ref.s3 is None:
        raise TransferError("unsupported", f"{ref.url} names no S3 endpoint and region", ref.url)
    return ref.s3


def _signs(ref: Ref) -> bool:
    return _access(ref).access_key is not None


def _bucket_and_key(ref: Ref) -> tuple[str, str]:
    bucket, _, key = ref.url.partition("://")[2].partition("/")
    return bucket, key


def _url(ref: Ref, key: str | None = None) -> str:
    """Path style; AWS itself wants the bucket in the host name (unless it has dots, for TLS)."""
    bucket, own = _bucket_and_key(ref)
    path = quote(own if key is None else key, safe="/-_.~")
    endpoint = urlsplit(_access(ref).endpoint)
    if (endpoint.hostname or "").endswith(".amazonaws.com") and "." not in bucket:
        return f"{endpoint.scheme}://{bucket}.{endpoint.netloc}/{path}"
    return f"{endpoint.scheme}://{endpoint.netloc}{endpoint.path.rstrip('/')}/{bucket}/{path}"


def _entries(page: Element, ref: Ref, bucket: str, below: str) -> Iterator[Entry]:
    for item in page.iterfind("{*}Contents"):
        key = item.findtext("{*}Key") or ""
        if key.endswith("/"):
            continue  # a marker that consoles write for an empty folder
        name = checked_name(key[len(below) :], ref.url)
        size = int(item.findtext("{*}Size") or 0)
        yield Entry(name, size, replace(ref, url=joined(f"s3://{bucket}/{below}".rstrip("/"), name)))


def _refusal(answer: Answer, ref: Ref, method: str) -> TransferError:
    if 300 <= answer.status < 400:
        region = answer.headers.get("x-amz-bucket-region") or "another one"
        words = f"{ref.url} is not in the region {_access(ref).region!r} but in {region}: mend `region`"
        return TransferError("unsupported", words, ref.url)
    body = "" if method == "HEAD" else answer.text()
    return failure_of(answer, _signs(ref), ": ".join(value for _, value in _ERROR.findall(body)))
