"""packtrain peek"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click

from packtrain.cli.ui.contact_sheet import Picture, decoded, sheet
from packtrain.cli.ui.credentials import Access, access_options
from packtrain.cli.ui.index_progress import GOES_ON, Asked
from packtrain.cli.ui.options import patience_option
from packtrain.cli.ui.output import count, json_option, show
from packtrain.cli.ui.transfer_progress import Stop, stopping
from packtrain.errors import UsageError
from packtrain.indexing.archive_reader import Remote
from packtrain.indexing.local_file import opened
from packtrain.plan import Ref
from packtrain.stream.index import FILES, Index, Part, bare
from packtrain.transfer.http.pool import keeping
from packtrain.transfer.urls import joined

_AT_ONCE = 8
_LARGEST = 64 << 20
_IMAGES = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm")
_FORMS = {
    b"\x93NUMPY": "a NumPy array",
    b"PK\x03\x04": "a zip (npz, or a model of PyTorch)",
    b"\x80": "a pickle",
    b"\x89HDF": "an HDF5 file",
    b"ID3": "sound",
    b"RIFF": "sound or a video",
}


@click.command(name="peek")
@click.argument("url", metavar="URL")
@click.option("-n", "number", type=click.IntRange(1, 400), default=16, show_default=True, help="How many samples.")
@click.option("-o", "--output", metavar="FILE.png", type=click.Path(path_type=Path), help="Default: NAME-peek.png.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one shows other samples.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another address of the same archive.")
@patience_option("How long failing sources are asked again.")
@access_options
@json_option
def command(
    url: str,
    number: int,
    output: Path | None,
    seed: int,
    mirrors: tuple[str, ...],
    patience: float,
    access: Access,
    as_json: bool,
) -> None:
    """Look inside: some samples of a dataset, read where they are, as one picture with their names and classes.

    URL is what `packtrain index` takes, or an index; the index is made if there is none yet.
    """
    asked = Asked((url,), mirrors, access, patience)
    with stopping(GOES_ON) as stop, keeping():
        index = asked.given() or asked.obtain(None, stop, anew=False, quiet=as_json).index
        chosen = sorted(random.Random(seed).sample(range(len(index)), min(number, len(index))))  # noqa: S311
        pictures = _pictures(index, chosen, asked, stop)
    target = output or Path(f"{asked.name.partition('.')[0] or 'data'}-peek.png")
    drawn = [one for one in pictures if one.image is not None]
    if not drawn:
        raise UsageError(f"there is nothing to see: {pictures[0].title} {pictures[0].why}; peek shows images")
    try:
        sheet(_title(asked.name, index, len(pictures)), pictures).save(target)
    except ValueError as error:  # Pillow knows no such ending
        raise UsageError(f"{target} cannot be written: {error}") from None
    data = {"path": str(target), "samples": [{"name": p.title, "class": p.label, "error": p.why} for p in pictures]}
    words = f"{target}: {count(len(drawn), 'sample')} of {len(index):,}"
    undrawn = [one for one in pictures if one.image is None]
    show(as_json, data, lambda out: out.print("; ".join([words, *_troubles(undrawn)]), markup=False))


def _title(name: str, index: Index, shown: int) -> str:
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    return f"{name}: {shown} of {len(index):,} samples{classes}"


def _troubles(undrawn: list[Picture]) -> list[str]:
    if not undrawn:
        return []
    return [f"{count(len(undrawn), 'other')} could not be shown ({undrawn[0].title} {undrawn[0].why})"]


def _pictures(index: Index, chosen: list[int], asked: Asked, stop: Stop) -> list[Picture]:
    remotes = _Remotes(index, asked, stop)
    with ThreadPoolExecutor(_AT_ONCE, "peek") as pool:
        return list(pool.map(lambda number: _picture(index, number, remotes), chosen))


def _picture(index: Index, number: int, remotes: _Remotes) -> Picture:
    name, label = index.name(number), index.class_names[index.classes[number]]
    part = _image_of(index.parts(number))
    if part.size > _LARGEST:
        return Picture(name, label, None, "is too large to be shown")
    data = remotes.of(number).read(part.offset, part.offset + part.size)
    image = decoded(data)
    return Picture(name, label, image, _form(data) if image is None else "")


def _form(data: bytes) -> str:
    if not data:
        return "is empty"
    known = next((words for magic, words in _FORMS.items() if data.startswith(magic)), None)
    return f"is {known}, no image" if known else f"is no image: it begins with {data[:8]!r}"


def _image_of(parts: list[Part]) -> Part:
    """By its ending; else the largest."""
    images = [part for part in parts if part.kind.lower().rpartition(".")[2] in _IMAGES]
    return images[0] if images else max(parts, key=lambda part: part.size)


class _Remotes:
    """The objects that samples are read from: as the command line names them, else as the index does."""

    def __init__(self, index: Index, asked: Asked, stop: Stop) -> None:
        self._index, self._asked, self._stop = index, asked, stop
        named = [] if asked.given() else asked.wish().archives
        urls = [(archive.url, *archive.mirrors) for archive in index.archives]
        found = [[asked.access.ref(url, one[0]) for url in one] for one in urls]
        same = [bare(refs[0].url) for refs in named] == [one[0] for one in urls]  # a folder may stand for its archives
        self._refs = named if same else found
        self._opened = [] if index.layout == FILES else [self._remote(refs) for refs in self._refs]

    def of(self, number: int) -> Remote:
        archive = self._index.archive[number]
        if self._index.layout != FILES:
            return self._opened[archive]
        name = self._index.name(number)
        return self._remote([replace(ref, url=joined(ref.url, name)) for ref in self._refs[archive]])

    def _remote(self, refs: Sequence[Ref]) -> Remote:
        return opened(refs, self._asked.access.reveal, self._asked.patience_s, self._stop.check)
