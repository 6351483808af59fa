"""Decide which files of an archive are samples, which files form one sample, and the classes. Pure functions."""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from packtrain.errors import FailedError
from packtrain.stream.index import IndexedArchive, extension_of
from packtrain.stream.index_writer import IndexDraft

_IGNORED_PREFIXES = ("__MACOSX",)
_MAX_EXTENSIONS = 32
_MAX_NUMERIC_LABEL = 1 << 20


class ArchiveFile(NamedTuple):
    """A file of an archive."""

    name: str
    folder: str  # the folder that names its class
    offset: int
    size: int
    label_text: str = ""  # the content of a label file (.cls)


def compressed_error(name: str) -> FailedError:
    """Return the error for an archive or a file that is compressed."""
    return FailedError(
        "unsupported",
        f"{name} is compressed, so samples cannot be read from it: stage it instead (`mode: stage`), "
        "or repack it as a plain tar",
    )


class FileTable:
    """The files of all archives, stored as columns. Files that a file manager creates are ignored."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.offsets, self.sizes, self.archive_ids, self.folder_ids = array("Q"), array("Q"), array("Q"), array("Q")
        self.folder_numbers: dict[str, int] = {}
        self.label_texts: dict[int, str] = {}
        self.n_skipped = 0

    def add(self, archive_id: int, files: Iterable[ArchiveFile]) -> None:
        """Add the files of one archive."""
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
    """Return whether a file manager created the file for itself."""
    return posixpath.basename(name).startswith(".") or name.startswith(_IGNORED_PREFIXES)


def make_draft(
    table: FileTable, archives: tuple[IndexedArchive, ...], layout: str, group_files: bool | None
) -> IndexDraft:
    """Return the content of the index.

    Args:
        table: The files.
        archives: The archives that hold them.
        layout: LAYOUT_RANGES or LAYOUT_FILES.
        group_files: Whether files with the same key form one sample; None: decide from the names.
    """
    starts = _group_starts(table) if group_files is not False else None
    if starts is not None and (group_files or _should_group(table, starts)):
        return _draft_grouped(table, archives, layout, starts)
    return _draft_ungrouped(table, archives, layout)


def sample_key(name: str) -> str:
    """Return the common part of the names of a sample's files: everything before the first dot of the file name."""
    folder, slash, filename = name.rpartition("/")
    return folder + slash + filename.partition(".")[0]


# Each file is a sample


def _draft_ungrouped(table: FileTable, archives: tuple[IndexedArchive, ...], layout: str) -> IndexDraft:
    selected = _select_class_files(table)
    labels, class_names = assign_class_ids(
        [folder for folder, number in table.folder_numbers.items() if number in selected.folders]
    )
    label_by_folder = [labels.get(folder, 0) for folder in table.folder_numbers]
    n_skipped_files = table.n_skipped + len(table.names) - len(selected.files)
    draft = IndexDraft(archives, class_names, layout=layout, n_skipped_files=n_skipped_files)
    for column, values in (
        (draft.offsets, table.offsets),
        (draft.sizes, table.sizes),
        (draft.archive_ids, table.archive_ids),
    ):
        column.extend(values[file] for file in selected.files)
    draft.labels.extend(label_by_folder[table.folder_ids[file]] for file in selected.files)
    draft.names = [table.names[file] for file in selected.files]
    return draft


class _SelectedFiles(NamedTuple):
    files: Sequence[int]
    folders: frozenset[int]


def _select_class_files(table: FileTable) -> _SelectedFiles:
    """Drop files next to the class folders, such as a README, if no sample has the same extension."""
    folders, enclosing = frozenset(table.folder_numbers.values()), _enclosing_folder(table.folder_numbers)
    while enclosing is not None:
        number = table.folder_numbers[enclosing]
        files = [file for file in range(len(table.names)) if table.folder_ids[file] in folders]
        suffixes_next_to = {_file_suffix(table.names[file]) for file in files if table.folder_ids[file] == number}
        suffixes_inside = {_file_suffix(table.names[file]) for file in files if table.folder_ids[file] != number}
        if suffixes_next_to & suffixes_inside:
            break
        folders -= {number}
        enclosing = _enclosing_folder([folder for folder, own in table.folder_numbers.items() if own in folders])
    if len(folders) == len(table.folder_numbers):
        return _SelectedFiles(range(len(table.names)), folders)
    return _SelectedFiles([file for file, folder in enumerate(table.folder_ids) if folder in folders], folders)


