"""Containers, started with Apptainer.

Variables and credentials are passed in Apptainer's own environment, never on its command line. The image's variables
override plain ones but not `APPTAINERENV_…` ones, which gives the precedence that workflows specify. A shell evaluates
the latter after it has set the image's variables. So their values are escaped, and PYTHONPATH can extend the image's.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Callable

from packtrain.agent.environments import StepCommand
from packtrain.agent.processes.process_table import ProcessSpec
from packtrain.agent.sandbox import Sandbox
from packtrain.errors import FailedError
from packtrain.plan import Container, Mount, SecretOrStr

_ENV_PREFIX = "APPTAINERENV_"
_SHELL_SPECIAL = re.compile(r"[\\$`]")
_NO_EVAL_VARIABLES = ("APPTAINER_NO_EVAL", "SINGULARITY_NO_EVAL")  # would switch off the evaluation
_ENTER_WORK_DIR = 'mkdir -p "$0" && cd "$0" && exec "$@"'
# Apptainer's messages when it cannot start a container: FATAL from its Go part, ERROR from its C starter.
_STARTUP_ERRORS = {255: re.compile(r"FATAL:\s+(.*)"), 1: re.compile(r"ERROR  : (.*)")}


class ApptainerEnvironment:
    """Runs commands in a container."""

    def __init__(
        self,
        container: Container,
        sandbox: Sandbox,
        gpus: int,
        agent_zip: Path | None,
        resolve_secret: Callable[[SecretOrStr], str],
        extra_mounts: Sequence[Path] = (),
    ) -> None:
        self._container, self._sandbox, self._gpus = container, sandbox, gpus
        self._agent_zip, self._resolve_secret, self._extra_mounts = agent_zip, resolve_secret, extra_mounts

    def wrap(self, command: StepCommand) -> ProcessSpec:
        variables = {**command.env, **self._apptainer_env(command)}
        variables = {name: value for name, value in variables.items() if name not in _NO_EVAL_VARIABLES}
        program = shutil.which("apptainer", path=variables.get("PATH", os.defpath))
        if program is None:
            raise FailedError(
                "container_failed",
                f"the step needs the container {self._container.image}, but there is no apptainer on this machine;"
                " install it, or use `--no-container`",
            )
        verb = "run" if command.use_entrypoint else "exec"
        # A folder of the image itself can only be created inside; an entrypoint cannot be wrapped.
        is_inside = self._sandbox.root not in (command.work_dir, *command.work_dir.parents)
        is_wrapped = is_inside and not command.use_entrypoint
        start = ("/bin/sh", "-c", _ENTER_WORK_DIR, str(command.work_dir)) if is_wrapped else ()
        flags = self._flags(self._sandbox.root if is_wrapped else command.work_dir)
        argv = (program, verb, *flags, self._container.image, *start, *command.argv)
        return ProcessSpec(argv, variables, self._sandbox.root)

    def startup_error(self, exit_code: int, last_line: str) -> str:
        match = _STARTUP_ERRORS[exit_code].match(last_line) if exit_code in _STARTUP_ERRORS else None
        return match.group(1) if match else ""

    def _flags(self, work_dir: Path) -> Iterable[str]:
        yield from ("--pwd", str(work_dir))
        for mount in self._mounts():
            yield from ("--mount", _mount_option(mount))
        if not self._container.mount_home:
            yield "--no-home"
        if not self._container.read_only:
            yield "--writable-tmpfs"
        if self._gpus:
            yield "--nv"

    def _mounts(self) -> Iterable[Mount]:
        yield Mount(str(self._sandbox.root), str(self._sandbox.root))
        if self._agent_zip is not None:
            yield Mount(str(self._agent_zip), str(self._agent_zip), "ro")
        for folder in self._extra_mounts:
            yield Mount(str(folder), str(folder))
        yield from self._container.mounts

    def _apptainer_env(self, command: StepCommand) -> Mapping[str, str]:
        """Return the variables for Apptainer. Images are cached in the sandbox unless the site configures a folder."""
        variables = {f"{_ENV_PREFIX}{name}": _escape_for_shell(value) for name, value in command.step_env.items()}
        if self._agent_zip is not None and "PYTHONPATH" not in command.step_env:
            variables[f"{_ENV_PREFIX}PYTHONPATH"] = _prepend_python_path(
                command.env.get("PYTHONPATH", ""), str(self._agent_zip)
            )
        if command.path_prefix:
            variables[f"{_ENV_PREFIX}PREPEND_PATH"] = os.pathsep.join(command.path_prefix)
        for name, folder in (("APPTAINER_CACHEDIR", ".apptainer"), ("APPTAINER_TMPDIR", "tmp")):
            variables[name] = command.env.get(name) or str(self._sandbox.root / folder)
        if self._container.username is not None:
            variables["APPTAINER_DOCKER_USERNAME"] = self._resolve_secret(self._container.username)
        if self._container.password is not None:
            variables["APPTAINER_DOCKER_PASSWORD"] = self._resolve_secret(self._container.password)
        return variables


def _prepend_python_path(host_path: str, agent_zip: str) -> str:
    """Return a shell expression: the agent's zip, then the image's PYTHONPATH, or the host's if the image sets none."""
    other_parts = ":".join(part for part in host_path.split(":") if part != agent_zip)
    default = f":${{PYTHONPATH:-{_escape_for_shell(other_parts)}}}"
    return _escape_for_shell(agent_zip) + (default if other_parts else "${PYTHONPATH:+:$PYTHONPATH}")


def _escape_for_shell(value: str) -> str:
    """Escape a value for a shell that reads it between double quotes. Apptainer escapes the quotes themselves."""
    return _SHELL_SPECIAL.sub(r"\\\g<0>", value)


def _mount_option(mount: Mount) -> str:
    """Return the mount as a line of CSV, so that paths may contain commas."""
    fields = ["type=bind", f"source={mount.host_dir}", f"destination={mount.container_dir}"]
    if "ro" in mount.options.split(","):
        fields.append("ro")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
