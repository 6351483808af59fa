"""What only S3 has, against a real server."""

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
from packtrain.transfer.backends.s3 import multipart
from packtrain.transfer.backends.s3.backend import S3Backend
from packtrain.transfer.backends.s3.client import S3Client, object_url
from packtrain.transfer.backends.s3.multipart import split_into_slices
from packtrain.transfer.digests import Digests
from packtrain.transfer.fetch import fetch
from packtrain.transfer.upload import upload_folder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3")]
SECRET = "not-the-right-secret-key"


def failure(call) -> TransferError:
    with pytest.raises(TransferError) as caught:
        call()
    assert SECRET not in str(caught.value)
    return caught.value


def test_a_listing_of_many_pages_is_complete(s3_server, tmp_path):
    (tmp_path / "one").write_bytes(b"1")
    names = [f"n{number:04}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: S3Backend(str).put(s3_server.ref(f"many/{name}"), tmp_path / "one"), names))
    assert [entry.name for entry in S3Backend(str).list(s3_server.ref("many"))] == names


def test_a_wrong_key_is_refused_with_the_servers_reason(s3_server):
    ref = replace(s3_server.ref("x"), s3=replace(s3_server.access, secret_key=Secret("k")))
    error = failure(lambda: S3Backend(lambda value: SECRET if isinstance(value, Secret) else value).open(ref))
    assert error.kind == "access_denied"
    assert "SignatureDoesNotMatch" in error.detail


def test_without_keys_requests_are_unsigned(s3_server):
    ref = replace(s3_server.ref("x"), s3=replace(s3_server.access, access_key=None, secret_key=None))
    error = failure(lambda: S3Backend(str).open(ref))
    assert error.kind == "access_denied"
    assert "no token was sent" in error.detail


def test_a_bucket_that_does_not_exist(s3_server):
    ref = Location("s3://no-such-bucket-here/x", s3=s3_server.access)
    error = failure(lambda: list(S3Backend(str).list(ref)))
    assert error.kind == "object_missing"
    assert "NoSuchBucket" in error.detail


def test_an_upload_deletes_what_is_gone(s3_server, tmp_path):
    def names():
        return [entry.name for entry in S3Backend(str).list(s3_server.ref("synced"))]

    output = Output(s3_server.ref("synced"), delete_sync=True)
    for files in (["a.pt", "b c/d.txt"], ["a.pt"]):
        folder = tmp_path / str(len(files))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"data")
        upload_folder(
            folder, output, str, check_cancelled=lambda: None, on_progress=lambda d, t: None, retry_timeout_s=5
        )
        assert names() == files


class Cut(Exception):
    pass


class CutAfter:
    """Hears of the bytes that leave, and ends the upload after so many."""

    def __init__(self, limit: float) -> None:
        self.limit, self.seen = limit, 0

    def __call__(self, count: int) -> None:
        self.seen += count
        if self.seen > self.limit:
            raise Cut


@pytest.fixture
def large(tmp_path):
    """Three parts, the last of them short."""
    path = tmp_path / "large.bin"
    path.write_bytes(os.urandom(1 << 20) * 33 + b"tail")
    return path


def keys_of(server, prefix: str) -> list[str]:
    return [entry.name for entry in S3Backend(str).list(server.ref(prefix))]


def begun(server, ref) -> list[dict]:
    found = server.client.list_multipart_uploads(Bucket="testbed").get("Uploads", [])
    return [upload for upload in found if upload["Key"] == ref.url.partition("testbed/")[2]]


def test_a_large_file_goes_in_parts_and_is_what_boto3_reads(s3_server, large):
    ref = s3_server.ref("parts/ü large.bin")
    heard = CutAfter(float("inf"))
    S3Backend(str).put(ref, large, heard)
    body = s3_server.client.get_object(Bucket="testbed", Key="parts/ü large.bin")["Body"].read()
    assert body == large.read_bytes()
    assert heard.seen == large.stat().st_size
    assert S3Backend(str).stat(ref).etag.strip('"').endswith("-3")
    assert begun(s3_server, ref) == []


def test_an_upload_in_parts_is_invisible_until_it_is_complete(s3_server, large):
    ref = s3_server.ref("hidden/large.bin")
    with pytest.raises(Cut):
        S3Backend(str).put(ref, large, CutAfter(25 << 20))
    assert keys_of(s3_server, "hidden") == []
    assert len(begun(s3_server, ref)) == 1
    S3Backend(str).abort_uploads(ref)
    assert begun(s3_server, ref) == []


def test_a_new_store_goes_on_with_the_parts_that_are_there(s3_server, large):
    ref = s3_server.ref("resumed/large.bin")
    pieces = split_into_slices(large)
    upload = s3_server.client.create_multipart_upload(Bucket="testbed", Key="resumed/large.bin")
    with open(large, "rb") as file:
        s3_server.client.upload_part(
            Bucket="testbed",
            Key="resumed/large.bin",
            UploadId=upload["UploadId"],
            PartNumber=1,
            Body=file.read(pieces[0].length),
        )
    blocks = []
    S3Backend(str).put(ref, large, blocks.append)
    assert pieces[0].length in blocks  # the first part, reported at once because it was there
    assert sum(blocks) == large.stat().st_size
    assert s3_server.client.get_object(Bucket="testbed", Key="resumed/large.bin")["Body"].read() == large.read_bytes()
    assert begun(s3_server, ref) == []