def _enclosing_folder(folders: Iterable[str]) -> str | None:
    """Return the folder that contains all others, if it is one of them."""
    all_folders = list(folders)
    top = _common_folder(all_folders)
    return top if len(all_folders) > 1 and top in all_folders else None


def _file_suffix(name: str) -> str:
    return posixpath.splitext(name)[1].lower()


def _common_folder(folders: Sequence[str]) -> str:
    """Return the deepest folder that contains, or is, each of the folders."""
    if not folders:
        return ""
    first, last = min(folder.split("/") for folder in folders), max(folder.split("/") for folder in folders)
    n_shared = next(
        (depth for depth, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(last)),
    )
    return "/".join(first[:n_shared])


def assign_class_ids(folders: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the label of each folder, and the class names in alphabetical order.

    The class of a folder is its path without the part that all folders share.
    """
    top = _common_folder([posixpath.dirname(folder) for folder in folders] if len(folders) == 1 else folders)
    class_by_folder = {folder: folder[len(top) :].lstrip("/") if top else folder for folder in folders}
    class_names = tuple(sorted(set(class_by_folder.values())))
    labels = {name: label for label, name in enumerate(class_names)}
    return {folder: labels[name] for folder, name in class_by_folder.items()}, class_names


# Several files form a sample


def _group_starts(table: FileTable) -> array[int] | None:
    """Return the first file of each sample, for consecutive files with the same key; None if all keys differ."""
    starts, previous_key, archive_id = array("Q"), None, -1
    for file, name in enumerate(table.names):
        key = sample_key(name)
        if key != previous_key or table.archive_ids[file] != archive_id:
            starts.append(file)
        previous_key, archive_id = key, table.archive_ids[file]
    return starts if len(starts) < len(table.names) else None


def _should_group(table: FileTable, starts: array[int]) -> bool:
    """Return whether extensions repeat, as in jpg + cls, unlike img.0001.png, img.0002.png, …"""
    extensions: set[str] = set()
    for name in table.names:
        extensions.add(extension_of(name))
        if len(extensions) > _MAX_EXTENSIONS:
            return False
    return len(starts) >= len(extensions) or len(starts) * len(extensions) == len(table.names)


def _draft_grouped(
    table: FileTable, archives: tuple[IndexedArchive, ...], layout: str, starts: array[int]
) -> IndexDraft:
    extensions = tuple(sorted({extension_of(name) for name in table.names}))
    extension_ids = {extension: number for number, extension in enumerate(extensions)}
    labels, class_names = _group_labels(table, starts)
    part_starts = array("Q", [0])
    draft = IndexDraft(
        archives,
        class_names,
        layout=layout,
        extensions=extensions,
        part_starts=part_starts,
        n_skipped_files=table.n_skipped,
    )
    for start, stop in zip(starts, [*starts[1:], len(table.names)], strict=False):
        files = range(start, stop)
        sample_offset = min(table.offsets[file] for file in files)
        draft.offsets.append(sample_offset)
        draft.sizes.append(max(table.offsets[file] + table.sizes[file] for file in files) - sample_offset)
        draft.archive_ids.append(table.archive_ids[start])
        for file in files:
            draft.part_offsets.append(table.offsets[file] - sample_offset)
            draft.part_sizes.append(table.sizes[file])
            draft.part_extensions.append(extension_ids[extension_of(table.names[file])])
        part_starts.append(len(draft.part_extensions))
    draft.labels.extend(labels)
    draft.names = [sample_key(table.names[start]) for start in starts]
    return draft


def _group_labels(table: FileTable, starts: array[int]) -> tuple[Iterable[int], tuple[str, ...]]:
    """Return labels and class names: from the label files if every sample has one, else from the folders."""
    texts = [
        _group_label_text(table, start, stop)
        for start, stop in zip(starts, [*starts[1:], len(table.names)], strict=False)
    ]
    if not all(texts):
        labels, class_names = assign_class_ids(list(table.folder_numbers))
        folders = list(table.folder_numbers)
        return (labels[folders[table.folder_ids[start]]] for start in starts), class_names
    if all(text.isascii() and text.isdecimal() and int(text) < _MAX_NUMERIC_LABEL for text in texts):
        return map(int, texts), tuple(map(str, range(max(map(int, texts)) + 1)))
    class_names = tuple(sorted(set(texts)))
    label_by_name = {name: label for label, name in enumerate(class_names)}
    return (label_by_name[text] for text in texts), class_names


def _group_label_text(table: FileTable, start: int, stop: int) -> str:
    return next((table.label_texts[file] for file in range(start, stop) if file in table.label_texts), "")
