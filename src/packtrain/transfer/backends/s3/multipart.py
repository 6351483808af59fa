"""A large file into S3, in parts: the object appears when all are there, or not at all.

Each part is checked by the server against a sha256 (or an MD5, where it takes no other) and by us against the ETag that
it answers. An upload that was cut off goes on with the parts that the server holds: one of this process, or another's
of the very same file. Whatever else is on its way to the key is somebody else's, and is left alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location
from packtrain.transfer.backends.s3.client import S3Client, bucket_url, object_url, parse_bucket_and_key, parse_xml
from packtrain.transfer.digests import Digests
from packtrain.transfer.http.client import Response
from packtrain.transfer.http.request_body import FileSlice, RequestBodyReader, open_body
from packtrain.transfer.progress import OnBytesSent
from packtrain.transfer.retry import PERMANENT_KINDS

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MIB = 1 << 20
PART_BYTES = 16 * MIB
_MAX_PARTS = 10_000
_MAX_PARALLEL_PARTS = 4
_READ_BLOCK_BYTES = MIB
_SHA256_CHECKSUM_HEADERS = {"x-amz-checksum-algorithm": "SHA256"}
_MD5_ETAG = re.compile(r"[0-9a-f]{32}$")
# With keys of its own the server's ETag is no MD5 of the data.
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
    """One that was begun; `held` parts of it are known by number to size and ETag."""

    id: str
    uses_sha256: bool  # whether the server takes a sha256 with each part
    uploaded_parts: Mapping[int, tuple[int, str]]


_unfinished_uploads: dict[
    str, list[str]
] = {}  # uploads of this process that were begun and not ended, by the object's address
_is_adoption_disabled = False


def disable_upload_adoption() -> None:
    """For a process beside which others may put other contents at the same addresses, as attempts of one job do. Files
    that only begin alike would get into each other's uploads, so it goes on with none but its own."""
    global _is_adoption_disabled
    _is_adoption_disabled = True


def put(client: S3Client, location: Location, path: Path, on_bytes_sent: OnBytesSent) -> None:
    work = _MultipartUploader(client, location, path, on_bytes_sent)
    upload = work.find_resumable() or work.create_upload()
    try:
        work.complete_upload(upload, work.upload_parts(upload))
    except TransferError as error:
        if error.kind in PERMANENT_KINDS:
            _abort_upload(client, location, upload.id)
        raise
    _untrack_upload(location, upload.id)


def abort_uploads(client: S3Client, location: Location) -> None:
    for upload in list(_unfinished_uploads.get(object_url(location), ())):
        _abort_upload(client, location, upload)


def _untrack_upload(location: Location, upload_id: str) -> None:
    left = [other for other in _unfinished_uploads.pop(object_url(location), ()) if other != upload_id]
    if left:
        _unfinished_uploads[object_url(location)] = left


