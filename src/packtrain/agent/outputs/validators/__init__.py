"""Validators: built-in checks of the content of output files.

A validator takes a path and returns what is wrong with the file, or None. `torch_file` inspects files of torch.save
without torch (`torch_pickle` reads the description of the tensors, `float_formats` finds NaN and infinities),
`json_bounds` compares numbers in JSON files with bounds, `archive` reads archives to their end.

The agent runs outside of the step's container, so validators use the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from packtrain.plan import ExpectedOutput

CancelCheck = Callable[[], None]
"""Called between blocks; raises an exception to cancel the validation."""
Validator = Callable[[Path, CancelCheck], Optional[str]]
"""Returns what is wrong with a file, or None."""


def validators_for(expected: ExpectedOutput) -> Iterator[tuple[str, Validator]]:
    """Yield the validators of an expectation, each with its key in the workflow."""
    if expected.torch:
        from packtrain.agent.outputs.validators import torch_file

        yield "torch", torch_file.validate
    if expected.json_bounds is not None:
        from packtrain.agent.outputs.validators import json_bounds

        yield "json", json_bounds.make_validator(expected.json_bounds)
    if expected.archive:
        from packtrain.agent.outputs.validators import archive

        yield "archive", archive.validate
