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
from packtrain.plan import Digest, Ref
from packtrain.transfer.backends.s3.client import Wire, bucket_and_key, bucket_url, object_url, parsed
from packtrain.transfer.digests import Digests
from packtrain.transfer.http.client import Answer
from packtrain.transfer.http.request_body import Outgoing, Piece, Sent, opened
from packtrain.transfer.retry import FOR_GOOD

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MIB = 1 << 20
PART_BYTES = 16 * MIB
_MOST_PARTS = 10_000
_AT_ONCE = 4
_READ_BLOCK = MIB
_CHECKED = {"x-amz-checksum-algorithm": "SHA256"}
_MD5_ETAG = re.compile(r"[0-9a-f]{32}$")
# With keys of its own the server's ETag is no MD5 of the data.
_ENCRYPTED = ("aws:kms", "aws:kms:dsse")


@dataclass(frozen=True)
class Sums:
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
class Part:
    """A part that the server holds."""

    number: int
    etag: str
    sums: Sums


@dataclass(frozen=True)
class Upload:
    """One that was begun; `held` parts of it are known by number to size and ETag."""

    id: str
    checked: bool  # whether the server takes a sha256 with each part
    held: Mapping[int, tuple[int, str]]


_ours: dict[str, list[str]] = {}  # uploads of this process that were begun and not ended, by the object's address
_has_rivals = False


def beware_of_rivals() -> None:
    """For a process beside which others may put other contents at the same addresses, as attempts of one job do. Files
    that only begin alike would get into each other's uploads, so it goes on with none but its own."""
    global _has_rivals
    _has_rivals = True


def put(wire: Wire, ref: Ref, path: Path, sent: Sent) -> None:
    work = _Multipart(wire, ref, path, sent)
    upload = work.found() or work.begun()
    try:
        work.complete(upload, work.parts(upload))
    except TransferError as error:
        if error.kind in FOR_GOOD:
            _abort(wire, ref, upload.id)
        raise
    _forget(ref, upload.id)


def abandon(wire: Wire, ref: Ref) -> None:
    for upload in list(_ours.get(object_url(ref), ())):
        _abort(wire, ref, upload)


def _forget(ref: Ref, upload: str) -> None:
    left = [other for other in _ours.pop(object_url(ref), ()) if other != upload]
    if left:
        _ours[object_url(ref)] = left


