"""Upload a large file to S3 in parts; the object appears only when all parts are stored.

The server checks each part against a SHA-256 (or an MD5, if it supports nothing else), and the client checks the ETag
of the response. An interrupted upload is resumed with the parts that the server has: an upload of this process, or of
another process for an identical file. Other uploads to the same key are not touched.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location
from packtrain.transfer.backends.s3.client import S3Client, bucket_url, object_url, parse_bucket_and_key, parse_xml
from packtrain.transfer.http.client import Response
from packtrain.transfer.http.headers import parse_number
from packtrain.transfer.http.request_body import FileSlice, RequestBodyReader, open_body
from packtrain.transfer.integrity.digests import Digests
from packtrain.transfer.progress import OnBytesSent
from packtrain.transfer.retry import PERMANENT_KINDS
from packtrain.transfer.tasks.cancellation import inherit_scope

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MIB = 1 << 20
PART_BYTES = 16 * MIB
_MAX_PARTS = 10_000
_MAX_PARALLEL_PARTS = 4
_READ_BLOCK_BYTES = MIB
_SHA256_CHECKSUM_HEADERS = {"x-amz-checksum-algorithm": "SHA256"}
_MD5_ETAG = re.compile(r"[0-9a-f]{32}$")
# With KMS encryption the ETag is not the MD5 of the data.
_KMS_ENCRYPTIONS = ("aws:kms", "aws:kms:dsse")


@dataclass(frozen=True)
class BodyDigests:
    """Digests of a body, in hex."""

    sha256: str
    md5: str

    @property
    def sha256_base64(self) -> str:
        return base64.b64encode(bytes.fromhex(self.sha256)).decode()

    @property
    def md5_base64(self) -> str:
        return base64.b64encode(bytes.fromhex(self.md5)).decode()


@dataclass(frozen=True)
class UploadedPart:
    """A part that the server holds."""

    number: int
    etag: str
    digests: BodyDigests


@dataclass(frozen=True)
class MultipartUpload:
    """A multipart upload in progress; `uploaded_parts` maps part numbers to size and ETag."""

    id: str
    uses_sha256: bool  # whether the server accepts a SHA-256 with each part
    uploaded_parts: Mapping[int, tuple[int, str]]


_unfinished_uploads: dict[str, list[str]] = {}  # upload ids of this process by object URL


def put(client: S3Client, location: Location, path: Path, on_bytes_sent: OnBytesSent, adopt_uploads: bool) -> None:
    """Upload a file in parts, resuming an unfinished upload if there is one; `Sink.put` explains the arguments."""
    uploader = _MultipartUploader(client, location, path, on_bytes_sent)
    upload = uploader.find_resumable(adopt_uploads) or uploader.create_upload()
    try:
        uploader.complete_upload(upload, uploader.upload_parts(upload))
    except TransferError as error:
        if error.kind in PERMANENT_KINDS:
            abort_upload(client, location, upload.id)
        raise
    _untrack_upload(location, upload.id)


def abort_uploads(client: S3Client, location: Location) -> None:
    """Abort this process's unfinished uploads of an object."""
    for upload_id in list(_unfinished_uploads.get(object_url(location), ())):
        abort_upload(client, location, upload_id)


def _untrack_upload(location: Location, upload_id: str) -> None:
    remaining = [other for other in _unfinished_uploads.pop(object_url(location), ()) if other != upload_id]
    if remaining:
        _unfinished_uploads[object_url(location)] = remaining


def split_into_slices(path: Path) -> list[FileSlice]:
    """Split a file into slices that depend only on its size, so that every process splits it in the same way."""
    return [FileSlice(path, start, length) for start, length in split_size(path.stat().st_size)]


