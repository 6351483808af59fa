"""From files to samples: which files are samples, which belong together, and their classes. Pure."""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from packtrain.errors import FailedError
from packtrain.stream.index import Archive, Draft, ending

_FOREIGN_FOLDERS = ("__MACOSX",)
_MOST_KINDS = 32
_MOST_NUMBERED = 1 << 20


class File(NamedTuple):
    name: str
    folder: str  # what its class is named after
    offset: int
    size: int
    text: str = ""  # what it says, if it is one that says a class


def refused_packed(what: str) -> FailedError:
    words = f"{what} is compressed, so that samples cannot be read out of it: stage it instead (`mode: stage`)"
    return FailedError("unsupported", f"{words}, or pack it anew as a plain tar")


class Gathering:
    """Files of one archive after the other."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.offsets, self.sizes, self.archive, self.folder = array("Q"), array("Q"), array("Q"), array("Q")
        self.folders: dict[str, int] = {}
        self.texts: dict[int, str] = {}
        self.left_out = 0

    def add(self, archive: int, files: Iterable[File]) -> None:
        for file in files:
            if _is_hidden(file.name):
                self.left_out += 1
                continue
            if file.text:
                self.texts[len(self.names)] = file.text
            self.names.append(file.name)
            self.offsets.append(file.offset)
            self.sizes.append(file.size)
            self.archive.append(archive)
            self.folder.append(self.folders.setdefault(file.folder, len(self.folders)))


def _is_hidden(name: str) -> bool:
    """What a file manager writes for itself."""
    return posixpath.basename(name).startswith(".") or name.startswith(_FOREIGN_FOLDERS)


def draft(found: Gathering, archives: tuple[Archive, ...], layout: str, grouped: bool | None) -> Draft:
    """`grouped`: whether files of one key make one sample; None: as it seems."""
    groups = _groups(found) if grouped is not False else None
    if groups is not None and (grouped or _are_samples(found, groups)):
        return _of_groups(found, archives, layout, groups)
    return _of_files(found, archives, layout)


def key_of(name: str) -> str:
    """What the files of a sample have in common: all before the first dot of the last name."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


# Each file a sample


def _of_files(found: Gathering, archives: tuple[Archive, ...], layout: str) -> Draft:
    kept = _in_classes(found)
    numbers, names = class_ids([folder for folder in found.folders if found.folders[folder] in kept.folders])
    by_folder = [numbers.get(folder, 0) for folder in found.folders]
    made = Draft(archives, names, layout=layout, left_out=found.left_out + len(found.names) - len(kept.files))
    for column, values in ((made.offsets, found.offsets), (made.sizes, found.sizes), (made.archive, found.archive)):
        column.extend(values[at] for at in kept.files)
    made.labels.extend(by_folder[found.folder[at]] for at in kept.files)
    made.names = [found.names[at] for at in kept.files]
    return made


class _Kept(NamedTuple):
    files: Sequence[int]
    folders: frozenset[int]


def _in_classes(found: Gathering) -> _Kept:
    """A README beside the folders of the classes is no sample; an image there is one. The ending tells."""
    folders, outside = frozenset(found.folders.values()), _outside(found.folders)
    while outside is not None:
        number = found.folders[outside]
        within = [at for at in range(len(found.names)) if found.folder[at] in folders]
        beside = {_last_ending(found.names[at]) for at in within if found.folder[at] == number}
        inside = {_last_ending(found.names[at]) for at in within if found.folder[at] != number}
        if beside & inside:
            break
        folders -= {number}
        outside = _outside([folder for folder, own in found.folders.items() if own in folders])
    everything = len(folders) == len(found.folders)
    files = range(len(found.names)) if everything else [at for at, f in enumerate(found.folder) if f in folders]
    return _Kept(files, folders)


def _outside(folders: Iterable[str]) -> str | None:
    """The folder that all others are in, if it is one of them."""
    every = list(folders)
    top = _common(every)
    return top if len(every) > 1 and top in every else None


