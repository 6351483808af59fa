"""Send signed requests to S3: build URLs, sign headers, map errors."""

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
_MAX_DOCUMENT_BYTES = 1 << 24  # a list of 1,000 keys has less than a tenth
_EMPTY_MAPPING: Mapping[str, str] = {}


class S3Client:
    """Sends signed requests."""

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
        """Send a request and return the response. Raises TransferError for unexpected statuses."""
        secrets = self._sign(require_s3_access(location), method, url, headers, body_sha256)
        response = send_request(Request(url, method, headers, secrets, body, on_bytes_sent), max_redirects=0)
        if response.status in expected_statuses:
            return response
        try:
            raise _make_error(response, location, method)
        finally:
            response.close()

    def request_xml(self, location: Location, method: str, url: str) -> Element:
        """Send a request and return the XML document of the response."""
        response = self.request(location, method, url)
        try:
            return parse_xml(response, location)
        finally:
            response.close()

    def _sign(
        self, access: S3Access, method: str, url: str, headers: Mapping[str, str], body_sha256: str
    ) -> dict[str, str]:
        """Return the signature headers, or {} without keys. Keys are read for each request, as they may be renewed."""
        if access.access_key is None or access.secret_key is None:
            return {}
        session = self._resolve_secret(access.session_token).strip() if access.session_token is not None else None
        credentials = AwsCredentials(
            self._resolve_secret(access.access_key).strip(), self._resolve_secret(access.secret_key).strip(), session
        )
        timestamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return sign_headers(method, url, headers, body_sha256, credentials, access.region, timestamp)


def parse_xml(response: Response, location: Location) -> Element:
    """Parse the body of a response. Raises TransferError if it is not XML."""
    from xml.etree import ElementTree

    try:
        # The document comes from the user's own endpoint, and expat limits entity expansion.
        return ElementTree.fromstring(response.read_text(max_bytes=_MAX_DOCUMENT_BYTES))  # noqa: S314
    except ElementTree.ParseError as error:
        message = f"{location.url}: the response is not S3's XML ({error}); check the endpoint"
        raise TransferError("unexpected_content", message, location.url) from error


def require_s3_access(location: Location) -> S3Access:
    """Return the S3 access of a location. Raises TransferError without one."""
    if location.s3 is None:
        raise TransferError("unsupported", f"{location.url} has no S3 endpoint and region", location.url)
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
    query_string = f"?{urlencode(sorted(query.items()), quote_via=quote)}" if query else ""
    return f"{_bucket_base_url(access.endpoint, bucket)}/{quote(key, safe='/-_.~')}{query_string}"


def _bucket_base_url(endpoint_url: str, bucket: str) -> str:
    """Return the base URL of a bucket.

    It has path style, except at AWS (unless dots in the name would break TLS) and if the endpoint's host already names
    the bucket.
    """
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
        message = (
            f"{location.url} is in the region {region}, not {require_s3_access(location).region!r}; correct `region`"
        )
        return TransferError("unsupported", message, location.url)
    body = "" if method == "HEAD" else response.read_explanation()
    return error_from_response(
        response, is_signed(location), ": ".join(value for _, value in _ERROR_FIELD.findall(body))
    )
