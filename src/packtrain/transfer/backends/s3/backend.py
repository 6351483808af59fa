"""s3://bucket/key as source and sink, at any endpoint that speaks S3.

Keys are written in addresses as they are, not percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.plan import Digest, Ref
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.backends.http import range_header, stream_of
from packtrain.transfer.backends.s3 import multipart
from packtrain.transfer.backends.s3.client import Wire, bucket_and_key, bucket_url, object_url, signs
from packtrain.transfer.http.request_body import Piece, Sent, unwatched
from packtrain.transfer.http.response import info_of
from packtrain.transfer.urls import checked_name, joined

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ASK_FOR_CHECKSUM = {"x-amz-checksum-mode": "ENABLED"}


class S3Store:
    """Source and Sink over S3."""

    def __init__(self, reveal: Reveal) -> None:
        self._wire = Wire(reveal)

    def stat(self, ref: Ref) -> ObjectInfo:
        answer = self._wire.ask(ref, "HEAD", object_url(ref), _ASK_FOR_CHECKSUM)
        answer.close()
        return info_of(answer)

    def digest(self, ref: Ref) -> Digest | None:
        """Answers that carry a part of the object do not say."""
        return self.stat(ref).digest

    def open(self, ref: Ref, span: Span = WHOLE) -> Stream:
        headers = {**_ASK_FOR_CHECKSUM, **range_header(span)}
        answer = self._wire.ask(ref, "GET", object_url(ref), headers, accepted=(200, 206, 416))
        try:
            return stream_of(answer, span, signs(ref))
        except BaseException:
            answer.close()
            raise

    def list(self, ref: Ref) -> Iterator[Entry]:
        bucket, key = bucket_and_key(ref)
        below = f"{key.rstrip('/')}/" if key else ""
        query = {"list-type": "2", "prefix": below}
        while True:
            page = self._wire.document(ref, "GET", bucket_url(ref, query))
            yield from _entries(page, ref, bucket, below)
            token = page.findtext("{*}NextContinuationToken")
            if not token:
                return
            query = {**query, "continuation-token": token}

    def put(self, ref: Ref, path: Path, sent: Sent = unwatched) -> None:
        """What is large goes in parts, and a later `put` of the same file goes on with those that are there."""
        size = path.stat().st_size
        if size > multipart.PART_BYTES:
            multipart.put(self._wire, ref, path, sent)
            return
        sums = multipart.sums_of(Piece(path, 0, size))
        headers = {"x-amz-checksum-sha256": sums.sha256_base64}
        answer = self._wire.ask(ref, "PUT", object_url(ref), headers, body=path, sha256=sums.sha256, sent=sent)
        answer.close()
        multipart.check(answer, sums, ref)

    def abandon(self, ref: Ref) -> None:
        """Nothing of an upload that did not end is kept, or paid for, any longer."""
        multipart.abandon(self._wire, ref)

    def delete(self, ref: Ref) -> None:
        self._wire.ask(ref, "DELETE", object_url(ref), accepted=(200, 204, 404)).close()


def _entries(page: Element, ref: Ref, bucket: str, below: str) -> Iterator[Entry]:
    for item in page.iterfind("{*}Contents"):
        key = item.findtext("{*}Key") or ""
        if key.endswith("/"):
            continue  # a marker that consoles write for an empty folder
        name = checked_name(key[len(below) :], ref.url)
        size = int(item.findtext("{*}Size") or 0)
        yield Entry(name, size, replace(ref, url=joined(f"s3://{bucket}/{below}".rstrip("/"), name)))
