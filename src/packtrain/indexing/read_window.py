"""What was read last of an archive. Small members are read through, large ones are passed over."""

from __future__ import annotations

from collections.abc import Callable

Read = Callable[[int, int], bytes]

# A request costs about as much time as this many bytes: 50 ms at 1 to 2 MB/s of one connection among many, 0.2 ms at
# the speed of a machine's own memory. What is nearer than that is read through.
_NEAR = 1 << 16
_FIRST, _FEW, _MANY = 1 << 14, 1 << 12, 1 << 20
_MEMBERS_AT_ONCE = 64
_NEW_SHARE = 0.125


class Window:
    """`stop` is where the archive ends."""

    def __init__(self, read: Read, stop: int) -> None:
        self._read, self.stop = read, stop
        self._at, self._data = 0, b""
        self._distance = 0.0  # from member to member; 0: not known

    def get(self, at: int, length: int) -> bytes:
        """Raises EOFError where there are fewer."""
        begin = at - self._at
        if begin < 0 or begin + length > len(self._data):
            if at + length > self.stop:
                raise EOFError("the archive ends before its end")
            self._at, self._data = at, self._read(at, min(self.stop, at + max(length, self._wanted())))
            begin = 0
        data = self._data[begin : begin + length]
        if len(data) < length:
            raise EOFError("the archive ends before its end")
        return data

    def holds(self, at: int, length: int) -> bool:
        return self._at <= at and at + length <= self._at + len(self._data)

    def passed(self, distance: int) -> None:
        """Told of every member, how far it is to the next."""
        self._distance += (distance - self._distance) * (_NEW_SHARE if self._distance else 1)

    def _wanted(self) -> int:
        if not self._distance:
            return _FIRST
        if self._distance > _NEAR:
            return _FEW
        return min(_MANY, max(_FIRST, round(self._distance) * _MEMBERS_AT_ONCE))
