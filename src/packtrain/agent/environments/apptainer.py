"""A container, started with Apptainer.

Variables and credentials travel in Apptainer's own environment, never on its command line: plain ones are
overridden by the image's, `APPTAINERENV_…` ones are not, which is the precedence that workflows are promised. These are
read by a shell once the image's are set: so values are quoted, and PYTHONPATH can be put in front of the image's.
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
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.processes import ProcessSpec
from packtrain.errors import FailedError
from packtrain.plan import Container, Mount, SecretOrStr

_ENV_PREFIX = "APPTAINERENV_"
_SHELL_SPECIAL = re.compile(r"[\\$`]")
_NO_EVAL_VARIABLES = ("APPTAINER_NO_EVAL", "SINGULARITY_NO_EVAL")  # then nothing would be
# Apptainer's own words when it cannot start a container: FATAL from its Go part, ERROR from its starter in C.
_STARTUP_ERRORS = {255: re.compile(r"FATAL:\s+(.*)"), 1: re.compile(r"ERROR  : (.*)")}


class ApptainerEnvironment:
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
                f"it needs the container {self._container.image}, but there is no apptainer on this machine:"
                " install it, or use `--no-container`",
            )
        verb = "run" if command.use_entrypoint else "exec"
        argv = (program, verb, *self._flags(command.work_dir), self._container.image, *command.argv)
        return ProcessSpec(argv, variables, self._sandbox.root)

    def startup_error(self, exit_code: int, last_line: str) -> str:
        said = _STARTUP_ERRORS[exit_code].match(last_line) if exit_code in _STARTUP_ERRORS else None
        return said.group(1) if said else ""

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
        """What only Apptainer reads; images are kept in the sandbox unless the site has a place for them."""
        found = {f"{_ENV_PREFIX}{name}": _escape_for_shell(value) for name, value in command.step_env.items()}
        if self._agent_zip is not None and "PYTHONPATH" not in command.step_env:
            found[f"{_ENV_PREFIX}PYTHONPATH"] = _prepend_python_path(
                command.env.get("PYTHONPATH", ""), str(self._agent_zip)
            )
        if command.path_prefix:
            found[f"{_ENV_PREFIX}PREPEND_PATH"] = os.pathsep.join(command.path_prefix)
        for name, folder in (("APPTAINER_CACHEDIR", ".apptainer"), ("APPTAINER_TMPDIR", "tmp")):
            found[name] = command.env.get(name) or str(self._sandbox.root / folder)
        if self._container.username is not None:
            found["APPTAINER_DOCKER_USERNAME"] = self._resolve_secret(self._container.username)
        if self._container.password is not None:
            found["APPTAINER_DOCKER_PASSWORD"] = self._resolve_secret(self._container.password)
        return found


def _prepend_python_path(host_path: str, agent_zip: str) -> str:
    """For the shell: the agent's zip in front of what the image says; where it says nothing, of what is set outside."""
    rest = ":".join(part for part in host_path.split(":") if part != agent_zip)
    given = f":${{PYTHONPATH:-{_escape_for_shell(rest)}}}" if rest else "${PYTHONPATH:+:$PYTHONPATH}"
    return _escape_for_shell(agent_zip) + given


def _escape_for_shell(value: str) -> str:
    """As it is, for a shell that reads it between double quotes, which Apptainer quotes itself."""
    return _SHELL_SPECIAL.sub(r"\\\g<0>", value)


def _mount_option(mount: Mount) -> str:
    """One line of CSV, which is how `--mount` takes paths that have commas in them."""
    fields = ["type=bind", f"source={mount.host_dir}", f"destination={mount.container_dir}"]
    if "ro" in mount.options.split(","):
        fields.append("ro")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
