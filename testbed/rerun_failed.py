"""Run tests, and rerun those that failed, alone: `python -m testbed.rerun_failed COMMAND… -- TESTS…`.

Pools, servers and trainings share the cores of one machine, and sometimes a test times out because of the others. Such
a test passes alone; a broken one fails again. Both runs are printed in full, and tests that passed only alone are
listed at the end, so that they get fixed. If many tests fail, nothing is rerun.
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
_PYTEST_TESTS_FAILED = 1  # exit code of pytest; others mean that not all tests ran
_XDIST_GROUP_SUFFIX = re.compile(r"@[\w-]+$")  # xdist appends the group to test names


def main(argv: Sequence[str]) -> int:
    split = argv.index("--")
    with tempfile.TemporaryDirectory(prefix="testbed-rerun-") as cache:
        command = [*argv[:split], "-o", f"cache_dir={cache}"]
        code = subprocess.run([*command, *argv[split + 1 :]]).returncode
        failed = _read_failed_tests(Path(cache)) if code == _PYTEST_TESTS_FAILED else []
        if not 0 < len(failed) <= MAX_RERUNS:
            return code
        return _rerun_alone(command, failed)


def _read_failed_tests(cache: Path) -> list[str]:
    last_failed: dict[str, bool] = json.loads((cache / "v/cache/lastfailed").read_text(encoding="utf-8"))
    return [_XDIST_GROUP_SUFFIX.sub("", name) for name in last_failed]


def _rerun_alone(command: Sequence[str], failed: Sequence[str]) -> int:
    print(f"{len(failed)} failed; running them again, alone:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([*command, *failed]).returncode
    if code == 0:
        print("failed in the full run and passed alone; please fix:", *failed, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
