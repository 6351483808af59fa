"""Validate a file of torch.save without torch: it loads with weights_only, contains tensors, and all values are finite.

The file is a zip: `data.pkl` describes where each tensor is stored in the records `data/KEY`, which contain raw
numbers. Before torch 1.6 it was a sequence of pickles followed by the raw numbers.
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
from packtrain.agent.outputs.validators.restricted_pickle import DisallowedNameError
from packtrain.agent.outputs.validators.torch_pickle import TensorInfo

_BLOCK_BYTES = 1 << 20  # a multiple of every width
_MAX_PICKLE_BYTES = 1 << 28
_ZIP_MAGIC, _LEGACY_MAGIC = b"PK\x03\x04", 0x1950A86A20F9469CFC6C
_PICKLE_ERRORS = (
    pickle.UnpicklingError, EOFError, OSError, ValueError, TypeError, AttributeError, KeyError, IndexError,
    ImportError, RecursionError, OverflowError, MemoryError, struct.error,
)  # fmt: skip
"""Exceptions that reading a damaged pickle can raise."""
_ZIP_ERRORS = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError, struct.error, zlib.error,
)  # fmt: skip

ReadBytes = Callable[[int], bytes]
NamedTensors = list[tuple[str, TensorInfo]]
NonFiniteTensors = list[tuple[str, TensorInfo, int]]
"""Name, tensor, and how many of its values are not finite."""


class InvalidTorchFileError(Exception):
    """The file is invalid; the message says why."""


def validate(path: Path, check_cancelled: CancelCheck) -> str | None:
    """Return what is wrong with the file, or None."""
    try:
        with open(path, "rb") as file:
            scan = _scan_zip if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC else _scan_legacy
            file.seek(0)
            non_finite = scan(file, check_cancelled)
    except InvalidTorchFileError as error:
        return str(error)
    return _describe_non_finite(non_finite) if non_finite else None


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
    if "not a zip file" in str(error):
        return "it is truncated: the zip directory at its end is missing"
    return f"it is damaged: {error}"


def _scan_records(archive: zipfile.ZipFile, check_cancelled: CancelCheck) -> NonFiniteTensors:
    root, tensors = _read_tensor_table(archive)
    big_endian = _is_big_endian(archive, root)
    non_finite: NonFiniteTensors = []
    for record in archive.infolist():
        with archive.open(record) as data:
            non_finite += _scan_storage(data.read, tensors.pop(record.filename, []), big_endian, check_cancelled)
    if tensors:
        record_name, missing = next(iter(tensors.items()))
        raise InvalidTorchFileError(
            f"{_tensor_label(missing[0][0])} has no values: the record {record_name} is missing"
        )
    return non_finite


def _read_tensor_table(archive: zipfile.ZipFile) -> tuple[str, dict[str, NamedTensors]]:
    """Return the folder in the zip, and the tensors by their record."""
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if not names:
        raise InvalidTorchFileError("it is a zip file, but not one of torch.save: it has no data.pkl")
    if archive.getinfo(names[0]).file_size > _MAX_PICKLE_BYTES:
        raise InvalidTorchFileError(f"its data.pkl is too large: more than {_MAX_PICKLE_BYTES} bytes")
    root = names[0][: -len("data.pkl")]
    tensors: dict[str, NamedTensors] = {}
    for name, tensor in _load_tensors(io.BytesIO(archive.read(names[0]))):
        tensors.setdefault(f"{root}data/{tensor.storage.key}", []).append((name, tensor))
    return root, tensors


def _is_big_endian(archive: zipfile.ZipFile, root: str) -> bool:
    name = f"{root}byteorder"
    return name in archive.namelist() and archive.read(name) == b"big"


def _scan_legacy(file: IO[bytes], check_cancelled: CancelCheck) -> NonFiniteTensors:
    """Scan the format before torch 1.6: magic number, version, system, the object, its storage keys, raw numbers."""
    if _load_pickle(file) != _LEGACY_MAGIC:
        raise InvalidTorchFileError("it is not a file of torch.save")
    _, system = _load_pickle(file), _load_pickle(file)
    tensors, big_endian = _load_tensors(file), not system.get("little_endian", True)
    non_finite: NonFiniteTensors = []
    for key in _load_pickle(file):
        in_storage = [(name, tensor) for name, tensor in tensors if tensor.storage.key == str(key)]
        non_finite += _scan_storage(_storage_reader(file, in_storage), in_storage, big_endian, check_cancelled)
    return non_finite


def _storage_reader(file: IO[bytes], tensors: NamedTensors) -> ReadBytes:
    """Return a function that reads the numbers of one storage, which are preceded by their count."""
    width = tensors[0][1].storage.value_bytes if tensors else 1
    remaining_bytes = int.from_bytes(file.read(8), "little") * width

    def read(size: int) -> bytes:
        nonlocal remaining_bytes
        data = file.read(min(size, remaining_bytes))
        remaining_bytes -= len(data)
        return data

    return read


def _load_tensors(file: IO[bytes]) -> NamedTensors:
    tensors = list(torch_pickle.iter_tensors(_load_pickle(file)))
    if not any(tensor.numel for _, tensor in tensors):
        raise InvalidTorchFileError("it contains no tensors")
    return tensors


def _load_pickle(file: IO[bytes]) -> Any:
    try:
        return torch_pickle.load_pickle(file)
    except DisallowedNameError as error:
        raise InvalidTorchFileError(
            f"it contains {error}, which torch.load(weights_only=True) rejects; save a state_dict"
        ) from error
    except _PICKLE_ERRORS as error:
        raise InvalidTorchFileError(f"it is not a file of torch.save, or it is damaged: {error}") from error


def _scan_storage(
    read: ReadBytes, tensors: NamedTensors, big_endian: bool, check_cancelled: CancelCheck
) -> NonFiniteTensors:
    """Read a storage to its end, so that its checksum is verified, and return the tensors with NaN or infinities."""
    counts = [0] * len(tensors)
    position = 0
    for block in iter(lambda: read(_BLOCK_BYTES), b""):
        check_cancelled()
        for number, (_, tensor) in enumerate(tensors):
            counts[number] += _count_non_finite(block, position, tensor, big_endian)
        position += len(block)
    for name, tensor in tensors:
        if tensor.numel and (tensor.offset + tensor.extent) * _value_bytes(tensor) > position:
            raise InvalidTorchFileError(f"{_tensor_label(name)} is truncated: its storage has only {position} bytes")
    return [(name, tensor, count) for (name, tensor), count in zip(tensors, counts) if count]


def _value_bytes(tensor: TensorInfo) -> int:
    return FLOAT_FORMATS[tensor.dtype].value_bytes if tensor.dtype in FLOAT_FORMATS else tensor.storage.value_bytes


def _count_non_finite(block: bytes, offset: int, tensor: TensorInfo, big_endian: bool) -> int:
    """Return how many values of the tensor in this block are not finite."""
    float_format = FLOAT_FORMATS.get(tensor.dtype)
    if float_format is None or not tensor.numel:
        return 0
    start = max(tensor.offset * float_format.value_bytes, offset)
    end = min((tensor.offset + tensor.extent) * float_format.value_bytes, offset + len(block))
    indices = find_non_finite(block[start - offset : end - offset], float_format, big_endian) if start < end else []
    if tensor.extent == tensor.numel:
        return len(indices)
    first = start // float_format.value_bytes - tensor.offset
    return sum(tensor.contains_offset(first + index) for index in indices)
