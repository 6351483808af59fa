"""From files to samples: which files are samples, which belong together, and their classes. Pure."""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from packtrain.errors import FailedError
from packtrain.stream.index import IndexDraft, IndexedArchive, extension_of

_IGNORED_PREFIXES = ("__MACOSX",)
_MAX_EXTENSIONS = 32
_MAX_NUMERIC_LABEL = 1 << 20


class ArchiveFile(NamedTuple):
    name: str
    folder: str  # what its class is named after
    offset: int
    size: int
    label_text: str = ""  # what it says, if it is one that says a class


def compressed_error(name: str) -> FailedError:
    words = f"{name} is compressed, so that samples cannot be read out of it: stage it instead (`mode: stage`)"
    return FailedError("unsupported", f"{words}, or pack it anew as a plain tar")


class FileTable:
    """Files of one archive after the other."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.offsets, self.sizes, self.archive_ids, self.folder_ids = array("Q"), array("Q"), array("Q"), array("Q")
        self.folder_numbers: dict[str, int] = {}
        self.label_texts: dict[int, str] = {}
        self.n_skipped = 0

    def add(self, archive_id: int, files: Iterable[ArchiveFile]) -> None:
        for file in files:
            if _is_ignored(file.name):
                self.n_skipped += 1
                continue
            if file.label_text:
                self.label_texts[len(self.names)] = file.label_text
            self.names.append(file.name)
            self.offsets.append(file.offset)
            self.sizes.append(file.size)
            self.archive_ids.append(archive_id)
            self.folder_ids.append(self.folder_numbers.setdefault(file.folder, len(self.folder_numbers)))


def _is_ignored(name: str) -> bool:
    """What a file manager writes for itself."""
    return posixpath.basename(name).startswith(".") or name.startswith(_IGNORED_PREFIXES)


def make_draft(
    table: FileTable, archives: tuple[IndexedArchive, ...], layout: str, group_files: bool | None
) -> IndexDraft:
    """`grouped`: whether files of one key make one sample; None: as it seems."""
    groups = _group_starts(table) if group_files is not False else None
    if groups is not None and (group_files or _should_group(table, groups)):
        return _draft_grouped(table, archives, layout, groups)
    return _draft_ungrouped(table, archives, layout)


def sample_key(name: str) -> str:
    """What the files of a sample have in common: all before the first dot of the last name."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


# Each file a sample


def _draft_ungrouped(table: FileTable, archives: tuple[IndexedArchive, ...], layout: str) -> IndexDraft:
    kept = _select_class_files(table)
    numbers, names = assign_class_ids(
        [folder for folder in table.folder_numbers if table.folder_numbers[folder] in kept.folders]
    )
    by_folder = [numbers.get(folder, 0) for folder in table.folder_numbers]
    made = IndexDraft(
        archives, names, layout=layout, n_skipped_files=table.n_skipped + len(table.names) - len(kept.files)
    )
    for column, values in (
        (made.offsets, table.offsets),
        (made.sizes, table.sizes),
        (made.archive_ids, table.archive_ids),
    ):
        column.extend(values[at] for at in kept.files)
    made.labels.extend(by_folder[table.folder_ids[at]] for at in kept.files)
    made.names = [table.names[at] for at in kept.files]
    return made


class _SelectedFiles(NamedTuple):
    files: Sequence[int]
    folders: frozenset[int]


def _select_class_files(table: FileTable) -> _SelectedFiles:
    """A README beside the folders of the classes is no sample; an image there is one. The ending tells."""
    folders, outside = frozenset(table.folder_numbers.values()), _enclosing_folder(table.folder_numbers)
    while outside is not None:
        number = table.folder_numbers[outside]
        within = [at for at in range(len(table.names)) if table.folder_ids[at] in folders]
        beside = {_file_suffix(table.names[at]) for at in within if table.folder_ids[at] == number}
        inside = {_file_suffix(table.names[at]) for at in within if table.folder_ids[at] != number}
        if beside & inside:
            break
        folders -= {number}
        outside = _enclosing_folder([folder for folder, own in table.folder_numbers.items() if own in folders])
    everything = len(folders) == len(table.folder_numbers)
    files = range(len(table.names)) if everything else [at for at, f in enumerate(table.folder_ids) if f in folders]
    return _SelectedFiles(files, folders)


