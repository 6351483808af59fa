"""Runs tests, and those that failed once more, alone: `python -m testbed.rerun_failed COMMAND… -- WHAT…`.

Pools, servers and trainings share the cores of one machine here, and now and then one of them is starved. Its test
passes alone; one that is broken fails again. Both runs are printed in full, and what failed only beside others is
named at the end, so that somebody mends it. More than a few are no accident and get no second run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MAX_RERUNS = 8
_PYTEST_TESTS_FAILED = 1  # pytest's exit code; others mean that not all were run
_XDIST_GROUP_SUFFIX = re.compile(r"@[\w-]+$")  # xdist's addition to names


def main(argv: Sequence[str]) -> int:
    split = argv.index("--")
    with tempfile.TemporaryDirectory(prefix="testbed-twice-") as cache:
        command = [*argv[:split], "-o", f"cache_dir={cache}"]
        code = subprocess.run([*command, *argv[split + 1 :]]).returncode
        failed = _read_failed_tests(Path(cache)) if code == _PYTEST_TESTS_FAILED else []
        if not 0 < len(failed) <= MAX_RERUNS:
            return code
        return _rerun_alone(command, failed)


def _read_failed_tests(cache: Path) -> list[str]:
    found: dict[str, bool] = json.loads((cache / "v/cache/lastfailed").read_text(encoding="utf-8"))
    return [_XDIST_GROUP_SUFFIX.sub("", name) for name in found]


def _rerun_alone(command: Sequence[str], failed: Sequence[str]) -> int:
    print(f"{len(failed)} failed beside others; once more, alone:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([*command, *failed]).returncode
    if code == 0:
        print("failed beside others and passed alone, to be mended:", *failed, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
