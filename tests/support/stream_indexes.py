"""Small archives with an index, for tests of streaming. Without packtrain.indexing, which needs a newer Python."""

from __future__ import annotations

import io
import random
import tarfile
import zlib
from array import array
from pathlib import Path

from packtrain.stream.index import LAYOUT_FILES, Index, IndexedArchive
from packtrain.stream.index_writer import IndexDraft, write_index

N_CLASSES = 20


def random_content(seed: int, n_bytes: int) -> bytes:
    """Return bytes that depend on the seed alone."""
    return random.Random(seed).randbytes(n_bytes)


def make_archive(folder: Path, n_samples: int, sample_bytes: int = 700, url: str = "", name: str = "data.tar") -> Index:
    """Write a tar of samples, sorted by class, and its index next to it."""
    draft = IndexDraft((), tuple(f"n{number:03}" for number in range(N_CLASSES)))
    names = []
    with tarfile.open(folder / name, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(n_samples):
            data = random_content(number, sample_bytes + number % 7)
            label = number * N_CLASSES // n_samples
            info = tarfile.TarInfo(f"n{label:03}/{number}.bin")
            info.size = len(data)
            draft.offsets.append(tar.offset + tarfile.BLOCKSIZE)
            tar.addfile(info, io.BytesIO(data))
            draft.sizes.append(len(data))
            draft.labels.append(label)
            draft.archive_ids.append(0)
            names.append(info.name)
    draft.names = names
    draft.archives = (IndexedArchive(url or (folder / name).as_uri(), (folder / name).stat().st_size),)
    return write_index(draft, folder / f"{name}.packtrain-index")


def index_tars(tars: dict[str, Path], path: Path) -> Index:
    """Write an index of tars, given by URL and path, whose samples all have the label 0."""
    archives = tuple(IndexedArchive(url, tar.stat().st_size) for url, tar in tars.items())
    draft, names = IndexDraft(archives, ("",)), []
    for archive_id, tar_path in enumerate(tars.values()):
        with tarfile.open(tar_path) as tar:
            for member in tar:
                draft.offsets.append(member.offset_data)
                draft.sizes.append(member.size)
                draft.labels.append(0)
                draft.archive_ids.append(archive_id)
                names.append(member.name)
    draft.names = names
    return write_index(draft, path)


def index_folder(folder: Path, path: Path) -> Index:
    """Write an index of the files under a folder, which all have the label 0."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    sizes = array("Q", (file.stat().st_size for file in files))
    zeros = array("Q", [0] * len(files))
    archives = (IndexedArchive(folder.as_uri() + "/", sum(sizes)),)
    names = [file.relative_to(folder).as_posix() for file in files]
    return write_index(IndexDraft(archives, ("",), zeros, sizes, zeros, zeros, names, LAYOUT_FILES), path)


def make_index_without_archive(folder: Path, n_samples: int, sample_bytes: int = 100) -> Index:
    """Write an index of an archive that does not exist."""
    sizes = array("Q", [sample_bytes] * n_samples)
    offsets = array("Q", range(512, 512 + (sample_bytes + 20) * n_samples, sample_bytes + 20))
    zeros = array("Q", [0] * n_samples)
    draft = IndexDraft((IndexedArchive("http://127.0.0.1/none.tar", 1 << 40),), ("one",), offsets, sizes, zeros, zeros)
    draft.names = [str(number) for number in range(n_samples)]
    return write_index(draft, folder / f"{n_samples}.packtrain-index")


def decode_to_crc(data: bytes, label: int) -> int:
    """Decode a sample to its CRC-32. At module level, so that spawned processes can import it."""
    return zlib.crc32(data)