def split_into_slices(path: Path) -> list[FileSlice]:
    """The file in pieces that depend on its size alone, so that another process cuts it in the same way."""
    size = path.stat().st_size
    least = -(-size // _MAX_PARTS)
    step = max(PART_BYTES, -(-least // MIB) * MIB)
    return [FileSlice(path, start, min(step, size - start)) for start in range(0, size, step)]


def compute_digests(file_slice: FileSlice) -> BodyDigests:
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
    """What the server says that it stored must be what we sent."""
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
    words = f"{location.url}: what was sent arrived with {actual}, not {expected}: it was damaged on its way"
    return TransferError("digest_mismatch", words, location.url)


class _MultipartUploader:
    def __init__(self, client: S3Client, location: Location, path: Path, on_bytes_sent: OnBytesSent) -> None:
        self._client, self._location, self._slices = client, location, split_into_slices(path)
        self._on_bytes_sent = on_bytes_sent
        self._digests_by_part: dict[int, BodyDigests] = {}

    def find_resumable(self) -> MultipartUpload | None:
        """One to go on with: ours, or one that holds some of the very parts that we would send."""
        for upload in reversed(_unfinished_uploads.get(object_url(self._location), [])):
            mine = self._load_upload(upload)
            if mine is not None and all(number <= len(self._slices) for number in mine.uploaded_parts):
                return mine
            _abort_upload(self._client, self._location, upload)
        return None if _is_adoption_disabled else self._find_adoptable()

    def _find_adoptable(self) -> MultipartUpload | None:
        for upload in reversed(_list_uploads(self._client, self._location)):
            its = self._load_upload(upload)
            if (
                its is not None
                and its.uploaded_parts
                and all(map(self._matches_slice, its.uploaded_parts, its.uploaded_parts.values()))
            ):
                self._track_upload(upload)
                return its
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
        """None if it has ended meanwhile, or may not be looked at."""
        held: dict[int, tuple[int, str]] = {}
        query = {"uploadId": upload_id}
        try:
            while True:
                page = self._client.request_xml(self._location, "GET", object_url(self._location, query))
                held.update(_parse_parts(page))
                if page.findtext("{*}IsTruncated") != "true":
                    break
                query = {**query, "part-number-marker": page.findtext("{*}NextPartNumberMarker") or ""}
        except TransferError as error:
            if error.kind in ("object_missing", "access_denied"):
                return None
            raise
        # Not every server says; most likely it was begun by us, with sha256.
        return MultipartUpload(upload_id, (page.findtext("{*}ChecksumAlgorithm") or "SHA256") == "SHA256", held)

    def create_upload(self) -> MultipartUpload:
        url = object_url(self._location, {"uploads": ""})
        answer = self._client.request(
            self._location, "POST", url, _SHA256_CHECKSUM_HEADERS, expected_statuses=(200, 400, 501)
        )
        if answer.status != 200:  # it does not know these checksums
            answer.close()
            answer = self._client.request(self._location, "POST", url)
        try:
            upload = parse_xml(answer, self._location).findtext("{*}UploadId") or ""
        finally:
            answer.close()
        self._track_upload(upload)
        return MultipartUpload(upload, answer.headers.get("x-amz-checksum-algorithm") == "SHA256", {})

    def upload_parts(self, upload: MultipartUpload) -> list[UploadedPart]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_MAX_PARALLEL_PARTS) as pool:
            waiting = [
                pool.submit(self._upload_part, upload, number, piece)
                for number, piece in enumerate(self._slices, start=1)
            ]
            try:
                return [future.result() for future in waiting]
            except BaseException:
                for future in waiting:
                    future.cancel()
                raise

    def _upload_part(self, upload: MultipartUpload, number: int, file_slice: FileSlice) -> UploadedPart:
        sums = self._part_digests(number)
        if upload.uploaded_parts.get(number) == (file_slice.length, sums.md5):
            self._on_bytes_sent(file_slice.length)
            return UploadedPart(number, sums.md5, sums)
        headers = (
            {"x-amz-checksum-sha256": sums.sha256_base64} if upload.uses_sha256 else {"Content-MD5": sums.md5_base64}
        )
        url = object_url(self._location, {"partNumber": str(number), "uploadId": upload.id})
        answer = self._client.request(
            self._location,
            "PUT",
            url,
            headers,
            body=file_slice,
            body_sha256=sums.sha256,
            on_bytes_sent=self._on_bytes_sent,
        )
        answer.close()
        verify_stored(answer, sums, self._location)
        return UploadedPart(number, (answer.headers.get("ETag") or "").strip('"'), sums)

    def complete_upload(self, upload: MultipartUpload, parts: list[UploadedPart]) -> None:
        try:
            self._send_completion(upload, parts)
        except TransferError:
            if not self._is_stored(parts):
                raise

    def _send_completion(self, upload: MultipartUpload, parts: list[UploadedPart]) -> None:
        import hashlib

        body = _completion_xml(parts, upload.uses_sha256).encode()
        url, sha256 = object_url(self._location, {"uploadId": upload.id}), hashlib.sha256(body).hexdigest()
        answer = self._client.request(
            self._location, "POST", url, body=body, body_sha256=sha256, expected_statuses=(200, 400)
        )
        try:
            root = parse_xml(answer, self._location)
        finally:
            answer.close()
        if root.tag.rpartition("}")[2] == "Error":  # S3 may answer 200 before it knows
            _abort_upload(self._client, self._location, upload.id)
            words = (
                f"{self._location.url}: the parts do not fit together ({root.findtext('{*}Message')}) and are sent anew"
            )
            raise TransferError("service_unavailable", words, self._location.url)

    def _is_stored(self, parts: list[UploadedPart]) -> bool:
        """Whether the object is there although the answer that says so was lost."""
        answer = self._client.request(self._location, "HEAD", object_url(self._location), expected_statuses=(200, 404))
        answer.close()
        return answer.status == 200 and (answer.headers.get("ETag") or "").strip('"') == multipart_etag(parts)


def multipart_etag(parts: list[UploadedPart]) -> str:
    """What S3 calls an object that was put in parts: the MD5 of their MD5s, and their number."""
    digests = Digests(Digest("md5", ""))
    for part in parts:
        digests.update(bytes.fromhex(part.digests.md5))
    return f"{digests.hexdigest('md5')}-{len(parts)}"


def _completion_xml(parts: list[UploadedPart], uses_sha256: bool) -> str:
    rows = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>&quot;{part.etag}&quot;</ETag>"
        + (f"<ChecksumSHA256>{part.digests.sha256_base64}</ChecksumSHA256>" if uses_sha256 else "")
        + "</Part>"
        for part in parts
    )
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<CompleteMultipartUpload xmlns="{space}">{rows}</CompleteMultipartUpload>'


def _list_uploads(client: S3Client, location: Location) -> list[str]:
    """Uploads of this very key that were begun and not ended, oldest first."""
    key = parse_bucket_and_key(location)[1]
    try:
        page = client.request_xml(location, "GET", bucket_url(location, {"uploads": "", "prefix": key}))
    except TransferError as error:
        if error.kind in ("access_denied", "unsupported"):
            return []  # who may put need not be allowed to list
        raise
    found = [
        (item.findtext("{*}Initiated") or "", item.findtext("{*}UploadId") or "")
        for item in page.iterfind("{*}Upload")
        if item.findtext("{*}Key") == key
    ]
    return [upload for _, upload in sorted(found)]


def _parse_parts(page: Element) -> Iterator[tuple[int, tuple[int, str]]]:
    for item in page.iterfind("{*}Part"):
        etag = (item.findtext("{*}ETag") or "").strip('"')
        yield int(item.findtext("{*}PartNumber") or 0), (int(item.findtext("{*}Size") or 0), etag)


def _abort_upload(client: S3Client, location: Location, upload_id: str) -> None:
    _untrack_upload(location, upload_id)
    url = object_url(location, {"uploadId": upload_id})
    client.request(
        location, "DELETE", url, expected_statuses=(200, 204, 403, 404)
    ).close()  # who may put need not be allowed to
