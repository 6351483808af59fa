"""packtrain preview"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click

from packtrain.cli.ui.contact_sheet import Thumbnail, decode_thumbnail, render_contact_sheet
from packtrain.cli.ui.credentials import CredentialOptions, credential_options
from packtrain.cli.ui.index_progress import RESUME_HINT, IndexOptions
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import json_option, pluralize, print_result
from packtrain.cli.ui.transfer_progress import CancelToken, cancel_on_signal
from packtrain.errors import UsageError
from packtrain.indexing.archive_reader import ArchiveReader, open_archive
from packtrain.plan import Location
from packtrain.stream.index import LAYOUT_FILES, Index, SamplePart, strip_credentials
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.urls import join_url

_MAX_CONCURRENT_READS = 8
_MAX_IMAGE_BYTES = 64 << 20
_IMAGE_SUFFIXES = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm")
_FORMAT_BY_MAGIC = {
    b"\x93NUMPY": "a NumPy array",
    b"PK\x03\x04": "a zip (npz, or a model of PyTorch)",
    b"\x80": "a pickle",
    b"\x89HDF": "an HDF5 file",
    b"ID3": "sound",
    b"RIFF": "sound or a video",
}


@click.command(name="preview")
@click.argument("url", metavar="URL")
@click.option("-n", "number", type=click.IntRange(1, 400), default=16, show_default=True, help="How many samples.")
@click.option("-o", "--output", metavar="FILE.png", type=click.Path(path_type=Path), help="Default: NAME-peek.png.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one shows other samples.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another address of the same archive.")
@retry_timeout_option("How long failing sources are asked again.")
@credential_options
@json_option
def command(
    url: str,
    n_samples: int,
    output: Path | None,
    seed: int,
    mirrors: tuple[str, ...],
    retry_timeout_s: float,
    credentials: CredentialOptions,
    as_json: bool,
) -> None:
    """Look inside: some samples of a dataset, read where they are, as one picture with their names and classes.

    URL is what `packtrain index` takes, or an index; the index is made if there is none yet.
    """
    asked = IndexOptions((url,), mirrors, credentials, retry_timeout_s)
    with cancel_on_signal(RESUME_HINT) as stop, connection_pool():
        index = asked.open_named_index() or asked.get_or_build(None, stop, rebuild=False, quiet=as_json).index
        chosen = sorted(random.Random(seed).sample(range(len(index)), min(n_samples, len(index))))  # noqa: S311
        pictures = _make_thumbnails(index, chosen, asked, stop)
    target = output or Path(f"{asked.name.partition('.')[0] or 'data'}-peek.png")
    drawn = [one for one in pictures if one.image is not None]
    if not drawn:
        raise UsageError(f"there is nothing to see: {pictures[0].title} {pictures[0].reason}; peek shows images")
    try:
        render_contact_sheet(_title(asked.name, index, len(pictures)), pictures).save(target)
    except ValueError as error:  # Pillow knows no such ending
        raise UsageError(f"{target} cannot be written: {error}") from None
    data = {"path": str(target), "samples": [{"name": p.title, "class": p.label, "error": p.reason} for p in pictures]}
    words = f"{target}: {pluralize(len(drawn), 'sample')} of {len(index):,}"
    undrawn = [one for one in pictures if one.image is None]
    print_result(as_json, data, lambda out: out.print("; ".join([words, *_format_failures(undrawn)]), markup=False))


def _title(name: str, index: Index, n_shown: int) -> str:
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    return f"{name}: {n_shown} of {len(index):,} samples{classes}"


def _format_failures(failed: list[Thumbnail]) -> list[str]:
    if not failed:
        return []
    return [f"{pluralize(len(failed), 'other')} could not be shown ({failed[0].title} {failed[0].reason})"]


def _make_thumbnails(
    index: Index, sample_numbers: list[int], index_options: IndexOptions, cancel_token: CancelToken
) -> list[Thumbnail]:
    remotes = _SampleSources(index, index_options, cancel_token)
    with ThreadPoolExecutor(_MAX_CONCURRENT_READS, "peek") as pool:
        return list(pool.map(lambda number: _make_thumbnail(index, number, remotes), sample_numbers))


def _make_thumbnail(index: Index, number: int, sources: _SampleSources) -> Thumbnail:
    name, label = index.name(number), index.class_names[index.labels[number]]
    part = _choose_image_part(index.parts(number))
    if part.size > _MAX_IMAGE_BYTES:
        return Thumbnail(name, label, None, "is too large to be shown")
    data = sources.open_for_sample(number).read(part.offset, part.offset + part.size)
    image = decode_thumbnail(data)
    return Thumbnail(name, label, image, _describe_content(data) if image is None else "")


def _describe_content(data: bytes) -> str:
    if not data:
        return "is empty"
    known = next((words for magic, words in _FORMAT_BY_MAGIC.items() if data.startswith(magic)), None)
    return f"is {known}, no image" if known else f"is no image: it begins with {data[:8]!r}"


def _choose_image_part(parts: list[SamplePart]) -> SamplePart:
    """By its ending; else the largest."""
    images = [part for part in parts if part.extension.lower().rpartition(".")[2] in _IMAGE_SUFFIXES]
    return images[0] if images else max(parts, key=lambda part: part.size)


class _SampleSources:
    """The objects that samples are read from: as the command line names them, else as the index does."""

    def __init__(self, index: Index, index_options: IndexOptions, cancel_token: CancelToken) -> None:
        self._index, self._index_options, self._cancel_token = index, index_options, cancel_token
        named = [] if index_options.open_named_index() else index_options.make_request().locations
        urls = [(archive.url, *archive.mirrors) for archive in index.archives]
        found = [[index_options.credentials.make_location(url, one[0]) for url in one] for one in urls]
        same = [strip_credentials(refs[0].url) for refs in named] == [
            one[0] for one in urls
        ]  # a folder may stand for its archives
        self._locations = named if same else found
        self._open_archives = [] if index.layout == LAYOUT_FILES else [self._open(refs) for refs in self._locations]

    def open_for_sample(self, number: int) -> ArchiveReader:
        archive = self._index.archive_ids[number]
        if self._index.layout != LAYOUT_FILES:
            return self._open_archives[archive]
        name = self._index.name(number)
        return self._open([replace(ref, url=join_url(ref.url, name)) for ref in self._locations[archive]])

    def _open(self, locations: Sequence[Location]) -> ArchiveReader:
        return open_archive(
            locations,
            self._index_options.credentials.resolve_secret,
            self._index_options.retry_timeout_s,
            self._cancel_token.check_cancelled,
        )
