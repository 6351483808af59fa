"""S3 listings, keys, multipart uploads and checksums, against a real server."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, Location, Output, RemoteFile, Secret
from packtrain.transfer.backends.s3 import server_copy
from packtrain.transfer.backends.s3.backend import S3Backend
from packtrain.transfer.backends.s3.client import S3Client, object_url
from packtrain.transfer.backends.s3.multipart import split_into_slices
from packtrain.transfer.fetch import fetch
from packtrain.transfer.integrity.digests import Digests, sha256_file
from packtrain.transfer.upload import upload_folder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3")]
SECRET = "not-the-right-secret-key"


def failure(call) -> TransferError:
    with pytest.raises(TransferError) as caught:
        call()
    assert SECRET not in str(caught.value)
    return caught.value


def test_list_many_pages(s3_server, tmp_path):
    (tmp_path / "one").write_bytes(b"1")
    names = [f"n{number:04}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: S3Backend(str).put(s3_server.location(f"many/{name}"), tmp_path / "one"), names))
    assert [entry.name for entry in S3Backend(str).list(s3_server.location("many"))] == names


def test_wrong_secret_key(s3_server):
    location = replace(s3_server.location("x"), s3=replace(s3_server.access, secret_key=Secret("k")))
    error = failure(lambda: S3Backend(lambda value: SECRET if isinstance(value, Secret) else value).open(location))
    assert error.kind == "access_denied"
    assert "SignatureDoesNotMatch" in error.detail


def test_unsigned_request(s3_server):
    location = replace(s3_server.location("x"), s3=replace(s3_server.access, access_key=None, secret_key=None))
    error = failure(lambda: S3Backend(str).open(location))
    assert error.kind == "access_denied"
    assert "no token was sent" in error.detail


def test_missing_bucket(s3_server):
    location = Location("s3://no-such-bucket-here/x", s3=s3_server.access)
    error = failure(lambda: list(S3Backend(str).list(location)))
    assert error.kind == "object_missing"
    assert "NoSuchBucket" in error.detail


class UploadCancelled(Exception):
    pass


class CancelAfter:
    """Counts the bytes sent, and cancels the upload after `limit` bytes."""

    def __init__(self, limit: float) -> None:
        self.limit, self.sent = limit, 0

    def __call__(self, count: int) -> None:
        self.sent += count
        if self.sent > self.limit:
            raise UploadCancelled


@pytest.fixture
def large(tmp_path):
    """A file of three parts, the last one short."""
    path = tmp_path / "large.bin"
    path.write_bytes(os.urandom(1 << 20) * 33 + b"tail")
    return path


def list_keys(server, prefix: str) -> list[str]:
    return [entry.name for entry in S3Backend(str).list(server.location(prefix))]


def list_unfinished(server, location) -> list[dict]:
    uploads = server.client.list_multipart_uploads(Bucket="testbed").get("Uploads", [])
    return [upload for upload in uploads if upload["Key"] == location.url.partition("testbed/")[2]]


def test_multipart_upload_is_read_by_boto3(s3_server, large):
    location = s3_server.location("parts/ü large.bin")
    counter = CancelAfter(float("inf"))
    S3Backend(str).put(location, large, counter)
    body = s3_server.client.get_object(Bucket="testbed", Key="parts/ü large.bin")["Body"].read()
    assert body == large.read_bytes()
    assert counter.sent == large.stat().st_size
    assert S3Backend(str).stat(location).etag.strip('"').endswith("-3")
    assert list_unfinished(s3_server, location) == []


def test_unfinished_upload_is_invisible(s3_server, large):
    location = s3_server.location("hidden/large.bin")
    with pytest.raises(UploadCancelled):
        S3Backend(str).put(location, large, CancelAfter(25 << 20))
    assert list_keys(s3_server, "hidden") == []
    assert len(list_unfinished(s3_server, location)) == 1
    S3Backend(str).abort_uploads(location)
    assert list_unfinished(s3_server, location) == []


def test_existing_parts_are_reused(s3_server, large):
    location = s3_server.location("resumed/large.bin")
    slices = split_into_slices(large)
    upload = s3_server.client.create_multipart_upload(Bucket="testbed", Key="resumed/large.bin")
    with open(large, "rb") as file:
        s3_server.client.upload_part(
            Bucket="testbed",
            Key="resumed/large.bin",
            UploadId=upload["UploadId"],
            PartNumber=1,
            Body=file.read(slices[0].length),
        )
    byte_counts = []
    S3Backend(str).put(location, large, byte_counts.append)
    assert slices[0].length in byte_counts  # the existing part is reported at once
    assert sum(byte_counts) == large.stat().st_size
    assert s3_server.client.get_object(Bucket="testbed", Key="resumed/large.bin")["Body"].read() == large.read_bytes()
    assert list_unfinished(s3_server, location) == []


class Rival:
    """Another process that uploads a file to the same key and has uploaded its first part."""

    def __init__(self, server, key, data):
        self._client, self._upload = server.client, {"Bucket": "testbed", "Key": key}
        self._upload["UploadId"] = self._client.create_multipart_upload(**self._upload)["UploadId"]
        self._etag = self._client.upload_part(**self._upload, PartNumber=1, Body=data)["ETag"]

    def complete(self):
        self._client.complete_multipart_upload(
            **self._upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": self._etag}]}
        )


def test_concurrent_uploads_are_separate(s3_server, large):
    """The last completed upload wins as a whole. Uploads never share or abort each other's parts."""
    location = s3_server.location("shared/large.bin")
    rivals = [Rival(s3_server, "shared/large.bin", os.urandom(17 << 20)) for _ in range(2)]
    S3Backend(str).put(location, large)
    with pytest.raises(UploadCancelled):
        S3Backend(str).put(location, large, CancelAfter(25 << 20))
    S3Backend(str).abort_uploads(location)
    assert s3_server.client.get_object(Bucket="testbed", Key="shared/large.bin")["Body"].read() == large.read_bytes()
    for rival in rivals:
        rival.complete()


