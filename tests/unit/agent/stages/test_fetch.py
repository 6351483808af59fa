"""Tests of the stages fetch and unpack, with a real HTTP server."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from dataclasses import replace

import pytest

from packtrain.agent.stages.fetch import fetch_inputs
from packtrain.agent.stages.unpack import unpack_inputs
from packtrain.errors import FailedError
from packtrain.events import JournalReader
from packtrain.plan import Digest, Input, Job, Limits, Location, RemoteFile, Resources
from packtrain.transfer.archive.formats import can_unpack_while_downloading, may_be_archive
from packtrain.transfer.cache import DownloadCache
from packtrain.transfer.integrity.block_checksums import format_checksums, make_checksums
from packtrain.transfer.streamed_unpack import merge_folder
from testbed.http_server import HttpServer, ResponseFault
from tests.support.attempt_contexts import attempt_contexts

DATA = os.urandom(300_000)


def make_tar_bytes(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "served").mkdir()
    with HttpServer(tmp_path / "served") as origin:
        yield origin


@pytest.fixture
def serve(tmp_path, origin):
    """Return a function that adds a file to the server and returns its RemoteFile."""

    def serve(name, data, **more):
        (tmp_path / "served" / name).write_bytes(data)
        return RemoteFile(name, (Location(f"{origin.url}/{name}"),), **more)

    return serve


@pytest.fixture
def make_context(tmp_path):
    def make_context(*remote_files, cache=None, **more):
        inputs = (Input("", "input", remote_files, **more),)
        return make(Job("0", (), Resources(), Limits(), (), inputs=inputs, retry_timeout_s=0.3), download_cache=cache)

    with attempt_contexts(tmp_path) as make:
        yield make_context


def run_both_stages(context):
    """Run fetch and unpack; return the statistics of each."""
    fetched, unpacked = {}, {}
    fetch_inputs(context, fetched)
    assert not (context.sandbox.tmp / "streaming-unpack").exists()
    unpack_inputs(context, unpacked)
    return fetched, unpacked


def input_files(context):
    folder = context.sandbox.input
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def notices(context):
    return [e.data["text"] for e in JournalReader(context.journal.path).read() if e.kind == "notice"]


@pytest.mark.parametrize(("name", "pack"), [("d.tar", bytes), ("d.tar.gz", gzip.compress), ("d.tgz", gzip.compress)])
def test_tar_is_unpacked_while_downloading(make_context, serve, name, pack):
    archive_bytes = pack(make_tar_bytes({"a": DATA, "d/b": b"1"}))
    context = make_context(
        serve(name, archive_bytes, digest=Digest("sha256", hashlib.sha256(archive_bytes).hexdigest()))
    )
    fetched, unpacked = run_both_stages(context)
    assert input_files(context) == {"a": DATA, "d/b": b"1"}
    assert (fetched["bytes"], fetched["files"], fetched["source"][-len(name) :]) == (len(archive_bytes), 1, name)
    assert (fetched["unpacked_files"], fetched["unpacked_bytes"]) == (2, len(DATA) + 1)
    assert unpacked == {"files": 2, "bytes": len(DATA) + 1}


def test_streamed_archive_is_not_written(make_context, serve):
    context = make_context(serve("d.tar", make_tar_bytes({"a": DATA})))
    fetch_inputs(context, {})
    assert [p.name for p in context.sandbox.root.rglob("*") if p.is_file() and p.stat().st_size > 100_000] == ["a"]


def test_nested_tars(make_context, serve):
    context = make_context(
        serve("d.tar", make_tar_bytes({"n1.tar": make_tar_bytes({"x": b"1"}), "n2.tar": make_tar_bytes({"y": b"2"})})),
        nested=True,
    )
    run_both_stages(context)
    assert input_files(context) == {"n1/x": b"1", "n2/y": b"2"}


def test_compressed_file_loses_its_suffix(make_context, serve):
    context = make_context(serve("idx.gz", gzip.compress(DATA)))
    assert run_both_stages(context)[0]["unpacked_files"] == 1
    assert input_files(context) == {"idx": DATA}


def test_zip_and_plain_files_are_fetched_as_files(make_context, serve):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("in.zip.txt", b"zipped")
    remote_files = [
        serve("d.zip", buffer.getvalue()),
        serve("labels.csv", b"a,b\n"),
        serve("d.tar", make_tar_bytes({"t": b"tarred"})),
    ]
    context = make_context(*remote_files)
    fetched, unpacked = run_both_stages(context)
    assert input_files(context) == {"in.zip.txt": b"zipped", "labels.csv": b"a,b\n", "t": b"tarred"}
    assert (fetched["files"], fetched["unpacked_files"], unpacked["files"]) == (3, 1, 2)


def test_zip_with_tar_suffix_is_fetched_as_file(make_context, serve):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x", DATA)
    context = make_context(serve("d.tar.gz", buffer.getvalue()))
    assert run_both_stages(context)[0]["unpacked_files"] == 0
    assert input_files(context) == {"x": DATA}


def test_member_with_name_of_archive(make_context, serve):
    context = make_context(serve("d.tar.gz", gzip.compress(make_tar_bytes({"d.tar.gz": b"inside", "x": b"1"}))))
    assert run_both_stages(context)[1]["files"] == 2
    assert input_files(context) == {"d.tar.gz": b"inside", "x": b"1"}


def test_two_archives_in_one_folder(make_context, serve):
    context = make_context(
        serve("a.tar", make_tar_bytes({"d/a": b"1", "same": b"1"})),
        serve("b.tar", make_tar_bytes({"d/b": b"2", "same": b"2"})),
    )
    run_both_stages(context)
    assert input_files(context) == {"d/a": b"1", "d/b": b"2", "same": b"2"}


def test_unpack_never(make_context, serve):
    archive_bytes = make_tar_bytes({"a": b"1"})
    context = make_context(serve("d.tar", archive_bytes), unpack="never")
    run_both_stages(context)
    assert input_files(context) == {"d.tar": archive_bytes}


def run_expecting_failure(context):
    """Run both stages; return the failure kind and the stage that raised it."""
    try:
        fetch_inputs(context, {})
    except FailedError as error:
        return error.kind, "fetch"
    with pytest.raises(FailedError) as caught:
        unpack_inputs(context, {})
    return caught.value.kind, "unpack"


def test_wrong_digest_leaves_no_files(make_context, serve):
    context = make_context(serve("d.tar", make_tar_bytes({"a": DATA}), digest=Digest("sha256", "0" * 64)))
    assert run_expecting_failure(context) == ("digest_mismatch", "fetch")
    assert input_files(context) == {}
    assert any("fetched again" in text for text in notices(context))


def test_corrupt_bytes_are_fetched_again(make_context, serve, origin):
    archive_bytes = make_tar_bytes({"a": DATA})
    remote_file = serve("d.tar", archive_bytes, digest=Digest("sha256", hashlib.sha256(archive_bytes).hexdigest()))
    origin.faults[:] = [ResponseFault(corrupt_offset=100_000)]
    context = make_context(remote_file)
    run_both_stages(context)
    assert input_files(context) == {"a": DATA}


def test_error_page_instead_of_archive(make_context, serve, origin):
    remote_file = serve("d.tar.gz", b"x")
    origin.faults[:] = [ResponseFault(html_body=b"<!DOCTYPE html><html><title>Down</title></html>")] * 99
    context = make_context(remote_file)
    assert run_expecting_failure(context) == ("unexpected_content", "fetch")
    assert input_files(context) == {}
    assert notices(context) == [], "a second download would cost the retry timeout again"


def test_wrong_size_is_not_fetched_twice(make_context, serve):
    archive_bytes = make_tar_bytes({"a": DATA})
    context = make_context(serve("d.tar", archive_bytes, size=len(archive_bytes) + 1))
    assert run_expecting_failure(context) == ("truncated", "fetch")
    assert notices(context) == []


def test_broken_body_of_unknown_length_is_fetched_as_file(make_context, serve, origin):
    archive_bytes = make_tar_bytes({"a": DATA})
    remote_file = serve("d.tar", archive_bytes)
    origin.faults[:] = [ResponseFault(chunked=True, ignore_range=True, close_after_bytes=len(archive_bytes) - 5000)]
    context = make_context(remote_file)
    run_both_stages(context)
    assert input_files(context) == {"a": DATA}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_truncated_archive(make_context, serve, pack):
    complete = pack(make_tar_bytes({"a": DATA, "b": DATA}))
    context = make_context(serve("d.tar", complete[: len(complete) // 2]))
    assert run_expecting_failure(context) == ("truncated", "unpack")


def test_member_outside_of_folder(make_context, serve, tmp_path):
    context = make_context(serve("d.tar", make_tar_bytes({"good": b"1", "../evil": b"2"})))
    assert run_expecting_failure(context) == ("archive_unsafe", "unpack")
    assert not list(tmp_path.rglob("evil"))


def test_archive_larger_than_disk_limit(make_context, serve):
    context = make_context(serve("d.tar.gz", gzip.compress(make_tar_bytes({"zeros": bytes(50_000_000)}))))
    object.__setattr__(context.job, "limits", Limits(disk_bytes=1_000_000))
    assert run_expecting_failure(context) == ("archive_too_large", "unpack")


def test_stop_interrupts_download(make_context, serve, origin):
    remote_file = serve("d.tar", make_tar_bytes({"a": DATA}))
    origin.faults[:] = [ResponseFault(stall_after_bytes=100_000)] * 99
    context = make_context(remote_file)
    context.stop.request("terminated", "go")
    assert run_expecting_failure(context) == ("terminated", "fetch")
    origin.release_stalls()


def test_streamable_by_name_and_scheme():
    def is_streamable(name, url="http://h/x", **more):
        return can_unpack_while_downloading(Input("", "input", **more), RemoteFile(name, (Location(url),)))

    assert [is_streamable(name) for name in ("a.tar", "A.TAR.GZ", "b.tgz", "c.xz", "d.zip", "e", "f.7z")] == [
        True
    ] * 4 + [False] * 3
    assert not is_streamable("a.tar", "file:///a.tar")
    assert not is_streamable("a.tar", unpack="never")


def test_merge_follows_no_symlink(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder" / "l").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "staging" / "l").mkdir(parents=True)
    (tmp_path / "staging" / "l" / "x").write_text("evil")
    with pytest.raises(FailedError) as caught:
        merge_folder(tmp_path / "staging", tmp_path / "folder", "a.tar")
    assert caught.value.kind == "archive_unsafe"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_cached_file_is_fetched_once(make_context, serve, origin, tmp_path):
    archive_bytes = make_tar_bytes({"a": DATA})
    remote_file = serve("d.tar", archive_bytes)
    sent_bytes = []
    for _ in range(2):
        context = make_context(remote_file, cache=DownloadCache(tmp_path / "cache"))
        run_both_stages(context)
        assert input_files(context) == {"a": DATA}
        sent_bytes.append(origin.sent_bytes)
    (entry,) = DownloadCache(tmp_path / "cache").entries()
    assert (entry.name, entry.bytes, entry.is_complete) == ("d.tar", len(archive_bytes), True)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert sent_bytes[0] == sent_bytes[1] >= len(archive_bytes)


@pytest.mark.parametrize(
    ("head", "expected"),
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
def test_archive_magic(tmp_path, head, expected):
    (tmp_path / "file").write_bytes(head)
    assert may_be_archive(tmp_path / "file") is expected


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archive_magic_of_tar_formats(tmp_path, tar_format):
    with tarfile.open(tmp_path / "x.tar", "w", format=tar_format) as archive:
        archive.add(__file__, "name")
    assert may_be_archive(tmp_path / "x.tar")


# checksums files


@pytest.fixture
def serve_with_bad_replica(tmp_path, origin):
    """Like `serve`, with a checksums file and a first replica that has a wrong byte in its second block."""
    (tmp_path / "bad").mkdir()
    with HttpServer(tmp_path / "bad") as bad_server:

        def serve(name, data, **more):
            (tmp_path / "served" / name).write_bytes(data)
            checksums = make_checksums(tmp_path / "served" / name)
            (tmp_path / "served" / f"{name}.json").write_text(format_checksums(checksums))
            bad_data = bytearray(data)
            bad_data[1_500_000] ^= 1
            (tmp_path / "bad" / name).write_bytes(bad_data)
            replicas = (Location(f"{bad_server.url}/{name}"), Location(f"{origin.url}/{name}"))
            return RemoteFile(name, replicas, checksums=Location(f"{origin.url}/{name}.json"), **more)

        yield serve


LARGE = os.urandom(3_000_000)


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("name", ["data.bin", "data.tar"])
def test_bad_block_comes_from_another_source(make_context, serve_with_bad_replica, tmp_path, name, use_cache):
    data = make_tar_bytes({"a.bin": LARGE}) if name.endswith(".tar") else LARGE
    context = make_context(
        serve_with_bad_replica(name, data), cache=DownloadCache(tmp_path / "cache") if use_cache else None
    )
    fetched, _ = run_both_stages(context)
    assert input_files(context) == {"a.bin" if name.endswith(".tar") else name: LARGE}
    assert fetched["bytes"] == len(data)
    assert not list(context.sandbox.tmp.glob("checksums*"))


def test_bad_block_of_only_source_fails(make_context, serve_with_bad_replica):
    remote_file = serve_with_bad_replica("data.bin", LARGE)
    with pytest.raises(FailedError, match="block 1 does not match its checksum") as caught:
        run_both_stages(make_context(replace(remote_file, locations=remote_file.locations[:1])))
    assert caught.value.kind == "digest_mismatch"


def test_invalid_checksums_file(make_context, serve):
    remote_file, invalid = serve("data.bin", DATA), serve("sums.json", b'{"version": 7}')
    with pytest.raises(FailedError, match=r"sums\.json.*version") as caught:
        run_both_stages(make_context(replace(remote_file, checksums=invalid.locations[0])))
    assert caught.value.kind == "unexpected_content"
