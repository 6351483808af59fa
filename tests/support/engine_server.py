"""Runs an engine in a process of its own, for tests.

HTCondor and Slurm do not accept jobs of root, and the tests run as root. Requests and responses are pickles on the
standard input and output; both ends are part of the tests.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from packtrain.engines.api import Engine
from packtrain.engines.htcondor import HtcondorEngine
from packtrain.engines.slurm import SlurmEngine
from packtrain.engines.slurm.run_settings import SETTINGS_FILE, RunSettings
from packtrain.plan import Plan, RunFolder, read_plan


def main() -> None:
    folder = RunFolder(Path(sys.argv[1]))
    engine = _make_engine(read_plan(folder.plan), folder)
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        _write_response(_call_engine(engine, name, arguments))


def _make_engine(plan: Plan, folder: RunFolder) -> Engine:
    if plan.engine == "slurm":
        path = folder.slurm / SETTINGS_FILE
        settings = RunSettings.read(path) if path.exists() else RunSettings.for_plan(plan)
        settings = replace(settings, query_interval_s=0.2)
        return SlurmEngine(plan, folder, settings=settings, retry_interval_s=1.0)
    return HtcondorEngine(plan, folder)


def _call_engine(engine: Engine, name: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, getattr(engine, name)(*arguments)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"


def _write_response(response: tuple[bool, Any]) -> None:
    pickle.dump(response, sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