def _enclosing_folder(folders: Iterable[str]) -> str | None:
    """The folder that all others are in, if it is one of them."""
    every = list(folders)
    top = _common_folder(every)
    return top if len(every) > 1 and top in every else None


def _file_suffix(name: str) -> str:
    return posixpath.splitext(name)[1].lower()


def _common_folder(folders: Sequence[str]) -> str:
    """The deepest folder that all are in, or are."""
    if not folders:
        return ""
    least, most = min(f.split("/") for f in folders), max(f.split("/") for f in folders)
    shared = next(
        (at for at, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1]), min(len(least), len(most))
    )
    return "/".join(least[:shared])


def assign_class_ids(folders: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class of each folder: its path without what all have in common, numbered in the order of the names."""
    top = _common_folder([posixpath.dirname(folder) for folder in folders] if len(folders) == 1 else folders)
    named = {folder: folder[len(top) :].lstrip("/") if top else folder for folder in folders}
    names = tuple(sorted(set(named.values())))
    numbers = {name: number for number, name in enumerate(names)}
    return {folder: numbers[name] for folder, name in named.items()}, names


# Several files a sample


def _group_starts(table: FileTable) -> array[int] | None:
    """Where each sample begins, among files that follow one another; None if each is alone."""
    starts, before, archive = array("Q"), None, -1
    for at, name in enumerate(table.names):
        key = sample_key(name)
        if key != before or table.archive_ids[at] != archive:
            starts.append(at)
        before, archive = key, table.archive_ids[at]
    return starts if len(starts) < len(table.names) else None


def _should_group(table: FileTable, groups: array[int]) -> bool:
    """Endings that come again and again, as in jpg + cls; not img.0001.png, img.0002.png, …"""
    kinds: set[str] = set()
    for name in table.names:
        kinds.add(extension_of(name))
        if len(kinds) > _MAX_EXTENSIONS:
            return False
    return len(groups) >= len(kinds) or len(groups) * len(kinds) == len(table.names)


def _draft_grouped(
    table: FileTable, archives: tuple[IndexedArchive, ...], layout: str, starts: array[int]
) -> IndexDraft:
    kinds = tuple(sorted({extension_of(name) for name in table.names}))
    number = {kind: at for at, kind in enumerate(kinds)}
    numbers, names = _group_labels(table, starts)
    made = IndexDraft(
        archives, names, layout=layout, extensions=kinds, part_starts=array("Q", [0]), n_skipped_files=table.n_skipped
    )
    assert made.part_starts is not None
    for start, stop in zip(starts, [*starts[1:], len(table.names)], strict=False):
        parts = range(start, stop)
        begin = min(table.offsets[at] for at in parts)
        made.offsets.append(begin)
        made.sizes.append(max(table.offsets[at] + table.sizes[at] for at in parts) - begin)
        made.archive_ids.append(table.archive_ids[start])
        for at in parts:
            made.part_offsets.append(table.offsets[at] - begin)
            made.part_sizes.append(table.sizes[at])
            made.part_extensions.append(number[extension_of(table.names[at])])
        made.part_starts.append(len(made.part_extensions))
    made.labels.extend(numbers)
    made.names = [sample_key(table.names[at]) for at in starts]
    return made


def _group_labels(table: FileTable, starts: array[int]) -> tuple[Iterable[int], tuple[str, ...]]:
    """As `cls` says, if every sample has one; else by folder."""
    texts = [
        _group_label_text(table, start, stop)
        for start, stop in zip(starts, [*starts[1:], len(table.names)], strict=False)
    ]
    if not all(texts):
        numbers, names = assign_class_ids(list(table.folder_numbers))
        folders = list(table.folder_numbers)
        return (numbers[folders[table.folder_ids[at]]] for at in starts), names
    if all(text.isascii() and text.isdecimal() and int(text) < _MAX_NUMERIC_LABEL for text in texts):
        return map(int, texts), tuple(map(str, range(max(map(int, texts)) + 1)))
    names = tuple(sorted(set(texts)))
    place = {name: at for at, name in enumerate(names)}
    return (place[text] for text in texts), names


def _group_label_text(table: FileTable, start: int, stop: int) -> str:
    return next((table.label_texts[at] for at in range(start, stop) if at in table.label_texts), "")
