"""Read samples of an indexed dataset and draw them on a contact sheet."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from packtrain.data.contact_sheet import Thumbnail, decode_thumbnail, render_contact_sheet
from packtrain.data.index_options import IndexOptions
from packtrain.errors import UsageError
from packtrain.indexing.archive_reader import ArchiveReader, open_archive
from packtrain.plan import Location
from packtrain.stream.index import LAYOUT_FILES, Index, SamplePart, strip_credentials
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import join_url

_MAX_CONCURRENT_READS = 8
_MAX_IMAGE_BYTES = 64 << 20
_IMAGE_SUFFIXES = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm")
_FORMAT_BY_MAGIC = {
    b"\x93NUMPY": "a NumPy array",
    b"PK\x03\x04": "a zip file (npz or a PyTorch model)",
    b"\x80": "a pickle",
    b"\x89HDF": "an HDF5 file",
    b"ID3": "an audio file",
    b"RIFF": "an audio or video file",
}


def choose_samples(index: Index, n_samples: int, seed: int) -> list[int]:
    """Return the numbers of random samples, in the order of the index."""
    return sorted(random.Random(seed).sample(range(len(index)), min(n_samples, len(index))))  # noqa: S311


def save_preview(
    index: Index, sample_numbers: Sequence[int], options: IndexOptions, target: Path, check_cancelled: CancelCheck
) -> list[Thumbnail]:
    """Read samples and save them as one image.

    Returns:
        All samples; those without an image say why.

    Raises:
        UsageError: None of the samples is an image, or `target` has an unknown extension.
    """
    with connection_pool():
        sources = _SampleSources(index, options, check_cancelled)
        with ThreadPoolExecutor(_MAX_CONCURRENT_READS, "preview") as pool:
            thumbnails = list(pool.map(lambda number: _make_thumbnail(index, number, sources), sample_numbers))
    if all(thumbnail.image is None for thumbnail in thumbnails):
        raise UsageError(f"none of the samples is an image: {thumbnails[0].title} {thumbnails[0].reason}")
    try:
        render_contact_sheet(_title(options.name, index, len(thumbnails)), thumbnails).save(target)
    except ValueError as error:  # Pillow does not know the file extension
        raise UsageError(f"cannot write {target}: {error}") from None
    return thumbnails


def _title(name: str, index: Index, n_shown: int) -> str:
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    return f"{name}: {n_shown} of {len(index):,} samples{classes}"


def _make_thumbnail(index: Index, number: int, sources: _SampleSources) -> Thumbnail:
    name, label = index.name(number), index.class_names[index.labels[number]]
    part = _choose_image_part(index.parts(number))
    if part.size > _MAX_IMAGE_BYTES:
        return Thumbnail(name, label, None, "is too large to show")
    data = sources.open_for_sample(number).read(part.offset, part.offset + part.size)
    image = decode_thumbnail(data)
    return Thumbnail(name, label, image, _describe_content(data) if image is None else "")


def _describe_content(data: bytes) -> str:
    if not data:
        return "is empty"
    name = next((name for magic, name in _FORMAT_BY_MAGIC.items() if data.startswith(magic)), None)
    return f"is {name}, not an image" if name else f"is not an image: it begins with {data[:8]!r}"


def _choose_image_part(parts: list[SamplePart]) -> SamplePart:
    """Return the first part with an image extension, else the largest part."""
    images = [part for part in parts if part.extension.lower().rpartition(".")[2] in _IMAGE_SUFFIXES]
    return images[0] if images else max(parts, key=lambda part: part.size)


class _SampleSources:
    """The objects that samples are read from: those on the command line, or those that the index names."""

    def __init__(self, index: Index, index_options: IndexOptions, check_cancelled: CancelCheck) -> None:
        self._index, self._index_options, self._check_cancelled = index, index_options, check_cancelled
        given = [] if index_options.open_named_index() else index_options.make_request().locations
        indexed_urls = [(archive.url, *archive.mirrors) for archive in index.archives]
        credentials = index_options.credentials
        indexed = [[credentials.make_location(url, replicas[0]) for url in replicas] for replicas in indexed_urls]
        # They differ if the command line names a folder, and the index the archives in it.
        are_same = [strip_credentials(locations[0].url) for locations in given] == [urls[0] for urls in indexed_urls]
        self._locations = given if are_same else indexed
        self._open_archives = [] if index.layout == LAYOUT_FILES else [self._open(each) for each in self._locations]

    def open_for_sample(self, number: int) -> ArchiveReader:
        """Return a reader of the object that holds a sample."""
        archive_id = self._index.archive_ids[number]
        if self._index.layout != LAYOUT_FILES:
            return self._open_archives[archive_id]
        name = self._index.name(number)
        locations = self._locations[archive_id]
        return self._open([replace(location, url=join_url(location.url, name)) for location in locations])

    def _open(self, locations: Sequence[Location]) -> ArchiveReader:
        return open_archive(
            locations,
            self._index_options.credentials.resolve_secret,
            self._index_options.retry_timeout_s,
            self._check_cancelled,
        )
