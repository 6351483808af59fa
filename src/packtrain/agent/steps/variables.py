"""The variables of a step's environment. Precedence, low to high: what the engine gave the agent, the job's
`env`, the system's own (below), DEEPSQUARE_ENV and what the level adds, the image's, the step's `env`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.scope import Layer, Scope
from packtrain.plan import EnvVar, Job, RunResources, Text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Variables:
    """Puts the layers together. `notice` is told, once each, of lines in a DEEPSQUARE_ENV that say nothing."""

    def __init__(
        self,
        job: Job,
        box: Sandbox,
        run: str,
        host: Mapping[str, str],
        agent: Path | None,
        reveal: Callable[[Text], str],
        notice: Callable[[str], None],
        more: Mapping[str, str],
    ) -> None:
        self._job, self._box, self._run, self._host = job, box, run, host
        self._agent, self._reveal, self._notice = agent, reveal, notice
        self._more, self._noticed = more, set[str]()

    def of_scope(self, scope: Scope, resources: RunResources, task: Mapping[str, str]) -> dict[str, str]:
        """All that an image's own environment may override."""
        found = {
            **self._host,
            **self.revealed(self._job.env),
            **system_variables(self._job, self._box, self._run, scope.env_file),
            **self._more,
            **{f"PACKTRAIN_POINT_{shout(v.key)}": self._reveal(v.value) for v in self._job.point},
            **resource_variables(resources),
            **task,
        }
        for layer in scope.layers:
            found.update(self.read(layer))
        return self._with_agent(found)

    def of_step(self, env: tuple[EnvVar, ...]) -> dict[str, str]:
        """The step's own, which override all others."""
        own = self.revealed(env)
        return self._with_agent(own) if "PYTHONPATH" in own else own

    def read(self, layer: Layer) -> dict[str, str]:
        if not isinstance(layer, Path):
            return dict(layer)
        try:
            found, ignored = parse_env_file(layer.read_bytes())
        except OSError:  # a step may have removed it
            return {}
        for line in ignored:
            if line not in self._noticed:
                self._noticed.add(line)
                self._notice(f"a line in DEEPSQUARE_ENV is no KEY=VALUE and is ignored: {line[:80]!r}")
        return found

    def revealed(self, env: tuple[EnvVar, ...]) -> dict[str, str]:
        return {variable.key: self._reveal(variable.value) for variable in env}

    def _with_agent(self, found: dict[str, str]) -> dict[str, str]:
        """So that `import packtrain.torch` works in steps."""
        if self._agent is None:
            return found
        return {**found, "PYTHONPATH": ":".join(filter(None, (str(self._agent), found.get("PYTHONPATH", ""))))}


def system_variables(job: Job, box: Sandbox, run: str, env_file: Path) -> dict[str, str]:
    tmp = str(box.tmp)
    named = {f"PACKTRAIN_INPUT_{shout(i.name)}": str(box.folder_of(i)) for i in job.inputs if i.name}
    return {
        "STORAGE_PATH": str(box.root),
        "DEEPSQUARE_INPUT": str(box.input),
        "DEEPSQUARE_OUTPUT": str(box.output),
        "DEEPSQUARE_ENV": str(env_file),
        "DEEPSQUARE_TMP": tmp,
        "DEEPSQUARE_SHARED_TMP": tmp,
        "DEEPSQUARE_SHARED_WORLD_TMP": tmp,
        "DEEPSQUARE_DISK_TMP": tmp,
        "DEEPSQUARE_DISK_WORLD_TMP": tmp,
        "PACKTRAIN_RUN": run,
        "PACKTRAIN_JOB": job.id,
        "PACKTRAIN_INPUT": str(box.input),
        "PACKTRAIN_INPUTS": str(box.inputs),
        **named,
        "PACKTRAIN_OUTPUT": str(box.output),
        "PACKTRAIN_TMP": tmp,
        "PACKTRAIN_METRICS": str(box.metrics),
        "PACKTRAIN_CHECKPOINTS": str(box.checkpoints),
        "PACKTRAIN_STOP": str(box.stop_file),
        "PYTHONUNBUFFERED": "1",
    }


def resource_variables(resources: RunResources) -> dict[str, str]:
    cpus = resources.tasks * resources.cpus_per_task
    numbers = {
        "NTASKS": resources.tasks,
        "CPUS_PER_TASK": resources.cpus_per_task,
        "MEM_PER_CPU": resources.mem_per_cpu_mb,
        "GPUS_PER_TASK": resources.gpus_per_task,
        "CPUS": cpus,
        "MEM": cpus * resources.mem_per_cpu_mb,
        "GPUS": resources.tasks * resources.gpus_per_task,
    }
    return {name: str(number) for name, number in numbers.items()}


def task_variables(task: int, tasks: int, port: int) -> dict[str, str]:
    """For one of several copies of a command, named as torch.distributed wants them."""
    return {
        "PACKTRAIN_TASK": str(task),
        "RANK": str(task),
        "LOCAL_RANK": str(task),
        "WORLD_SIZE": str(tasks),
        "LOCAL_WORLD_SIZE": str(tasks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def parse_env_file(data: bytes) -> tuple[dict[str, str], list[str]]:
    """Variables of KEY=VALUE lines, values verbatim, the last of a key; and the lines that are none."""
    found: dict[str, str] = {}
    ignored: list[str] = []
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        key, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(key) and "\0" not in value:
            found[key] = value
        elif line.strip():
            ignored.append(line)
    return found, ignored


def shout(name: str) -> str:
    """A name as part of a variable's name."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()
