"""Replace the placeholder of a conda package by the prefix, as rattler does, in one pass over a file of any size.

In a text file every occurrence is replaced. The kernel reads 127 bytes of a `#!` line and splits it at blanks, so a
line that would not work becomes one that starts a shell or `env`. In a binary file the length must stay: what follows
the placeholder up to the end of its C string moves forward, and zeros fill the string up.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from packtrain.transfer.archive.byte_stream import BytesLike, ByteStream, prepend

_MAX_SHEBANG_BYTES = 127
_MAX_FIRST_LINE_BYTES = 1 << 16  # a longer first line is not a `#!` line
_SHEBANG = re.compile(rb"#! *(/(?:\\ |[^ \n\r\t])*)([^\n]*)")
_PYTHON_NAME = re.compile(rb"python(\d+(\.\d+)?)?")


def replace_in_text(data: ByteStream, placeholder: bytes, prefix: bytes) -> ByteStream:
    """Return the stream of a text file with its placeholder replaced."""
    head = data.peek(_MAX_FIRST_LINE_BYTES)
    first_line = head[: head.find(b"\n")] if b"\n" in head else head
    new_first_line = _working_shebang(first_line, placeholder, prefix)
    if new_first_line != first_line:
        data.skip(len(first_line))
        data = prepend(new_first_line, data)
    return _stream(_replace_all(data, placeholder, prefix))


def replace_in_binary(data: ByteStream, placeholder: bytes, prefix: bytes) -> ByteStream:
    """Return the stream of a binary file with its placeholder replaced; the prefix must not be longer."""
    return _stream(_replace_in_c_strings(data, placeholder, prefix))


def shebang_line(interpreter: str) -> str:
    """Return the first line or lines of a Python script: `#!`, or the trick that works with any path."""
    line = f"#!{interpreter}"
    if len(line.encode()) <= _MAX_SHEBANG_BYTES and " " not in interpreter:
        return line
    return _shell_start(interpreter.encode(), b"").decode()


def _working_shebang(line: bytes, placeholder: bytes, prefix: bytes) -> bytes:
    """Return the first line of a text file, changed if the prefix would make it too long or split it."""
    match = _SHEBANG.match(line)
    if match is None:
        return line
    fits = len(line.replace(placeholder, prefix)) <= _MAX_SHEBANG_BYTES
    if placeholder not in line if b" " in prefix else fits:
        return line
    interpreter, flags = match.groups()
    name = posixpath.basename(interpreter)
    if _PYTHON_NAME.fullmatch(name):
        return _shell_start(interpreter, flags)
    return b"#!/usr/bin/env " + name + flags


def _shell_start(interpreter: bytes, flags: bytes) -> bytes:
    """Return lines that are a command for the shell, which starts Python, and a string for Python."""
    return b"#!/bin/sh\n'''exec' \"" + interpreter + b'"' + flags + b' "$0" "$@" #\'\'\''


def _replace_all(data: ByteStream, placeholder: bytes, prefix: bytes) -> Iterator[bytes]:
    kept = b""
    for chunk in iter(data.read_chunk, memoryview(b"")):
        *parts, last = (kept + bytes(chunk)).split(placeholder)
        end = _split_before_partial(last, placeholder)
        kept = last[end:]
        yield prefix.join((*parts, last[:end]))
    yield kept


def _replace_in_c_strings(data: ByteStream, placeholder: bytes, prefix: bytes) -> Iterator[bytes]:
    kept, n_zeros = b"", 0  # n_zeros: how much shorter the current C string has become
    for chunk in iter(data.read_chunk, memoryview(b"")):
        content, start, parts = kept + bytes(chunk), 0, []
        found = content.find(placeholder)
        while True:
            end = content.find(b"\0", start, found if found >= 0 else None) if n_zeros else -1
            if end >= 0:  # the end of a string in which the placeholder was replaced
                parts += [content[start:end], bytes(n_zeros)]
                start, n_zeros = end, 0
            if found < 0:
                break
            parts += [content[start:found], prefix]
            start, n_zeros = found + len(placeholder), n_zeros + len(placeholder) - len(prefix)
            found = content.find(placeholder, start)
        end = max(start, _split_before_partial(content, placeholder))
        kept = content[end:]
        yield b"".join((*parts, content[start:end]))
    yield kept + bytes(n_zeros)


def _split_before_partial(data: bytes, placeholder: bytes) -> int:
    """Return the index where a placeholder may begin that continues in the next chunk."""
    start = max(0, len(data) - len(placeholder) + 1)
    first = placeholder[:1]
    while True:
        start = data.find(first, start)
        if start < 0:
            return len(data)
        if placeholder.startswith(data[start:]):
            return start
        start += 1


def _stream(chunks: Iterator[bytes]) -> ByteStream:
    def read_next() -> BytesLike:
        return next((chunk for chunk in chunks if chunk), b"")

    return ByteStream(read_next)
