"""Inputs: archives are unpacked behind their download, and nothing of a wrong one stays."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from dataclasses import replace

import pytest

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.context import AttemptContext
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stages.fetch import fetch_inputs, unpack_inputs
from packtrain.agent.stages.streaming_unpack import merge_folder
from packtrain.agent.steps.guard import Guard
from packtrain.agent.steps.processes import ProcessTable
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import AttemptFolder, Digest, Input, Job, Limits, Location, RemoteFile, Resources
from packtrain.transfer.archive.detection import can_unpack_while_downloading, has_archive_magic
from packtrain.transfer.block_checksums import format_checksums, make_checksums
from packtrain.transfer.cache import DownloadCache
from testbed.http_server import HttpServer, ResponseFault

DATA = os.urandom(300_000)


def tar_of(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "served").mkdir()
    with HttpServer(tmp_path / "served") as origin:
        yield origin


@pytest.fixture
def serve(tmp_path, origin):
    """Puts a file at the origin; its item."""

    def serve(name, data, **more):
        (tmp_path / "served" / name).write_bytes(data)
        return RemoteFile(name, (Location(f"{origin.url}/{name}"),), **more)

    return serve


@pytest.fixture
def context(tmp_path):
    guards = []

    def make(*items, depot=None, **more):
        box = Sandbox(tmp_path / "box", AttemptFolder(tmp_path / "home"))
        box.create()
        redactor = Redactor([])
        guards.append(Guard.start())
        job = Job("0", (), Resources(), Limits(), (), inputs=(Input("", "input", items, **more),), retry_timeout_s=0.3)
        journal = Journal(box.attempt_folder.journal, "r", "0", "agent-1", redactor)
        log, secrets = AgentLog(box.attempt_folder.agent_log, redactor), Secrets(tmp_path / "secrets")
        return AttemptContext(
            job, box, journal, log, secrets, redactor, StopRequest(), ProcessTable(guards[-1], 0.2), depot
        )

    yield make
    for guard in guards:
        guard.quit()


def brought(context):
    """Both stages; what each counted."""
    fetched, unpacked = {}, {}
    fetch_inputs(context, fetched)
    assert not (context.sandbox.tmp / "behind").exists()
    unpack_inputs(context, unpacked)
    return fetched, unpacked


def content(context):
    folder = context.sandbox.input
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def notices(context):
    return [e.data["text"] for e in JournalReader(context.journal.path).read() if e.kind == "notice"]


@pytest.mark.parametrize(("name", "pack"), [("d.tar", bytes), ("d.tar.gz", gzip.compress), ("d.tgz", gzip.compress)])
def test_a_tar_is_unpacked_behind_its_download(context, serve, name, pack):
    packed = pack(tar_of({"a": DATA, "d/b": b"1"}))
    here = context(serve(name, packed, digest=Digest("sha256", hashlib.sha256(packed).hexdigest())))
    fetched, unpacked = brought(here)
    assert content(here) == {"a": DATA, "d/b": b"1"}
    assert (fetched["bytes"], fetched["files"], fetched["source"][-len(name) :]) == (len(packed), 1, name)
    assert (fetched["unpacked_files"], fetched["unpacked_bytes"]) == (2, len(DATA) + 1)
    assert unpacked == {"files": 2, "bytes": len(DATA) + 1}


def test_no_archive_touches_the_disk(context, serve):
    """There is room for what is in it, and for nothing else."""
    here = context(serve("d.tar", tar_of({"a": DATA})))
    fetch_inputs(here, {})
    assert [p.name for p in here.sandbox.root.rglob("*") if p.is_file() and p.stat().st_size > 100_000] == ["a"]


def test_tars_of_tars_become_folders_on_the_fly(context, serve):
    here = context(serve("d.tar", tar_of({"n1.tar": tar_of({"x": b"1"}), "n2.tar": tar_of({"y": b"2"})})), nested=True)
    brought(here)
    assert content(here) == {"n1/x": b"1", "n2/y": b"2"}


def test_a_single_packed_file_loses_its_suffix(context, serve):
    here = context(serve("idx.gz", gzip.compress(DATA)))
    assert brought(here)[0]["unpacked_files"] == 1
    assert content(here) == {"idx": DATA}


def test_zips_and_plain_files_come_as_files(context, serve):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("in.zip.txt", b"zipped")
    items = [serve("d.zip", made.getvalue()), serve("labels.csv", b"a,b\n"), serve("d.tar", tar_of({"t": b"tarred"}))]
    here = context(*items)
    fetched, unpacked = brought(here)
    assert content(here) == {"in.zip.txt": b"zipped", "labels.csv": b"a,b\n", "t": b"tarred"}
    assert (fetched["files"], fetched["unpacked_files"], unpacked["files"]) == (3, 1, 2)


def test_a_zip_that_is_called_a_tar_comes_as_a_file(context, serve):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("x", DATA)
    here = context(serve("d.tar.gz", made.getvalue()))
    assert brought(here)[0]["unpacked_files"] == 0
    assert content(here) == {"x": DATA}


def test_an_archive_that_holds_a_file_of_its_own_name(context, serve):
    here = context(serve("d.tar.gz", gzip.compress(tar_of({"d.tar.gz": b"inside", "x": b"1"}))))
    assert brought(here)[1]["files"] == 2
    assert content(here) == {"d.tar.gz": b"inside", "x": b"1"}


def test_two_archives_in_one_folder(context, serve):
    here = context(
        serve("a.tar", tar_of({"d/a": b"1", "same": b"1"})), serve("b.tar", tar_of({"d/b": b"2", "same": b"2"}))
    )
    brought(here)
    assert content(here) == {"d/a": b"1", "d/b": b"2", "same": b"2"}


def test_unpack_never_leaves_it_packed(context, serve):
    packed = tar_of({"a": b"1"})
    here = context(serve("d.tar", packed), unpack="never")
    brought(here)
    assert content(here) == {"d.tar": packed}


def failure(context):
    """The kind, and the stage that tells it."""
    try:
        fetch_inputs(context, {})
    except FailedError as error:
        return error.kind, "fetch"
    with pytest.raises(FailedError) as caught:
        unpack_inputs(context, {})
    return caught.value.kind, "unpack"


def test_a_wrong_digest_leaves_nothing(context, serve):
    here = context(serve("d.tar", tar_of({"a": DATA}), digest=Digest("sha256", "0" * 64)))
    assert failure(here) == ("digest_mismatch", "fetch")
    assert content(here) == {}
    assert any("once more" in text for text in notices(here))


def test_corrupt_bytes_are_mended_by_a_second_download(context, serve, origin):
    packed = tar_of({"a": DATA})
    item = serve("d.tar", packed, digest=Digest("sha256", hashlib.sha256(packed).hexdigest()))
    origin.faults[:] = [ResponseFault(corrupt_offset=100_000)]
    here = context(item)
    brought(here)
    assert content(here) == {"a": DATA}


def test_a_page_instead_of_an_archive(context, serve, origin):
    item = serve("d.tar.gz", b"x")
    origin.faults[:] = [ResponseFault(html_body=b"<!DOCTYPE html><html><title>Down</title></html>")] * 99
    here = context(item)
    assert failure(here) == ("unexpected_content", "fetch")
    assert content(here) == {}
    assert notices(here) == [], "to ask once more would cost the patience twice"


def test_another_size_than_the_planned_one_is_believed_after_one_patience(context, serve):
    packed = tar_of({"a": DATA})
    here = context(serve("d.tar", packed, size=len(packed) + 1))
    assert failure(here) == ("truncated", "fetch")
    assert notices(here) == []


def test_a_body_of_unknown_length_that_breaks_off_is_fetched_as_a_file(context, serve, origin):
    packed = tar_of({"a": DATA})
    item = serve("d.tar", packed)
    origin.faults[:] = [ResponseFault(chunked=True, ignore_range=True, close_after_bytes=len(packed) - 5000)]
    here = context(item)
    brought(here)
    assert content(here) == {"a": DATA}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_archive_that_was_cut_before_it_came_here(context, serve, pack):
    whole = pack(tar_of({"a": DATA, "b": DATA}))
    here = context(serve("d.tar", whole[: len(whole) // 2]))
    assert failure(here) == ("truncated", "unpack")


def test_an_archive_that_would_leave_the_folder(context, serve, tmp_path):
    here = context(serve("d.tar", tar_of({"good": b"1", "../evil": b"2"})))
    assert failure(here) == ("archive_unsafe", "unpack")
    assert not list(tmp_path.rglob("evil"))


def test_an_archive_that_is_larger_than_promised(context, serve):
    here = context(serve("d.tar.gz", gzip.compress(tar_of({"zeros": bytes(50_000_000)}))))
    object.__setattr__(here.job, "limits", Limits(disk_bytes=1_000_000))
    assert failure(here) == ("archive_too_large", "unpack")


def test_a_stop_is_heard_in_the_middle(context, serve, origin):
    item = serve("d.tar", tar_of({"a": DATA}))
    origin.faults[:] = [ResponseFault(stall_after_bytes=100_000)] * 99
    here = context(item)
    here.stop.request("terminated", "go")
    assert failure(here) == ("terminated", "fetch")
    origin.release_stalls()


def test_what_may_be_streamed_is_told_by_name_and_place():
    def ask(name, url="http://h/x", **more):
        return can_unpack_while_downloading(Input("", "input", **more), RemoteFile(name, (Location(url),)))

    assert [ask(name) for name in ("a.tar", "A.TAR.GZ", "b.tgz", "c.xz", "d.zip", "e", "f.7z")] == [True] * 4 + [
        False
    ] * 3
    assert not ask("a.tar", "file:///a.tar")
    assert not ask("a.tar", unpack="never")


def test_moving_goes_through_no_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder" / "l").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "apart" / "l").mkdir(parents=True)
    (tmp_path / "apart" / "l" / "x").write_text("evil")
    with pytest.raises(FailedError) as caught:
        merge_folder(tmp_path / "apart", tmp_path / "folder", "a.tar")
    assert caught.value.kind == "archive_unsafe"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_through_the_depot_an_item_is_fetched_once(context, serve, origin, tmp_path):
    packed = tar_of({"a": DATA})
    item = serve("d.tar", packed)
    sent = []
    for _ in range(2):
        here = context(item, depot=DownloadCache(tmp_path / "depot"))
        brought(here)
        assert content(here) == {"a": DATA}
        sent.append(origin.sent_bytes)
    (entry,) = DownloadCache(tmp_path / "depot").entries()
    assert (entry.name, entry.bytes, entry.is_complete) == ("d.tar", len(packed), True)
    assert stat.S_IMODE((tmp_path / "depot").stat().st_mode) == 0o700
    assert sent[0] == sent[1] >= len(packed)


@pytest.mark.parametrize(
    ("head", "may"),
    [
        (b"\x1f\x8b\x08", True),
        (b"BZh9", True),
        (b"\xfd7zXZ\0", True),
        (b"PK\x03\x04", True),
        (b"Rar!\x1a\x07", True),
        (b"plain text\n" * 100, False),
        (b"", False),
        (bytes(10240), True),
    ],
)
def test_what_is_certainly_no_archive(tmp_path, head, may):
    (tmp_path / "file").write_bytes(head)
    assert has_archive_magic(tmp_path / "file") is may


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_may_be_one(tmp_path, form):
    with tarfile.open(tmp_path / "x.tar", "w", format=form) as archive:
        archive.add(__file__, "name")
    assert has_archive_magic(tmp_path / "x.tar")


# Checksums files


@pytest.fixture
def twice(tmp_path, origin):
    """A file at two places, one of which has a wrong byte in its second block; its item, with its checksums file."""
    (tmp_path / "spoiled").mkdir()
    with HttpServer(tmp_path / "spoiled") as spoiled:

        def serve(name, data, **more):
            (tmp_path / "served" / name).write_bytes(data)
            sums = make_checksums(tmp_path / "served" / name)
            (tmp_path / "served" / f"{name}.json").write_text(format_checksums(sums))
            wrong = bytearray(data)
            wrong[1_500_000] ^= 1
            (tmp_path / "spoiled" / name).write_bytes(wrong)
            sources = (Location(f"{spoiled.url}/{name}"), Location(f"{origin.url}/{name}"))
            return RemoteFile(name, sources, checksums=Location(f"{origin.url}/{name}.json"), **more)

        yield serve


LARGE = os.urandom(3_000_000)


@pytest.mark.parametrize("with_depot", [False, True])
@pytest.mark.parametrize("name", ["data.bin", "data.tar"])
def test_a_bad_block_comes_from_another_source(context, twice, tmp_path, name, with_depot):
    data = tar_of({"a.bin": LARGE}) if name.endswith(".tar") else LARGE
    made = context(twice(name, data), depot=DownloadCache(tmp_path / "depot") if with_depot else None)
    fetched, _ = brought(made)
    assert content(made) == {"a.bin" if name.endswith(".tar") else name: LARGE}
    assert fetched["bytes"] == len(data)
    assert not list(made.box.tmp.glob("checksums*"))


def test_a_bad_block_of_the_only_source_is_told(context, twice):
    item = twice("data.bin", LARGE)
    with pytest.raises(FailedError, match="block 1 does not match its checksum") as caught:
        brought(context(replace(item, sources=item.locations[:1])))
    assert caught.value.kind == "digest_mismatch"


def test_what_is_no_checksums_file_is_told(context, serve):
    item, wrong = serve("data.bin", DATA), serve("sums.json", b'{"version": 7}')
    with pytest.raises(FailedError, match=r"sums\.json.*version") as caught:
        brought(context(replace(item, checksums=wrong.locations[0])))
    assert caught.value.kind == "unexpected_content"
