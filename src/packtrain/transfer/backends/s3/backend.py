"""Source and sink for s3://bucket/key URLs at any S3 endpoint. Keys in URLs are not percent-encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.plan import Digest, Location
from packtrain.transfer.api import FULL_RANGE, ByteRange, ListedObject, ObjectInfo, ObjectStream, SecretResolver
from packtrain.transfer.backends.http import range_header, stream_from_response
from packtrain.transfer.backends.s3 import multipart
from packtrain.transfer.backends.s3.client import S3Client, bucket_url, is_signed, object_url, parse_bucket_and_key
from packtrain.transfer.http.headers import parse_number
from packtrain.transfer.http.request_body import FileSlice
from packtrain.transfer.http.response import parse_object_info
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent
from packtrain.transfer.urls import check_listed_name, join_url

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_CHECKSUM_MODE_HEADERS = {"x-amz-checksum-mode": "ENABLED"}


class S3Backend:
    """Implements Source and Sink for S3."""

    def __init__(self, resolve_secret: SecretResolver) -> None:
        self._client = S3Client(resolve_secret)

    def stat(self, location: Location) -> ObjectInfo:
        response = self._client.request(location, "HEAD", object_url(location), _CHECKSUM_MODE_HEADERS)
        response.close()
        return parse_object_info(response)

    def fetch_digest(self, location: Location) -> Digest | None:
        """Return the digest of the object; responses to range requests do not include it."""
        return self.stat(location).digest

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> ObjectStream:
        headers = {**_CHECKSUM_MODE_HEADERS, **range_header(byte_range)}
        response = self._client.request(
            location, "GET", object_url(location), headers, expected_statuses=(200, 206, 416)
        )
        try:
            return stream_from_response(response, byte_range, is_signed(location))
        except BaseException:
            response.close()
            raise

    def list(self, location: Location) -> Iterator[ListedObject]:
        bucket, key = parse_bucket_and_key(location)
        prefix = f"{key.rstrip('/')}/" if key else ""
        query = {"list-type": "2", "prefix": prefix}
        while True:
            page = self._client.request_xml(location, "GET", bucket_url(location, query))
            yield from _parse_entries(page, location, bucket, prefix)
            token = page.findtext("{*}NextContinuationToken")
            if not token:
                return
            query = {**query, "continuation-token": token}

    def put(
        self,
        location: Location,
        path: Path,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        *,
        adopt_uploads: bool = True,
    ) -> None:
        """Upload a file; large ones in parts, which a later `put` of the same file reuses."""
        size = path.stat().st_size
        if size > multipart.PART_BYTES:
            multipart.put(self._client, location, path, on_bytes_sent, adopt_uploads)
            return
        digests = multipart.compute_digests(FileSlice(path, 0, size))
        headers = {"x-amz-checksum-sha256": digests.sha256_base64}
        response = self._client.request(
            location,
            "PUT",
            object_url(location),
            headers,
            body=path,
            body_sha256=digests.sha256,
            on_bytes_sent=on_bytes_sent,
        )
        response.close()
        multipart.verify_stored(response, digests, location)

    def copy(self, source: Location, target: Location, *, digest: Digest | None = None, may_move: bool = False) -> bool:
        from packtrain.transfer.backends.s3 import server_copy

        return server_copy.copy(self._client, source, target, digest)

    def abort_uploads(self, location: Location) -> None:
        """Abort this process's unfinished multipart uploads, so that they are no longer stored and billed."""
        multipart.abort_uploads(self._client, location)

    def delete(self, location: Location) -> None:
        self._client.request(location, "DELETE", object_url(location), expected_statuses=(200, 204, 404)).close()


def _parse_entries(page: Element, location: Location, bucket: str, prefix: str) -> Iterator[ListedObject]:
    for item in page.iterfind("{*}Contents"):
        key = item.findtext("{*}Key") or ""
        if key.endswith("/"):
            continue  # consoles write such markers for empty folders
        name = check_listed_name(key[len(prefix) :], location.url)
        size = parse_number(item.findtext("{*}Size") or "") or 0
        yield ListedObject(name, size, replace(location, url=join_url(f"s3://{bucket}/{prefix}".rstrip("/"), name)))
