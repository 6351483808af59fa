"""upload_folder and upload_file: retries, verification, and zip files for http."""

from __future__ import annotations

import base64
import contextlib
import io
import socket
import threading
import zipfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.events.failure import FAILURE_KINDS
from packtrain.plan import Location, Output, Secret
from packtrain.transfer.upload import UploadResult, upload_file, upload_folder
from testbed.http_server import HttpServer, ResponseFault

FILES = {"model.pt": b"weights" * 1000, "logs/a b/ü#1.txt": b"log", "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    output = tmp_path / "output"
    for name, data in FILES.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(data)
    return output


def upload(
    folder: Path,
    url: str,
    prefix="",
    retry_timeout_s=5.0,
    on_progress=lambda d, t: None,
    token=None,
) -> UploadResult:
    output = Output(Location(url, token=token))
    return upload_folder(
        folder,
        output,
        str,
        prefix=prefix,
        check_cancelled=lambda: None,
        on_progress=on_progress,
        retry_timeout_s=retry_timeout_s,
    )


def read_folder(folder: Path) -> dict:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("slash", ["", "/"])
def test_files_keep_their_names(folder, tmp_path, slash):
    reports = []
    result = upload(
        folder, (tmp_path / "dest ination").as_uri() + slash, on_progress=lambda d, t: reports.append((d, t))
    )
    assert read_folder(tmp_path / "dest ination") == FILES
    total = sum(map(len, FILES.values()))
    assert result == UploadResult(len(FILES), total)
    assert reports[-1] == (total, total)


def test_prefix(folder, tmp_path):
    upload(folder, (tmp_path / "to").as_uri(), prefix=".packtrain/em1/")
    assert read_folder(tmp_path / "to" / ".packtrain" / "em1") == FILES


def test_links_are_uploaded_as_files(folder, tmp_path):
    (folder / "latest.pt").symlink_to("model.pt")
    (folder / "dangling").symlink_to("nowhere")
    upload(folder, (tmp_path / "to").as_uri())
    assert read_folder(tmp_path / "to") == {**FILES, "latest.pt": FILES["model.pt"]}
    assert not (tmp_path / "to" / "latest.pt").is_symlink()


def test_http_single_file(tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "model.pt").write_bytes(b"weights")
    with HttpServer(tmp_path / "served", writable=True, token="t") as server:
        assert upload(tmp_path / "output", f"{server.url}/put/here", token="t").files == 1
    assert read_folder(tmp_path / "served") == {"put/here": b"weights"}


def test_http_several_files_as_zip(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True) as server:
        assert upload(folder, f"{server.url}/out.zip").files == len(FILES)
    with zipfile.ZipFile(io.BytesIO((tmp_path / "served" / "out.zip").read_bytes())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["output", "served"]


def test_http_folder_gets_the_name(folder, tmp_path):
    """A URL that ends in / means the same as for `curl -T`; several files are called output.zip, as in DeepSquare."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a b.pt").write_bytes(b"weights")
    link = "https://transfer.example/x/a%20b.pt"
    with HttpServer(tmp_path / "served", writable=True, upload_answer=link + "\n") as server:
        result = upload(tmp_path / "one", f"{server.url}/put/?key=abc")
        assert result == UploadResult(1, 7, f"{server.url}/put/a%20b.pt?…", link)
        assert upload(folder, f"{server.url}/").url == f"{server.url}/output.zip"
    assert sorted(read_folder(tmp_path / "served")) == ["output.zip", "put/a b.pt"]


@pytest.mark.parametrize("answer", ["", "<p>page</p>\x1b]52;c;eA==\a", "x" * 2000])
def test_answers_that_are_not_kept(folder, tmp_path, answer):
    with HttpServer(tmp_path / "served", writable=True, upload_answer=answer) as server:
        assert upload(folder, f"{server.url}/x").answer == ""


@pytest.mark.parametrize("status", [404, 405, 413])
def test_refused_upload(folder, tmp_path, status):
    """Another attempt would run all steps again only to be refused again."""
    with HttpServer(tmp_path / "served", writable=True, faults=[ResponseFault(status=status)] * 99) as server:
        error = upload_error(folder, f"{server.url}/out.zip", retry_timeout_s=0.3)
    assert error.kind == "upload_refused"
    assert not FAILURE_KINDS[error.kind].transient
    assert f"returned {status}" in error.detail


def test_empty_folder(tmp_path):
    (tmp_path / "output").mkdir()
    with HttpServer(tmp_path, writable=True) as server:
        assert upload(tmp_path / "output", f"{server.url}/x") == UploadResult(0, 0)
    assert server.requests == []


def test_transient_failures_are_retried(folder, tmp_path):
    with HttpServer(
        tmp_path / "served", writable=True, faults=[ResponseFault(status=503), ResponseFault(status=404)]
    ) as server:
        upload(folder, f"{server.url}/out.zip")
        assert [request.method for request in server.requests] == ["PUT", "PUT", "PUT", "HEAD"]


@pytest.fixture
def single_file(tmp_path: Path) -> Path:
    """A folder with one file, which is uploaded as it is."""
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "model.pt").write_bytes(b"weights" * 100_000)
    return tmp_path / "single"


@pytest.mark.parametrize("fault", [ResponseFault(truncate_to_bytes=100), ResponseFault(status=503)])
def test_wrong_object_is_uploaded_again(single_file, tmp_path, fault):
    with HttpServer(tmp_path / "served", writable=True, faults=[None, fault]) as server:
        upload(single_file, f"{server.url}/model.pt")
        assert [request.method for request in server.requests] == ["PUT", "HEAD", "PUT", "HEAD"]


def test_wrong_digest_of_server(single_file, tmp_path):
    wrong = {"Repr-Digest": f"sha-256=:{base64.b64encode(bytes(32)).decode()}:"}
    with HttpServer(tmp_path / "served", writable=True, headers=wrong) as server:
        error = upload_error(single_file, f"{server.url}/model.pt", retry_timeout_s=0)
    assert "a different sha256 than model.pt" in error.detail


@pytest.mark.parametrize(
    "fault", [ResponseFault(status=403), ResponseFault(status=404), ResponseFault(html_body=b"<html>thanks</html>")]
)
def test_write_only_server_is_trusted(single_file, tmp_path, fault):
    with HttpServer(tmp_path / "served", writable=True, faults=[None, fault, fault]) as server:
        upload(single_file, f"{server.url}/model.pt")
        assert [request.method for request in server.requests].count("PUT") == 1


def test_progress_within_a_file(single_file, tmp_path):
    reports = []
    with HttpServer(tmp_path / "served", writable=True) as server:
        upload(single_file, f"{server.url}/model.pt", on_progress=lambda done, total: reports.append((done, total)))
    assert len(reports) > 5
    assert reports == sorted(reports)
    assert reports[-1] == (700_000, 700_000)


def test_cancellation_within_a_file(single_file, tmp_path):
    def cancel(done, total):
        raise Cancelled

    with HttpServer(tmp_path / "served", writable=True) as server, pytest.raises(Cancelled):
        upload(single_file, f"{server.url}/model.pt", on_progress=cancel)
    assert not (tmp_path / "served" / "model.pt").exists()


def upload_error(folder: Path, url: str, **options) -> FailedError:
    with pytest.raises(FailedError) as caught:
        upload(folder, url, **options)
    return caught.value


def test_permanent_failure(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, faults=[ResponseFault(status=500)] * 99) as server:
        error = upload_error(folder, f"{server.url}/out.zip?signature=abc", retry_timeout_s=0.3)
    assert error.kind == "upload_failed"
    assert "500" in error.detail
    assert "abc" not in error.detail


def test_refused_token_is_final(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, token="right") as server:
        assert upload_error(folder, f"{server.url}/out.zip", token="wrong", retry_timeout_s=60).kind == "access_denied"
    assert len(server.requests) == 1


def test_retry_after(single_file, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(
        "packtrain.transfer.upload.cancellable_sleep", lambda duration_s, check_cancelled: waits.append(duration_s)
    )
    busy = [ResponseFault(status=503, headers={"Retry-After": value}) for value in ("7", "3600")]
    with HttpServer(tmp_path / "served", writable=True, faults=busy) as server:
        upload(single_file, f"{server.url}/model.pt", retry_timeout_s=1000.0)
    assert waits[0] == 7.0
    assert 900.0 < waits[1] <= 1000.0, "as long as requested, but within the retry timeout"


def test_expired_token_is_retried(folder, tmp_path):
    """HTCondor and others renew tokens under a running job."""
    with HttpServer(tmp_path / "served", writable=True, token="first") as server:

        def resolve_secret(text):
            if not isinstance(text, Secret):
                return text
            return "second" if sum(request.path == "/b" for request in server.requests) >= 2 else "first"

        output = Output(Location(server.url, token=Secret("t")))
        upload_file(folder / "model.pt", output, "a", resolve_secret, retry_timeout_s=60)
        server.token = "second"
        upload_file(folder / "model.pt", output, "b", resolve_secret, retry_timeout_s=60)
    assert (tmp_path / "served" / "b").read_bytes() == FILES["model.pt"]


def test_token_that_is_not_renewed_fails(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, token="first") as server:
        output = Output(Location(server.url, token="first"))
        upload_file(folder / "model.pt", output, "a", str)
        server.token = "second"
        with pytest.raises(FailedError) as caught:
            upload_file(folder / "model.pt", output, "b", str, retry_timeout_s=0.5)
    assert caught.value.kind == "access_denied"
    assert len(server.requests) > 3


@pytest.fixture
def start_silent_server():
    """Start a server that reads `max_bytes` of a request and never responds; `silent` is set when it stops reading."""
    server, silent, done = socket.create_server(("127.0.0.1", 0)), threading.Event(), threading.Event()

    def serve(connection: socket.socket, max_bytes: int) -> None:
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            while max_bytes > 0 and (data := connection.recv(min(max_bytes, 1 << 14))):
                max_bytes -= len(data)
            silent.set()
            done.wait()

    def accept(max_bytes: int) -> None:
        with contextlib.suppress(OSError):  # the test has ended
            while True:
                threading.Thread(target=serve, args=(server.accept()[0], max_bytes), daemon=True).start()

    def start(max_bytes: int) -> str:
        threading.Thread(target=accept, args=(max_bytes,), daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/x"

    start.silent = silent
    yield start
    done.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("max_bytes", [20_000, 20_000_000], ids=["during body", "after body"])
def test_start_silent_server_fails(tmp_path, monkeypatch, start_silent_server, max_bytes):
    monkeypatch.setattr("packtrain.transfer.http.socket_stream.READ_TIMEOUT_S", 0.5)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(bytes(20_000_000))
    error = upload_error(tmp_path / "out", start_silent_server(max_bytes), retry_timeout_s=1)
    assert error.kind == "upload_failed"
    assert "nothing" in error.detail or "silen" in error.detail or "time" in error.detail, error.detail


@pytest.mark.parametrize("max_bytes", [20_000, 20_000_000], ids=["during body", "after body"])
def test_cancellation_while_server_is_silent(tmp_path, start_silent_server, max_bytes):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(bytes(20_000_000))

    def check_cancelled() -> None:
        if start_silent_server.silent.is_set():
            raise Cancelled

    url = start_silent_server(max_bytes)
    with pytest.raises(Cancelled):
        upload_folder(
            tmp_path / "out",
            Output(Location(url)),
            str,
            check_cancelled=check_cancelled,
            on_progress=lambda d, t: None,
            retry_timeout_s=0,
        )


def test_destination_is_a_file(folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    error = upload_error(folder, (tmp_path / "file").as_uri(), retry_timeout_s=0)
    assert error.kind == "upload_failed"
    assert (tmp_path / "file").read_text() == "in the way"


class Cancelled(Exception):
    pass


def test_cancellation_between_files(folder, tmp_path):
    def check_cancelled() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        output = Output(Location((tmp_path / "to").as_uri()))
        upload_folder(
            folder, output, str, check_cancelled=check_cancelled, on_progress=lambda d, t: None, retry_timeout_s=1
        )


def test_upload_file(folder, tmp_path):
    upload_file(folder / "model.pt", Output(Location((tmp_path / "to").as_uri())), "ckpt/last.pt", str)
    assert read_folder(tmp_path / "to") == {"ckpt/last.pt": FILES["model.pt"]}
