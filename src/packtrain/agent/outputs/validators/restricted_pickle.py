"""Read pickles without executing them. A pickle is a program that may name any function of any module."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import IO, Any


class DisallowedNameError(Exception):
    """The pickle names something that is not allowed; the message is that name."""


class RestrictedUnpickler(pickle.Unpickler):
    """Replaces every name of a pickle by what `lookup` returns for it, for example a stub; None rejects the name.

    `load` raises DisallowedNameError, or any error that damage causes.
    """

    def __init__(self, file: IO[bytes], lookup: Callable[[str], Any], encoding: str = "ASCII") -> None:
        super().__init__(file, encoding=encoding)
        self._lookup = lookup

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{'builtins' if module == '__builtin__' else module}.{name}"
        replacement = self._lookup(full_name)
        if replacement is None:
            raise DisallowedNameError(full_name)
        return replacement
