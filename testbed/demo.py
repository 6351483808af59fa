"""The program behind `make demo`: a first session with packtrain, in two minutes.

It serves the real CIFAR-10 on a local server that requires a token, runs `packtrain init cifar10-resnet demo`, makes
the edits that a user would make, and runs `packtrain run demo/workflow.yaml`. Each command is printed before it runs.
The folder ./demo remains for inspection.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed import data
from testbed.http_server import HttpServer

PROJECT_ROOT = Path(__file__).resolve().parent.parent
DEMO_DIR = Path("demo")  # in PROJECT_ROOT, ignored by git
WORKFLOW_PATH = DEMO_DIR / "workflow.yaml"
BIN_DIR = Path(sys.executable).parent
TOKEN_ENV_VAR = "PACKTRAIN_DEMO_TOKEN"

SHORT_TRAINING_FLAGS = (
    "--epochs 2 --batch-size 64 --limit-train 10000 --limit-test 2000"  # 46% accuracy in a minute on two cores
)

NEXT_STEPS = """
Inspect the results:
  cat demo/workflow.yaml                   the workflow
  ls demo/results                          the outputs
  .venv/bin/packtrain ps                   the run
  .venv/bin/packtrain logs                 the output of the training program
Then start your own:
  .venv/bin/packtrain init cifar10-resnet  the same with the full dataset from its published URL
"""


def main() -> int:
    archive = data.cached_cifar10()
    environment = {
        **os.environ,
        "PATH": f"{BIN_DIR}{os.pathsep}{os.environ['PATH']}",
        TOKEN_ENV_VAR: secrets.token_urlsafe(24),
    }
    shutil.rmtree(PROJECT_ROOT / DEMO_DIR, ignore_errors=True)  # from an earlier demo
    with HttpServer(archive.parent, token=environment[TOKEN_ENV_VAR]) as server:
        url = f"{server.url.rstrip('/')}/{archive.name}"
        _print_message(f"a local server has the images: {url}\n(it requires the token in ${TOKEN_ENV_VAR})")
        code = _run_packtrain("init", "cifar10-resnet", str(DEMO_DIR), environment=environment)
        if code == 0:
            _edit_workflow(workflow_edits(url, data.file_sha256(archive)))
            code = _run_packtrain("run", str(WORKFLOW_PATH), environment=environment)
    if code == 0:
        print(NEXT_STEPS, end="")
    return code


def workflow_edits(url: str, sha256: str) -> dict[str, str]:
    """Return the edits that a user would make in the recipe: URL, token, short training."""
    return {
        data.CIFAR10_URL: url,
        data.CIFAR10_SHA256: sha256,
        "# token: ${env:DATA_TOKEN}": f"token: ${{env:{TOKEN_ENV_VAR}}}",
        "--epochs 30": SHORT_TRAINING_FLAGS,
    }


def apply_edits(text: str, changes: Mapping[str, str]) -> str:
    """Apply the edits. Raises ValueError if the recipe does not contain each old text exactly once."""
    for old, new in changes.items():
        if text.count(old) != 1:
            raise ValueError(
                f"the recipe's workflow should contain {old!r} once, but contains it {text.count(old)} times"
            )
        text = text.replace(old, new)
    return text


def _edit_workflow(changes: Mapping[str, str]) -> None:
    _print_message(f"edit {WORKFLOW_PATH}:\n" + "\n".join(f"  {old}\n    → {new}" for old, new in changes.items()))
    path = PROJECT_ROOT / WORKFLOW_PATH
    path.write_text(apply_edits(path.read_text(encoding="utf-8"), changes), encoding="utf-8")


def _run_packtrain(*arguments: str, environment: Mapping[str, str]) -> int:
    """Run a command in this terminal. It handles Ctrl-C itself; this process only waits for it."""
    _print_message(f"$ packtrain {' '.join(arguments)}")
    # A handler, because the child would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return subprocess.Popen([BIN_DIR / "packtrain", *arguments], cwd=PROJECT_ROOT, env=environment).wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _print_message(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
