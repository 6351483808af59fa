"""A small `pixi` for machines that have none, so that scripts that call `pixi run`, `pixi install` or `pixi shell-hook`
work unchanged. Its steps run in the activated environment already, so it has little to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from packtrain.plan import PixiTask

_EXECUTABLE_MODE = 0o755
_SCRIPT = """\
#!/bin/sh
# Written by packtrain: runs commands and tasks in the environment of this job.
environment={environment}
workspace={workspace}
hook={hook}

fail() {{
    echo "pixi (packtrain's): $*" >&2
    exit 1
}}

run_task() {{
    task=$1
    shift
    case $task in
{tasks}
    *) return 100 ;;
    esac
}}

command=
while [ $# -gt 0 ]; do
    case $1 in
    -e | --environment) wanted=${{2-}}; shift ;;
    --environment=*) wanted=${{1#*=}} ;;
    -m | --manifest-path | -s | --shell | --color | -p | --platform) shift ;;
    -x | --executable) is_program=yes ;;
    --) shift; [ -n "$command" ] && break; continue ;;
    -*) ;;  # --frozen, --locked, --no-install, -q, …: the environment is installed as it is locked
    run | install | i | shell-hook)
        [ "$command" = run ] && break
        [ -z "$command" ] || fail "unexpected argument $1"
        command=$1 ;;
    *)
        [ -n "$command" ] || fail "this machine has no pixi, and packtrain's can only run, install and shell-hook"
        [ "$command" = run ] && break
        fail "unexpected argument $1" ;;
    esac
    shift
done
if [ "${{wanted-$environment}}" != "$environment" ]; then
    fail "this job has the environment $environment, not $wanted; name it in the workflow (environment.pixi)"
fi
case $command in
install | i) exit 0 ;;
shell-hook) exec cat "$hook" ;;
run)
    [ $# -gt 0 ] || fail "\\`run\\` needs a command or a task"
    if [ -z "${{is_program-}}" ]; then
        run_task "$@"
        code=$?
        [ $code -eq 100 ] || exit $code
    fi
    exec "$@" ;;
*) fail "name a command: run, install or shell-hook" ;;
esac
"""


def write_pixi_command(
    path: Path, environment: str, workspace: Path, hook_file: Path, tasks: Iterable[PixiTask]
) -> None:
    """Write the command.

    Args:
        path: The file to create.
        environment: The name of the environment.
        workspace: The folder that the tasks' working folders are relative to.
        hook_file: What `pixi shell-hook` prints.
        tasks: The tasks that `pixi run` knows.
    """
    path.write_text(
        _SCRIPT.format(
            environment=shlex.quote(environment),
            workspace=shlex.quote(str(workspace)),
            hook=shlex.quote(str(hook_file)),
            tasks="\n".join(line for task in tasks for line in _task_lines(task)),
        ),
        encoding="utf-8",
    )
    path.chmod(_EXECUTABLE_MODE)


def _task_lines(task: PixiTask) -> Iterator[str]:
    yield f"    {shlex.quote(task.name)})"
    if task.error:
        yield f"        fail {shlex.quote(f'the task {task.name} cannot be run: {task.error}')} ;;"
        return
    for number, command in enumerate(task.commands, 1):
        is_last = number == len(task.commands)
        exports = "".join(f"export {variable.key}={shlex.quote(str(variable.value))}; " for variable in command.env)
        # Arguments go to the task's own command, which is the last, as Pixi appends them to its text.
        text = command.command + (' "$@"' if is_last else "")
        folder = shlex.quote(command.work_dir or ".")
        end = "" if is_last else " || return $?"
        yield f'        (cd "$workspace" && cd {folder} && {exports}exec /bin/sh -c {shlex.quote(text)} pixi "$@"){end}'
    yield "        ;;"
