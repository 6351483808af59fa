"""Links among the outputs: the sandbox behind them goes away, and whoever brings outputs home brings files.

A link to a file of the output folder may stay one. Every other becomes what it shows: HTCondor holds a job that has a
link to a folder among its outputs. What cannot become a file is taken away, and told.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def resolve_links(folder: Path) -> list[str]:
    """Go through the folder; a sentence for each name that is left out."""
    return list(_LinkResolver(folder).resolve_all())


def link_or_copy(source: str, target: str) -> None:
    """The same file under a second name: a model costs no second copy on the disk."""
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
        self._link_targets: dict[Path, Path] = {}  # folders that were links, and what they showed

    def resolve_all(self) -> Iterator[str]:
        """From the top: a folder that was a link is gone through like any other."""
        for where, folders, files in os.walk(self._folder):
            for path in (Path(where, name) for name in (*folders, *files)):
                problem = self._resolve(path)
                if problem:
                    yield f"the output {path.relative_to(self._folder)} is left out: {problem}"

    def _resolve(self, path: Path) -> str:
        """What is wrong with it, if it had to be taken away."""
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
        to = link.readlink()
        link.unlink()
        return f"it is a link to {to}, where there is no file"

    def _replace_with_file(self, link: Path) -> None:
        temporary = link.with_name(f".{link.name}.tmp-{os.getpid()}")
        self._copy_or_link(link, temporary)
        temporary.replace(link)

    def _copy_or_link(self, source: Path, target: Path) -> None:
        """A file of the sandbox goes with it; one from elsewhere is somebody's, and stays apart."""
        if self._folder.parent.resolve() in source.resolve().parents:
            link_or_copy(str(source), str(target))
        else:
            shutil.copy2(source, target)

    def _replace_with_folder(self, link: Path) -> str:
        """Its files, and links to all else in it: the walk comes to them next."""
        real = link.resolve()
        around = {self._link_targets.get(parent, parent.resolve()) for parent in link.parents}
        link.unlink()
        if real in around:
            return f"it is a link to {real}, a folder that it lies in"
        self._link_targets[link] = real
        link.mkdir()
        for entry in os.scandir(real):
            if entry.is_file():
                self._copy_or_link(Path(entry), link / entry.name)
            else:
                shown = Path(entry).readlink() if entry.is_symlink() else entry.name
                (link / entry.name).symlink_to(real / shown)
        return ""


def _is_internal_link(link: Path, folder: Path) -> bool:
    return not link.readlink().is_absolute() and folder.resolve() in link.resolve().parents
