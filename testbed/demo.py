"""What `make demo` runs: a person's first quarter of an hour with packtrain, in two minutes.

Real CIFAR-10 on a local server that demands a token; `packtrain init cifar10-resnet demo`; the few
edits that a person would make; `packtrain run demo/workflow.yaml`. Nothing here is magic: each command is
shown before it is run, and the folder ./demo stays for a look.
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
DEMO_DIR = Path("demo")  # below PROJECT, git-ignored
WORKFLOW_PATH = DEMO_DIR / "workflow.yaml"
BIN_DIR = Path(sys.executable).parent
TOKEN_ENV_VAR = "PACKTRAIN_DEMO_TOKEN"

SHORT_TRAINING_FLAGS = (
    "--epochs 2 --batch-size 64 --limit-train 10000 --limit-test 2000"  # 46% after less than a minute on two cores
)

NEXT_STEPS = """
Look around:
  cat demo/workflow.yaml                   the workflow
  ls demo/results                          what came home
  .venv/bin/packtrain ps                   the run
  .venv/bin/packtrain logs                 what the training program said
Then start your own:
  .venv/bin/packtrain init cifar10-resnet  the same with the whole data set, from its published address
"""


def main() -> int:
    archive = data.cached_cifar10()
    environment = {
        **os.environ,
        "PATH": f"{BIN_DIR}{os.pathsep}{os.environ['PATH']}",
        TOKEN_ENV_VAR: secrets.token_urlsafe(24),
    }
    shutil.rmtree(PROJECT_ROOT / DEMO_DIR, ignore_errors=True)  # of an earlier demo
    with HttpServer(archive.parent, token=environment[TOKEN_ENV_VAR]) as origin:
        url = f"{origin.url.rstrip('/')}/{archive.name}"
        _print_message(f"a server on this machine has the images: {url}\n(it wants the token in ${TOKEN_ENV_VAR})")
        code = _run_packtrain("init", "cifar10-resnet", str(DEMO_DIR), environment=environment)
        if code == 0:
            _edit_workflow(workflow_edits(url, data.file_sha256(archive)))
            code = _run_packtrain("run", str(WORKFLOW_PATH), environment=environment)
    if code == 0:
        print(NEXT_STEPS, end="")
    return code


def workflow_edits(url: str, sha256: str) -> dict[str, str]:
    """What a person would change in the recipe: the address, the token, a short training."""
    return {
        data.CIFAR10_URL: url,
        data.CIFAR10_SHA256: sha256,
        "# token: ${env:DATA_TOKEN}": f"token: ${{env:{TOKEN_ENV_VAR}}}",
        "--epochs 30": SHORT_TRAINING_FLAGS,
    }


def apply_edits(text: str, changes: Mapping[str, str]) -> str:
    """Raises ValueError if the recipe no longer has exactly one place for a change."""
    for old, new in changes.items():
        if text.count(old) != 1:
            raise ValueError(f"the recipe's workflow should have {old!r} once, but has it {text.count(old)} times")
        text = text.replace(old, new)
    return text


def _edit_workflow(changes: Mapping[str, str]) -> None:
    _print_message(f"edit {WORKFLOW_PATH}:\n" + "\n".join(f"  {old}\n    → {new}" for old, new in changes.items()))
    path = PROJECT_ROOT / WORKFLOW_PATH
    path.write_text(apply_edits(path.read_text(encoding="utf-8"), changes), encoding="utf-8")


def _run_packtrain(*arguments: str, environment: Mapping[str, str]) -> int:
    """Run the command in this terminal. Ctrl-C is its business: it stops cleanly, and we wait for that."""
    _print_message(f"$ packtrain {' '.join(arguments)}")
    # A handler, since SIG_IGN would be inherited.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return subprocess.Popen([BIN_DIR / "packtrain", *arguments], cwd=PROJECT_ROOT, env=environment).wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _print_message(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
