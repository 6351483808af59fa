"""The protocols between transfers and backends: a Source provides bytes, a Sink accepts them.

Backends are thin. They do not retry, limit, cache or report progress; the code that uses the protocols does. A backend
converts every foreign exception (socket, ssl, http, OSError) to a TransferError whose kind is a key of
`events.FAILURE_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from packtrain.plan import Digest, Location, SecretOrStr
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent

SecretResolver = Callable[[SecretOrStr], str]
"""Returns the value of a secret of the plan, and any other text unchanged.

Called again for each connection, because tokens are renewed under a running job. Raises
FailedError("secret_missing")."""


@dataclass(frozen=True)
class ObjectInfo:
    """Metadata that a source reports for an object; None where the source does not report it."""

    size: int | None = None  # bytes
    etag: str | None = None
    content_type: str | None = None
    digest: Digest | None = None
    accepts_ranges: bool = False  # whether `Source.open` honours the start of a range
    last_modified: str | None = None  # date and time, as the server formats it
    round_trip_s: float = field(default=0.0, compare=False)  # to the server that reported this; 0: unknown


@dataclass(frozen=True)
class ByteRange:
    """The bytes from `start` up to, but not including, `stop`; None means the end of the object."""

    start: int = 0
    stop: int | None = None


FULL_RANGE = ByteRange()


@dataclass(frozen=True)
class ListedObject:
    """One object below a prefix."""

    name: str  # relative to the prefix, with / as the separator
    size: int | None  # bytes
    location: Location


class ObjectStream(Protocol):
    """The body of one response."""

    info: ObjectInfo  # metadata from the response itself
    start: int  # position of the first byte in the object; 0 if the source ignored the range

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, and b"" only at the end.

        Raises:
            TransferError: The body ended early ("truncated") or the connection failed.
        """
        ...

    def readinto(self, buffer: memoryview, /) -> int:
        """Read into the buffer and return the number of bytes; 0 only at the end."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class Source(Protocol):
    """A backend that objects are read from."""

    def stat(self, location: Location) -> ObjectInfo:
        """Return the metadata of an object.

        Args:
            location: The address of the object.

        Raises:
            TransferError: object_missing, access_denied, service_unavailable, host_unknown and others.
        """
        ...

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> ObjectStream:
        """Start to read an object.

        Args:
            location: The address of the object.
            byte_range: The bytes to read. A source may ignore it, see `ObjectStream.start`.
        """
        ...

    def list(self, location: Location) -> Iterable[ListedObject]:
        """Return all objects below a prefix; a prefix without objects is not an error.

        Args:
            location: The address of the prefix.

        Raises:
            TransferError: The backend cannot list ("unsupported").
        """
        ...


@dataclass(frozen=True)
class Replica:
    """One server that has an object."""

    source: Source
    location: Location
    label: str  # names the server in messages; contains no secrets
    is_fallback: bool = False  # used only while all others fail, back off or starve


class Sink(Protocol):
    """A backend that objects are written to."""

    def put(
        self,
        location: Location,
        path: Path,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        *,
        adopt_uploads: bool = True,
    ) -> str | None:
        """Copy a file to an address.

        The copy is atomic (complete or invisible) and repeatable.

        Args:
            location: The address to write.
            path: The file to read.
            on_bytes_sent: Receives the number of bytes of each part as it is sent. A repeated `put` counts from 0.
            adopt_uploads: Whether to resume an unfinished upload of another process. It must be False where other
                processes may upload different content to the same address, as attempts of one job do: files with a
                common beginning could otherwise be mixed.

        Returns:
            What the server answered, if that is for people: mostly the link under which the file can be downloaded.
        """
        ...

    def copy(self, source: Location, target: Location, *, digest: Digest | None = None, may_move: bool = False) -> bool:
        """Copy an object to another address of the same server, without transferring its bytes to this machine.

        The copy is atomic (complete or invisible), repeatable, and replaces what is at the target.

        Args:
            source: The object.
            target: The address of the copy.
            digest: The digest of the object, if it is known; it is compared with what the server states.
            may_move: Whether the source may disappear, which is faster where it means to rename a file.

        Returns:
            Whether the server showed that the copy equals the source. If not, the caller has to compare the bytes.

        Raises:
            TransferError: object_missing; "digest_mismatch" if the copy has another digest; "unsupported" if the server
                cannot copy, and the bytes have to be read and written.
        """
        ...

    def stat(self, location: Location) -> ObjectInfo:
        """Return the metadata of an object, like `Source.stat`."""
        ...

    def list(self, location: Location) -> Iterable[ListedObject]:
        """Return all objects below a prefix, like `Source.list`."""
        ...

    def delete(self, location: Location) -> None:
        """Delete an object; deleting one that does not exist is not an error."""
        ...
