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

from packtrain.agent.environments import Command
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.processes import Program
from packtrain.errors import FailedError
from packtrain.plan import Container, Mount, Text

_OWN = "APPTAINERENV_"
_READ_BY_SHELL = re.compile(r"[\\$`]")
_NO_EVAL = ("APPTAINER_NO_EVAL", "SINGULARITY_NO_EVAL")  # then nothing would be
# Apptainer's own words when it cannot start a container: FATAL from its Go part, ERROR from its starter in C.
_COMPLAINTS = {255: re.compile(r"FATAL:\s+(.*)"), 1: re.compile(r"ERROR  : (.*)")}


class Apptainer:
    def __init__(
        self,
        container: Container,
        box: Sandbox,
        gpus: int,
        agent: Path | None,
        reveal: Callable[[Text], str],
        shown: Sequence[Path] = (),
    ) -> None:
        self._container, self._box, self._gpus = container, box, gpus
        self._agent, self._reveal, self._shown = agent, reveal, shown

    def wrap(self, command: Command) -> Program:
        variables = {**command.variables, **self._apptainers_own(command)}
        variables = {name: value for name, value in variables.items() if name not in _NO_EVAL}
        program = shutil.which("apptainer", path=variables.get("PATH", os.defpath))
        if program is None:
            raise FailedError(
                "container_failed",
                f"it needs the container {self._container.image}, but there is no apptainer on this machine:"
                " install it, or use `--no-container`",
            )
        verb = "run" if command.entrypoint else "exec"
        argv = (program, verb, *self._flags(command.work_dir), self._container.image, *command.argv)
        return Program(argv, variables, self._box.root)

    def complaint(self, exit_code: int, last_words: str) -> str:
        said = _COMPLAINTS[exit_code].match(last_words) if exit_code in _COMPLAINTS else None
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
        yield Mount(str(self._box.root), str(self._box.root))
        if self._agent is not None:
            yield Mount(str(self._agent), str(self._agent), "ro")
        for folder in self._shown:
            yield Mount(str(folder), str(folder))
        yield from self._container.mounts

    def _apptainers_own(self, command: Command) -> Mapping[str, str]:
        """What only Apptainer reads; images are kept in the sandbox unless the site has a place for them."""
        found = {f"{_OWN}{name}": _quoted(value) for name, value in command.own.items()}
        if self._agent is not None and "PYTHONPATH" not in command.own:
            found[f"{_OWN}PYTHONPATH"] = _python_path(command.variables.get("PYTHONPATH", ""), str(self._agent))
        if command.path:
            found[f"{_OWN}PREPEND_PATH"] = os.pathsep.join(command.path)
        for name, folder in (("APPTAINER_CACHEDIR", ".apptainer"), ("APPTAINER_TMPDIR", "tmp")):
            found[name] = command.variables.get(name) or str(self._box.root / folder)
        if self._container.username is not None:
            found["APPTAINER_DOCKER_USERNAME"] = self._reveal(self._container.username)
        if self._container.password is not None:
            found["APPTAINER_DOCKER_PASSWORD"] = self._reveal(self._container.password)
        return found


def _python_path(outside: str, agent: str) -> str:
    """For the shell: the agent's zip in front of what the image says; where it says nothing, of what is set outside."""
    rest = ":".join(part for part in outside.split(":") if part != agent)
    given = f":${{PYTHONPATH:-{_quoted(rest)}}}" if rest else "${PYTHONPATH:+:$PYTHONPATH}"
    return _quoted(agent) + given


def _quoted(value: str) -> str:
    """As it is, for a shell that reads it between double quotes, which Apptainer quotes itself."""
    return _READ_BY_SHELL.sub(r"\\\g<0>", value)


def _mount_option(mount: Mount) -> str:
    """One line of CSV, which is how `--mount` takes paths that have commas in them."""
    fields = ["type=bind", f"source={mount.host}", f"destination={mount.container}"]
    if "ro" in mount.options.split(","):
        fields.append("ro")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
