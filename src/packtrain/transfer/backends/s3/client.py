"""Signed requests to S3: which URL, whose keys, what an error means. What is asked for is in `s3` and `multipart`."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Location, S3Access
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.backends.s3.sigv4 import EMPTY_SHA256, AwsCredentials, sign_headers
from packtrain.transfer.http.client import Request, Response, send_request
from packtrain.transfer.http.request_body import RequestBody
from packtrain.transfer.http.response import error_from_response
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ERROR_FIELD = re.compile(r"<(Code|Message)>([^<]*)</")
_MAX_DOCUMENT_BYTES = 1 << 26
_EMPTY_MAPPING: Mapping[str, str] = {}


class S3Client:
    """`ask` for an answer, `document` for an answer in XML."""

    def __init__(self, resolve_secret: SecretResolver) -> None:
        self._resolve_secret = resolve_secret

    def request(
        self,
        location: Location,
        method: str,
        url: str,
        headers: Mapping[str, str] = _EMPTY_MAPPING,
        *,
        body: RequestBody | None = None,
        body_sha256: str = EMPTY_SHA256,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        expected_statuses: tuple[int, ...] = (200, 204),
    ) -> Response:
        """The answer, if its status is accepted; `sha256` is the body's."""
        secrets = self._sign(require_s3_access(location), method, url, headers, body_sha256)
        answer = send_request(Request(url, method, headers, secrets, body, on_bytes_sent), max_redirects=0)
        if answer.status in expected_statuses:
            return answer
        try:
            raise _make_error(answer, location, method)
        finally:
            answer.close()

    def request_xml(self, location: Location, method: str, url: str) -> Element:
        answer = self.request(location, method, url)
        try:
            return parse_xml(answer, location)
        finally:
            answer.close()

    def _sign(
        self, access: S3Access, method: str, url: str, headers: Mapping[str, str], body_sha256: str
    ) -> dict[str, str]:
        """Made anew for each request: keys are renewed under a running job. Empty without keys."""
        if access.access_key is None or access.secret_key is None:
            return {}
        session = self._resolve_secret(access.session_token).strip() if access.session_token is not None else None
        keys = AwsCredentials(
            self._resolve_secret(access.access_key).strip(), self._resolve_secret(access.secret_key).strip(), session
        )
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return sign_headers(method, url, headers, body_sha256, keys, access.region, moment)


def parse_xml(response: Response, location: Location) -> Element:
    from xml.etree import ElementTree

    try:
        # The document comes from the user's own endpoint, and expat bounds entity expansion.
        return ElementTree.fromstring(response.read_text(max_bytes=_MAX_DOCUMENT_BYTES))  # noqa: S314
    except ElementTree.ParseError as error:
        words = f"{location.url}: the answer is not the XML of S3 ({error}); is the endpoint right?"
        raise TransferError("unexpected_content", words, location.url) from error


def require_s3_access(location: Location) -> S3Access:
    if location.s3 is None:
        raise TransferError("unsupported", f"{location.url} names no S3 endpoint and region", location.url)
    return location.s3


def is_signed(location: Location) -> bool:
    return require_s3_access(location).access_key is not None


def parse_bucket_and_key(location: Location) -> tuple[str, str]:
    bucket, _, key = location.url.partition("://")[2].partition("/")
    return bucket, key


def object_url(location: Location, query: Mapping[str, str] = _EMPTY_MAPPING) -> str:
    bucket, key = parse_bucket_and_key(location)
    return _build_url(require_s3_access(location), bucket, key, query)


def bucket_url(location: Location, query: Mapping[str, str]) -> str:
    return _build_url(require_s3_access(location), parse_bucket_and_key(location)[0], "", query)


def _build_url(access: S3Access, bucket: str, key: str, query: Mapping[str, str]) -> str:
    asked = f"?{urlencode(sorted(query.items()), quote_via=quote)}" if query else ""
    return f"{_bucket_base_url(access.endpoint, bucket)}/{quote(key, safe='/-_.~')}{asked}"


def _bucket_base_url(endpoint_url: str, bucket: str) -> str:
    """Path style, except where the bucket belongs in the host name: at AWS (unless dots in it would break TLS), and
    where the endpoint has it there already."""
    endpoint = urlsplit(endpoint_url)
    host = endpoint.hostname or ""
    folder = endpoint.path.rstrip("/")
    if host.startswith(f"{bucket.lower()}."):
        return f"{endpoint.scheme}://{endpoint.netloc}{folder}"
    if host.endswith((".amazonaws.com", ".amazonaws.com.cn")) and "." not in bucket:
        return f"{endpoint.scheme}://{bucket}.{endpoint.netloc}{folder}"
    return f"{endpoint.scheme}://{endpoint.netloc}{folder}/{bucket}"


def _make_error(response: Response, location: Location, method: str) -> TransferError:
    if 300 <= response.status < 400:
        region = response.headers.get("x-amz-bucket-region") or "another one"
        words = (
            f"{location.url} is not in the region {require_s3_access(location).region!r} but in {region}: mend `region`"
        )
        return TransferError("unsupported", words, location.url)
    body = "" if method == "HEAD" else response.read_text()
    return error_from_response(
        response, is_signed(location), ": ".join(value for _, value in _ERROR_FIELD.findall(body))
    )
