"""unpack: every kind, by content; nothing unsafe, nothing outside of the folder, no full disk."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import random
import shutil
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.unpack import Unpacked, can_stream, kind_of, unpack, unpack_stream

FILES = {"a.txt": b"alpha", "deep/er/b.bin": bytes(range(256)) * 5000, "empty": b"", "ü ñ.txt": b"names"}


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mode = len(data), kind, link, mode
    return info, data


def tar_of(members, mode: str = "w", form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def zip_of(files, method: int = zipfile.ZIP_DEFLATED, force_zip64: bool = False) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in files.items():
            with archive.open(name, "w", force_zip64=force_zip64) as file:
                file.write(data)
    return made.getvalue()


def plain_tar(files=None) -> bytes:
    return tar_of(member(name, data) for name, data in (FILES if files is None else files).items())


def content(folder: Path) -> dict:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The archive stands beside the folder, and beside both a witness that must stay alone."""
    (tmp_path / "witness").write_text("untouched")
    return tmp_path


class Trickle:
    """A download that comes in pieces of odd sizes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._sizes = memoryview(data), itertools.cycle((1, 700, 13, 66_000, 512, 4096))

    def read(self, size: int) -> bytes:
        return b"".join(self.take(size))

    def take(self, size: int) -> list:
        views = []
        while size and len(self._data):
            piece = min(size, next(self._sizes))
            views.append(self._data[:piece])
            self._data, size = self._data[piece:], size - len(views[-1])
        return views


def from_file(path: Path, folder: Path, **more) -> Unpacked:
    return unpack(path, folder, **more)


def from_stream(path: Path, folder: Path, **more) -> Unpacked:
    """What can be streamed is; the others have to be a file."""
    data = path.read_bytes()
    if not can_stream(data[:512]):
        return unpack(path, folder, **more)
    path.rename(path.with_name("hidden"))
    try:
        return unpack_stream(Trickle(data), path.name, folder, **more)
    finally:
        path.with_name("hidden").rename(path)


WAYS = {"file": from_file, "stream": from_stream}
WAY = [from_file]


@pytest.fixture(params=WAYS, autouse=True)
def way(request) -> str:
    """Every test is about archives on the disk and archives on their way."""
    WAY[0] = WAYS[request.param]
    return request.param


def run(place: Path, data: bytes, name: str = "data", **more) -> Unpacked:
    path = place / name
    path.write_bytes(data)
    given = {"limit_bytes": None, "stop": lambda: None, "progress": lambda d, t: None, **more}
    return WAY[0](path, place / "into", **given)


def failure(place: Path, data: bytes, name: str = "data", **more) -> FailedError:
    with pytest.raises(FailedError) as caught:
        run(place, data, name, **more)
    assert sorted(p.name for p in place.iterdir() if p.name != "into") == sorted([name, "witness"])
    assert (place / "witness").read_text() == "untouched"
    return caught.value


ARCHIVES = {
    "tar": plain_tar(),
    "tar.gz": gzip.compress(plain_tar()),
    "tar.bz2": bz2.compress(plain_tar()),
    "tar.xz": lzma.compress(plain_tar()),
    "zip": zip_of(FILES),
}


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("name", ["data", "wrong-name.jpg", "odd.zip.tar"])
def test_every_kind_is_known_by_its_content(place, kind, name):
    done = run(place, ARCHIVES[kind], name)
    assert kind_of(place / name) == kind
    assert content(place / "into") == FILES
    assert done == Unpacked(len(FILES), sum(map(len, FILES.values())))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar(place, form):
    long = "folder/" * 12 + "n" * 90
    run(place, tar_of([member(long, b"x"), member("y", b"y")], form=form))
    assert content(place / "into") == {long: b"x", "y": b"y"}


def test_a_tar_from_before_posix_has_no_magic(place):
    header = bytearray(tar_of([member("old.txt", b"old")], form=tarfile.USTAR_FORMAT))
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    run(place, bytes(header))
    assert content(place / "into") == {"old.txt": b"old"}


def gnu_tar(place: Path, files: dict, *options: str) -> bytes:
    made = place / "made"
    for name, data in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    packed = subprocess.run(["tar", "-cf", "-", *options, "-C", made, "."], capture_output=True, check=True).stdout
    shutil.rmtree(made)
    return packed


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_every_form_that_gnu_tar_writes(place, form):
    long = {} if form == "v7" else {"folder/" * 14 + "n" * 60: b"long"}
    longer = {"deep/" * 60 + "n" * 200: b"longer"} if form in ("gnu", "posix") else {}
    files = {"a": b"1", "d/b": bytes(5000), **long, **longer}
    run(place, gnu_tar(place, files, f"--format={form}"))
    assert content(place / "into") == files


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_sparse_file_is_refused_clearly(place, form):
    (place / "hole").mkdir()
    with open(place / "hole" / "holes.bin", "wb") as file:
        file.truncate(10 << 20)
        file.seek(5 << 20)
        file.write(b"data")
    command = ["tar", "-cf", "-", "--sparse", f"--format={form}", "-C", place / "hole", "holes.bin"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    shutil.rmtree(place / "hole")
    error = failure(place, packed)
    assert error.kind == "archive_unsafe"
    assert "sparse" in error.detail


def test_sizes_beyond_octal_are_read(place):
    header = bytearray(tar_of([member("big", b"12345")], form=tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    run(place, bytes(header))
    assert content(place / "into") == {"big": b"12345"}


def test_large_and_small_files_land_side_by_side(place):
    files = {"large": RANDOM * 20, "small": b"s", "d/large": RANDOM * 15, "d/empty": b""}
    assert run(place, plain_tar(files)) == Unpacked(4, sum(map(len, files.values())))
    assert content(place / "into") == files


def test_many_small_files_under_few_names_end_as_the_last_ones(place):
    members = [member(f"d/{n % 7}", b"%d" % n) for n in range(3000)]
    run(place, tar_of(members, form=tarfile.USTAR_FORMAT))
    assert content(place / "into") == {f"d/{n % 7}": b"%d" % n for n in range(2993, 3000)}


def test_streams_of_compression_may_follow_one_another(place):
    tar = plain_tar()
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        run(place, pack(tar[:5000]) + pack(tar[5000:]) + bytes(512), "x.tar")
        assert content(place / "into") == FILES
        shutil.rmtree(place / "into")


def test_an_empty_tar_is_a_tar(place):
    assert run(place, tar_of([])) == Unpacked(0, 0)
    assert run(place, gzip.compress(tar_of([]))) == Unpacked(0, 0)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_and_zip64(place, method):
    run(place, zip_of(FILES, method, force_zip64=True))
    assert content(place / "into") == FILES


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")])
def test_a_single_compressed_file_loses_its_suffix(place, pack, suffix):
    data = b"idx file " * 100_000
    assert run(place, pack(data), f"train-images{suffix}") == Unpacked(1, len(data))
    assert content(place / "into") == {"train-images": data}


def test_what_is_no_archive_is_left(place):
    for name, data in {"a.tar.gz": b"hello", "b": b"", "c.tar": bytes(5000), "d.jpg": b"\xff\xd8" * 999}.items():
        (place / name).write_bytes(data)
        assert kind_of(place / name) is None


def test_data_that_happens_to_be_zipped_is_left(place):
    (place / "model.pth").write_bytes(zip_of(FILES))
    assert kind_of(place / "model.pth") is None


UNSAFE = {
    "up": [member("../x", b"evil")],
    "far up": [member("../../x", b"evil")],
    "up inside": [member("a/../../x", b"evil")],
    "absolute": [member("/tmp/packtrain-evil", b"evil")],
    "link out": [member("l", kind=tarfile.SYMTYPE, link="../witness")],
    "absolute link": [member("l", kind=tarfile.SYMTYPE, link="/etc/passwd")],
    "link up and down": [member("d/l", kind=tarfile.SYMTYPE, link="../../into-evil/x")],
    "through a link": [member("l", kind=tarfile.SYMTYPE, link="."), member("l/x", b"evil")],
    "dots behind a name": [
        member("d1/d2/s", kind=tarfile.SYMTYPE, link="../.."),
        member("out", kind=tarfile.SYMTYPE, link="d1/d2/s/../witness"),
    ],
    "hard link out": [member("h", kind=tarfile.LNKTYPE, link="../witness")],
    "absolute hard link": [member("h", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "hard link through a link": [
        member("d", kind=tarfile.DIRTYPE),
        member("l", kind=tarfile.SYMTYPE, link="d"),
        member("h", kind=tarfile.LNKTYPE, link="l/x"),
    ],
    "device": [member("dev", kind=tarfile.CHRTYPE)],
    "block device": [member("dev", kind=tarfile.BLKTYPE)],
    "pipe": [member("pipe", kind=tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("members", UNSAFE.values(), ids=UNSAFE)
def test_what_would_leave_the_folder_is_refused(place, members):
    error = failure(place, tar_of([member("good.txt", b"good"), *members]))
    assert error.kind == "archive_unsafe"
    assert repr(members[-1][0].name) in error.detail or repr(members[0][0].name) in error.detail
    assert not Path("/tmp/packtrain-evil").exists()


def test_a_link_of_an_earlier_archive_is_not_gone_through(place):
    run(place, tar_of([member("l", kind=tarfile.SYMTYPE, link="sub/none")]))
    assert failure(place, plain_tar({"l/x": b"evil"})).kind == "archive_unsafe"


def zip_member(name: str, mode: int, data: bytes) -> bytes:
    made = io.BytesIO()
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(info, data)
    return made.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        zip_member("../x", 0o100644, b"evil"),
        zip_member("/tmp/packtrain-evil", 0o100644, b"evil"),
        zip_member("l", stat.S_IFLNK | 0o777, b"/etc/passwd"),
        zip_member("l", stat.S_IFLNK | 0o777, b"../witness"),
        zip_member("p", stat.S_IFIFO | 0o644, b""),
    ],
)
def test_a_zip_is_held_to_the_same(place, data):
    assert failure(place, data).kind == "archive_unsafe"


def test_links_that_stay_are_made(place):
    members = [
        member("d/file", b"data"),
        member("d/near", kind=tarfile.SYMTYPE, link="file"),
        member("up", kind=tarfile.SYMTYPE, link="./d/file"),
        member("d/e/back", kind=tarfile.SYMTYPE, link="../../d/file"),
        member("hard", kind=tarfile.LNKTYPE, link="d/file"),
    ]
    assert run(place, tar_of(members)).files == 2
    into = place / "into"
    assert {name: (into / name).read_bytes() for name in ("d/near", "up", "d/e/back", "hard")} == dict.fromkeys(
        ("d/near", "up", "d/e/back", "hard"), b"data"
    )
    run(place, zip_member("zlink", stat.S_IFLNK | 0o777, b"d/file"))
    assert os.readlink(into / "zlink") == "d/file"


def test_a_later_member_replaces_an_earlier_one_and_does_not_write_through(place):
    members = [
        member("f", b"one"),
        member("h", kind=tarfile.LNKTYPE, link="f"),
        member("l", kind=tarfile.SYMTYPE, link="f"),
        member("h", b"two"),
        member("l", b"three"),
    ]
    run(place, tar_of(members))
    assert content(place / "into") == {"f": b"one", "h": b"two", "l": b"three"}


def test_the_x_bit_stays_and_setuid_goes(place):
    run(place, tar_of([member("run.sh", b"#!", mode=0o4755), member("data", b"", mode=0o6644)]))
    modes = {name: (place / "into" / name).stat().st_mode & 0o7777 for name in ("run.sh", "data")}
    assert modes["run.sh"] & 0o100
    assert not modes["data"] & 0o111
    assert not (modes["run.sh"] | modes["data"]) & 0o7000


RANDOM = random.Random(1).randbytes(300_000)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.97])
def test_a_cut_tar_is_truncated(place, pack, part):
    whole = pack(plain_tar({"a": RANDOM, "b": RANDOM[:1000]}))
    assert failure(place, whole[: int(len(whole) * part)], "x.tar").kind == "truncated"


def test_a_tar_that_is_cut_between_members_is_truncated(place):
    whole = tar_of([member("a", bytes(512)), member("b", bytes(512))], form=tarfile.USTAR_FORMAT)
    assert failure(place, whole[:1024]).kind == "truncated"


def test_a_cut_zip_is_truncated(place):
    whole = zip_of({"a": RANDOM})
    assert failure(place, whole[: len(whole) // 2]).kind == "truncated"


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_a_corrupt_archive_is_broken(place, kind):
    data = bytearray(
        {**ARCHIVES, "tar.gz": gzip.compress(plain_tar({"r": RANDOM})), "zip": zip_of({"r": RANDOM})}[kind]
    )
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0x55 for byte in data[middle : middle + 64])
    assert failure(place, bytes(data)).kind == "archive_broken"


def test_a_damaged_header_is_broken_not_the_end(place):
    data = bytearray(tar_of([member("a", b"1"), member("b", b"2")], form=tarfile.USTAR_FORMAT))
    data[1024 + 5] ^= 0xFF
    error = failure(place, bytes(data))
    assert error.kind == "archive_broken"
    assert "byte 1024" in error.detail


def test_a_file_in_the_way_of_a_folder_is_broken(place):
    assert failure(place, tar_of([member("a", b"1"), member("a/b", b"2")])).kind == "archive_broken"
    shutil.rmtree(place / "into")
    assert failure(place, tar_of([member("a/b", b"2"), member("a", b"1")])).kind == "archive_broken"


def test_an_encrypted_zip_is_told(place):
    data = bytearray(zip_of({"a": b"x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    error = failure(place, bytes(data))
    assert error.kind == "archive_broken"
    assert "encrypted" in error.detail


def tar_bomb(size: int) -> bytes:
    return gzip.compress(plain_tar({"z": bytes(size)}))


def zip_bomb(size: int) -> bytes:
    return zip_of({"z": bytes(size)})


@pytest.mark.parametrize("pack", [tar_bomb, zip_bomb])
def test_a_bomb_stops_at_the_limit(place, pack):
    error = failure(place, pack(64 << 20), limit_bytes=5 << 20)
    assert error.kind == "archive_too_large"
    assert str(5 << 20) in error.detail
    assert sum(p.stat().st_size for p in (place / "into").rglob("*")) <= 5 << 20


def test_exactly_the_limit_is_allowed(place):
    assert run(place, plain_tar({"z": bytes(4096)}), limit_bytes=4096).bytes == 4096


@pytest.fixture
def small_disk(tmp_path: Path):
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", [64 << 20, 9 << 20])
def test_a_bomb_stops_before_it_fills_the_disk(place, small_disk, size):
    path = place / "bomb"
    path.write_bytes(gzip.compress(plain_tar({"z": bytes(size)})))
    with pytest.raises(FailedError) as caught:
        unpack(path, small_disk / "into", limit_bytes=None, stop=lambda: None, progress=lambda d, t: None)
    assert caught.value.kind == "archive_too_large"
    disk = os.statvfs(small_disk)
    assert disk.f_bavail * disk.f_frsize > 0
    assert "free" in caught.value.detail


def nested() -> bytes:
    inner = {
        "n01440764.tar": plain_tar({"n01440764_1.JPEG": b"one", "n01440764_2.JPEG": b"two"}),
        "n01443537.tar.gz": gzip.compress(plain_tar({"n01443537_1.JPEG": b"three"})),
        "readme.txt": b"four",
    }
    return plain_tar(inner)


def test_a_tar_of_tars_becomes_folders(place):
    done = run(place, nested(), nested=True)
    assert content(place / "into") == {
        "n01440764/n01440764_1.JPEG": b"one",
        "n01440764/n01440764_2.JPEG": b"two",
        "n01443537/n01443537_1.JPEG": b"three",
        "readme.txt": b"four",
    }
    assert done == Unpacked(4, len(b"onetwothreefour"))


def test_an_inner_tar_is_never_written_itself(place):
    big = plain_tar({"n": bytes(3 << 20)})
    inner = {f"d/{n}.tar": big for n in range(4)}
    assert run(place, plain_tar(inner), nested=True, limit_bytes=4 * (3 << 20)).files == 4
    assert (place / "into" / "d" / "3" / "n").stat().st_size == 3 << 20


def test_tars_inside_of_a_zip_become_folders_too(place):
    assert run(place, zip_of({"in.tar": plain_tar({"f": b"1"}), "g": b"2"}), nested=True) == Unpacked(2, 2)
    assert content(place / "into") == {"in/f": b"1", "g": b"2"}


def test_a_cut_inner_tar_is_truncated(place):
    inner = plain_tar({"a": RANDOM})[:200_000]
    error = failure(place, plain_tar({"inner.tar": inner, "b": b"b"}), nested=True)
    assert error.kind == "truncated"
    assert "inner.tar in data" in error.detail


def test_a_tar_of_tars_stays_one_where_nobody_asked(place):
    assert run(place, nested()).files == 3
    assert (place / "into" / "n01440764.tar").is_file()


def test_an_inner_tar_may_not_leave_its_folder_either(place):
    inner = tar_of([member("../outer.txt", b"evil")])
    error = failure(place, plain_tar({"inner.tar": inner}), nested=True)
    assert error.kind == "archive_unsafe"
    assert "inner.tar in data" in error.detail


def test_progress_grows_and_ends_with_all(place, way):
    told = []
    run(place, plain_tar({"a": RANDOM, "b": RANDOM}), progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == 2 * len(RANDOM)
    assert way == "stream" or abs(told[-1][1] - 2 * len(RANDOM)) < 20_000


class Leave(Exception):
    pass


@pytest.mark.parametrize("kind", ARCHIVES)
def test_stop_is_heard(place, kind):
    asked = []

    def stop() -> None:
        asked.append(1)
        if len(asked) > 2:
            raise Leave

    with pytest.raises(Leave):
        run(place, ARCHIVES[kind], stop=stop)


@pytest.mark.parametrize(("magic", "tool"), [(b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "unrar")])
def test_a_missing_tool_is_named(place, monkeypatch, magic, tool):
    monkeypatch.setenv("PATH", str(place))
    error = failure(place, magic + bytes(100), "x.7z")
    assert error.kind == "archive_broken"
    assert tool in error.detail


@pytest.mark.slow
def test_a_7z_archive_where_the_tool_is(place, monkeypatch):
    from testbed import sevenzip

    monkeypatch.setenv("PATH", f"{sevenzip.bin_folder()}:{os.environ['PATH']}")
    (place / "packed").mkdir()
    (place / "packed" / "a").write_bytes(RANDOM)
    subprocess.run(["7z", "a", "../x.7z", "a"], cwd=place / "packed", check=True, capture_output=True)
    assert run(place, (place / "x.7z").read_bytes()) == Unpacked(1, len(RANDOM))
    assert content(place / "into") == {"a": RANDOM}


@pytest.mark.parametrize(
    ("head", "can"),
    [
        (ARCHIVES["tar"], True),
        (ARCHIVES["tar.gz"], True),
        (ARCHIVES["tar.bz2"], True),
        (ARCHIVES["tar.xz"], True),
        (gzip.compress(b"one file"), True),
        (ARCHIVES["zip"], False),
        (b"7z\xbc\xaf\x27\x1c" + bytes(600), False),
        (b"<!DOCTYPE html><html></html>", False),
        (b"", False),
        (bytes(512), False),
    ],
    ids=["tar", "tar.gz", "tar.bz2", "tar.xz", "gz", "zip", "7z", "html", "nothing", "zeros"],
)
def test_what_can_be_unpacked_on_its_way(head, can):
    assert can_stream(head[:512]) is can


def test_what_cannot_be_unpacked_on_its_way_leaves_nothing(place):
    with pytest.raises(FailedError) as caught:
        unpack_stream(
            Trickle(ARCHIVES["zip"]),
            "data.zip",
            place / "into",
            limit_bytes=None,
            stop=lambda: None,
            progress=lambda d, t: None,
        )
    assert caught.value.kind == "archive_broken"
    assert not (place / "into").exists()
