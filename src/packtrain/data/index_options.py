"""Which archives the user wants to index, and their index: opened, from the cache, or built now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packtrain.data.credentials import CredentialOptions
from packtrain.errors import UsageError
from packtrain.indexing import IndexRequest, IndexResult, get_or_build_index
from packtrain.indexing.braces import expand_braces
from packtrain.indexing.builder import BUILT, CACHED, PUBLISHED
from packtrain.indexing.existing import index_cache_dir
from packtrain.stream.index import INDEX_SUFFIX, Index
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import filename_from_url

__all__ = ["BUILT", "CACHED", "PUBLISHED", "Index", "IndexOptions", "IndexResult", "url_from_argument"]


@dataclass(frozen=True)
class IndexOptions:
    """What to index. `urls` are arguments of the command line: URLs with braces, local paths, or one index file."""

    urls: Sequence[str]
    mirrors: Sequence[str]
    credentials: CredentialOptions
    retry_timeout_s: float
    group_files: bool | None = None
    prefix: str = ""

    @property
    def name(self) -> str:
        """The file name of the first URL."""
        return filename_from_url(self.urls[0].rstrip("/")) or self.urls[0]

    def output_path(self, output: str | None) -> Path | None:
        """Return where to write the index: `output`, or a file of that folder. None: the user's index cache."""
        if output is None:
            return None
        path = Path(output)
        if path.is_dir() or output.endswith("/"):
            path = path / f"{self.name}{INDEX_SUFFIX}"
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}; create it, or choose another path with -o")
        return path

    def open_named_index(self) -> Index | None:
        """Return the index if the only argument is an index file."""
        path = Path(self.urls[0])
        return Index.open(path) if len(self.urls) == 1 and path.name.endswith(INDEX_SUFFIX) and path.is_file() else None

    def make_request(self) -> IndexRequest:
        """Return what `get_or_build_index` needs."""
        urls = [url_from_argument(argument) for url in self.urls for argument in expand_braces(url)]
        if self.mirrors and len(urls) > 1:
            raise UsageError("--mirror applies to one archive; index the archives one by one, or drop --mirror")
        archives = [[self.credentials.make_location(replica, url) for replica in (url, *self.mirrors)] for url in urls]
        return IndexRequest(
            archives, self.credentials.resolve_secret, self.retry_timeout_s, self.group_files, self.prefix
        )

    def get_or_build(
        self,
        path: Path | None,
        check_cancelled: CancelCheck,
        on_progress: Callable[[int, int | None, int], None],
        *,
        rebuild: bool = False,
    ) -> IndexResult:
        """Return the index, from the cache or built now.

        Args:
            path: Where to write it; None: the user's index cache.
            check_cancelled: Called several times a second; raises to cancel.
            on_progress: Called with the bytes scanned, the total bytes and the number of files found.
            rebuild: Build the index even if there is one.
        """
        return get_or_build_index(
            self.make_request(),
            index_cache_dir(),
            path,
            rebuild=rebuild,
            check_cancelled=check_cancelled,
            on_progress=on_progress,
        )


def url_from_argument(argument: str) -> str:
    """Return the argument as a URL; an existing local path becomes a file:// URL."""
    path = Path(argument)
    if "://" in argument or not path.exists():
        return argument
    return path.absolute().as_uri() + ("/" if path.is_dir() else "")
