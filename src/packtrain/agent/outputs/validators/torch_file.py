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

from packtrain.agent.outputs.validators import CancelCheck, torch_pickle
from packtrain.agent.outputs.validators.float_formats import FLOAT_FORMATS, find_non_finite
from packtrain.agent.outputs.validators.torch_pickle import DisallowedNameError, TensorInfo

_BLOCK_BYTES = 1 << 20  # a multiple of every width
_MAX_PICKLE_BYTES = 1 << 28
_ZIP_MAGIC, _LEGACY_MAGIC = b"PK\x03\x04", 0x1950A86A20F9469CFC6C
_PICKLE_ERRORS = (
    pickle.UnpicklingError, EOFError, OSError, ValueError, TypeError, AttributeError, KeyError, IndexError,
    ImportError, RecursionError, OverflowError, MemoryError, struct.error,
)  # fmt: skip
"""What reading a damaged pickle can lead to."""
_ZIP_ERRORS = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError, struct.error, zlib.error,
)  # fmt: skip

ReadBytes = Callable[[int], bytes]
NamedTensors = list[tuple[str, TensorInfo]]
NonFiniteTensors = list[tuple[str, TensorInfo, int]]
"""Tensors by name, and how many of their values are not finite."""


class InvalidTorchFileError(Exception):
    """What is wrong with the file, in words."""


def validate(path: Path, check_cancelled: CancelCheck) -> str | None:
    """What is wrong with the model, or None."""
    try:
        with open(path, "rb") as file:
            look = _scan_zip if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC else _scan_legacy
            file.seek(0)
            bad = look(file, check_cancelled)
    except InvalidTorchFileError as error:
        return str(error)
    return _describe_non_finite(bad) if bad else None


def _describe_non_finite(tensors: NonFiniteTensors) -> str:
    name, tensor, count = tensors[0]
    values = "value that is" if count == 1 else "values that are"
    others = len(tensors) - 1
    more = f", and so {'has 1 other tensor' if others == 1 else f'have {others} other tensors'}" if others else ""
    return f"{_tensor_label(name)} has {count} {values} not finite (NaN or infinite), of {tensor.numel}{more}"


def _tensor_label(name: str) -> str:
    return f"the tensor {name}" if name else "its only tensor"


def _scan_zip(file: IO[bytes], check_cancelled: CancelCheck) -> NonFiniteTensors:
    try:
        with zipfile.ZipFile(file) as archive:
            return _scan_records(archive, check_cancelled)
    except _ZIP_ERRORS as error:
        raise InvalidTorchFileError(_describe_zip_error(error)) from error


def _describe_zip_error(error: Exception) -> str:
    cut = "not a zip file" in str(error)
    return "it was cut: a file of torch.save has a directory at its end" if cut else f"it is damaged: {error}"


def _scan_records(archive: zipfile.ZipFile, check_cancelled: CancelCheck) -> NonFiniteTensors:
    root, tensors = _read_tensor_table(archive)
    big = _is_big_endian(archive, root)
    found: NonFiniteTensors = []
    for record in archive.infolist():
        with archive.open(record) as data:
            found += _scan_storage(data.read, tensors.pop(record.filename, []), big, check_cancelled)
    if tensors:
        record_name, missing = next(iter(tensors.items()))
        raise InvalidTorchFileError(
            f"{_tensor_label(missing[0][0])} has no values: the record {record_name} is missing"
        )
    return found


def _read_tensor_table(archive: zipfile.ZipFile) -> tuple[str, dict[str, NamedTensors]]:
    """The folder in the zip, and the tensors by their record."""
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if not names:
        raise InvalidTorchFileError("it is a zip, but not one of torch.save: it has no data.pkl")
    if archive.getinfo(names[0]).file_size > _MAX_PICKLE_BYTES:
        raise InvalidTorchFileError("its data.pkl is too large for a description of tensors")
    root = names[0][: -len("data.pkl")]
    tensors: dict[str, NamedTensors] = {}
    for name, tensor in _load_tensors(io.BytesIO(archive.read(names[0]))):
        tensors.setdefault(f"{root}data/{tensor.storage.key}", []).append((name, tensor))
    return root, tensors


