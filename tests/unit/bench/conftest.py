"""Benches are programs in a folder of their own, which is where they look for each other."""

from __future__ import annotations

import sys

from tests.support.paths import PROJECT_ROOT

sys.path.insert(0, str(PROJECT_ROOT / "bench"))
