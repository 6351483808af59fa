"""Judges of output files: what is wrong with a file, in words, or nothing.

`model` looks into files of torch.save without torch (`pickled` reads what they hold, `numbers` finds values
that are not finite), `figures` at numbers in JSON, `archive` reads archives to their end. The agent runs
outside of the step's container, so none of them may need more than the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from packtrain.plan import Expect

Heed = Callable[[], None]
"""Called between blocks; raises when it is time to leave."""
Judge = Callable[[Path, Heed], Optional[str]]


def judges_of(expected: Expect) -> Iterator[tuple[str, Judge]]:
    """The judges that an expectation calls, each by its key in the workflow."""
    if expected.torch:
        from packtrain.agent.outputs.validators import torch_file

        yield "torch", torch_file.judge
    if expected.json is not None:
        from packtrain.agent.outputs.validators import json_bounds

        yield "json", json_bounds.judging(expected.json)
    if expected.archive:
        from packtrain.agent.outputs.validators import archive

        yield "archive", archive.judge