class Rival:
    """Another process that is putting a file to the same key, and has put its first part."""

    def __init__(self, server, key, data):
        self._client, self._at = server.client, {"Bucket": "testbed", "Key": key}
        self._at["UploadId"] = self._client.create_multipart_upload(**self._at)["UploadId"]
        self._etag = self._client.upload_part(**self._at, PartNumber=1, Body=data)["ETag"]

    def complete(self):
        self._client.complete_multipart_upload(
            **self._at, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": self._etag}]}
        )


def test_an_upload_of_another_file_to_the_same_key_is_left_alone(s3_server, large):
    """The last one that is complete wins, whole; nobody's parts get into the other's, or are taken from it."""
    ref = s3_server.ref("shared/large.bin")
    rivals = [Rival(s3_server, "shared/large.bin", os.urandom(17 << 20)) for _ in range(2)]
    S3Backend(str).put(ref, large)
    with pytest.raises(Cut):
        S3Backend(str).put(ref, large, CutAfter(25 << 20))
    S3Backend(str).abort_uploads(ref)
    assert s3_server.client.get_object(Bucket="testbed", Key="shared/large.bin")["Body"].read() == large.read_bytes()
    for rival in rivals:
        rival.complete()


def test_beside_rivals_not_even_one_that_begins_alike(s3_server, large, monkeypatch):
    monkeypatch.setattr(multipart, "_is_adoption_disabled", False)
    multipart.disable_upload_adoption()
    rival = Rival(s3_server, "alike/large.bin", large.read_bytes()[: split_into_slices(large)[0].length])
    S3Backend(str).put(s3_server.ref("alike/large.bin"), large)
    rival.complete()


KILLS_ITSELF = """
import os, sys
from pathlib import Path
from packtrain.plan import Ref, S3Access
from packtrain.transfer.backends.s3.backend import S3Store
left = 4 * (16 << 20)  # beyond it a fifth part has begun, so one is complete

def sent(count):
    global left
    left -= count
    if left < 0:
        os.kill(os.getpid(), 9)

url, path, *access = sys.argv[1:]
S3Store(str).put(Ref(url, s3=S3Access(*access)), Path(path), sent)
"""


def test_a_new_process_goes_on_where_another_was_killed(s3_server, tmp_path):
    path = tmp_path / "six-parts.bin"
    path.write_bytes(os.urandom(1 << 20) * 96)
    ref, access = s3_server.ref("killed/six-parts.bin"), s3_server.access
    keys = (access.region, access.endpoint, access.access_key, access.secret_key)
    killed = subprocess.run([sys.executable, "-c", KILLS_ITSELF, ref.url, str(path), *keys])
    assert killed.returncode == -9
    assert keys_of(s3_server, "killed") == []
    with Flaky(s3_server.endpoint, answers_puts=99) as counting:
        S3Backend(str).put(replace(ref, s3=replace(access, endpoint=counting.url)), path)
        assert 1 <= counting.good_puts <= 5
    assert s3_server.client.get_object(Bucket="testbed", Key="killed/six-parts.bin")["Body"].read() == path.read_bytes()


def test_parts_of_another_file_are_replaced(s3_server, large):
    ref = s3_server.ref("changed/large.bin")
    with pytest.raises(Cut):
        S3Backend(str).put(ref, large, CutAfter(33 << 20))
    large.write_bytes(os.urandom(1 << 20) * 20)
    S3Backend(str).put(ref, large)
    assert s3_server.client.get_object(Bucket="testbed", Key="changed/large.bin")["Body"].read() == large.read_bytes()
    assert begun(s3_server, ref) == []


def test_an_upload_that_is_given_up_leaves_nothing(s3_server, large):
    ref = s3_server.ref("given-up")
    with Flaky(s3_server.endpoint, answers_puts=1) as flaky:
        there = replace(ref, s3=replace(ref.s3, endpoint=flaky.url))
        with pytest.raises(FailedError) as caught:
            upload_folder(
                large.parent,
                Output(there),
                str,
                check_cancelled=lambda: None,
                on_progress=lambda d, t: None,
                retry_timeout_s=0.2,
            )
    assert caught.value.kind == "upload_failed"
    assert begun(s3_server, s3_server.ref("given-up/large.bin")) == []
    assert keys_of(s3_server, "given-up") == []


def test_a_passing_failure_costs_only_the_parts_that_it_hit(s3_server, large):
    with Flaky(s3_server.endpoint, answers_puts=1, recovers_after=2) as flaky:
        ref = s3_server.ref("flaky")
        there = replace(ref, s3=replace(ref.s3, endpoint=flaky.url))
        upload_folder(
            large.parent,
            Output(there),
            str,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
            retry_timeout_s=20,
        )
        assert flaky.good_puts == 3
    body = s3_server.client.get_object(Bucket="testbed", Key="flaky/large.bin")["Body"].read()
    assert body == large.read_bytes()


