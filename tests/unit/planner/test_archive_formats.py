"""The table of archive formats: what each name and each beginning of a file means to every part of packtrain."""

from __future__ import annotations

import pytest

from packtrain.indexing.read_window import ReadWindow
from packtrain.indexing.tar_members import COMPRESSED_TAR, FILE, read_member
from packtrain.plan import Input, Location, RemoteFile
from packtrain.planner.stream_planner import is_compressed, is_indexable_archive
from packtrain.transfer.archive.external_tools import EXTERNAL_FORMATS
from packtrain.transfer.archive.formats import (
    COMPRESSIONS,
    FORMATS,
    FORMATS_BY_NAME,
    can_unpack_while_downloading,
    format_from_magic,
    format_from_name,
    strip_archive_suffix,
    unpacked_format,
)
from packtrain.transfer.archive.unpack import can_stream, detect_format
from packtrain.transfer.integrity.content_checks import detect_error_page, detect_wrong_format
from tests.support.archives import make_member, make_tar

# name, format, unpacked, unpacked while it is downloaded, indexed for streaming
NAMES = [
    ("a.tar", "tar", True, True, True),
    ("a.tar.gz", "gz", True, True, False),
    ("A.TGZ", "gz", True, True, False),
    ("a.gz", "gz", True, True, False),
    ("a.tar.bz2", "bz2", True, True, False),
    ("a.tbz", "bz2", True, True, False),
    ("a.tbz2", "bz2", True, True, False),
    ("a.txz", "xz", True, True, False),
    ("a.xz", "xz", True, True, False),
    ("a.zip", "zip", True, False, True),
    ("a.7z", "7z", True, False, False),
    ("a.rar", "rar", True, False, False),
    ("a.tar.zst", "zst", False, False, False),
    ("a.tzst", "zst", False, False, False),
    ("a.lz4", "lz4", False, False, False),
    ("a.npz", None, False, False, False),
    ("targz", None, False, False, False),
]


@pytest.mark.parametrize(("name", "expected", "unpacked", "streamed", "indexed"), NAMES)
def test_names(name, expected, unpacked, streamed, indexed):
    archive_format = format_from_name(name)
    assert (archive_format.name if archive_format else None) == expected
    assert (unpacked_format(name) is not None) is unpacked
    remote_file = RemoteFile(name, (Location(f"https://host/{name}"),))
    assert can_unpack_while_downloading(Input("", "input", (remote_file,)), remote_file) is streamed
    assert is_indexable_archive(f"https://host/{name}?sig=.gz") is indexed
    assert is_compressed(f"https://host/{name}?sig=.gz") is (expected is not None and not indexed)


@pytest.mark.parametrize(("name", "expected", "unpacked", "streamed", "indexed"), NAMES)
def test_content_is_expected_to_match_the_name(name, expected, unpacked, streamed, indexed):
    is_archive = expected is not None
    assert (detect_error_page(name, b"", None) is not None) is is_archive
    assert (detect_wrong_format(name, b"\xff\x00\xfe" * 200, False) is not None) is is_archive


@pytest.mark.parametrize("archive_format", [one for one in FORMATS if one.magic], ids=lambda one: one.name)
def test_magic(archive_format, tmp_path):
    for magic in archive_format.magic:
        head = magic + b"\xff" * 600
        assert format_from_magic(head) is archive_format
        assert detect_wrong_format("x.tar", head, False) is None
        assert can_stream(head) is archive_format.can_stream
        (tmp_path / "x").write_bytes(head)
        assert detect_format(tmp_path / "x") == (archive_format.name if archive_format.can_unpack else None)


@pytest.mark.parametrize("archive_format", FORMATS, ids=lambda one: one.name)
def test_table_is_consistent(archive_format):
    assert archive_format.growth >= 1.0 or not archive_format.can_unpack
    assert archive_format.can_unpack or not (archive_format.can_stream or archive_format.can_index)
    assert bool(archive_format.tool) == (archive_format.name in EXTERNAL_FORMATS)
    for suffix in (*archive_format.suffixes, *archive_format.tar_suffixes):
        assert suffix == suffix.lower()
        assert format_from_name(f"x{suffix}") is archive_format


def test_compressions_have_one_magic():
    for name in COMPRESSIONS:
        assert len(FORMATS_BY_NAME[name].magic) == 1
        assert FORMATS_BY_NAME[name].can_stream


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.tar.gz", "a"),
        ("a.TGZ", "a"),
        ("a.tbz", "a"),
        ("a.csv.xz", "a.csv"),
        ("a.tar", "a"),
        (".gz", ".gz.unpacked"),
        ("a.zip", "a.zip.unpacked"),
        ("data", "data.unpacked"),
    ],
)
def test_stripped_suffix(name, expected):
    assert strip_archive_suffix(name) == expected


@pytest.mark.parametrize(
    ("name", "magic", "kind"),
    [
        ("in.tar.gz", b"\x1f\x8b", COMPRESSED_TAR),
        ("in.tbz", b"BZh", COMPRESSED_TAR),
        ("in.tar.zst", b"\x28\xb5\x2f\xfd", COMPRESSED_TAR),
        ("in.tar.zst", b"text", FILE),
        ("in.gz", b"\x1f\x8b", FILE),
    ],
)
def test_compressed_tar_inside_a_tar(name, magic, kind):
    data = make_tar([make_member(name, magic + bytes(1000))])
    window = ReadWindow(lambda start, stop: data[start:stop], len(data))
    assert read_member(window, 0).kind == kind
