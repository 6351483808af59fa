"""Where the members of an archive land. Whatever they are called, nothing leaves the folder.

The rules that make this hold, whatever the order of members: a path goes through real folders only,
never through a link; a link is relative, climbs (`..`) only at its beginning, and not out of the folder.
"""

from __future__ import annotations

from packtrain.transfer.archive.byte_stream import ByteStream
from packtrain.transfer.archive.extract_dir import ExtractDir, broken_member_error, file_mode, unsafe_member_error
from packtrain.transfer.archive.small_file_writer import SmallFile

_MAX_CACHED_FOLDERS = 1 << 16
_INVALID_NAMES = frozenset({"", ".", ".."})


class SafeExtractor:
    """The folder of one archive: the ground itself, or a folder `below` for an archive inside of another."""

    def __init__(self, extract_dir: ExtractDir, archive_name: str, prefix: str = "") -> None:
        self.archive_name = archive_name
        self._extract_dir, self._prefix = extract_dir, prefix
        self._real_folders: dict[str, str] = {}  # what stands before a member's last part → the real folder there

    def nested_extractor(self, name: str, archive_name: str) -> SafeExtractor:
        """The folder of this name, for an archive inside of this one."""
        self.make_folder(name)
        return SafeExtractor(
            self._extract_dir, archive_name, self._prefix + "/".join(self._split_or_reject(name)) + "/"
        )

    def make_folder(self, name: str) -> None:
        self._make_folders(self._split_or_reject(name))

    def write_small_file(self, name: str, is_executable: bool, views: list[memoryview], size: int) -> None:
        self._extract_dir.write_small_file(
            SmallFile(self._resolve_path(name), file_mode(is_executable), views, size, name, self.archive_name)
        )

    def write_file(self, name: str, is_executable: bool, data: ByteStream) -> None:
        self._extract_dir.write_file(self._resolve_path(name), is_executable, data, name, self.archive_name)

    def make_symlink(self, name: str, target: str) -> None:
        if not _is_link_inside(self._split_or_reject(name), target):
            raise unsafe_member_error(name, self.archive_name, f"is a link to {target!r}, which leaves the folder")
        self._extract_dir.make_symlink(self._resolve_path(name), target, name, self.archive_name)

    def make_hardlink(self, name: str, target: str) -> None:
        """A second name for a file of the archive."""
        source = self._resolve_link_target(name, target)
        path = self._resolve_path(name)
        if path != source:
            self._extract_dir.make_hardlink(path, source, name, self.archive_name)

    def reject(self, name: str, reason: str) -> None:
        raise unsafe_member_error(name, self.archive_name, f"is {reason}")

    def _resolve_path(self, name: str) -> str:
        """Relative to the ground; its folder stands."""
        slash = name.rfind("/") + 1
        folder, last = name[:slash], name[slash:]
        known = self._real_folders.get(folder)
        if known is None or last in _INVALID_NAMES or "\0" in last:
            return self._resolve_new_path(name, folder)
        return known + last

    def _resolve_new_path(self, name: str, folder: str) -> str:
        parts = self._split_or_reject(name)
        if not parts:
            raise broken_member_error(name, self.archive_name, "is a file where a folder of that name is")
        real = self._make_folders(parts[:-1])
        if len(self._real_folders) >= _MAX_CACHED_FOLDERS:
            self._real_folders.clear()
        if name == folder + parts[-1]:
            self._real_folders[folder] = real
        return real + parts[-1]

    def _split_or_reject(self, name: str) -> tuple[str, ...]:
        parts = _split_safe_path(name)
        if parts is None:
            raise unsafe_member_error(name, self.archive_name, "would land outside of the folder")
        return parts

    def _make_folders(self, parts: tuple[str, ...]) -> str:
        real, name = self._prefix, ""
        for part in parts:
            real, name = f"{real}{part}/", f"{name}{part}/"
            if name not in self._real_folders:
                self._extract_dir.make_folder(real[:-1], name[:-1], self.archive_name)
                self._real_folders[name] = real
        return real

    def _resolve_link_target(self, name: str, target: str) -> str:
        parts = _split_safe_path(target)
        if parts is None:
            raise unsafe_member_error(
                name, self.archive_name, f"is a link to {target!r}, which is outside of the folder"
            )
        folders = [self._prefix + "/".join(parts[:depth]) for depth in range(1, len(parts))]
        if any(map(self._extract_dir.is_link, folders)):
            raise unsafe_member_error(
                name, self.archive_name, f"is a link to {target!r}, which goes through another link"
            )
        path = self._prefix + "/".join(parts)
        if not parts or not self._extract_dir.is_file(path):
            raise broken_member_error(
                name, self.archive_name, f"is a link to {target!r}, which is no file of the archive"
            )
        return path


def _split_safe_path(name: str) -> tuple[str, ...] | None:
    """The parts of a path below the folder; None if it is not below."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return None if name.startswith("/") or ".." in parts or "\0" in name else parts


def _is_link_inside(parts: tuple[str, ...], target: str) -> bool:
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    relative = bool(target) and not target.startswith("/") and "\0" not in target
    return relative and ".." not in steps[climbs:] and climbs < len(parts)
