"""Buffer the part of an archive that was read last. Small members are read through, large ones are skipped."""

from __future__ import annotations

from collections.abc import Callable

ReadRangeFn = Callable[[int, int], bytes]

# A request takes about as long as reading this many bytes: 50 ms at the 1 to 2 MB/s of one connection among many, or
# 0.2 ms at the speed of local memory. Members that are closer to each other are read through.
_MAX_READ_THROUGH_BYTES = 1 << 16
_INITIAL_READ_BYTES, _HEADER_READ_BYTES, _MAX_READ_BYTES = 1 << 14, 1 << 12, 1 << 20
_MEMBERS_PER_READ = 64
_SMOOTHING = 0.125


class ReadWindow:
    """The bytes around the current header. `stop` is the end of the archive."""

    def __init__(self, read: ReadRangeFn, stop: int) -> None:
        self._read, self.stop = read, stop
        self._offset, self._data = 0, b""
        self._mean_distance = 0.0  # mean distance between headers, in bytes; 0: unknown

    def get(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`. Raises EOFError if the archive ends before."""
        start = offset - self._offset
        if start < 0 or start + length > len(self._data):
            if offset + length > self.stop:
                raise EOFError("the archive is truncated")
            end = min(self.stop, offset + max(length, self._read_ahead_bytes()))
            self._offset, self._data = offset, self._read(offset, end)
            start = 0
        data = self._data[start : start + length]
        if len(data) < length:
            raise EOFError("the archive is truncated")
        return data

    def record_distance(self, distance: int) -> None:
        """Update the mean distance between headers with the distance from one member to the next, in bytes."""
        self._mean_distance += (distance - self._mean_distance) * (_SMOOTHING if self._mean_distance else 1)

    def _read_ahead_bytes(self) -> int:
        if not self._mean_distance:
            return _INITIAL_READ_BYTES
        if self._mean_distance > _MAX_READ_THROUGH_BYTES:
            return _HEADER_READ_BYTES
        return min(_MAX_READ_BYTES, max(_INITIAL_READ_BYTES, round(self._mean_distance) * _MEMBERS_PER_READ))
