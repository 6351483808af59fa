"""Read the tensors that a pickle of torch.save describes, without executing anything of it.

Every class and function that the pickle names is replaced by a stub. A name that `torch.load(weights_only=True)`
rejects is rejected here as well.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from packtrain.agent.outputs.validators.restricted_pickle import DisallowedNameError, RestrictedUnpickler

_STORAGE_DTYPES = {
    "Double": ("float64", 8),
    "Float": ("float32", 4),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "ComplexDouble": ("complex128", 16),
    "ComplexFloat": ("complex64", 8),
    "Long": ("int64", 8),
    "Int": ("int32", 4),
    "QInt32": ("qint32", 4),
    "Short": ("int16", 2),
}
# Names that weights_only allows; a test compares them with torch's own list.
_ALLOWED_NAMES = re.compile(
    r"torch\.(cuda\.)?(sparse\.)?\w+(Storage|Tensor)|torch\.storage\.(Typed|Untyped)Storage|torch\.(Size|Tensor|device)"
    r"|torch\.(bool|bfloat16|(float|complex|u?int|q?u?int|bits)\d\w*|per_(tensor|channel)\w+)"
    r"|torch\._utils\._rebuild_\w+|torch\._tensor\._rebuild_from_type_v2|torch\.serialization\._get_layout"
    r"|torch\.nn\.parameter\.Parameter|builtins\.(set|bytearray|complex)|collections\.(Counter|OrderedDict)"
    r"|_codecs\.encode",
    re.ASCII,
)


@dataclass(frozen=True)
class TensorStorage:
    key: str  # name of its record
    dtype: str  # torch's name; "" if only the tensor has the dtype
    value_bytes: int  # bytes of one value; 1 for untyped storage


@dataclass(frozen=True)
class TensorInfo:
    storage: TensorStorage
    dtype: str
    offset: int  # in values, like the stride
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        count = 1
        for length in self.size:
            count *= length
        return count

    @property
    def extent(self) -> int:
        """The number of values from the first to the last one, including gaps."""
        return 1 + sum((length - 1) * step for length, step in zip(self.size, self.stride)) if self.numel else 0

    def contains_offset(self, offset: int) -> bool:
        """Return whether the value at this distance from the first one belongs to the tensor, or is in a gap."""
        for step, length in sorted(zip(self.stride, self.size), reverse=True):
            if step > 0:
                offset -= min(length - 1, offset // step) * step
        return offset == 0


class StubObject:
    """Replaces any object that is not a tensor: it accepts what a pickle does with it, and does nothing."""

    full_name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> StubObject:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...


def _rebuild_tensor(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> Any:
    """Replace _rebuild_tensor, _v2 and _v3; the dtype is the third of the optional arguments of _v3."""
    dtype = rest[2].full_name.rpartition(".")[2] if len(rest) > 2 and hasattr(rest[2], "full_name") else ""
    return TensorInfo(storage, dtype or storage.dtype, int(offset), tuple(map(int, size)), tuple(map(int, stride)))


def _unwrap_tensor(tensor: Any, *rest: Any) -> Any:
    """Replace the constructors of parameters and other wrappers of a tensor."""
    return tensor


def _rebuild_from_type(make: Callable[..., Any], kind: Any, args: Any, state: Any) -> Any:
    return make(*args)


_REBUILDERS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "builtins.set": set,
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor,
    "torch._utils._rebuild_qtensor": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _unwrap_tensor,
    "torch._utils._rebuild_parameter_with_state": _unwrap_tensor,
    "torch._utils._rebuild_nested_tensor": _unwrap_tensor,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _unwrap_tensor,
    "torch._utils._rebuild_sparse_tensor": lambda layout, parts: list(parts),
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
}


def _find_stub(full_name: str) -> Any:
    if not _ALLOWED_NAMES.fullmatch(full_name):
        return None
    return _REBUILDERS.get(full_name) or type(full_name.rpartition(".")[2], (StubObject,), {"full_name": full_name})


class TensorUnpickler(RestrictedUnpickler):
    """Accepts the names that weights_only allows, and the references to storages."""

    def persistent_load(self, pid: Any) -> TensorStorage:
        """Return the storage that `pid` describes: ('storage', type, key, location, numel, …)."""
        if pid[0] != "storage":
            raise DisallowedNameError(f"a complete {pid[0]}")
        storage_type = str(pid[1].full_name).rpartition(".")[2]
        return TensorStorage(str(pid[2]), *_STORAGE_DTYPES.get(storage_type[: -len("Storage")], ("", 1)))


def load_pickle(file: IO[bytes]) -> Any:
    """Return the next object of the file. Raises DisallowedNameError, or any error that damage causes."""
    return TensorUnpickler(file, _find_stub).load()


def iter_tensors(root: Any) -> Iterator[tuple[str, TensorInfo]]:
    """Yield every tensor with its name, which joins the keys that lead to it; empty if the root is a tensor."""
    waiting: list[tuple[str, Any]] = [("", root)]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, TensorInfo):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            waiting += reversed([(f"{name}.{key}" if name else str(key), part) for key, part in _children(value)])


def _children(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))
