"""Reads checkpoint files, and tells a damaged one from one that does not fit."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packtrain.torch.training_state import State, problem_with


def first_whole(paths: Iterable[Path]) -> tuple[Path, State] | None:
    """The first file that is whole, and what it holds. Those before it are warned about."""
    for path in paths:
        try:
            return path, _read(path)
        except Exception as error:  # there is no end to what a damaged file can raise
            warnings.warn(f"{path} is damaged ({_first_line(error)}); the one before it is taken", stacklevel=4)
    return None


def _read(path: Path) -> State:
    import torch

    _check_sums(path)
    state: State = torch.load(path, map_location="cpu", weights_only=True)
    problem = problem_with(state)
    if problem:
        raise ValueError(problem)
    return state


def _check_sums(path: Path) -> None:
    """torch itself does not look at the checksums that it writes. (Its older files are no zip files and have none.)"""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
        if bad:
            raise ValueError(f"the checksum of {bad} is wrong")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
