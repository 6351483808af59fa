"""Zstandard decompression with Python's own module, which exists from 3.14 on, or else with the machine's libzstd.

`.conda` packages need it. ctypes releases the GIL during each call, so that packages are decompressed in parallel.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from typing import Any

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import CHUNK_BYTES

_LIBRARY = "libzstd.so.1"


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t)]


def make_zstd_decompressor() -> Any:
    """Return a decompressor of one frame, with the interface of `bz2.BZ2Decompressor`.

    Raises:
        FailedError: The machine cannot decompress zstd ("environment_unsupported").
    """
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd").ZstdDecompressor()
    return LibzstdDecompressor()


@functools.cache
def _load_library() -> Any:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise FailedError(
            "environment_unsupported",
            f"this machine cannot unpack .conda packages, because {_LIBRARY} is missing and Python "
            f"{sys.version_info[0]}.{sys.version_info[1]} has no zstd of its own ({error}); install the package "
            "libzstd1 (Debian) or libzstd (Fedora, RHEL), or start the agent with Python 3.14",
        ) from error
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    buffer_type = ctypes.POINTER(_Buffer)
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, buffer_type, buffer_type]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_isError.argtypes = library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    return library


class LibzstdDecompressor:
    """Decompresses one frame. A skippable frame decompresses to nothing."""

    def __init__(self) -> None:
        self._library = _load_library()
        self._stream: int | None = self._library.ZSTD_createDStream()
        self._output = ctypes.create_string_buffer(CHUNK_BYTES)
        self._input, self._input_position = b"", 0
        self.eof, self.needs_input = False, True

    def __del__(self) -> None:
        if getattr(self, "_stream", None):
            self._library.ZSTD_freeDStream(self._stream)
            self._stream = None

    @property
    def unused_data(self) -> bytes:
        """What follows the frame."""
        return self._input[self._input_position :] if self.eof else b""

    def decompress(self, data: bytes | memoryview, max_length: int = CHUNK_BYTES) -> bytes:
        """Return at most `max_length` bytes. `data` must be empty unless `needs_input` is set.

        Raises:
            ValueError: The data is damaged.
        """
        if len(data):
            self._input, self._input_position = bytes(data), 0
        source = _Buffer(
            ctypes.cast(ctypes.c_char_p(self._input), ctypes.c_void_p).value, len(self._input), self._input_position
        )
        capacity = min(max_length, CHUNK_BYTES)
        target = _Buffer(ctypes.addressof(self._output), capacity, 0)
        result = self._library.ZSTD_decompressStream(self._stream, ctypes.byref(target), ctypes.byref(source))
        if self._library.ZSTD_isError(result):
            name = self._library.ZSTD_getErrorName(result).decode("ascii", "replace")
            raise ValueError(f"the zstd data is damaged: {name}")
        self._input_position = source.position
        self.eof = result == 0
        # A full output buffer means that the decoder may hold more.
        self.needs_input = not self.eof and source.position == source.size and target.position < capacity
        return ctypes.string_at(self._output, target.position)
