"""Is it a model? Loads with weights_only, has tensors, every value is finite. Read as torch would, without torch.

A file of torch.save is a zip: `data.pkl` says which tensors lie where in the records `data/KEY`, which are raw
numbers. Before torch 1.6 it was a row of pickles with the raw numbers behind them.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from packtrain.agent.outputs.validators import Heed, torch_pickle
from packtrain.agent.outputs.validators.float_formats import FORMATS, not_finite
from packtrain.agent.outputs.validators.torch_pickle import RefusedNameError, Tensor

_BLOCK = 1 << 20  # a multiple of every width
_LARGEST_PICKLE = 1 << 28
_ZIP, _LEGACY = b"PK\x03\x04", 0x1950A86A20F9469CFC6C
_DAMAGE = (
    pickle.UnpicklingError, EOFError, OSError, ValueError, TypeError, AttributeError, KeyError, IndexError,
    ImportError, RecursionError, OverflowError, MemoryError, struct.error,
)  # fmt: skip
"""What reading a damaged pickle can lead to."""
_ZIP_DAMAGE = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError, struct.error, zlib.error,
)  # fmt: skip

Read = Callable[[int], bytes]
Named = list[tuple[str, Tensor]]
Bad = list[tuple[str, Tensor, int]]
"""Tensors by name, and how many of their values are not finite."""


class WrongError(Exception):
    """What is wrong with the file, in words."""


def judge(path: Path, heed: Heed) -> str | None:
    """What is wrong with the model, or None."""
    try:
        with open(path, "rb") as file:
            look = _in_zip if file.read(len(_ZIP)) == _ZIP else _in_legacy
            file.seek(0)
            bad = look(file, heed)
    except WrongError as error:
        return str(error)
    return _told(bad) if bad else None


def _told(bad: Bad) -> str:
    name, tensor, count = bad[0]
    values = "value that is" if count == 1 else "values that are"
    others = len(bad) - 1
    more = f", and so {'has 1 other tensor' if others == 1 else f'have {others} other tensors'}" if others else ""
    return f"{_called(name)} has {count} {values} not finite (NaN or infinite), of {tensor.numel}{more}"


def _called(name: str) -> str:
    return f"the tensor {name}" if name else "its only tensor"


def _in_zip(file: IO[bytes], heed: Heed) -> Bad:
    try:
        with zipfile.ZipFile(file) as archive:
            return _records(archive, heed)
    except _ZIP_DAMAGE as error:
        raise WrongError(_why_no_zip(error)) from error


def _why_no_zip(error: Exception) -> str:
    cut = "not a zip file" in str(error)
    return "it was cut: a file of torch.save has a directory at its end" if cut else f"it is damaged: {error}"


def _records(archive: zipfile.ZipFile, heed: Heed) -> Bad:
    root, tensors = _described(archive)
    big = _is_big(archive, root)
    found: Bad = []
    for record in archive.infolist():
        with archive.open(record) as data:
            found += _scan(data.read, tensors.pop(record.filename, []), big, heed)
    if tensors:
        record_name, missing = next(iter(tensors.items()))
        raise WrongError(f"{_called(missing[0][0])} has no values: the record {record_name} is missing")
    return found


def _described(archive: zipfile.ZipFile) -> tuple[str, dict[str, Named]]:
    """The folder in the zip, and the tensors by their record."""
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if not names:
        raise WrongError("it is a zip, but not one of torch.save: it has no data.pkl")
    if archive.getinfo(names[0]).file_size > _LARGEST_PICKLE:
        raise WrongError("its data.pkl is too large for a description of tensors")
    root = names[0][: -len("data.pkl")]
    tensors: dict[str, Named] = {}
    for name, tensor in _tensors(io.BytesIO(archive.read(names[0]))):
        tensors.setdefault(f"{root}data/{tensor.storage.key}", []).append((name, tensor))
    return root, tensors


def _is_big(archive: zipfile.ZipFile, root: str) -> bool:
    name = f"{root}byteorder"
    return name in archive.namelist() and archive.read(name) == b"big"


def _in_legacy(file: IO[bytes], heed: Heed) -> Bad:
    """Magic number, version, the machine, the object, the keys of its storages, and their numbers."""
    if _unpickled(file) != _LEGACY:
        raise WrongError("it is no file of torch.save")
    _, machine = _unpickled(file), _unpickled(file)
    tensors = _tensors(file)
    found: Bad = []
    for key in _unpickled(file):
        here = [(name, tensor) for name, tensor in tensors if tensor.storage.key == str(key)]
        found += _scan(_limited(file, here), here, not machine.get("little_endian", True), heed)
    return found


def _limited(file: IO[bytes], tensors: Named) -> Read:
    """Reads the numbers of one storage: its count comes first."""
    width = tensors[0][1].storage.width if tensors else 1
    left = int.from_bytes(file.read(8), "little") * width

    def read(size: int) -> bytes:
        nonlocal left
        data = file.read(min(size, left))
        left -= len(data)
        return data

    return read


def _tensors(file: IO[bytes]) -> Named:
    tensors = list(torch_pickle.tensors_of(_unpickled(file)))
    if not any(tensor.numel for _, tensor in tensors):
        raise WrongError("it holds no tensors: the model is empty")
    return tensors


def _unpickled(file: IO[bytes]) -> Any:
    try:
        return torch_pickle.load(file)
    except RefusedNameError as error:
        raise WrongError(f"it holds {error}, which torch.load(weights_only=True) refuses; save a state_dict") from error
    except _DAMAGE as error:
        raise WrongError(f"it is no file of torch.save, or a damaged one: {error}") from error


def _scan(read: Read, tensors: Named, big: bool, heed: Heed) -> Bad:
    """Read a storage to its end, so that its checksum is compared, too."""
    counts = [0] * len(tensors)
    position = 0
    for block in iter(lambda: read(_BLOCK), b""):
        heed()
        for number, (_, tensor) in enumerate(tensors):
            counts[number] += _bad_values(block, position, tensor, big)
        position += len(block)
    for name, tensor in tensors:
        if tensor.numel and (tensor.offset + tensor.span) * _width(tensor) > position:
            raise WrongError(f"{_called(name)} is cut: its storage has only {position} bytes")
    return [(name, tensor, count) for (name, tensor), count in zip(tensors, counts) if count]


def _width(tensor: Tensor) -> int:
    return FORMATS[tensor.dtype].size if tensor.dtype in FORMATS else tensor.storage.width


def _bad_values(block: bytes, position: int, tensor: Tensor, big: bool) -> int:
    """How many values of the tensor in this block are not finite."""
    form = FORMATS.get(tensor.dtype)
    if form is None or not tensor.numel:
        return 0
    begin = max(tensor.offset * form.size, position)
    end = min((tensor.offset + tensor.span) * form.size, position + len(block))
    found = not_finite(block[begin - position : end - position], form, big) if begin < end else []
    if tensor.span == tensor.numel:
        return len(found)
    first = begin // form.size - tensor.offset
    return sum(tensor.reaches(first + at) for at in found)