def test_adoption_can_be_disabled(s3_server, large):
    rival = Rival(s3_server, "adoption/large.bin", large.read_bytes()[: split_into_slices(large)[0].length])
    S3Backend(str).put(s3_server.location("adoption/large.bin"), large, adopt_uploads=False)
    rival.complete()


SELF_KILLING_UPLOAD = """
import os, sys
from pathlib import Path
from packtrain.plan import Location, S3Access
from packtrain.transfer.backends.s3 import server_copy
from packtrain.transfer.backends.s3.backend import S3Backend
remaining = 4 * (16 << 20)  # once more is sent, a fifth part has started, so one is complete

def on_bytes_sent(count):
    global remaining
    remaining -= count
    if remaining < 0:
        os.kill(os.getpid(), 9)

url, path, *access = sys.argv[1:]
S3Backend(str).put(Location(url, s3=S3Access(*access)), Path(path), on_bytes_sent)
"""


def test_upload_of_killed_process_is_resumed(s3_server, tmp_path):
    path = tmp_path / "six-parts.bin"
    path.write_bytes(os.urandom(1 << 20) * 96)
    location, access = s3_server.location("killed/six-parts.bin"), s3_server.access
    keys = (access.region, access.endpoint, access.access_key, access.secret_key)
    killed = subprocess.run([sys.executable, "-c", SELF_KILLING_UPLOAD, location.url, str(path), *keys])
    assert killed.returncode == -9
    assert list_keys(s3_server, "killed") == []
    with FlakyProxy(s3_server.endpoint, n_good_puts=99) as proxy:
        S3Backend(str).put(replace(location, s3=replace(access, endpoint=proxy.url)), path)
        assert 1 <= proxy.good_puts <= 5
    assert s3_server.client.get_object(Bucket="testbed", Key="killed/six-parts.bin")["Body"].read() == path.read_bytes()


