"""The narrow waist of all transfers: Source gives bytes, Sink takes them.

Backends are thin: no retries, no limits, no progress, no caching in them; those wrap the protocol.
Every foreign exception (socket, ssl, http, OSError) is translated once, in the backend, to a
TransferError whose kind stands in `events.failure.KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packtrain.plan import Digest, Location, SecretOrStr
from packtrain.transfer.http.request_body import OnBytesSent, ignore_bytes_sent

SecretResolver = Callable[[SecretOrStr], str]
"""Turns a Text of the plan into its value. Called anew for each connection: tokens are renewed
under a running job. Raises FailedError("secret_missing")."""


@dataclass(frozen=True)
class ObjectInfo:
    """What a source says about an object before giving it. None = it does not say."""

    size: int | None = None
    etag: str | None = None
    content_type: str | None = None
    digest: Digest | None = None
    accepts_ranges: bool = False  # whether `open` honours a start
    last_modified: str | None = None  # when, as the server writes it


@dataclass(frozen=True)
class ByteRange:
    """Bytes start..stop (stop not included; None = to the end)."""

    start: int = 0
    stop: int | None = None


FULL_RANGE = ByteRange()


@dataclass(frozen=True)
class ListedObject:
    """One object below a prefix."""

    name: str  # relative to the prefix, with / between
    size: int | None
    location: Location


class ObjectStream(Protocol):
    """Bytes on their way. `info` is what the answer itself said."""

    info: ObjectInfo
    start: int  # the first byte's position: 0 if the source ignored the span

    def read(self, size: int, /) -> bytes:
        """Up to size bytes; b"" only at the true end. A short body is TransferError("truncated")."""
        ...

    def readinto(self, buffer: memoryview, /) -> int:
        """Like `read`, into the buffer: how many bytes came; 0 only at the true end."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    def stat(self, location: Location) -> ObjectInfo:
        """Raises TransferError: object_missing, access_denied, service_unavailable, host_unknown, …"""
        ...

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> ObjectStream: ...

    def list(self, location: Location) -> Iterable[ListedObject]:
        """All objects below a prefix; an empty prefix is no error. Backends that cannot: unsupported."""
        ...


@dataclass(frozen=True)
class Replica:
    """One server that has an object. `label` names it to people, without secrets."""

    source: Source
    location: Location
    label: str
    is_fallback: bool = False  # asked only while all others fail or rest


class Sink(Protocol):
    def put(self, location: Location, path: Path, on_bytes_sent: OnBytesSent = ignore_bytes_sent) -> None:
        """Copy a file to the address: atomic (complete or invisible) and repeatable.

        `sent` hears of bytes as they leave; a `put` that is repeated begins to count anew."""
        ...

    def stat(self, location: Location) -> ObjectInfo: ...

    def list(self, location: Location) -> Iterable[ListedObject]: ...

    def delete(self, location: Location) -> None:
        """Gone afterwards; deleting what is not there is no error."""
        ...
