"""The environment variables of a step.

Precedence, low to high: the agent's own environment, the job's `env`, the variables of packtrain and DeepSquare,
DEEPSQUARE_ENV and the variables of the level, the image's, the step's `env`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import packtrain
from packtrain.agent.context import AttemptContext
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.scope import Scope, VariableLayer
from packtrain.plan import EnvVar, Job, Resources

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^{}]|\{[^{}]*\})*))?\}")


class StepVariables:
    """Combines the layers of variables, and reports each invalid line of a DEEPSQUARE_ENV once.

    Args:
        context: The execution.
        host_env: Variables of the agent's own environment.
        attempt_variables: Variables of this execution, for all steps.
    """

    def __init__(
        self, context: AttemptContext, host_env: Mapping[str, str], attempt_variables: Mapping[str, str]
    ) -> None:
        self._context, self._host_env, self._attempt_variables = context, host_env, attempt_variables
        self._inherited = context.secrets.read_inherited(context.job.environment.inherit)
        self.agent_zip = find_agent_zip()
        self._reported_lines: set[str] = set()

    def for_scope(self, scope: Scope, task_env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that an image may override."""
        job = self._context.job
        variables = {
            **self._inherited,
            **self._host_env,
            **self.resolve_env(job.env),
            **system_variables(job, self._context.sandbox, self._context.journal.run, scope.env_file),
            **self._attempt_variables,
            **{f"PACKTRAIN_POINT_{to_env_name(name)}": value for name, value in self.resolve_env(job.point).items()},
            **resource_variables(job.resources),
            **task_env,
        }
        for layer in scope.layers:
            variables.update(self.read_layer(layer))
        return self._add_agent_to_pythonpath(variables)

    def for_step(self, env: tuple[EnvVar, ...]) -> dict[str, str]:
        """Return the step's own variables, which override all others."""
        own = self.resolve_env(env)
        return self._add_agent_to_pythonpath(own) if "PYTHONPATH" in own else own

    def read_layer(self, layer: VariableLayer) -> dict[str, str]:
        if not isinstance(layer, Path):
            return dict(layer)
        try:
            variables, ignored = parse_env_file(layer.read_bytes())
        except OSError:  # a step may have removed it
            return {}
        for line in ignored:
            if line not in self._reported_lines:
                self._reported_lines.add(line)
                text = f"a line in DEEPSQUARE_ENV is not KEY=VALUE and is ignored: {line[:80]!r}"
                self._context.emit_notice("steps", text)
        return variables

    def resolve_env(self, env: tuple[EnvVar, ...]) -> dict[str, str]:
        return {variable.key: self._context.secrets.resolve_secret(variable.value) for variable in env}

    def _add_agent_to_pythonpath(self, variables: dict[str, str]) -> dict[str, str]:
        """Put the agent's zip in front of PYTHONPATH, so that steps can `import packtrain.torch`."""
        if self.agent_zip is None:
            return variables
        return {
            **variables,
            "PYTHONPATH": ":".join(filter(None, (str(self.agent_zip), variables.get("PYTHONPATH", "")))),
        }


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Replace ${NAME} and ${NAME:-DEFAULT}, where the default may again have a variable."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1]) or expand_variables(match[2] or "", variables)

    return _REFERENCE.sub(value, text)


def find_agent_zip() -> Path | None:
    """Return the zip file that this agent runs from, or None if it runs from plain files."""
    path = Path(packtrain.__file__).parents[1]
    return path if path.is_file() else None


def system_variables(job: Job, sandbox: Sandbox, run: str, env_file: Path) -> dict[str, str]:
    tmp = str(sandbox.tmp)
    named = {f"PACKTRAIN_INPUT_{to_env_name(i.name)}": str(sandbox.input_folder(i)) for i in job.inputs if i.name}
    return {
        "STORAGE_PATH": str(sandbox.root),
        "DEEPSQUARE_INPUT": str(sandbox.input),
        "DEEPSQUARE_OUTPUT": str(sandbox.output),
        "DEEPSQUARE_ENV": str(env_file),
        "DEEPSQUARE_TMP": tmp,
        "DEEPSQUARE_SHARED_TMP": tmp,
        "DEEPSQUARE_SHARED_WORLD_TMP": tmp,
        "DEEPSQUARE_DISK_TMP": tmp,
        "DEEPSQUARE_DISK_WORLD_TMP": tmp,
        "PACKTRAIN_RUN": run,
        "PACKTRAIN_JOB": job.id,
        "PACKTRAIN_INPUT": str(sandbox.input),
        "PACKTRAIN_INPUTS": str(sandbox.inputs),
        **named,
        "PACKTRAIN_OUTPUT": str(sandbox.output),
        "PACKTRAIN_TMP": tmp,
        "PACKTRAIN_METRICS": str(sandbox.metrics_file),
        "PACKTRAIN_CHECKPOINTS": str(sandbox.checkpoints_file),
        "PACKTRAIN_STOP": str(sandbox.stop_file),
        "PYTHONUNBUFFERED": "1",
    }


def resource_variables(resources: Resources) -> dict[str, str]:
    """Return the resources of the job, which a step uses to divide work between its siblings, as in DeepSquare."""
    numbers = {
        "NTASKS": resources.tasks,
        "CPUS_PER_TASK": resources.cpus_per_task,
        "MEM_PER_CPU": resources.mem_per_cpu_mb,
        "GPUS_PER_TASK": resources.gpus // resources.tasks,
        "CPUS": resources.cpus,
        "MEM": resources.memory_mb,
        "GPUS": resources.gpus,
    }
    return {name: str(number) for name, number in numbers.items()}


def task_variables(task: int, n_tasks: int, port: int) -> dict[str, str]:
    """Return the variables that torch.distributed expects, for one of several copies of a command."""
    return {
        "PACKTRAIN_TASK": str(task),
        "RANK": str(task),
        "LOCAL_RANK": str(task),
        "WORLD_SIZE": str(n_tasks),
        "LOCAL_WORLD_SIZE": str(n_tasks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def parse_env_file(data: bytes) -> tuple[dict[str, str], list[str]]:
    """Return the variables of KEY=VALUE lines, with verbatim values, and the lines that are not KEY=VALUE."""
    variables: dict[str, str] = {}
    ignored: list[str] = []
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        key, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(key) and "\0" not in value:
            variables[key] = value
        elif line.strip():
            ignored.append(line)
    return variables, ignored


def to_env_name(name: str) -> str:
    """Convert a name to a part of a variable's name: upper case, with `_` for other characters."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()
