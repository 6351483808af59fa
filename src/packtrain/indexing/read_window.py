"""What was read last of an archive. Small members are read through, large ones are passed over."""

from __future__ import annotations

from collections.abc import Callable

ReadRangeFn = Callable[[int, int], bytes]

# A request costs about as much time as this many bytes: 50 ms at 1 to 2 MB/s of one connection among many, 0.2 ms at
# the speed of a machine's own memory. What is nearer than that is read through.
_MAX_READ_THROUGH_BYTES = 1 << 16
_INITIAL_READ_BYTES, _HEADER_READ_BYTES, _MAX_READ_BYTES = 1 << 14, 1 << 12, 1 << 20
_MEMBERS_PER_READ = 64
_SMOOTHING = 0.125


class ReadWindow:
    """`stop` is where the archive ends."""

    def __init__(self, read: ReadRangeFn, stop: int) -> None:
        self._read, self.stop = read, stop
        self._offset, self._data = 0, b""
        self._mean_distance = 0.0  # from member to member; 0: not known

    def get(self, offset: int, length: int) -> bytes:
        """Raises EOFError where there are fewer."""
        begin = offset - self._offset
        if begin < 0 or begin + length > len(self._data):
            if offset + length > self.stop:
                raise EOFError("the archive ends before its end")
            self._offset, self._data = (
                offset,
                self._read(offset, min(self.stop, offset + max(length, self._read_ahead_bytes()))),
            )
            begin = 0
        data = self._data[begin : begin + length]
        if len(data) < length:
            raise EOFError("the archive ends before its end")
        return data

    def contains(self, offset: int, length: int) -> bool:
        return self._offset <= offset and offset + length <= self._offset + len(self._data)

    def record_distance(self, distance: int) -> None:
        """Told of every member, how far it is to the next."""
        self._mean_distance += (distance - self._mean_distance) * (_SMOOTHING if self._mean_distance else 1)

    def _read_ahead_bytes(self) -> int:
        if not self._mean_distance:
            return _INITIAL_READ_BYTES
        if self._mean_distance > _MAX_READ_THROUGH_BYTES:
            return _HEADER_READ_BYTES
        return min(_MAX_READ_BYTES, max(_INITIAL_READ_BYTES, round(self._mean_distance) * _MEMBERS_PER_READ))
