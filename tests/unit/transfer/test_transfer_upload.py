"""upload_folder: all files, retried, deletions where asked, one file or a zip for http."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Output, Ref
from packtrain.transfer.upload import Uploaded, upload_file, upload_folder
from testbed.origin import Fault, Origin

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
) -> Uploaded:
    output = Output(Ref(url, token=token), delete=delete)
    return upload_folder(
        folder, output, str, prefix=prefix, stop=lambda: None, progress=progress, patience_s=patience_s
    )


def content(folder: Path) -> dict:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("slash", ["", "/"])
def test_every_file_under_its_name(folder, tmp_path, slash):
    told = []
    done = run(folder, (tmp_path / "dest ination").as_uri() + slash, progress=lambda d, t: told.append((d, t)))
    assert content(tmp_path / "dest ination") == FILES
    total = sum(map(len, FILES.values()))
    assert done == Uploaded(len(FILES), total)
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
    with Origin(tmp_path / "served", writable=True, token="t") as origin:
        assert run(tmp_path / "output", f"{origin.url}/put/here", token="t").files == 1
    assert content(tmp_path / "served") == {"put/here": b"weights"}


def test_http_gets_several_files_as_one_zip(folder, tmp_path):
    with Origin(tmp_path / "served", writable=True) as origin:
        assert run(folder, f"{origin.url}/out.zip", delete=True).files == len(FILES)
    with zipfile.ZipFile(io.BytesIO((tmp_path / "served" / "out.zip").read_bytes())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["output", "served"]


def test_an_empty_folder_sends_nothing(tmp_path):
    (tmp_path / "output").mkdir()
    with Origin(tmp_path, writable=True) as origin:
        assert run(tmp_path / "output", f"{origin.url}/x") == Uploaded(0, 0)
    assert origin.seen == []


def test_a_passing_failure_is_borne(folder, tmp_path):
    with Origin(tmp_path / "served", writable=True, faults=[Fault(status=503), Fault(status=404)]) as origin:
        run(folder, f"{origin.url}/out.zip")
        assert [seen.method for seen in origin.seen] == ["PUT", "PUT", "PUT", "HEAD"]


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A folder with one file, which is sent as it is."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.pt").write_bytes(b"weights" * 100_000)
    return tmp_path / "one"


@pytest.mark.parametrize("wrong", [Fault(truncate=100), Fault(status=503)])
def test_what_stands_there_is_looked_at_and_sent_again_if_wrong(one, tmp_path, wrong):
    with Origin(tmp_path / "served", writable=True, faults=[None, wrong]) as origin:
        run(one, f"{origin.url}/model.pt")
        assert [seen.method for seen in origin.seen] == ["PUT", "HEAD", "PUT", "HEAD"]


def test_a_digest_that_the_server_states_is_compared(one, tmp_path):
    wrong = {"Repr-Digest": f"sha-256=:{base64.b64encode(bytes(32)).decode()}:"}
    with Origin(tmp_path / "served", writable=True, headers=wrong) as origin:
        error = failure(one, f"{origin.url}/model.pt", patience_s=0)
    assert "another sha256 than model.pt" in error.detail


@pytest.mark.parametrize("unseen", [Fault(status=403), Fault(status=404), Fault(page=b"<html>thanks</html>")])
def test_a_place_that_only_takes_is_believed(one, tmp_path, unseen):
    with Origin(tmp_path / "served", writable=True, faults=[None, unseen, unseen]) as origin:
        run(one, f"{origin.url}/model.pt")
        assert [seen.method for seen in origin.seen].count("PUT") == 1


def test_progress_grows_while_one_file_is_on_its_way(one, tmp_path):
    told = []
    with Origin(tmp_path / "served", writable=True) as origin:
        run(one, f"{origin.url}/model.pt", progress=lambda done, total: told.append((done, total)))
    assert len(told) > 5
    assert told == sorted(told)
    assert told[-1] == (700_000, 700_000)


def test_stop_is_heard_within_a_file(one, tmp_path):
    def leave(done, total):
        raise Leave

    with Origin(tmp_path / "served", writable=True) as origin, pytest.raises(Leave):
        run(one, f"{origin.url}/model.pt", progress=leave)
    assert not (tmp_path / "served" / "model.pt").exists()


def failure(folder: Path, url: str, **more) -> FailedError:
    with pytest.raises(FailedError) as caught:
        run(folder, url, **more)
    return caught.value


def test_a_lasting_failure_is_the_sinks(folder, tmp_path):
    with Origin(tmp_path / "served", writable=True, faults=[Fault(status=500)] * 99) as origin:
        error = failure(folder, f"{origin.url}/out.zip?signature=abc", patience_s=0.3)
    assert error.kind == "sink_failed"
    assert "500" in error.detail
    assert "abc" not in error.detail


def test_a_refused_token_is_told_at_once(folder, tmp_path):
    with Origin(tmp_path / "served", writable=True, token="right") as origin:
        assert failure(folder, f"{origin.url}/out.zip", token="wrong", patience_s=60).kind == "token_refused"
    assert len(origin.seen) == 1


def test_a_destination_that_is_no_folder(folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    error = failure(folder, (tmp_path / "file").as_uri(), patience_s=0)
    assert error.kind == "sink_failed"
    assert (tmp_path / "file").read_text() == "in the way"


class Leave(Exception):
    pass


def test_stop_is_heard_between_files(folder, tmp_path):
    def stop() -> None:
        raise Leave

    with pytest.raises(Leave):
        output = Output(Ref((tmp_path / "to").as_uri()))
        upload_folder(folder, output, str, stop=stop, progress=lambda d, t: None, patience_s=1)


def test_one_file_alone(folder, tmp_path):
    upload_file(folder / "model.pt", Output(Ref((tmp_path / "to").as_uri())), "ckpt/last.pt", str)
    assert content(tmp_path / "to") == {"ckpt/last.pt": FILES["model.pt"]}