def test_the_sha256_of_a_small_object_is_known_and_that_of_parts_is_not_taken_for_one(s3_server, large):
    small = large.parent / "small"
    small.write_bytes(b"small")
    S3Backend(str).put(s3_server.ref("sums/small"), small)
    S3Backend(str).put(s3_server.ref("sums/large"), large)
    digest = Digest("sha256", hashlib.sha256(b"small").hexdigest())
    assert S3Backend(str).stat(s3_server.ref("sums/small")).digest == digest
    stream = S3Backend(str).open(s3_server.ref("sums/small"))
    stream.close()
    assert stream.info.digest == digest
    assert S3Backend(str).stat(s3_server.ref("sums/large")).digest is None


CRC32C = Digest("crc32c", "e3069283")  # of the digits 1 to 9


def given_by_boto3(server, key: str, data: bytes, **more):
    server.client.put_object(Bucket="testbed", Key=key, Body=data, **more)
    return server.ref(key)


def given_without_checksum(ref: Location, data: bytes, path) -> None:
    path.write_bytes(data)
    S3Client(str).request(
        ref, "PUT", object_url(ref), {}, body=path, body_sha256=hashlib.sha256(data).hexdigest()
    ).close()


def test_other_checksums_are_known_too(s3_server):
    assert (
        S3Backend(str).stat(given_by_boto3(s3_server, "crc/c", b"123456789", ChecksumCRC32C="4waSgw==")).digest
        == CRC32C
    )
    plain = given_by_boto3(s3_server, "crc/plain", b"123456789", ChecksumAlgorithm="CRC32")
    assert S3Backend(str).stat(plain).digest == Digest("crc32", "cbf43926")


@pytest.mark.parametrize("algorithm", ["sha256", "crc32c", "crc32"])
def test_a_download_in_parts_is_compared_with_what_s3_states_when_asked(s3_server, tmp_path, algorithm):
    data = os.urandom((5 << 20) + 7)
    digests = Digests(Digest(algorithm, ""))
    digests.update(data)
    stated = base64.b64encode(bytes.fromhex(digests.hexdigest(algorithm))).decode()
    ref = given_by_boto3(s3_server, f"asked/{algorithm}", data, **{f"Checksum{algorithm.upper()}": stated})
    got = fetch(
        RemoteFile("x", (ref,)),
        tmp_path / "x",
        str,
        retry_timeout_s=5,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
    )
    assert got.verified_by == algorithm
    assert (tmp_path / "x").read_bytes() == data


def test_an_object_without_a_checksum_is_not_called_verified(s3_server, large, tmp_path):
    S3Backend(str).put(s3_server.ref("asked/parts"), large)
    item = RemoteFile("x", (s3_server.ref("asked/parts"),))
    got = fetch(
        item, tmp_path / "x", str, retry_timeout_s=5, check_cancelled=lambda: None, on_progress=lambda d, t: None
    )
    assert got.verified_by == ""


@pytest.mark.parametrize(("more", "algorithm"), [({"ChecksumCRC32C": "4waSgw=="}, "crc32c"), (None, "")])
def test_a_small_object_costs_one_request(s3_server, tmp_path, more, algorithm):
    if more:
        given_by_boto3(s3_server, "asked/small", b"123456789", **more)
    else:
        given_without_checksum(s3_server.ref("asked/small"), b"123456789", tmp_path / "given")
    with Flaky(s3_server.endpoint, answers_puts=0) as counting:
        ref = Location("s3://testbed/asked/small", s3=replace(s3_server.access, endpoint=counting.url))
        item = RemoteFile("x", (ref,), size=9)
        got = fetch(
            item, tmp_path / "x", str, retry_timeout_s=5, check_cancelled=lambda: None, on_progress=lambda d, t: None
        )
    assert (got.verified_by, counting.seen) == (algorithm, ["GET"])


class Flaky:
    """A way to the server on which puts fail with 503 after so many, until so many have failed."""

    def __init__(self, endpoint: str, answers_puts: int, recovers_after: float = float("inf")) -> None:
        self.good_puts, self._failed, self._lock = 0, 0, threading.Lock()
        self.seen: list[str] = []
        flaky = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args) -> None:
                """Silence."""

            def forward(self) -> None:
                flaky.seen.append(self.command)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "PUT" and not flaky._lets_pass(answers_puts, recovers_after):
                    self.say(503, {}, b"")
                    return
                host = endpoint.partition("://")[2]
                connection = http.client.HTTPConnection(host)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                self.say(answer.status, dict(answer.getheaders()), answer.read())

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

            def say(self, status, headers, body) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", headers.get("Content-Length") or str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _lets_pass(self, answers: int, recovers_after: float) -> bool:
        with self._lock:
            good = self.good_puts < answers or self._failed >= recovers_after
            self.good_puts += good
            self._failed += not good
            return good

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc) -> None:
        self._server.shutdown()
        self._server.server_close()
