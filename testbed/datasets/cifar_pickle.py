"""The pickles of CIFAR-10, read without executing code in them and written as Python 2 wrote the published ones.

A pickle is a program, and these are downloaded. The few names that a numpy array needs get a placeholder that only
stores its state; all others are rejected. So neither reading nor writing needs numpy.
"""

from __future__ import annotations

import struct
from typing import IO, Any

from packtrain.agent.outputs.validators.restricted_pickle import DisallowedNameError, RestrictedUnpickler


class PixelRows:
    """A two-dimensional uint8 array with `width` bytes per row."""

    def __init__(self, data: bytes, width: int) -> None:
        self.data, self.width = data, width

    def __len__(self) -> int:
        return len(self.data) // self.width

    def __getitem__(self, rows: slice) -> PixelRows:
        start, stop, _ = rows.indices(len(self))
        return PixelRows(self.data[start * self.width : stop * self.width], self.width)


class _ArrayPlaceholder:
    """Stores the state of a numpy array."""

    def __init__(self, *args: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def rows(self) -> PixelRows:
        """Return the pixels in the state: version, shape, type, order, bytes."""
        _, (_, width), _, _, data = self.state
        return PixelRows(data, width)


_ARRAY_NAMES = {
    "numpy.core.multiarray._reconstruct": _ArrayPlaceholder,
    "numpy._core.multiarray._reconstruct": _ArrayPlaceholder,  # its name in newer versions of numpy
    "numpy.ndarray": _ArrayPlaceholder,
    "numpy.dtype": _ArrayPlaceholder,
}


def load_pickle(file: IO[bytes]) -> dict[bytes, Any]:
    """Load a pickle. Raises ValueError for any error."""
    try:
        batch = RestrictedUnpickler(file, _ARRAY_NAMES.get, encoding="bytes").load()
        return {key: value.rows() if isinstance(value, _ArrayPlaceholder) else value for key, value in batch.items()}
    except DisallowedNameError as error:
        raise ValueError(f"it refers to {error}, which no CIFAR-10 batch needs") from error
    except Exception as error:  # a broken pickle can raise anything
        raise ValueError(str(error)) from error


def dump_pickle(value: dict[bytes, Any]) -> bytes:
    """Return a pickle that both `encoding="bytes"` and `encoding="latin1"` can read.

    Python 3's own pickles of byte strings decode differently under latin1, and use names of numpy that depend on its
    version.
    """
    return b"\x80\x02" + _encode_python2(value) + b"."


def _encode_python2(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_encode_python2(k) + _encode_python2(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_encode_python2, value)) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    return _encode_python2_array(value)


def _encode_python2_array(rows: PixelRows) -> bytes:
    """Return `_reconstruct(ndarray, (0,), "b")` and its state: version, shape, dtype, is Fortran order, bytes."""
    p = _encode_python2
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + p(0) + b"\x85" + p(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + p(b"u1") + p(0) + p(1) + b"\x87R"
    dtype += b"(" + p(3) + p(b"|") + b"NNN" + p(-1) + p(-1) + p(0) + b"tb"
    shape = p(len(rows)) + p(rows.width) + b"\x86"
    return empty + b"(" + p(1) + shape + dtype + b"\x89" + p(rows.data) + b"tb"
