"""upload_folder: all files, retried, deletions where asked, one file or a zip for http."""

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
from packtrain.plan import Location, Output, Secret
from packtrain.transfer.upload import UploadResult, upload_file, upload_folder
from testbed.http_server import HttpServer, ResponseFault

FILES = {"model.pt": b"weights" * 1000, "logs/a b/ü#1.txt": b"log", "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    for name, data in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    return made


def run(
    folder: Path, url: str, prefix="", patience_s=5.0, progress=lambda d, t: None, delete=False, token=None
) -> UploadResult:
    output = Output(Location(url, token=token), delete_sync=delete)
    return upload_folder(
        folder,
        output,
        str,
        prefix=prefix,
        check_cancelled=lambda: None,
        on_progress=progress,
        retry_timeout_s=patience_s,
    )


def content(folder: Path) -> dict:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("slash", ["", "/"])
def test_every_file_under_its_name(folder, tmp_path, slash):
    told = []
    done = run(folder, (tmp_path / "dest ination").as_uri() + slash, progress=lambda d, t: told.append((d, t)))
    assert content(tmp_path / "dest ination") == FILES
    total = sum(map(len, FILES.values()))
    assert done == UploadResult(len(FILES), total)
    assert told[-1] == (total, total)


def test_a_prefix_goes_in_front(folder, tmp_path):
    run(folder, (tmp_path / "to").as_uri(), prefix=".packtrain/em1/")
    assert content(tmp_path / "to" / ".packtrain" / "em1") == FILES


def test_a_link_is_sent_as_what_it_shows(folder, tmp_path):
    (folder / "latest.pt").symlink_to("model.pt")
    (folder / "dangling").symlink_to("nowhere")
    run(folder, (tmp_path / "to").as_uri())
    assert content(tmp_path / "to") == {**FILES, "latest.pt": FILES["model.pt"]}
    assert not (tmp_path / "to" / "latest.pt").is_symlink()


def test_what_is_gone_here_stays_there_unless_asked(folder, tmp_path):
    to = tmp_path / "to"
    run(folder, to.as_uri())
    (to / ".packtrain" / "em1").mkdir(parents=True)
    (to / ".packtrain" / "em1" / "kept").write_bytes(b"kept")
    (folder / "model.pt").unlink()
    run(folder, to.as_uri())
    assert "model.pt" in content(to)
    run(folder, to.as_uri(), delete=True)
    assert content(to) == {"logs/a b/ü#1.txt": b"log", "empty": b"", ".packtrain/em1/kept": b"kept"}


def test_deleting_below_a_prefix_leaves_the_rest(folder, tmp_path):
    to = tmp_path / "to"
    (to / "job-0").mkdir(parents=True)
    (to / "job-0" / "old").write_bytes(b"old")
    (to / "other").write_bytes(b"other")
    run(folder, to.as_uri(), prefix="job-0/", delete=True)
    assert content(to) == {"other": b"other", **{f"job-0/{name}": data for name, data in FILES.items()}}


def test_http_gets_a_single_file_as_it_is(tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "model.pt").write_bytes(b"weights")
    with HttpServer(tmp_path / "served", writable=True, token="t") as origin:
        assert run(tmp_path / "output", f"{origin.url}/put/here", token="t").files == 1
    assert content(tmp_path / "served") == {"put/here": b"weights"}


def test_http_gets_several_files_as_one_zip(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True) as origin:
        assert run(folder, f"{origin.url}/out.zip", delete=True).files == len(FILES)
    with zipfile.ZipFile(io.BytesIO((tmp_path / "served" / "out.zip").read_bytes())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["output", "served"]


def test_an_empty_folder_sends_nothing(tmp_path):
    (tmp_path / "output").mkdir()
    with HttpServer(tmp_path, writable=True) as origin:
        assert run(tmp_path / "output", f"{origin.url}/x") == UploadResult(0, 0)
    assert origin.requests == []


def test_a_passing_failure_is_borne(folder, tmp_path):
    with HttpServer(
        tmp_path / "served", writable=True, faults=[ResponseFault(status=503), ResponseFault(status=404)]
    ) as origin:
        run(folder, f"{origin.url}/out.zip")
        assert [seen.method for seen in origin.requests] == ["PUT", "PUT", "PUT", "HEAD"]


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A folder with one file, which is sent as it is."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.pt").write_bytes(b"weights" * 100_000)
    return tmp_path / "one"


@pytest.mark.parametrize("wrong", [ResponseFault(truncate_to_bytes=100), ResponseFault(status=503)])
def test_what_stands_there_is_looked_at_and_sent_again_if_wrong(one, tmp_path, wrong):
    with HttpServer(tmp_path / "served", writable=True, faults=[None, wrong]) as origin:
        run(one, f"{origin.url}/model.pt")
        assert [seen.method for seen in origin.requests] == ["PUT", "HEAD", "PUT", "HEAD"]


def test_a_digest_that_the_server_states_is_compared(one, tmp_path):
    wrong = {"Repr-Digest": f"sha-256=:{base64.b64encode(bytes(32)).decode()}:"}
    with HttpServer(tmp_path / "served", writable=True, headers=wrong) as origin:
        error = failure(one, f"{origin.url}/model.pt", patience_s=0)
    assert "a different sha256 than model.pt" in error.detail


@pytest.mark.parametrize(
    "unseen", [ResponseFault(status=403), ResponseFault(status=404), ResponseFault(html_body=b"<html>thanks</html>")]
)
def test_a_place_that_only_takes_is_believed(one, tmp_path, unseen):
    with HttpServer(tmp_path / "served", writable=True, faults=[None, unseen, unseen]) as origin:
        run(one, f"{origin.url}/model.pt")
        assert [seen.method for seen in origin.requests].count("PUT") == 1


def test_progress_grows_while_one_file_is_on_its_way(one, tmp_path):
    told = []
    with HttpServer(tmp_path / "served", writable=True) as origin:
        run(one, f"{origin.url}/model.pt", progress=lambda done, total: told.append((done, total)))
    assert len(told) > 5
    assert told == sorted(told)
    assert told[-1] == (700_000, 700_000)


def test_stop_is_heard_within_a_file(one, tmp_path):
    def leave(done, total):
        raise Leave

    with HttpServer(tmp_path / "served", writable=True) as origin, pytest.raises(Leave):
        run(one, f"{origin.url}/model.pt", progress=leave)
    assert not (tmp_path / "served" / "model.pt").exists()


def failure(folder: Path, url: str, **more) -> FailedError:
    with pytest.raises(FailedError) as caught:
        run(folder, url, **more)
    return caught.value


def test_a_lasting_failure_is_the_sinks(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, faults=[ResponseFault(status=500)] * 99) as origin:
        error = failure(folder, f"{origin.url}/out.zip?signature=abc", patience_s=0.3)
    assert error.kind == "upload_failed"
    assert "500" in error.detail
    assert "abc" not in error.detail


def test_a_refused_token_is_told_at_once(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, token="right") as origin:
        assert failure(folder, f"{origin.url}/out.zip", token="wrong", patience_s=60).kind == "access_denied"
    assert len(origin.requests) == 1


def test_a_server_that_asks_to_be_left_alone_is_left_alone(one, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr("packtrain.transfer.upload.cancellable_sleep", lambda seconds, stop: waits.append(seconds))
    busy = [ResponseFault(status=503, headers={"Retry-After": said}) for said in ("7", "3600")]
    with HttpServer(tmp_path / "served", writable=True, faults=busy) as origin:
        run(one, f"{origin.url}/model.pt", patience_s=1000.0)
    assert waits[0] == 7.0
    assert 900.0 < waits[1] <= 1000.0, "as long as it wants, but within the patience"


def test_a_token_that_runs_out_is_waited_for_where_it_was_good_before(folder, tmp_path):
    """HTCondor and others renew tokens under a running job."""
    with HttpServer(tmp_path / "served", writable=True, token="first") as origin:

        def reveal(text):
            if not isinstance(text, Secret):
                return text
            return "second" if sum(seen.path == "/b" for seen in origin.requests) >= 2 else "first"

        output = Output(Location(origin.url, token=Secret("t")))
        upload_file(folder / "model.pt", output, "a", reveal, retry_timeout_s=60)
        origin.token = "second"
        upload_file(folder / "model.pt", output, "b", reveal, retry_timeout_s=60)
    assert (tmp_path / "served" / "b").read_bytes() == FILES["model.pt"]


def test_a_token_that_is_not_renewed_is_told_after_the_patience(folder, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, token="first") as origin:
        output = Output(Location(origin.url, token="first"))
        upload_file(folder / "model.pt", output, "a", str)
        origin.token = "second"
        with pytest.raises(FailedError) as caught:
            upload_file(folder / "model.pt", output, "b", str, retry_timeout_s=0.5)
    assert caught.value.kind == "access_denied"
    assert len(origin.requests) > 3


@pytest.fixture
def mute():
    """A server that takes so many bytes and then says nothing: its address, and an event for who has sent them."""
    server, silent, done = socket.create_server(("127.0.0.1", 0)), threading.Event(), threading.Event()

    def serve(connection: socket.socket, most: int) -> None:
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            while most > 0 and (data := connection.recv(min(most, 1 << 14))):
                most -= len(data)
            silent.set()
            done.wait()

    def accept(most: int) -> None:
        with contextlib.suppress(OSError):  # the test is over
            while True:
                threading.Thread(target=serve, args=(server.accept()[0], most), daemon=True).start()

    def start(most: int) -> str:
        threading.Thread(target=accept, args=(most,), daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/x"

    start.silent = silent
    yield start
    done.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("most", [20_000, 20_000_000], ids=["in mid-body", "no answer"])
def test_a_server_that_falls_silent_is_left(tmp_path, monkeypatch, mute, most):
    monkeypatch.setattr("packtrain.transfer.http.connection.READ_TIMEOUT_S", 0.5)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(bytes(20_000_000))
    error = failure(tmp_path / "out", mute(most), patience_s=1)
    assert error.kind == "upload_failed"
    assert "nothing" in error.detail or "silen" in error.detail or "time" in error.detail, error.detail


@pytest.mark.parametrize("most", [20_000, 20_000_000], ids=["in mid-body", "no answer"])
def test_stop_is_heard_while_a_server_is_silent(tmp_path, mute, most):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(bytes(20_000_000))

    def stop() -> None:
        if mute.silent.is_set():
            raise Leave

    url = mute(most)
    with pytest.raises(Leave):
        upload_folder(
            tmp_path / "out",
            Output(Location(url)),
            str,
            check_cancelled=stop,
            on_progress=lambda d, t: None,
            retry_timeout_s=0,
        )


def test_a_destination_that_is_no_folder(folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    error = failure(folder, (tmp_path / "file").as_uri(), patience_s=0)
    assert error.kind == "upload_failed"
    assert (tmp_path / "file").read_text() == "in the way"


class Leave(Exception):
    pass


def test_stop_is_heard_between_files(folder, tmp_path):
    def stop() -> None:
        raise Leave

    with pytest.raises(Leave):
        output = Output(Location((tmp_path / "to").as_uri()))
        upload_folder(folder, output, str, check_cancelled=stop, on_progress=lambda d, t: None, retry_timeout_s=1)


def test_one_file_alone(folder, tmp_path):
    upload_file(folder / "model.pt", Output(Location((tmp_path / "to").as_uri())), "ckpt/last.pt", str)
    assert content(tmp_path / "to") == {"ckpt/last.pt": FILES["model.pt"]}