def _is_big_endian(archive: zipfile.ZipFile, root: str) -> bool:
    name = f"{root}byteorder"
    return name in archive.namelist() and archive.read(name) == b"big"


def _scan_legacy(file: IO[bytes], check_cancelled: CancelCheck) -> NonFiniteTensors:
    """Magic number, version, the machine, the object, the keys of its storages, and their numbers."""
    if _load_pickle(file) != _LEGACY_MAGIC:
        raise InvalidTorchFileError("it is no file of torch.save")
    _, machine = _load_pickle(file), _load_pickle(file)
    tensors = _load_tensors(file)
    found: NonFiniteTensors = []
    for key in _load_pickle(file):
        here = [(name, tensor) for name, tensor in tensors if tensor.storage.key == str(key)]
        found += _scan_storage(
            _storage_reader(file, here), here, not machine.get("little_endian", True), check_cancelled
        )
    return found


def _storage_reader(file: IO[bytes], tensors: NamedTensors) -> ReadBytes:
    """Reads the numbers of one storage: its count comes first."""
    width = tensors[0][1].storage.value_bytes if tensors else 1
    left = int.from_bytes(file.read(8), "little") * width

    def read(size: int) -> bytes:
        nonlocal left
        data = file.read(min(size, left))
        left -= len(data)
        return data

    return read


def _load_tensors(file: IO[bytes]) -> NamedTensors:
    tensors = list(torch_pickle.iter_tensors(_load_pickle(file)))
    if not any(tensor.numel for _, tensor in tensors):
        raise InvalidTorchFileError("it holds no tensors: the model is empty")
    return tensors


def _load_pickle(file: IO[bytes]) -> Any:
    try:
        return torch_pickle.load_pickle(file)
    except DisallowedNameError as error:
        raise InvalidTorchFileError(
            f"it holds {error}, which torch.load(weights_only=True) refuses; save a state_dict"
        ) from error
    except _PICKLE_ERRORS as error:
        raise InvalidTorchFileError(f"it is no file of torch.save, or a damaged one: {error}") from error


def _scan_storage(
    read: ReadBytes, tensors: NamedTensors, big_endian: bool, check_cancelled: CancelCheck
) -> NonFiniteTensors:
    """Read a storage to its end, so that its checksum is compared, too."""
    counts = [0] * len(tensors)
    position = 0
    for block in iter(lambda: read(_BLOCK_BYTES), b""):
        check_cancelled()
        for number, (_, tensor) in enumerate(tensors):
            counts[number] += _count_non_finite(block, position, tensor, big_endian)
        position += len(block)
    for name, tensor in tensors:
        if tensor.numel and (tensor.offset + tensor.extent) * _value_bytes(tensor) > position:
            raise InvalidTorchFileError(f"{_tensor_label(name)} is cut: its storage has only {position} bytes")
    return [(name, tensor, count) for (name, tensor), count in zip(tensors, counts) if count]


def _value_bytes(tensor: TensorInfo) -> int:
    return FLOAT_FORMATS[tensor.dtype].value_bytes if tensor.dtype in FLOAT_FORMATS else tensor.storage.value_bytes


def _count_non_finite(block: bytes, offset: int, tensor: TensorInfo, big_endian: bool) -> int:
    """How many values of the tensor in this block are not finite."""
    form = FLOAT_FORMATS.get(tensor.dtype)
    if form is None or not tensor.numel:
        return 0
    begin = max(tensor.offset * form.value_bytes, offset)
    end = min((tensor.offset + tensor.extent) * form.value_bytes, offset + len(block))
    found = find_non_finite(block[begin - offset : end - offset], form, big_endian) if begin < end else []
    if tensor.extent == tensor.numel:
        return len(found)
    first = begin // form.value_bytes - tensor.offset
    return sum(tensor.contains_offset(first + at) for at in found)
