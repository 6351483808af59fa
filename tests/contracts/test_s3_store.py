"""What only S3 has, against a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Output, Ref, Secret
from packtrain.transfer.s3 import S3Store
from packtrain.transfer.upload import upload_folder

pytestmark = pytest.mark.slow
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
        list(pool.map(lambda name: S3Store(str).put(s3_server.ref(f"many/{name}"), tmp_path / "one"), names))
    assert [entry.name for entry in S3Store(str).list(s3_server.ref("many"))] == names


def test_a_wrong_key_is_refused_with_the_servers_reason(s3_server):
    ref = replace(s3_server.ref("x"), s3=replace(s3_server.access, secret_key=Secret("k")))
    error = failure(lambda: S3Store(lambda value: SECRET if isinstance(value, Secret) else value).open(ref))
    assert error.kind == "token_refused"
    assert "SignatureDoesNotMatch" in error.detail


def test_without_keys_requests_are_unsigned(s3_server):
    ref = replace(s3_server.ref("x"), s3=replace(s3_server.access, access_key=None, secret_key=None))
    error = failure(lambda: S3Store(str).open(ref))
    assert error.kind == "token_refused"
    assert "no token was sent" in error.detail


def test_a_bucket_that_does_not_exist(s3_server):
    ref = Ref("s3://no-such-bucket-here/x", s3=s3_server.access)
    error = failure(lambda: list(S3Store(str).list(ref)))
    assert error.kind == "object_missing"
    assert "NoSuchBucket" in error.detail


def test_an_upload_deletes_what_is_gone(s3_server, tmp_path):
    def names():
        return [entry.name for entry in S3Store(str).list(s3_server.ref("synced"))]

    output = Output(s3_server.ref("synced"), delete=True)
    for files in (["a.pt", "b c/d.txt"], ["a.pt"]):
        folder = tmp_path / str(len(files))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"data")
        upload_folder(folder, output, str, stop=lambda: None, progress=lambda d, t: None, patience_s=5)
        assert names() == files
