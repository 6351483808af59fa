"""Run the training programs of recipes in forks of a process that has imported torch, and kill them at exact moments.

Run as a program, this file is that process: it reads requests, one JSON line each, and writes exit codes. A kill
specification says when a training kills itself:

    {"steps": 3}                        SIGKILL after the third step of its optimizer
    {"steps": 3, "saved": 1}            the same, but not before it has saved once: saves are written in the background
    {"files": 5, "steps": 9}            SIGKILL at the fifth open, link, rename or remove of a checkpoint file,
                                        but at the latest after the ninth step
    {"steps": 3, "signal": "SIGTERM"}   SIGTERM after the third step
    {"gpus": 1}                         no kill; torch reports one GPU, which the program must not use
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

RECIPES_DIR = PROJECT_ROOT / "src" / "packtrain" / "recipes"
FILE_AUDIT_EVENTS = {"open", "os.link", "os.rename", "os.remove"}


class TrainingForkServer:
    """Starts trainings: `with TrainingForkServer() as server: server.run_training("mnist-cnn", output, flags)`."""

    def __enter__(self) -> TrainingForkServer:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PACKTRAIN", "DEEPSQUARE"))}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**environ, "PYTHONPATH": f"{PROJECT_ROOT / 'src'}:{PROJECT_ROOT}"},
        )  # fmt: skip
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def run_training(
        self, recipe: str, output: Path, flags: list[str], kill_spec: dict | None = None, **env: str
    ) -> int:
        """Run a training and return its exit code; a negative code is a signal."""
        return self.run_ranks(recipe, output, flags, [kill_spec], **env)[0]

    def run_ranks(
        self, recipe: str, output: Path, flags: list[str], kill_specs: list[dict | None], **env: str
    ) -> list[int]:
        """Run a distributed training with one process per entry of `kill_specs`, and return their exit codes."""
        output.mkdir(exist_ok=True)
        variables = {
            "PACKTRAIN_OUTPUT": str(output),
            "PACKTRAIN_METRICS": str(output / "metrics.jsonl"),
            "PACKTRAIN_CHECKPOINTS": str(output / "notices.jsonl"),
            "CPUS_PER_TASK": "1",
            **env,
        }
        script = str(RECIPES_DIR / recipe / "train.py")
        request = {"script": script, "flags": flags, "kill_specs": kill_specs, "env": variables}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def read_output(output: Path, rank: int = 0) -> str:
    """Return what the last training printed."""
    return (output / f"printed-{rank}").read_text()


def read_checkpoint_notices(output: Path) -> list[dict]:
    """Return the notices of all saves."""
    return [json.loads(line) for line in (output / "notices.jsonl").read_text().splitlines()]


def _rank_environments(world_size: int) -> list[dict[str, str]]:
    if world_size == 1:
        return [{}]
    common = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_ports(1)[0])}
    return [{**common, "RANK": str(n), "LOCAL_RANK": str(n)} for n in range(world_size)]


def _run_program(request: dict, env: dict[str, str], kill_spec: dict | None) -> None:
    os.environ.update(request["env"], **env)
    path = f"{request['env']['PACKTRAIN_OUTPUT']}/printed-{env.get('RANK', 0)}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    if kill_spec:
        _arm_kill(kill_spec)
    sys.argv = [request["script"], *request["flags"]]
    runpy.run_path(request["script"], run_name="__main__")


def _arm_kill(kill_spec: dict) -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if "gpus" in kill_spec:
        torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: kill_spec["gpus"]
    signum = signal.Signals[kill_spec.get("signal", "SIGKILL")]
    if "steps" in kill_spec:
        register_optimizer_step_post_hook(_make_countdown(kill_spec["steps"], signum, kill_spec.get("saved", 0)))
    if "files" in kill_spec:
        count_down = _make_countdown(kill_spec["files"], signum)
        sys.addaudithook(
            lambda event, args: count_down() if event in FILE_AUDIT_EVENTS and ".tmp-" in str(args[0]) else None
        )


def _count_saves() -> int:
    notices = Path(os.environ["PACKTRAIN_CHECKPOINTS"])
    return notices.read_text().count("\n") if notices.exists() else 0


def _wait_for_saves(n_saves: int) -> None:
    deadline_at = time.monotonic() + 60
    while time.monotonic() < deadline_at and _count_saves() < n_saves:
        time.sleep(0.01)


def _make_countdown(n_events: int, signum: int, n_saves: int = 0) -> Callable[..., None]:
    total_saves = _count_saves() + n_saves

    def count_down(*_: object) -> None:
        nonlocal n_events
        n_events -= 1
        if n_events == 0:
            _wait_for_saves(total_saves)
            os.kill(os.getpid(), signum)

    return count_down


def _fork_training(request: dict, env: dict[str, str], kill_spec: dict | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(_run_to_exit_code(request, env, kill_spec))
    finally:
        os._exit(1)


def _run_to_exit_code(request: dict, env: dict[str, str], kill_spec: dict | None) -> int:
    """Run the program and return its exit code after its threads have ended, as the interpreter does."""
    code = 0
    try:
        _run_program(request, env, kill_spec)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        print(error.code)
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
    torch.optim.SGD(torch.nn.Linear(1, 1).parameters())  # imports modules that each training would import by itself
    for line in sys.stdin:
        request = json.loads(line)
        kill_specs = request["kill_specs"]
        environments = _rank_environments(len(kill_specs))
        pids = [_fork_training(request, env, spec) for env, spec in zip(environments, kill_specs, strict=True)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
