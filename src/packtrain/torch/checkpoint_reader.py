"""Reads checkpoint files, and tells a damaged one from one that does not fit."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packtrain.torch.training_state import StateDict, find_problem


def load_first_valid(paths: Iterable[Path]) -> tuple[Path, StateDict] | None:
    """The first file that is whole, and what it holds. Those before it are warned about."""
    for path in paths:
        try:
            return path, _load_checkpoint(path)
        except Exception as error:  # there is no end to what a damaged file can raise
            warnings.warn(f"{path} is damaged ({_short_message(error)}); the one before it is taken", stacklevel=4)
    return None


def _load_checkpoint(path: Path) -> StateDict:
    import torch

    _verify_zip_checksums(path)
    state: StateDict = torch.load(path, map_location="cpu", weights_only=True)
    problem = find_problem(state)
    if problem:
        raise ValueError(problem)
    return state


def _verify_zip_checksums(path: Path) -> None:
    """torch itself does not look at the checksums that it writes. (Its older files are no zip files and have none.)"""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
        if bad:
            raise ValueError(f"the checksum of {bad} is wrong")


def _short_message(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
