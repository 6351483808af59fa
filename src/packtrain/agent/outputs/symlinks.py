"""Replace symbolic links among the outputs, because the sandbox that they point into is deleted.

A relative link to a file inside the output folder remains a link. Every other link is replaced by its target: HTCondor
puts a job on hold if its outputs contain a link to a folder. A link that cannot become a file is removed and reported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packtrain.fileutil import temporary_path


def resolve_links(folder: Path) -> list[str]:
    """Replace the links below the folder, and return a message for each name that was removed."""
    return list(_LinkResolver(folder).resolve_all())


def link_or_copy(source: str, target: str) -> None:
    """Hard-link a file to save disk space, or copy it where that is impossible."""
    real = os.path.realpath(source)
    with suppress(FileNotFoundError):
        Path(target).unlink()
    try:
        os.link(real, target)
    except OSError:
        shutil.copy2(real, target)


class _LinkResolver:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._link_targets: dict[Path, Path] = {}  # targets of the folders that were links

    def resolve_all(self) -> Iterator[str]:
        """Walk top-down, so that a folder that replaced a link is walked as well."""
        for where, folders, files in os.walk(self._folder):
            for path in (Path(where, name) for name in (*folders, *files)):
                problem = self._resolve(path)
                if problem:
                    yield f"the output {path.relative_to(self._folder)} is left out: {problem}"

    def _resolve(self, path: Path) -> str:
        """Return why the path had to be removed, or an empty string."""
        try:
            if path.is_symlink():
                return self._resolve_link(path)
            if not path.is_file() and not path.is_dir():
                path.unlink()
                return "it is neither a file nor a folder"
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            return str(error)
        return ""

    def _resolve_link(self, link: Path) -> str:
        if link.is_dir():
            return self._replace_with_folder(link)
        if link.is_file():
            if not _is_internal_link(link, self._folder):
                self._replace_with_file(link)
            return ""
        link_target = link.readlink()
        link.unlink()
        return f"it is a link to {link_target}, which does not exist"

    def _replace_with_file(self, link: Path) -> None:
        temporary = temporary_path(link)
        self._copy_or_link(link, temporary)
        temporary.replace(link)

    def _copy_or_link(self, source: Path, target: Path) -> None:
        """Hard-link a file of the sandbox, and copy any other: a later change must not reach the user's file."""
        if self._folder.parent.resolve() in source.resolve().parents:
            link_or_copy(str(source), str(target))
        else:
            shutil.copy2(source, target)

    def _replace_with_folder(self, link: Path) -> str:
        """Make a folder with the target's files and with links to its other entries, which the walk resolves next."""
        real = link.resolve()
        real_parents = {self._link_targets.get(parent, parent.resolve()) for parent in link.parents}
        link.unlink()
        if real in real_parents:
            return f"it is a link to {real}, a folder that contains the link"
        self._link_targets[link] = real
        link.mkdir()
        for entry in os.scandir(real):
            if entry.is_file():
                self._copy_or_link(Path(entry), link / entry.name)
            else:
                link_target = Path(entry).readlink() if entry.is_symlink() else entry.name
                (link / entry.name).symlink_to(real / link_target)
        return ""


def _is_internal_link(link: Path, folder: Path) -> bool:
    return not link.readlink().is_absolute() and folder.resolve() in link.resolve().parents
