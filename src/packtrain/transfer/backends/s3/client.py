"""Signed requests to S3: which URL, whose keys, what an error means. What is asked for is in `s3` and `multipart`."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Ref, S3Access
from packtrain.transfer.api import Reveal
from packtrain.transfer.backends.s3.sigv4 import EMPTY_SHA256, Keys, signed_headers
from packtrain.transfer.http.client import Answer, Request, send
from packtrain.transfer.http.request_body import Body, Sent, unwatched
from packtrain.transfer.http.response import failure_of

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ERROR = re.compile(r"<(Code|Message)>([^<]*)</")
_LONGEST_DOCUMENT = 1 << 26
_NO_HEADERS: Mapping[str, str] = {}


class Wire:
    """`ask` for an answer, `document` for an answer in XML."""

    def __init__(self, reveal: Reveal) -> None:
        self._reveal = reveal

    def ask(
        self,
        ref: Ref,
        method: str,
        url: str,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        body: Body | None = None,
        sha256: str = EMPTY_SHA256,
        sent: Sent = unwatched,
        accepted: tuple[int, ...] = (200, 204),
    ) -> Answer:
        """The answer, if its status is accepted; `sha256` is the body's."""
        secrets = self._signature(access_of(ref), method, url, headers, sha256)
        answer = send(Request(url, method, headers, secrets, body, sent), hops=0)
        if answer.status in accepted:
            return answer
        try:
            raise _refusal(answer, ref, method)
        finally:
            answer.close()

    def document(self, ref: Ref, method: str, url: str) -> Element:
        answer = self.ask(ref, method, url)
        try:
            return parsed(answer, ref)
        finally:
            answer.close()

    def _signature(
        self, access: S3Access, method: str, url: str, headers: Mapping[str, str], sha256: str
    ) -> dict[str, str]:
        """Made anew for each request: keys are renewed under a running job. Empty without keys."""
        if access.access_key is None or access.secret_key is None:
            return {}
        session = self._reveal(access.session_token).strip() if access.session_token is not None else None
        keys = Keys(self._reveal(access.access_key).strip(), self._reveal(access.secret_key).strip(), session)
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return signed_headers(method, url, headers, sha256, keys, access.region, moment)


def parsed(answer: Answer, ref: Ref) -> Element:
    from xml.etree import ElementTree

    try:
        # The document comes from the user's own endpoint, and expat bounds entity expansion.
        return ElementTree.fromstring(answer.text(limit=_LONGEST_DOCUMENT))  # noqa: S314
    except ElementTree.ParseError as error:
        words = f"{ref.url}: the answer is not the XML of S3 ({error}); is the endpoint right?"
        raise TransferError("not_the_data", words, ref.url) from error


def access_of(ref: Ref) -> S3Access:
    if ref.s3 is None:
        raise TransferError("unsupported", f"{ref.url} names no S3 endpoint and region", ref.url)
    return ref.s3


def signs(ref: Ref) -> bool:
    return access_of(ref).access_key is not None


def bucket_and_key(ref: Ref) -> tuple[str, str]:
    bucket, _, key = ref.url.partition("://")[2].partition("/")
    return bucket, key


def object_url(ref: Ref, query: Mapping[str, str] = _NO_HEADERS) -> str:
    bucket, key = bucket_and_key(ref)
    return _url(access_of(ref), bucket, key, query)


def bucket_url(ref: Ref, query: Mapping[str, str]) -> str:
    return _url(access_of(ref), bucket_and_key(ref)[0], "", query)


def _url(access: S3Access, bucket: str, key: str, query: Mapping[str, str]) -> str:
    asked = f"?{urlencode(sorted(query.items()), quote_via=quote)}" if query else ""
    return f"{_base(access.endpoint, bucket)}/{quote(key, safe='/-_.~')}{asked}"


def _base(address: str, bucket: str) -> str:
    """Path style, except where the bucket belongs in the host name: at AWS (unless dots in it would break TLS), and
    where the endpoint has it there already."""
    endpoint = urlsplit(address)
    host = endpoint.hostname or ""
    folder = endpoint.path.rstrip("/")
    if host.startswith(f"{bucket.lower()}."):
        return f"{endpoint.scheme}://{endpoint.netloc}{folder}"
    if host.endswith((".amazonaws.com", ".amazonaws.com.cn")) and "." not in bucket:
        return f"{endpoint.scheme}://{bucket}.{endpoint.netloc}{folder}"
    return f"{endpoint.scheme}://{endpoint.netloc}{folder}/{bucket}"


def _refusal(answer: Answer, ref: Ref, method: str) -> TransferError:
    if 300 <= answer.status < 400:
        region = answer.headers.get("x-amz-bucket-region") or "another one"
        words = f"{ref.url} is not in the region {access_of(ref).region!r} but in {region}: mend `region`"
        return TransferError("unsupported", words, ref.url)
    body = "" if method == "HEAD" else answer.text()
    return failure_of(answer, signs(ref), ": ".join(value for _, value in _ERROR.findall(body)))
