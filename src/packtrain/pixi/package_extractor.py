"""What conda packages and wheels have in common while they are extracted into a prefix."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.pixi.prefix_folder import PackageWriter, PrefixFolder
from packtrain.plan import PixiPackage
from packtrain.transfer.archive.safe_extractor import SafeExtractor
from packtrain.transfer.tasks.cancellation import CancelCheck


class PrefixTooLongError(Exception):
    """The prefix is longer than a placeholder in a binary file, whose length cannot change."""

    def __init__(self, prefix: str, max_length: int) -> None:
        super().__init__(f"the path {prefix} has {len(prefix.encode())} bytes, but may have only {max_length}")
        self.max_length = max_length


@dataclass(frozen=True)
class Installation:
    """One environment that is being installed.

    Attributes:
        folder: Receives the files.
        prefix: The path that the folder will have, which scripts and libraries contain.
        python: The version of the environment's Python, e.g. "3.12"; "" if it has none.
        site_packages: The folder of Python packages, relative to the prefix.
        check_cancelled: Called for each member and chunk; raises to cancel.
    """

    folder: PrefixFolder
    prefix: str
    python: str
    site_packages: str
    check_cancelled: CancelCheck

    @property
    def interpreter(self) -> str:
        """The path of the environment's Python."""
        return f"{self.prefix}/bin/python{self.python}"


class PackageExtractor(SafeExtractor):
    """Extracts one package into the prefix; subclasses decide where a member goes."""

    def __init__(self, installation: Installation, package: PixiPackage, rank: int) -> None:
        super().__init__(PackageWriter(installation.folder, rank), package.file_name)
        self.installation = installation

    def write_script(self, name: str, content: bytes, mode: int) -> None:
        """Write a script to `bin`."""
        SafeExtractor.write_small_file(self, f"bin/{name}", mode, [memoryview(content)], len(content))