def _last_ending(name: str) -> str:
    return posixpath.splitext(name)[1].lower()


def _common(folders: Sequence[str]) -> str:
    """The deepest folder that all are in, or are."""
    if not folders:
        return ""
    least, most = min(f.split("/") for f in folders), max(f.split("/") for f in folders)
    shared = next(
        (at for at, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1]), min(len(least), len(most))
    )
    return "/".join(least[:shared])


def class_ids(folders: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class of each folder: its path without what all have in common, numbered in the order of the names."""
    top = _common([posixpath.dirname(folder) for folder in folders] if len(folders) == 1 else folders)
    named = {folder: folder[len(top) :].lstrip("/") if top else folder for folder in folders}
    names = tuple(sorted(set(named.values())))
    numbers = {name: number for number, name in enumerate(names)}
    return {folder: numbers[name] for folder, name in named.items()}, names


# Several files a sample


def _groups(found: Gathering) -> array[int] | None:
    """Where each sample begins, among files that follow one another; None if each is alone."""
    starts, before, archive = array("Q"), None, -1
    for at, name in enumerate(found.names):
        key = key_of(name)
        if key != before or found.archive[at] != archive:
            starts.append(at)
        before, archive = key, found.archive[at]
    return starts if len(starts) < len(found.names) else None


def _are_samples(found: Gathering, groups: array[int]) -> bool:
    """Endings that come again and again, as in jpg + cls; not img.0001.png, img.0002.png, …"""
    kinds: set[str] = set()
    for name in found.names:
        kinds.add(ending(name))
        if len(kinds) > _MOST_KINDS:
            return False
    return len(groups) >= len(kinds) or len(groups) * len(kinds) == len(found.names)


def _of_groups(found: Gathering, archives: tuple[Archive, ...], layout: str, starts: array[int]) -> Draft:
    kinds = tuple(sorted({ending(name) for name in found.names}))
    number = {kind: at for at, kind in enumerate(kinds)}
    numbers, names = _classes_of(found, starts)
    made = Draft(archives, names, layout=layout, kinds=kinds, part_first=array("Q", [0]), left_out=found.left_out)
    assert made.part_first is not None
    for start, stop in zip(starts, [*starts[1:], len(found.names)], strict=False):
        parts = range(start, stop)
        begin = min(found.offsets[at] for at in parts)
        made.offsets.append(begin)
        made.sizes.append(max(found.offsets[at] + found.sizes[at] for at in parts) - begin)
        made.archive.append(found.archive[start])
        for at in parts:
            made.part_offsets.append(found.offsets[at] - begin)
            made.part_sizes.append(found.sizes[at])
            made.part_kinds.append(number[ending(found.names[at])])
        made.part_first.append(len(made.part_kinds))
    made.labels.extend(numbers)
    made.names = [key_of(found.names[at]) for at in starts]
    return made


def _classes_of(found: Gathering, starts: array[int]) -> tuple[Iterable[int], tuple[str, ...]]:
    """As `cls` says, if every sample has one; else by folder."""
    texts = [_text(found, start, stop) for start, stop in zip(starts, [*starts[1:], len(found.names)], strict=False)]
    if not all(texts):
        numbers, names = class_ids(list(found.folders))
        folders = list(found.folders)
        return (numbers[folders[found.folder[at]]] for at in starts), names
    if all(text.isascii() and text.isdecimal() and int(text) < _MOST_NUMBERED for text in texts):
        return map(int, texts), tuple(map(str, range(max(map(int, texts)) + 1)))
    names = tuple(sorted(set(texts)))
    place = {name: at for at, name in enumerate(names)}
    return (place[text] for text in texts), names


def _text(found: Gathering, start: int, stop: int) -> str:
    return next((found.texts[at] for at in range(start, stop) if at in found.texts), "")
