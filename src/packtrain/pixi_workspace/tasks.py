"""Renders Pixi tasks as commands for /bin/sh: arguments, variables, folders, and the tasks that they depend on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packtrain.pixi_workspace.errors import PixiError, Problem
from packtrain.pixi_workspace.task_shell import UnsupportedSyntaxError, translate_command
from packtrain.plan import EnvVar, PixiCommand, PixiTask
from packtrain.spec.diagnostics import did_you_mean
from packtrain.spec.models.field_types import check_relative_path

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][\w.]*)\s*\}\}")
_TEMPLATE = re.compile(r"\{[{%#]")
_SHELL_SPECIAL = re.compile(r"[$`\\]")


@dataclass(frozen=True)
class _Call:
    """A task that is called with arguments, by position or by name."""

    task: str
    args: Sequence[str] = ()
    named_args: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Task:
    """A task as the manifest describes it."""

    name: str
    command: str = ""  # empty: only its dependencies run
    env: Mapping[str, str] | None = None
    work_dir: str = ""
    depends_on: tuple[_Call, ...] = ()
    parameters: Mapping[str, str | None] | None = None  # defaults by name, None without one; None: free arguments


class TaskRenderer:
    """Renders the tasks of one environment.

    Args:
        tasks: The tasks by name, as the manifest writes them.
        environment: The name of the environment.
        platform: The name of the platform.
    """

    def __init__(self, tasks: Mapping[str, Any], environment: str, platform: str) -> None:
        self._tasks, self._environment = tasks, environment
        self._variables = {"pixi.platform": platform, "pixi.environment.name": environment}

    def render(self, name: str, args: Sequence[str] = ()) -> tuple[PixiCommand, ...]:
        """Return the commands of a task: first those of the tasks it depends on, each once.

        Raises PixiError if there is no such task, or /bin/sh cannot run it.
        """
        commands: dict[str, PixiCommand | None] = {}
        self._render_call(_Call(name, args), (), commands)
        return tuple(command for command in commands.values() if command)

    def render_all(self) -> Iterator[PixiTask]:
        """Yield all tasks that have no declared arguments; one that cannot be run has an error instead."""
        for name in self._tasks:
            try:
                yield PixiTask(name, self.render(name))
            except PixiError as error:
                yield PixiTask(name, error=str(error))

    def _render_call(self, call: _Call, callers: tuple[str, ...], commands: dict[str, PixiCommand | None]) -> None:
        """Add the commands of a task. The same call with the same arguments runs once."""
        key = repr((call.task, tuple(call.args), sorted((call.named_args or {}).items())))
        if call.task in callers:
            cycle = " → ".join((*callers[callers.index(call.task) :], call.task))
            raise _problem(call.task, f"depends on itself ({cycle})", "remove one of the dependencies")
        if key in commands:
            return
        task = self._read_task(call.task)
        values = {**self._variables, **_bind_arguments(task, call)}
        for dependency in task.depends_on:
            args = [_render_template(task.name, text, values) for text in dependency.args]
            named = {k: _render_template(task.name, v, values) for k, v in (dependency.named_args or {}).items()}
            self._render_call(_Call(dependency.task, args, named), (*callers, task.name), commands)
        commands[key] = self._render_command(task, call, values) if task.command else None

    def _render_command(self, task: _Task, call: _Call, values: Mapping[str, str]) -> PixiCommand:
        command = self._translate(task.name, _render_template(task.name, task.command, values))
        if task.parameters is None:
            command = " ".join([command, *map(shlex.quote, call.args)])
        variables = {key: _render_template(task.name, value, values) for key, value in (task.env or {}).items()}
        exports = [
            f"export {key}={self._translate(task.name, _quote(value))}\n"
            for key, value in variables.items()
            if _SHELL_SPECIAL.search(value)
        ]
        env = tuple(EnvVar(key, value) for key, value in variables.items() if not _SHELL_SPECIAL.search(value))
        return PixiCommand("".join(exports) + command, env, task.work_dir)

    @staticmethod
    def _translate(name: str, text: str) -> str:
        try:
            return translate_command(text)
        except UnsupportedSyntaxError as error:
            raise _problem(
                name, f"{error}, which /bin/sh may read differently", "write a `command` for the step instead"
            ) from None

    def _read_task(self, name: str) -> _Task:
        if name not in self._tasks:
            message = f"the environment {self._environment!r} has no task {name!r}"
            raise PixiError(Problem(message, did_you_mean(name, self._tasks)))
        raw = self._tasks[name]
        if isinstance(raw, str):
            return _Task(name, raw)
        if isinstance(raw, list):
            return _Task(name, depends_on=tuple(self._read_dependency(name, entry) for entry in raw))
        command = raw.get("cmd", "")
        dependencies = raw.get("depends-on", raw.get("depends_on", ()))
        dependencies = [dependencies] if isinstance(dependencies, str) else dependencies
        return _Task(
            name,
            " ".join(map(quote_argument, command)) if isinstance(command, list) else command,
            {key: str(value) for key, value in raw.get("env", {}).items()},
            _read_work_dir(name, raw.get("cwd", "")),
            tuple(self._read_dependency(name, entry) for entry in dependencies),
            dict(map(_read_parameter, raw["args"])) if raw.get("args") else None,
        )

    def _read_dependency(self, name: str, entry: Any) -> _Call:
        if isinstance(entry, str):
            return _Call(entry)
        environment = entry.get("environment", self._environment)
        if environment != self._environment:
            raise _problem(
                name, f"depends on a task in the environment {environment!r}", "run that task in a workflow of its own"
            )
        args, named = [], {}
        for arg in entry.get("args", ()):
            if isinstance(arg, Mapping):
                named.update({key: str(value) for key, value in arg.items()})
            else:
                args.append(str(arg))
        return _Call(str(entry["task"]), args, named)


def _problem(task: str, reason: str, hint: str) -> PixiError:
    return PixiError(Problem(f"the task {task!r} {reason}", hint))


def _read_work_dir(task: str, value: str) -> str:
    if value in ("", "."):
        return ""
    try:
        return check_relative_path(value)
    except ValueError:
        raise _problem(task, f"runs in {value}, outside of the workspace", "remove its `cwd`") from None


def _read_parameter(entry: Any) -> tuple[str, str | None]:
    """Return the name and default of a declared argument, written as text or as a table."""
    if isinstance(entry, Mapping):
        default = entry.get("default")
        return str(entry["arg"]), None if default is None else str(default)
    return str(entry), None


def _bind_arguments(task: _Task, call: _Call) -> dict[str, str]:
    """Return the values of a task's declared arguments."""
    if task.parameters is None:
        return {}
    if len(call.args) > len(task.parameters):
        declared = ", ".join(task.parameters)
        raise _problem(task.name, f"takes {len(task.parameters)} arguments ({declared}), not {len(call.args)}", "")
    values = {**dict(zip(task.parameters, call.args, strict=False)), **(call.named_args or {})}
    for name, default in task.parameters.items():
        if name not in values and default is None:
            raise _problem(task.name, f"needs the argument {name!r}", "add it to `args`")
        values.setdefault(name, default or "")
    return values


def _render_template(task: str, text: str, values: Mapping[str, str]) -> str:
    """Replace `{{ name }}`. Other parts of the template language are refused."""
    used = _VARIABLE.findall(text)
    unknown = [name for name in used if name not in values]
    if unknown or _TEMPLATE.search(_VARIABLE.sub("", text)):
        part = f"`{{{{ {unknown[0]} }}}}`" if unknown else "a template with more than `{{ name }}`"
        raise _problem(task, f"uses {part}, which only Pixi can fill in", "write a `command` for the step instead")
    return _VARIABLE.sub(lambda match: values[match.group(1)], text)


def quote_argument(text: str) -> str:
    """Quote an argument of a command that is a list, as Pixi does: only if it has blanks or brackets, or is empty."""
    if text and not re.search(r"[\t\r\n \[\]]", text):
        return text
    return _quote(text.replace("\\", "\\\\"))


def _quote(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
