"""Judges of output files: what is wrong with a file, in words, or nothing.

`model` looks into files of torch.save without torch (`pickled` reads what they hold, `numbers` finds values
that are not finite), `figures` at numbers in JSON, `archive` reads archives to their end. The agent runs
outside of the step's container, so none of them may need more than the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from packtrain.plan import ExpectedOutput

CancelCheck = Callable[[], None]
"""Called between blocks; raises when it is time to leave."""
Validator = Callable[[Path, CancelCheck], Optional[str]]


def validators_for(expected: ExpectedOutput) -> Iterator[tuple[str, Validator]]:
    """The judges that an expectation calls, each by its key in the workflow."""
    if expected.torch:
        from packtrain.agent.outputs.validators import torch_file

        yield "torch", torch_file.validate
    if expected.json_bounds is not None:
        from packtrain.agent.outputs.validators import json_bounds

        yield "json", json_bounds.make_validator(expected.json_bounds)
    if expected.archive:
        from packtrain.agent.outputs.validators import archive

        yield "archive", archive.validate