def test_changed_file_replaces_parts(s3_server, large):
    location = s3_server.location("changed/large.bin")
    with pytest.raises(UploadCancelled):
        S3Backend(str).put(location, large, CancelAfter(33 << 20))
    large.write_bytes(os.urandom(1 << 20) * 20)
    S3Backend(str).put(location, large)
    assert s3_server.client.get_object(Bucket="testbed", Key="changed/large.bin")["Body"].read() == large.read_bytes()
    assert list_unfinished(s3_server, location) == []


def test_failed_upload_is_aborted(s3_server, large):
    location = s3_server.location("given-up")
    with FlakyProxy(s3_server.endpoint, n_good_puts=1) as proxy:
        proxied = replace(location, s3=replace(location.s3, endpoint=proxy.url))
        with pytest.raises(FailedError) as caught:
            upload_folder(
                large.parent,
                Output(proxied),
                str,
                check_cancelled=lambda: None,
                on_progress=lambda d, t: None,
                retry_timeout_s=0.2,
            )
    assert caught.value.kind == "upload_failed"
    assert list_unfinished(s3_server, s3_server.location("given-up/large.bin")) == []
    assert list_keys(s3_server, "given-up") == []


def test_only_failed_parts_are_repeated(s3_server, large):
    with FlakyProxy(s3_server.endpoint, n_good_puts=1, recovers_after=2) as proxy:
        location = s3_server.location("flaky")
        proxied = replace(location, s3=replace(location.s3, endpoint=proxy.url))
        upload_folder(
            large.parent,
            Output(proxied),
            str,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
            retry_timeout_s=20,
        )
        assert proxy.good_puts == 3
    body = s3_server.client.get_object(Bucket="testbed", Key="flaky/large.bin")["Body"].read()
    assert body == large.read_bytes()


def test_sha256_of_single_part_objects_only(s3_server, large):
    small = large.parent / "small"
    small.write_bytes(b"small")
    S3Backend(str).put(s3_server.location("sums/small"), small)
    S3Backend(str).put(s3_server.location("sums/large"), large)
    digest = Digest("sha256", hashlib.sha256(b"small").hexdigest())
    assert S3Backend(str).stat(s3_server.location("sums/small")).digest == digest
    stream = S3Backend(str).open(s3_server.location("sums/small"))
    stream.close()
    assert stream.info.digest == digest
    assert S3Backend(str).stat(s3_server.location("sums/large")).digest is None


CRC32C = Digest("crc32c", "e3069283")  # of the digits 1 to 9


def put_with_boto3(server, key: str, data: bytes, **checksum):
    server.client.put_object(Bucket="testbed", Key=key, Body=data, **checksum)
    return server.location(key)


def put_without_checksum(location: Location, data: bytes, path) -> None:
    path.write_bytes(data)
    S3Client(str).request(
        location, "PUT", object_url(location), {}, body=path, body_sha256=hashlib.sha256(data).hexdigest()
    ).close()


def test_crc_checksums(s3_server):
    assert (
        S3Backend(str).stat(put_with_boto3(s3_server, "crc/c", b"123456789", ChecksumCRC32C="4waSgw==")).digest
        == CRC32C
    )
    plain = put_with_boto3(s3_server, "crc/plain", b"123456789", ChecksumAlgorithm="CRC32")
    assert S3Backend(str).stat(plain).digest == Digest("crc32", "cbf43926")


@pytest.mark.parametrize("algorithm", ["sha256", "crc32c", "crc32"])
def test_download_is_verified(s3_server, tmp_path, algorithm):
    data = os.urandom((5 << 20) + 7)
    digests = Digests(Digest(algorithm, ""))
    digests.update(data)
    stated = base64.b64encode(bytes.fromhex(digests.hexdigest(algorithm))).decode()
    location = put_with_boto3(s3_server, f"digests/{algorithm}", data, **{f"Checksum{algorithm.upper()}": stated})
    result = fetch(
        RemoteFile("x", (location,)),
        tmp_path / "x",
        str,
        retry_timeout_s=5,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
    )
    assert result.verified_by == algorithm
    assert (tmp_path / "x").read_bytes() == data


