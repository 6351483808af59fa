"""Activate an environment as `pixi shell-hook` does, in its order.

PATH and CONDA_*, the packages' variables (`etc/conda/env_vars.d`), PIXI_*, the packages' scripts
(`etc/conda/activate.d`), the manifest's scripts, the manifest's variables. A shell expands `$NAME` in a value, and a
script that fails does not stop the activation.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packtrain.errors import FailedError

_TIMEOUT_S = 120.0
_ACTIVATE_FOLDER, _VARIABLES_FOLDER = "etc/conda/activate.d", "etc/conda/env_vars.d"
_SCRIPT_SUFFIXES = (".sh", ".bash")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OUTER_ACTIVATION = re.compile(r"CONDA_(SHLVL|PREFIX|DEFAULT_ENV|ENV_SHLVL_.*|PREFIX_\d+)")
_SHELL_VARIABLES = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV"})  # what bash sets, or reads, for itself


@dataclass(frozen=True)
class Activation:
    """What activates an environment.

    Attributes:
        prefix: The installed environment.
        pixi_variables: The variables that Pixi sets (PIXI_*, CONDA_DEFAULT_ENV).
        scripts: The manifest's scripts, with absolute paths.
        variables: The manifest's variables.
    """

    prefix: str
    pixi_variables: Mapping[str, str]
    scripts: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def activate(activation: Activation, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a program that runs in the environment.

    Args:
        activation: What activates it.
        environ: The variables before.

    Raises:
        FailedError: A script ended the shell (activation_failed), or there is no bash (environment_unsupported).
    """
    start = {name: value for name, value in environ.items() if not _OUTER_ACTIVATION.fullmatch(name)}
    first, scripts, last = _parts(activation)
    path = f"{activation.prefix}/bin{os.pathsep}{environ.get('PATH', os.defpath)}"
    start.update(PATH=path, CONDA_SHLVL="1", CONDA_PREFIX=activation.prefix)
    if not scripts and not any("$" in value for value in (*first.values(), *last.values())):
        return {**start, **first, **last}  # nothing needs a shell
    hook = "".join(_script_lines(first, scripts, last, " >&2"))
    own = {name: value for name, value in start.items() if name in _SHELL_VARIABLES}
    outer = {name: value for name, value in start.items() if name not in _SHELL_VARIABLES}
    return {**_run_bash(f"{hook}exec /usr/bin/env -0\n", outer), **own}


def shell_hook(activation: Activation) -> str:
    """Return the lines that activate the environment in a shell, as `pixi shell-hook` prints them."""
    head = (
        f'export PATH={shlex.quote(activation.prefix + "/bin")}:"$PATH"\n'
        f"export CONDA_SHLVL=1\nexport CONDA_PREFIX={shlex.quote(activation.prefix)}\n"
    )
    return head + "".join(_script_lines(*_parts(activation)))


def _parts(activation: Activation) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Return the variables before the scripts, the scripts, and the variables after them."""
    folder = Path(activation.prefix, _ACTIVATE_FOLDER)
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    own_scripts = [str(folder / name) for name in names if name.endswith(_SCRIPT_SUFFIXES)]
    first = {**_package_variables(activation.prefix), **activation.pixi_variables}
    return first, [*own_scripts, *activation.scripts], dict(activation.variables)


def _package_variables(prefix: str) -> dict[str, str]:
    folder = Path(prefix, _VARIABLES_FOLDER)
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        try:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FailedError("package_broken", f"the variables in {folder / name} cannot be read: {error}") from error
        found.update(content if isinstance(content, dict) else {})
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _script_lines(
    first: Mapping[str, str], scripts: list[str], last: Mapping[str, str], redirection: str = ""
) -> Iterator[str]:
    yield from (_export_line(name, value) for name, value in first.items())
    yield from (f". {shlex.quote(path)}{redirection}\n" for path in scripts)
    yield from (_export_line(name, value) for name, value in last.items())


def _export_line(name: str, value: str) -> str:
    """Return a line like rattler's: a value with a dollar sign is expanded by the shell."""
    if not _NAME.fullmatch(name):
        raise FailedError("activation_failed", f"the environment sets {name!r}, which cannot be the name of a variable")
    quoted = '"{}"'.format(value.replace('"', '\\"')) if "$" in value else shlex.quote(value)
    return f"export {name}={quoted}\n"


def _run_bash(script: str, environ: Mapping[str, str]) -> dict[str, str]:
    bash = shutil.which("bash", path=environ.get("PATH")) or shutil.which("bash", path=os.defpath)
    if bash is None:
        detail = "the Pixi environment has activation scripts, but there is no bash on this machine to run them"
        raise FailedError("environment_unsupported", detail)
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.run(
                (bash, "--noprofile", "--norc", "-c", script),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            detail = f"the activation scripts of the Pixi environment did not end within {_TIMEOUT_S:g} s"
            raise FailedError("activation_failed", detail) from None
        pairs = [line.partition(b"=") for line in process.stdout.split(b"\0")]
        if process.returncode or b"PATH" not in [name for name, _, _ in pairs]:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            seen = f"; its last line: {lines[-1]}" if lines else ""
            detail = (
                f"an activation script of the Pixi environment ended the shell with code {process.returncode}{seen}"
            )
            raise FailedError("activation_failed", detail)
    variables = {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals}
    return {name: value for name, value in variables.items() if name not in _SHELL_VARIABLES}
