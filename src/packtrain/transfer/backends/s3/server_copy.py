"""Copy an object within S3, without its bytes passing through this machine.

The source is named with its ETag, so that a source that changes meanwhile is not copied. Afterwards the copy is
compared: its SHA-256, if the server states one, or else its ETag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location
from packtrain.transfer.backends.s3.client import S3Client, object_url, parse_bucket_and_key, parse_xml
from packtrain.transfer.backends.s3.multipart import (
    abort_upload,
    completion_xml,
    parse_reply,
    split_size,
)
from packtrain.transfer.http.response import parse_object_info

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_COPY_BYTES = 5 << 30  # of one CopyObject; larger objects are copied in parts
_MAX_PARALLEL_PARTS = 4


@dataclass(frozen=True)
class _StoredObject:
    size: int
    etag: str
    sha256: str  # "" if the server states none of the whole object


def copy(
    client: S3Client,
    source: Location,
    target: Location,
    digest: Digest | None = None,
    max_copy_bytes: int = _MAX_COPY_BYTES,
) -> bool:
    """Copy an object and return whether the server showed that the copy equals it; `Sink.copy` explains the rest."""
    original = _stat(client, source)
    if original.size > max_copy_bytes:
        _copy_parts(client, source, target, original)
    else:
        headers = {**_source_headers(source, original), "x-amz-checksum-algorithm": "SHA256"}
        _send(client, target, "PUT", object_url(target), headers)
    sha256 = digest.value if digest and digest.algorithm == "sha256" else original.sha256
    return _is_equal(_stat(client, target), original, sha256, target)


def _stat(client: S3Client, location: Location) -> _StoredObject:
    response = client.request(location, "HEAD", object_url(location), {"x-amz-checksum-mode": "ENABLED"})
    response.close()
    info = parse_object_info(response)
    sha256 = info.digest.value if info.digest and info.digest.algorithm == "sha256" else ""
    return _StoredObject(info.size or 0, (info.etag or "").strip('"'), sha256)


def _source_headers(source: Location, original: _StoredObject) -> dict[str, str]:
    bucket, key = parse_bucket_and_key(source)
    headers = {"x-amz-copy-source": quote(f"/{bucket}/{key}", safe="/-_.~")}
    return {**headers, "x-amz-copy-source-if-match": f'"{original.etag}"'} if original.etag else headers


def _send(client: S3Client, location: Location, method: str, url: str, headers: dict[str, str]) -> Element:
    """Send a copy request. Its status is 200 before the server knows whether it succeeds, so the answer is read."""
    response = client.request(location, method, url, headers)
    try:
        return parse_reply(parse_xml(response, location), location, "could not copy the object")
    finally:
        response.close()


def _copy_parts(client: S3Client, source: Location, target: Location, original: _StoredObject) -> None:
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    created = _send(client, target, "POST", object_url(target, {"uploads": ""}), {})
    upload_id = created.findtext("{*}UploadId") or ""
    headers = _source_headers(source, original)

    def copy_part(number: int, start: int, length: int) -> tuple[int, str]:
        url = object_url(target, {"partNumber": str(number), "uploadId": upload_id})
        byte_range = {"x-amz-copy-source-range": f"bytes={start}-{start + length - 1}"}
        copied = _send(client, target, "PUT", url, {**headers, **byte_range})
        return number, (copied.findtext("{*}ETag") or "").strip('"')

    try:
        with ThreadPoolExecutor(_MAX_PARALLEL_PARTS) as pool:
            futures = [pool.submit(copy_part, n, *span) for n, span in enumerate(split_size(original.size), start=1)]
            body = completion_xml([(*future.result(), None) for future in futures]).encode()
        url = object_url(target, {"uploadId": upload_id})
        response = client.request(target, "POST", url, body=body, body_sha256=hashlib.sha256(body).hexdigest())
        try:
            parse_reply(parse_xml(response, target), target, "could not join the parts of the copy")
        finally:
            response.close()
    except BaseException:
        abort_upload(client, target, upload_id)
        raise


def _is_equal(copied: _StoredObject, original: _StoredObject, sha256: str, target: Location) -> bool:
    if copied.size != original.size:
        difference = f"{copied.size} bytes instead of {original.size}"
    elif copied.sha256 and sha256 and copied.sha256 != sha256:
        difference = f"the sha256 {copied.sha256} instead of {sha256}"
    else:
        return copied.sha256 == sha256 != "" or copied.etag == original.etag != ""
    message = f"{target.url}: the copy on the server has {difference}"
    raise TransferError("digest_mismatch", message, target.url)