def test_object_without_checksum_is_unverified(s3_server, large, tmp_path):
    S3Backend(str).put(s3_server.location("digests/parts"), large)
    remote_file = RemoteFile("x", (s3_server.location("digests/parts"),))
    result = fetch(
        remote_file, tmp_path / "x", str, retry_timeout_s=5, check_cancelled=lambda: None, on_progress=lambda d, t: None
    )
    assert result.verified_by == ""


@pytest.mark.parametrize(("checksum", "algorithm"), [({"ChecksumCRC32C": "4waSgw=="}, "crc32c"), (None, "")])
def test_small_object_needs_one_request(s3_server, tmp_path, checksum, algorithm):
    if checksum:
        put_with_boto3(s3_server, "digests/small", b"123456789", **checksum)
    else:
        put_without_checksum(s3_server.location("digests/small"), b"123456789", tmp_path / "given")
    with FlakyProxy(s3_server.endpoint, n_good_puts=0) as proxy:
        location = Location("s3://testbed/digests/small", s3=replace(s3_server.access, endpoint=proxy.url))
        remote_file = RemoteFile("x", (location,), size=9)
        result = fetch(
            remote_file,
            tmp_path / "x",
            str,
            retry_timeout_s=5,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
        )
    assert (result.verified_by, proxy.methods) == (algorithm, ["GET"])


class FlakyProxy:
    """A proxy that forwards `n_good_puts` PUTs, then fails PUTs with 503 until `recovers_after` have failed."""

    def __init__(self, endpoint: str, n_good_puts: int, recovers_after: float = float("inf")) -> None:
        self.good_puts, self._failed, self._lock = 0, 0, threading.Lock()
        self.methods: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args) -> None:
                """Log nothing."""

            def forward(self) -> None:
                proxy.methods.append(self.command)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "PUT" and not proxy._should_forward(n_good_puts, recovers_after):
                    self.respond(503, {}, b"")
                    return
                host = endpoint.partition("://")[2]
                connection = http.client.HTTPConnection(host)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                response = connection.getresponse()
                self.respond(response.status, dict(response.getheaders()), response.read())

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

            def respond(self, status, headers, body) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", headers.get("Content-Length") or str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _should_forward(self, n_good_puts: int, recovers_after: float) -> bool:
        with self._lock:
            good = self.good_puts < n_good_puts or self._failed >= recovers_after
            self.good_puts += good
            self._failed += not good
            return good

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("max_copy_bytes", [1 << 30, 1 << 20])
def test_copy_of_an_object_in_parts(s3_server, large, max_copy_bytes):
    """Objects above 5 GB are copied in parts; here, those above 1 MiB."""
    source, target = s3_server.location("copied/source"), s3_server.location(f"copied/{max_copy_bytes}")
    S3Backend(str).put(source, large)
    is_equal = server_copy.copy(S3Client(str), source, target, Digest("sha256", sha256_file(large)), max_copy_bytes)
    assert is_equal == (max_copy_bytes > 1 << 20), "SeaweedFS computes another ETag for the parts of a copy"
    assert read_all(target) == large.read_bytes()
    assert list_unfinished(s3_server, target) == []


def test_copy_with_another_digest(s3_server, tmp_path):
    (tmp_path / "f").write_bytes(b"data")
    source, target = s3_server.location("copied/f"), s3_server.location("copied/g")
    S3Backend(str).put(source, tmp_path / "f")
    error = failure(lambda: S3Backend(str).copy(source, target, digest=Digest("sha256", "0" * 64)))
    assert error.kind == "digest_mismatch"
    error = failure(lambda: S3Backend(str).copy(s3_server.location("copied/missing"), target))
    assert error.kind == "object_missing"


def read_all(location) -> bytes:
    stream = S3Backend(str).open(location)
    try:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))
    finally:
        stream.close()