def split_size(size: int) -> list[tuple[int, int]]:
    """Return start and length of each part of an object of this size."""
    min_bytes = -(-size // _MAX_PARTS)
    part_bytes = max(PART_BYTES, -(-min_bytes // MIB) * MIB)
    return [(start, min(part_bytes, size - start)) for start in range(0, size, part_bytes)]


def compute_digests(file_slice: FileSlice) -> BodyDigests:
    """Return the SHA-256 and MD5 of a slice of a file."""
    digests = Digests(Digest("md5", ""))
    with open_body(file_slice) as body:
        for block in _read_blocks(body):
            digests.update(block)
    return BodyDigests(digests.hexdigest("sha256"), digests.hexdigest("md5"))


def _read_blocks(body: RequestBodyReader) -> Iterator[bytes]:
    while True:
        block = body.read(_READ_BLOCK_BYTES)
        if not block:
            return
        yield block


def verify_stored(response: Response, digests: BodyDigests, location: Location) -> None:
    """Check that the server stored what was sent. Raises TransferError("digest_mismatch")."""
    stated = response.headers.get("x-amz-checksum-sha256")
    if stated == digests.sha256_base64:
        return
    if stated is not None:
        raise _corruption_error(location, f"the sha256 {stated}", digests.sha256_base64)
    etag = (response.headers.get("ETag") or "").strip('"')
    if response.headers.get("x-amz-server-side-encryption") in _KMS_ENCRYPTIONS or not _MD5_ETAG.match(etag):
        return
    if etag != digests.md5:
        raise _corruption_error(location, f"the ETag {etag}", digests.md5)


def _corruption_error(location: Location, actual: str, expected: str) -> TransferError:
    message = f"{location.url}: the server stored {actual} instead of {expected}; the upload was corrupted"
    return TransferError("digest_mismatch", message, location.url)


class _MultipartUploader:
    def __init__(self, client: S3Client, location: Location, path: Path, on_bytes_sent: OnBytesSent) -> None:
        self._client, self._location, self._slices = client, location, split_into_slices(path)
        self._on_bytes_sent = on_bytes_sent
        self._digests_by_part: dict[int, BodyDigests] = {}

    def find_resumable(self, adopt_uploads: bool) -> MultipartUpload | None:
        """Return an upload to resume: one of this process, or with `adopt_uploads` any with identical parts."""
        for upload_id in reversed(_unfinished_uploads.get(object_url(self._location), [])):
            upload = self._load_upload(upload_id)
            if upload is not None and all(number <= len(self._slices) for number in upload.uploaded_parts):
                return upload
            abort_upload(self._client, self._location, upload_id)
        return self._find_adoptable() if adopt_uploads else None

    def _find_adoptable(self) -> MultipartUpload | None:
        for upload_id in reversed(_list_uploads(self._client, self._location)):
            upload = self._load_upload(upload_id)
            parts = upload.uploaded_parts if upload is not None else {}
            if parts and all(map(self._matches_slice, parts, parts.values())):
                self._track_upload(upload_id)
                return upload
        return None

    def _matches_slice(self, number: int, uploaded: tuple[int, str]) -> bool:
        if number > len(self._slices) or uploaded[0] != self._slices[number - 1].length:
            return False
        return uploaded[1] == self._part_digests(number).md5

    def _track_upload(self, upload_id: str) -> None:
        _unfinished_uploads.setdefault(object_url(self._location), []).append(upload_id)

    def _part_digests(self, number: int) -> BodyDigests:
        if number not in self._digests_by_part:
            self._digests_by_part[number] = compute_digests(self._slices[number - 1])
        return self._digests_by_part[number]

    def _load_upload(self, upload_id: str) -> MultipartUpload | None:
        """Return an upload with its parts, or None if it has ended or is not accessible."""
        parts: dict[int, tuple[int, str]] = {}
        query = {"uploadId": upload_id}
        try:
            while True:
                page = self._client.request_xml(self._location, "GET", object_url(self._location, query))
                parts.update(_parse_parts(page))
                if page.findtext("{*}IsTruncated") != "true":
                    break
                query = {**query, "part-number-marker": page.findtext("{*}NextPartNumberMarker") or ""}
        except TransferError as error:
            if error.kind in ("object_missing", "access_denied"):
                return None
            raise
        # Servers that do not state the algorithm most likely have an upload of packtrain, with SHA-256.
        return MultipartUpload(upload_id, (page.findtext("{*}ChecksumAlgorithm") or "SHA256") == "SHA256", parts)

    def create_upload(self) -> MultipartUpload:
        url = object_url(self._location, {"uploads": ""})
        response = self._client.request(
            self._location, "POST", url, _SHA256_CHECKSUM_HEADERS, expected_statuses=(200, 400, 501)
        )
        if response.status != 200:  # the server does not support these checksums
            response.close()
            response = self._client.request(self._location, "POST", url)
        try:
            upload_id = parse_xml(response, self._location).findtext("{*}UploadId") or ""
        finally:
            response.close()
        self._track_upload(upload_id)
        return MultipartUpload(upload_id, response.headers.get("x-amz-checksum-algorithm") == "SHA256", {})

    def upload_parts(self, upload: MultipartUpload) -> list[UploadedPart]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_MAX_PARALLEL_PARTS) as pool:
            futures = [
                pool.submit(inherit_scope(partial(self._upload_part, upload, number, file_slice)))
                for number, file_slice in enumerate(self._slices, start=1)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _upload_part(self, upload: MultipartUpload, number: int, file_slice: FileSlice) -> UploadedPart:
        digests = self._part_digests(number)
        if upload.uploaded_parts.get(number) == (file_slice.length, digests.md5):
            self._on_bytes_sent(file_slice.length)
            return UploadedPart(number, digests.md5, digests)
        headers = (
            {"x-amz-checksum-sha256": digests.sha256_base64}
            if upload.uses_sha256
            else {"Content-MD5": digests.md5_base64}
        )
        url = object_url(self._location, {"partNumber": str(number), "uploadId": upload.id})
        response = self._client.request(
            self._location,
            "PUT",
            url,
            headers,
            body=file_slice,
            body_sha256=digests.sha256,
            on_bytes_sent=self._on_bytes_sent,
        )
        response.close()
        verify_stored(response, digests, self._location)
        return UploadedPart(number, (response.headers.get("ETag") or "").strip('"'), digests)

    def complete_upload(self, upload: MultipartUpload, parts: list[UploadedPart]) -> None:
        try:
            self._send_completion(upload, parts)
        except TransferError:
            if not self._is_stored(parts):
                raise

    def _send_completion(self, upload: MultipartUpload, parts: list[UploadedPart]) -> None:
        import hashlib

        checksums = [part.digests.sha256_base64 if upload.uses_sha256 else None for part in parts]
        body = completion_xml([(p.number, p.etag, checksum) for p, checksum in zip(parts, checksums)]).encode()
        url, sha256 = object_url(self._location, {"uploadId": upload.id}), hashlib.sha256(body).hexdigest()
        response = self._client.request(
            self._location, "POST", url, body=body, body_sha256=sha256, expected_statuses=(200, 400)
        )
        try:
            root = parse_xml(response, self._location)
        finally:
            response.close()
        try:
            parse_reply(root, self._location, "rejected the parts, which are uploaded again")
        except TransferError:
            abort_upload(self._client, self._location, upload.id)
            raise

    def _is_stored(self, parts: list[UploadedPart]) -> bool:
        """Whether the object is there although the response that says so was lost."""
        response = self._client.request(
            self._location, "HEAD", object_url(self._location), expected_statuses=(200, 404)
        )
        response.close()
        return response.status == 200 and (response.headers.get("ETag") or "").strip('"') == multipart_etag(parts)


def multipart_etag(parts: list[UploadedPart]) -> str:
    """Return the ETag of a multipart object: the MD5 of the parts' MD5s, and their number."""
    digests = Digests(Digest("md5", ""))
    for part in parts:
        digests.update(bytes.fromhex(part.digests.md5))
    return f"{digests.hexdigest('md5')}-{len(parts)}"


def completion_xml(parts: Iterable[tuple[int, str, str | None]]) -> str:
    """Return the document that completes an upload of parts, each with its number, ETag and perhaps SHA-256."""
    rows = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etag}&quot;</ETag>"
        + (f"<ChecksumSHA256>{sha256_base64}</ChecksumSHA256>" if sha256_base64 else "")
        + "</Part>"
        for number, etag, sha256_base64 in parts
    )
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<CompleteMultipartUpload xmlns="{namespace}">{rows}</CompleteMultipartUpload>'


def parse_reply(root: Element, location: Location, problem: str) -> Element:
    """Return the document. Raises TransferError if it is an error: S3 may answer 200 before it knows."""
    if root.tag.rpartition("}")[2] != "Error":
        return root
    message = f"{location.url}: the server {problem} ({root.findtext('{*}Message') or root.findtext('{*}Code')})"
    raise TransferError("service_unavailable", message, location.url)


def _list_uploads(client: S3Client, location: Location) -> list[str]:
    """Return the ids of unfinished uploads of this key, oldest first."""
    key = parse_bucket_and_key(location)[1]
    try:
        page = client.request_xml(location, "GET", bucket_url(location, {"uploads": "", "prefix": key}))
    except TransferError as error:
        if error.kind in ("access_denied", "unsupported"):
            return []  # write access does not imply permission to list
        raise
    uploads = [
        (item.findtext("{*}Initiated") or "", item.findtext("{*}UploadId") or "")
        for item in page.iterfind("{*}Upload")
        if item.findtext("{*}Key") == key
    ]
    return [upload_id for _, upload_id in sorted(uploads)]


def _parse_parts(page: Element) -> Iterator[tuple[int, tuple[int, str]]]:
    for item in page.iterfind("{*}Part"):
        etag = (item.findtext("{*}ETag") or "").strip('"')
        number, size = (parse_number(item.findtext(f"{{*}}{name}") or "") for name in ("PartNumber", "Size"))
        yield number or 0, (size or 0, etag)


def abort_upload(client: S3Client, location: Location, upload_id: str) -> None:
    _untrack_upload(location, upload_id)
    url = object_url(location, {"uploadId": upload_id})
    # Write access does not imply permission to abort, so 403 is accepted.
    client.request(location, "DELETE", url, expected_statuses=(200, 204, 403, 404)).close()
