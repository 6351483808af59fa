"""Where the members of an archive land. Whatever they are called, nothing leaves the folder.

The rules that make this hold, whatever the order of members: a path goes through real folders only,
never through a link; a link is relative, climbs (`..`) only at its beginning, and not out of the folder.
"""

from __future__ import annotations

from packtrain.transfer.archive.byte_stream import Flow
from packtrain.transfer.archive.extract_dir import Ground, broken, mode_of, unsafe
from packtrain.transfer.archive.small_file_writer import Small

_KNOWN_AT_MOST = 1 << 16
_NO_NAMES = frozenset({"", ".", ".."})


class Landing:
    """The folder of one archive: the ground itself, or a folder `below` for an archive inside of another."""

    def __init__(self, ground: Ground, archive: str, below: str = "") -> None:
        self.archive = archive
        self._ground, self._below = ground, below
        self._known: dict[str, str] = {}  # what stands before a member's last part → the real folder there

    def within(self, name: str, archive: str) -> Landing:
        """The folder of this name, for an archive inside of this one."""
        self.folder(name)
        return Landing(self._ground, archive, self._below + "/".join(self._parts(name)) + "/")

    def folder(self, name: str) -> None:
        self._make_folders(self._parts(name))

    def small(self, name: str, executable: bool, views: list[memoryview], size: int) -> None:
        self._ground.small(Small(self._path(name), mode_of(executable), views, size, name, self.archive))

    def file(self, name: str, executable: bool, data: Flow) -> None:
        self._ground.file(self._path(name), executable, data, name, self.archive)

    def symlink(self, name: str, target: str) -> None:
        if not _stays_inside(self._parts(name), target):
            raise unsafe(name, self.archive, f"is a link to {target!r}, which leaves the folder")
        self._ground.symlink(self._path(name), target, name, self.archive)

    def hardlink(self, name: str, target: str) -> None:
        """A second name for a file of the archive."""
        source = self._existing(name, target)
        path = self._path(name)
        if path != source:
            self._ground.hardlink(path, source, name, self.archive)

    def refuse(self, name: str, what: str) -> None:
        raise unsafe(name, self.archive, f"is {what}")

    def _path(self, name: str) -> str:
        """Relative to the ground; its folder stands."""
        slash = name.rfind("/") + 1
        folder, last = name[:slash], name[slash:]
        known = self._known.get(folder)
        if known is None or last in _NO_NAMES or "\0" in last:
            return self._found_out(name, folder)
        return known + last

    def _found_out(self, name: str, folder: str) -> str:
        parts = self._parts(name)
        if not parts:
            raise broken(name, self.archive, "is a file where a folder of that name is")
        real = self._make_folders(parts[:-1])
        if len(self._known) >= _KNOWN_AT_MOST:
            self._known.clear()
        if name == folder + parts[-1]:
            self._known[folder] = real
        return real + parts[-1]

    def _parts(self, name: str) -> tuple[str, ...]:
        parts = _parts_inside(name)
        if parts is None:
            raise unsafe(name, self.archive, "would land outside of the folder")
        return parts

    def _make_folders(self, parts: tuple[str, ...]) -> str:
        real, name = self._below, ""
        for part in parts:
            real, name = f"{real}{part}/", f"{name}{part}/"
            if name not in self._known:
                self._ground.folder(real[:-1], name[:-1], self.archive)
                self._known[name] = real
        return real

    def _existing(self, name: str, target: str) -> str:
        parts = _parts_inside(target)
        if parts is None:
            raise unsafe(name, self.archive, f"is a link to {target!r}, which is outside of the folder")
        folders = [self._below + "/".join(parts[:depth]) for depth in range(1, len(parts))]
        if any(map(self._ground.is_link, folders)):
            raise unsafe(name, self.archive, f"is a link to {target!r}, which goes through another link")
        path = self._below + "/".join(parts)
        if not parts or not self._ground.is_file(path):
            raise broken(name, self.archive, f"is a link to {target!r}, which is no file of the archive")
        return path


def _parts_inside(name: str) -> tuple[str, ...] | None:
    """The parts of a path below the folder; None if it is not below."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return None if name.startswith("/") or ".." in parts or "\0" in name else parts


def _stays_inside(parts: tuple[str, ...], target: str) -> bool:
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    relative = bool(target) and not target.startswith("/") and "\0" not in target
    return relative and ".." not in steps[climbs:] and climbs < len(parts)
