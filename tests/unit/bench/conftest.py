"""Benchmarks are programs that import each other from the folder bench."""

from __future__ import annotations

import sys

from tests.support.paths import PROJECT_ROOT

sys.path.insert(0, str(PROJECT_ROOT / "bench"))
