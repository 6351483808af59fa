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
from testbed.http_server import Origin

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = Path("demo")  # below PROJECT, git-ignored
WORKFLOW = FOLDER / "workflow.yaml"
BIN = Path(sys.executable).parent
TOKEN = "PACKTRAIN_DEMO_TOKEN"

SHORT = "--epochs 2 --batch-size 64 --limit-train 10000 --limit-test 2000"  # 46% after less than a minute on two cores

NEXT = """
Look around:
  cat demo/workflow.yaml                   the workflow
  ls demo/results                          what came home
  .venv/bin/packtrain ps                   the run
  .venv/bin/packtrain logs                 what the training program said
Then start your own:
  .venv/bin/packtrain init cifar10-resnet  the same with the whole data set, from its published address
"""


def main() -> int:
    archive = data.cifar10()
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", TOKEN: secrets.token_urlsafe(24)}
    shutil.rmtree(PROJECT / FOLDER, ignore_errors=True)  # of an earlier demo
    with Origin(archive.parent, token=environment[TOKEN]) as origin:
        url = f"{origin.url.rstrip('/')}/{archive.name}"
        _say(f"a server on this machine has the images: {url}\n(it wants the token in ${TOKEN})")
        code = _packtrain("init", "cifar10-resnet", str(FOLDER), environment=environment)
        if code == 0:
            _edit(edits(url, data.sha256(archive)))
            code = _packtrain("run", str(WORKFLOW), environment=environment)
    if code == 0:
        print(NEXT, end="")
    return code


def edits(url: str, sha256: str) -> dict[str, str]:
    """What a person would change in the recipe: the address, the token, a short training."""
    return {
        data.PUBLISHED: url,
        data.PUBLISHED_SHA256: sha256,
        "# token: ${env:DATA_TOKEN}": f"token: ${{env:{TOKEN}}}",
        "--epochs 30": SHORT,
    }


def edited(text: str, changes: Mapping[str, str]) -> str:
    """Raises ValueError if the recipe no longer has exactly one place for a change."""
    for old, new in changes.items():
        if text.count(old) != 1:
            raise ValueError(f"the recipe's workflow should have {old!r} once, but has it {text.count(old)} times")
        text = text.replace(old, new)
    return text


def _edit(changes: Mapping[str, str]) -> None:
    _say(f"edit {WORKFLOW}:\n" + "\n".join(f"  {old}\n    → {new}" for old, new in changes.items()))
    path = PROJECT / WORKFLOW
    path.write_text(edited(path.read_text(encoding="utf-8"), changes), encoding="utf-8")


def _packtrain(*words: str, environment: Mapping[str, str]) -> int:
    """Run the command in this terminal. Ctrl-C is its business: it stops cleanly, and we wait for that."""
    _say(f"$ packtrain {' '.join(words)}")
    # A handler, since SIG_IGN would be inherited.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return subprocess.Popen([BIN / "packtrain", *words], cwd=PROJECT, env=environment).wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