def cut(path: Path) -> list[Piece]:
    """The file in pieces that depend on its size alone, so that another process cuts it in the same way."""
    size = path.stat().st_size
    least = -(-size // _MOST_PARTS)
    step = max(PART_BYTES, -(-least // MIB) * MIB)
    return [Piece(path, start, min(step, size - start)) for start in range(0, size, step)]


def sums_of(piece: Piece) -> Sums:
    digests = Digests(Digest("md5", ""))
    with opened(piece) as body:
        for block in _blocks(body):
            digests.update(block)
    return Sums(digests.value("sha256"), digests.value("md5"))


def _blocks(body: Outgoing) -> Iterator[bytes]:
    while True:
        block = body.read(_READ_BLOCK)
        if not block:
            return
        yield block


def check(answer: Answer, sums: Sums, ref: Ref) -> None:
    """What the server says that it stored must be what we sent."""
    stated = answer.headers.get("x-amz-checksum-sha256")
    if stated == sums.sha256_base64:
        return
    if stated is not None:
        raise _damaged(ref, f"the sha256 {stated}", sums.sha256_base64)
    etag = (answer.headers.get("ETag") or "").strip('"')
    if answer.headers.get("x-amz-server-side-encryption") in _ENCRYPTED or not _MD5_ETAG.match(etag):
        return
    if etag != sums.md5:
        raise _damaged(ref, f"the ETag {etag}", sums.md5)


def _damaged(ref: Ref, seen: str, wanted: str) -> TransferError:
    words = f"{ref.url}: what was sent arrived with {seen}, not {wanted}: it was damaged on its way"
    return TransferError("digest_mismatch", words, ref.url)


class _Multipart:
    def __init__(self, wire: Wire, ref: Ref, path: Path, sent: Sent) -> None:
        self._wire, self._ref, self._pieces = wire, ref, cut(path)
        self._sent = sent
        self._summed: dict[int, Sums] = {}

    def found(self) -> Upload | None:
        """One to go on with: ours, or one that holds some of the very parts that we would send."""
        for upload in reversed(_ours.get(object_url(self._ref), [])):
            mine = self._looked_at(upload)
            if mine is not None and all(number <= len(self._pieces) for number in mine.held):
                return mine
            _abort(self._wire, self._ref, upload)
        return None if _has_rivals else self._of_another()

    def _of_another(self) -> Upload | None:
        for upload in reversed(_uploads(self._wire, self._ref)):
            its = self._looked_at(upload)
            if its is not None and its.held and all(map(self._is_ours, its.held, its.held.values())):
                self._adopt(upload)
                return its
        return None

    def _is_ours(self, number: int, held: tuple[int, str]) -> bool:
        if number > len(self._pieces) or held[0] != self._pieces[number - 1].length:
            return False
        return held[1] == self._sums(number).md5

    def _adopt(self, upload: str) -> None:
        _ours.setdefault(object_url(self._ref), []).append(upload)

    def _sums(self, number: int) -> Sums:
        if number not in self._summed:
            self._summed[number] = sums_of(self._pieces[number - 1])
        return self._summed[number]

    def _looked_at(self, upload: str) -> Upload | None:
        """None if it has ended meanwhile, or may not be looked at."""
        held: dict[int, tuple[int, str]] = {}
        query = {"uploadId": upload}
        try:
            while True:
                page = self._wire.document(self._ref, "GET", object_url(self._ref, query))
                held.update(_held(page))
                if page.findtext("{*}IsTruncated") != "true":
                    break
                query = {**query, "part-number-marker": page.findtext("{*}NextPartNumberMarker") or ""}
        except TransferError as error:
            if error.kind in ("object_missing", "token_refused"):
                return None
            raise
        # Not every server says; most likely it was begun by us, with sha256.
        return Upload(upload, (page.findtext("{*}ChecksumAlgorithm") or "SHA256") == "SHA256", held)

    def begun(self) -> Upload:
        url = object_url(self._ref, {"uploads": ""})
        answer = self._wire.ask(self._ref, "POST", url, _CHECKED, accepted=(200, 400, 501))
        if answer.status != 200:  # it does not know these checksums
            answer.close()
            answer = self._wire.ask(self._ref, "POST", url)
        try:
            upload = parsed(answer, self._ref).findtext("{*}UploadId") or ""
        finally:
            answer.close()
        self._adopt(upload)
        return Upload(upload, answer.headers.get("x-amz-checksum-algorithm") == "SHA256", {})

    def parts(self, upload: Upload) -> list[Part]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            waiting = [
                pool.submit(self._part, upload, number, piece) for number, piece in enumerate(self._pieces, start=1)
            ]
            try:
                return [future.result() for future in waiting]
            except BaseException:
                for future in waiting:
                    future.cancel()
                raise

    def _part(self, upload: Upload, number: int, piece: Piece) -> Part:
        sums = self._sums(number)
        if upload.held.get(number) == (piece.length, sums.md5):
            self._sent(piece.length)
            return Part(number, sums.md5, sums)
        headers = {"x-amz-checksum-sha256": sums.sha256_base64} if upload.checked else {"Content-MD5": sums.md5_base64}
        url = object_url(self._ref, {"partNumber": str(number), "uploadId": upload.id})
        answer = self._wire.ask(self._ref, "PUT", url, headers, body=piece, sha256=sums.sha256, sent=self._sent)
        answer.close()
        check(answer, sums, self._ref)
        return Part(number, (answer.headers.get("ETag") or "").strip('"'), sums)

    def complete(self, upload: Upload, parts: list[Part]) -> None:
        try:
            self._join(upload, parts)
        except TransferError:
            if not self._stands(parts):
                raise

    def _join(self, upload: Upload, parts: list[Part]) -> None:
        import hashlib

        body = _manifest(parts, upload.checked).encode()
        url, sha256 = object_url(self._ref, {"uploadId": upload.id}), hashlib.sha256(body).hexdigest()
        answer = self._wire.ask(self._ref, "POST", url, body=body, sha256=sha256, accepted=(200, 400))
        try:
            root = parsed(answer, self._ref)
        finally:
            answer.close()
        if root.tag.rpartition("}")[2] == "Error":  # S3 may answer 200 before it knows
            _abort(self._wire, self._ref, upload.id)
            words = f"{self._ref.url}: the parts do not fit together ({root.findtext('{*}Message')}) and are sent anew"
            raise TransferError("service_unavailable", words, self._ref.url)

    def _stands(self, parts: list[Part]) -> bool:
        """Whether the object is there although the answer that says so was lost."""
        answer = self._wire.ask(self._ref, "HEAD", object_url(self._ref), accepted=(200, 404))
        answer.close()
        return answer.status == 200 and (answer.headers.get("ETag") or "").strip('"') == etag_of(parts)


def etag_of(parts: list[Part]) -> str:
    """What S3 calls an object that was put in parts: the MD5 of their MD5s, and their number."""
    digests = Digests(Digest("md5", ""))
    for part in parts:
        digests.update(bytes.fromhex(part.sums.md5))
    return f"{digests.value('md5')}-{len(parts)}"


def _manifest(parts: list[Part], checked: bool) -> str:
    rows = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>&quot;{part.etag}&quot;</ETag>"
        + (f"<ChecksumSHA256>{part.sums.sha256_base64}</ChecksumSHA256>" if checked else "")
        + "</Part>"
        for part in parts
    )
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<CompleteMultipartUpload xmlns="{space}">{rows}</CompleteMultipartUpload>'


def _uploads(wire: Wire, ref: Ref) -> list[str]:
    """Uploads of this very key that were begun and not ended, oldest first."""
    key = bucket_and_key(ref)[1]
    try:
        page = wire.document(ref, "GET", bucket_url(ref, {"uploads": "", "prefix": key}))
    except TransferError as error:
        if error.kind in ("token_refused", "unsupported"):
            return []  # who may put need not be allowed to list
        raise
    found = [
        (item.findtext("{*}Initiated") or "", item.findtext("{*}UploadId") or "")
        for item in page.iterfind("{*}Upload")
        if item.findtext("{*}Key") == key
    ]
    return [upload for _, upload in sorted(found)]


def _held(page: Element) -> Iterator[tuple[int, tuple[int, str]]]:
    for item in page.iterfind("{*}Part"):
        etag = (item.findtext("{*}ETag") or "").strip('"')
        yield int(item.findtext("{*}PartNumber") or 0), (int(item.findtext("{*}Size") or 0), etag)


def _abort(wire: Wire, ref: Ref, upload: str) -> None:
    _forget(ref, upload)
    url = object_url(ref, {"uploadId": upload})
    wire.ask(ref, "DELETE", url, accepted=(200, 204, 403, 404)).close()  # who may put need not be allowed to
