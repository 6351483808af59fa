"""S3 uploads are compared with the checksums in the server's response."""

from __future__ import annotations

import base64
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location, S3Access
from packtrain.transfer.backends.s3.backend import S3Backend

DATA = b"weights"
MD5 = hashlib.md5(DATA).hexdigest()
SHA256 = base64.b64encode(hashlib.sha256(DATA).digest()).decode()
OTHER_SHA256 = base64.b64encode(bytes(32)).decode()


@pytest.fixture
def put(tmp_path):
    """Upload DATA to a server that responds with these headers."""
    (tmp_path / "file").write_bytes(DATA)

    def put_object(**headers: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Log nothing."""

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.handle_request, daemon=True).start()
            access = S3Access("r", f"http://127.0.0.1:{server.server_address[1]}")
            S3Backend(str).put(Location("s3://b/k", s3=access), tmp_path / "file")

    return put_object


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ETag": f'"{MD5}"'},
        {"x_amz_checksum_sha256": SHA256, "ETag": '"00000000000000000000000000000000"'},
        {"ETag": '"00000000000000000000000000000000"', "x_amz_server_side_encryption": "aws:kms"},
        {"ETag": '"not-an-md5"'},
    ],
)
def test_matching_or_absent_checksum(put, headers):
    put(**headers)


@pytest.mark.parametrize(
    "headers", [{"x_amz_checksum_sha256": OTHER_SHA256}, {"ETag": '"00000000000000000000000000000000"'}]
)
def test_different_checksum(put, headers):
    with pytest.raises(TransferError, match="the upload was corrupted") as caught:
        put(**headers)
    assert caught.value.kind == "digest_mismatch"
