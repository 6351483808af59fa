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

from testbed.ports import reserve_ports
from tests.support.paths import PROJECT_ROOT

PROJECT = PROJECT_ROOT
RECIPES_DIR = PROJECT / "src" / "packtrain" / "recipes"
FILE_AUDIT_EVENTS = {"open", "os.link", "os.rename", "os.remove"}


class TrainingForkServer:
    """`with Nursery() as nursery: nursery.train("mnist-cnn", output, ["--epochs", "2"])`"""

    def __enter__(self) -> TrainingForkServer:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PACKTRAIN", "DEEPSQUARE"))}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**kept, "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}"},
        )  # fmt: skip
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def run_training(
        self, recipe: str, output: Path, flags: list[str], kill_spec: dict | None = None, **env: str
    ) -> int:
        """The exit code; negative: killed by that signal."""
        return self.run_ranks(recipe, output, flags, [kill_spec], **env)[0]

    def run_ranks(
        self, recipe: str, output: Path, flags: list[str], kill_specs: list[dict | None], **env: str
    ) -> list[int]:
        """As many processes as there are entries in `kills`."""
        output.mkdir(exist_ok=True)
        names = {"PACKTRAIN_OUTPUT": str(output), "PACKTRAIN_METRICS": str(output / "reports"), "CPUS_PER_TASK": "1"}
        names |= {"PACKTRAIN_CHECKPOINTS": str(output / "announced"), **env}
        order = {"script": str(RECIPES_DIR / recipe / "train.py"), "flags": flags, "kills": kill_specs, "env": names}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def read_output(output: Path, rank: int = 0) -> str:
    """What the last life said."""
    return (output / f"said-{rank}").read_text()


def read_checkpoint_notices(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "announced").read_text().splitlines()]


def _rank_environments(world_size: int) -> list[dict[str, str]]:
    if world_size == 1:
        return [{}]
    common = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_ports(1)[0])}
    return [{**common, "RANK": str(n), "LOCAL_RANK": str(n)} for n in range(world_size)]


def _run_program(request: dict, env: dict[str, str], kill_spec: dict | None) -> None:
    os.environ.update(request["env"], **env)
    out = os.open(
        f"{request['env']['PACKTRAIN_OUTPUT']}/said-{env.get('RANK', 0)}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    )
    os.dup2(out, 1)
    os.dup2(out, 2)
    if kill_spec:
        _arm_kill(kill_spec)
    sys.argv = [request["script"], *request["flags"]]
    runpy.run_path(request["script"], run_name="__main__")


def _arm_kill(kill_spec: dict) -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if "gpus" in kill_spec:
        torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: kill_spec["gpus"]
    number = signal.Signals[kill_spec.get("signal", "SIGKILL")]
    if "steps" in kill_spec:
        register_optimizer_step_post_hook(_make_countdown(kill_spec["steps"], number, kill_spec.get("saved", 0)))
    if "files" in kill_spec:
        count = _make_countdown(kill_spec["files"], number)
        sys.addaudithook(
            lambda event, args: count() if event in FILE_AUDIT_EVENTS and ".tmp-" in str(args[0]) else None
        )


def _count_saves() -> int:
    announced = Path(os.environ["PACKTRAIN_CHECKPOINTS"])
    return announced.read_text().count("\n") if announced.exists() else 0


def _wait_for_saves(n_saves: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and _count_saves() < n_saves:
        time.sleep(0.01)


def _make_countdown(n_events: int, signum: int, n_saves: int = 0) -> Callable[..., None]:
    wanted = _count_saves() + n_saves

    def count(*_: object) -> None:
        nonlocal n_events
        n_events -= 1
        if n_events == 0:
            _wait_for_saves(wanted)
            os.kill(os.getpid(), signum)

    return count


def _fork_training(request: dict, env: dict[str, str], kill_spec: dict | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(_run_to_exit_code(request, env, kill_spec))
    finally:
        os._exit(1)


def _run_to_exit_code(request: dict, env: dict[str, str], kill_spec: dict | None) -> int:
    """The exit code, when the threads are done, too: as a program ends."""
    code = 0
    try:
        _run_program(request, env, kill_spec)
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
        ranks = _rank_environments(len(order["kills"]))
        pids = [_fork_training(order, env, kill) for env, kill in zip(ranks, order["kills"], strict=True)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
