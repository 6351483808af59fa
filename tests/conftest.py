"""Lets every test import the `testbed` and what stands in `tests/fakes`: fakes that implement a port, builders
of events."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parent
sys.path[:0] = [str(_TESTS / "fakes"), str(_TESTS.parent)]
