"""Runs training programs of recipes, each life a fork of a process that has imported torch, and ends lives on the dot.

As a program it is that process: it reads orders, one JSON line each, and answers with exit codes. A life ends itself:

    {"steps": 3}                        SIGKILL after the third step of its optimizer
    {"steps": 3, "saved": 1}            the same, as soon as it has saved once: they are written beside the training
    {"files": 5, "steps": 9}            SIGKILL in the fifth open, link, rename or remove of a checkpoint's files,
                                        but not later than after the ninth step
    {"steps": 3, "signal": "SIGTERM"}   is asked to leave after the third step
    {"gpus": 1}                         believes that the machine has a GPU; it may not get as far as using it
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from testbed.ports import free_ports
from tests.support.paths import ROOT

PROJECT = ROOT
RECIPES = PROJECT / "src" / "packtrain" / "recipes"
FILE_EVENTS = {"open", "os.link", "os.rename", "os.remove"}


class Nursery:
    """`with Nursery() as nursery: nursery.train("mnist-cnn", output, ["--epochs", "2"])`"""

    def __enter__(self) -> Nursery:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PACKTRAIN", "DEEPSQUARE"))}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**kept, "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}"},
        )  # fmt: skip
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def train(self, recipe: str, output: Path, flags: list[str], kill: dict | None = None, **env: str) -> int:
        """The exit code; negative: killed by that signal."""
        return self.together(recipe, output, flags, [kill], **env)[0]

    def together(self, recipe: str, output: Path, flags: list[str], kills: list[dict | None], **env: str) -> list[int]:
        """As many processes as there are entries in `kills`."""
        output.mkdir(exist_ok=True)
        names = {"PACKTRAIN_OUTPUT": str(output), "PACKTRAIN_METRICS": str(output / "reports"), "CPUS_PER_TASK": "1"}
        names |= {"PACKTRAIN_CHECKPOINTS": str(output / "announced"), **env}
        order = {"script": str(RECIPES / recipe / "train.py"), "flags": flags, "kills": kills, "env": names}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def said(output: Path, rank: int = 0) -> str:
    """What the last life said."""
    return (output / f"said-{rank}").read_text()


def announced(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "announced").read_text().splitlines()]


def _ranks(count: int) -> list[dict[str, str]]:
    if count == 1:
        return [{}]
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    return [{**common, "RANK": str(n), "LOCAL_RANK": str(n)} for n in range(count)]


def _live(order: dict, env: dict[str, str], kill: dict | None) -> None:
    os.environ.update(order["env"], **env)
    out = os.open(
        f"{order['env']['PACKTRAIN_OUTPUT']}/said-{env.get('RANK', 0)}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    )
    os.dup2(out, 1)
    os.dup2(out, 2)
    if kill:
        _arm(kill)
    sys.argv = [order["script"], *order["flags"]]
    runpy.run_path(order["script"], run_name="__main__")


def _arm(kill: dict) -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if "gpus" in kill:
        torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: kill["gpus"]
    number = signal.Signals[kill.get("signal", "SIGKILL")]
    if "steps" in kill:
        register_optimizer_step_post_hook(_countdown(kill["steps"], number, kill.get("saved", 0)))
    if "files" in kill:
        count = _countdown(kill["files"], number)
        sys.addaudithook(lambda event, args: count() if event in FILE_EVENTS and ".tmp-" in str(args[0]) else None)


def _saves() -> int:
    announced = Path(os.environ["PACKTRAIN_CHECKPOINTS"])
    return announced.read_text().count("\n") if announced.exists() else 0


def _await_saves(many: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and _saves() < many:
        time.sleep(0.01)


def _countdown(left: int, number: int, saved: int = 0) -> Callable[..., None]:
    wanted = _saves() + saved

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _await_saves(wanted)
            os.kill(os.getpid(), number)

    return count


def _born(order: dict, env: dict[str, str], kill: dict | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(_ended(order, env, kill))
    finally:
        os._exit(1)


def _ended(order: dict, env: dict[str, str], kill: dict | None) -> int:
    """The exit code, when the threads are done, too: as a program ends."""
    code = 0
    try:
        _live(order, env, kill)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
        print(left.code)
    except BaseException:
        code = 1
        traceback.print_exc()
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    return code


def main() -> None:
    import torch

    import packtrain.torch  # noqa: F401

    torch.set_num_threads(1)
    torch.optim.SGD(torch.nn.Linear(1, 1).parameters())  # imports what else each life would import for itself
    for line in sys.stdin:
        order = json.loads(line)
        ranks = _ranks(len(order["kills"]))
        pids = [_born(order, env, kill) for env, kill in zip(ranks, order["kills"], strict=True)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
