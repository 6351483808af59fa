"""Runs the command of one `run` action: variables, environment, processes, logs, and the classification of failures."""

from __future__ import annotations

import contextlib
import random
import shlex
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Callable

from packtrain.agent.context import AttemptContext
from packtrain.agent.environments import StepCommand, StepEnvironment
from packtrain.agent.environments.host import HostEnvironment
from packtrain.agent.outputs.collect import collect_outputs, copy_logs
from packtrain.agent.processes.error_patterns import classify_error
from packtrain.agent.processes.exit_status import (
    CheckpointExit,
    StepError,
    count_oom_kills,
    describe_exit,
    to_shell_status,
)
from packtrain.agent.processes.output_capture import LogFile, OutputCapture, UserLog
from packtrain.agent.processes.process_table import ProcessSpec, ProcessTree, ProcessTreeClosedError
from packtrain.agent.steps.scope import LogNames, Scope
from packtrain.agent.steps.variables import StepVariables, expand_variables, task_variables
from packtrain.errors import FailedError
from packtrain.events import kinds
from packtrain.plan import RunAction
from packtrain.transfer.tasks.parallel import run_parallel

_STATUS_NOT_FOUND = 127  # a shell's status for a command that is not found
_STATUS_TERMINATED = 143  # a shell's status for a command that SIGTERM ended
# bash exits with 0 on some syntax errors inside [[ ]] (seen with 5.2), so a condition's results have their own codes.
_CONDITION_TRUE, _CONDITION_FALSE = 100, 101


class CommandRunner:
    """Runs commands and conditions of steps."""

    def __init__(self, context: AttemptContext, variables: StepVariables, extra_mounts: Sequence[Path] = ()) -> None:
        self._context, self._variables, self._extra_mounts = context, variables, extra_mounts
        self._job, self._sandbox, self._redactor = context.job, context.sandbox, context.redactor
        self._log_names = LogNames()

    def run(self, action: RunAction, scope: Scope) -> None:
        """Run the command of a step. Raises StepError, or the FailedError of a stop request."""
        environment = self._make_environment(action)
        work_dir = self._prepare_work_dir(action, environment, scope)
        collecting = collect_outputs(action, work_dir, self._sandbox.output, self._has_outputs)
        with self._emit_step_events(action, scope), collecting:
            n_tasks = action.resources.tasks
            if n_tasks == 1:
                self._run_task(action, scope, environment, {}, scope.path)
            else:
                self._run_tasks(action, scope, environment, n_tasks)

    def _has_outputs(self, error: FailedError) -> bool:
        """Return whether the files of a failed command are outputs, and not those of a job that will continue."""
        checkpoint = self._job.checkpoint
        will_continue = isinstance(error, CheckpointExit) or self._context.stop.is_requested
        return checkpoint is None or checkpoint.is_in_output or not will_continue

    def evaluate_condition(self, condition: str, scope: Scope, action: RunAction | None) -> bool:
        """Evaluate an `if` with the variables that the step would have. Raises StepError: condition_invalid."""
        variables = self._variables.for_scope(scope, {})
        variables.update(self._variables.for_step(action.env) if action else {})
        argv = _condition_argv(condition, variables)
        if argv is None:
            raise self._condition_error(condition, scope, "there is no bash on this machine", _STATUS_NOT_FOUND)
        out, err = OutputCapture(self._redactor), OutputCapture(self._redactor)
        code = self._run_process(ProcessSpec(argv, variables, self._sandbox.root), scope, out, err)
        if code not in (_CONDITION_TRUE, _CONDITION_FALSE):
            raise self._condition_error(condition, scope, err.last_line() or describe_exit(code), to_shell_status(code))
        if code == _CONDITION_FALSE:
            message = f" (bash: {err.last_line()})" if err.last_line() else ""
            self._context.emit_notice(
                "steps", f'step "{scope.path}" is skipped: its condition [[ {condition} ]] is false{message}'
            )
        return code == _CONDITION_TRUE

    def _condition_error(self, condition: str, scope: Scope, detail: str, status: int) -> StepError:
        return StepError(
            "condition_invalid",
            f'the condition [[ {condition} ]] of step "{scope.path}" cannot be evaluated: {detail}',
            status,
        )

    def _make_environment(self, action: RunAction) -> StepEnvironment:
        container = action.container or self._job.environment.container
        pixi = self._context.pixi
        if container is None and pixi.activate is not None:
            from packtrain.agent.environments.pixi import PixiStepEnvironment

            return PixiStepEnvironment(pixi.activate, pixi.python_path, pixi.command_folder)
        if container is None or self._context.in_container:
            return HostEnvironment()
        from packtrain.agent.environments.apptainer import ApptainerEnvironment

        gpus = action.resources.tasks * action.resources.gpus_per_task
        resolve_secret = self._context.secrets.resolve_secret
        return ApptainerEnvironment(
            container, self._sandbox, gpus, self._variables.agent_zip, resolve_secret, self._extra_mounts
        )

    @contextlib.contextmanager
    def _emit_step_events(self, action: RunAction, scope: Scope) -> Iterator[None]:
        self._context.stop.check()
        self._context.journal.emit(kinds.STEP_STARTED, step=scope.path, command=action.command)
        started_at, code = time.monotonic(), 0
        try:
            yield
        except FailedError as error:
            code = error.status if isinstance(error, StepError) else _STATUS_TERMINATED
            raise
        finally:
            duration_s = round(time.monotonic() - started_at, 3)
            self._context.journal.emit(kinds.STEP_ENDED, step=scope.path, exit_code=code, seconds=duration_s)

    def _run_tasks(self, action: RunAction, scope: Scope, environment: StepEnvironment, n_tasks: int) -> None:
        """Run `n_tasks` copies of the command at once. If one fails, the others are terminated."""
        process_tree, port = ProcessTree(scope.process_tree), _find_free_port()
        inner = scope.in_process_tree(process_tree)

        def make_task(task: int) -> Callable[[], None]:
            variables = task_variables(task, n_tasks, port)
            return lambda: self._run_task(action, inner, environment, variables, f"{scope.path}/{task}")

        run_parallel(
            [make_task(task) for task in range(n_tasks)], lambda: self._context.processes.terminate(process_tree)
        )

    def _run_task(
        self, action: RunAction, scope: Scope, environment: StepEnvironment, task_env: Mapping[str, str], path: str
    ) -> None:
        spec = self._wrap(environment, self._make_command(action, scope, task_env), path)
        spec = replace(spec, stop_signal=action.stop_signal)
        name = self._log_names.name_for(path)
        logs, copies = self._sandbox.attempt_folder.logs, self._open_user_logs(action, spec.env, path)
        out, err = (
            LogFile(self._redactor, logs / f"{name}.{suffix}", copy) for suffix, copy in zip(("out", "err"), copies)
        )
        # What earlier attempts printed is in the restored file; what earlier executions printed is in the log itself.
        checkpoint = self._job.checkpoint
        continues = checkpoint is not None and not checkpoint.is_in_output and not (out.size or err.size)
        oom_kills_before = count_oom_kills()
        code = self._run_process(spec, scope, out, err)
        self._report_truncated_logs(path, out, err)
        task = task_env.get("PACKTRAIN_TASK", "")
        copy_logs(action, (out.path, err.path), self._sandbox.output, task, append=continues)
        if code:
            out_of_memory = count_oom_kills() > oom_kills_before
            raise self._classify_failure(code, path, environment, err.last_line(), out_of_memory)

    def _open_user_logs(
        self, action: RunAction, variables: Mapping[str, str], path: str
    ) -> tuple[UserLog | None, UserLog | None]:
        """Open the absolute `stdout` and `stderr`; both may be the same file."""
        names = (action.stdout, action.stderr)
        out_path, err_path = (expand_variables(name, variables) if name.startswith("/") else "" for name in names)
        try:
            out = UserLog(Path(out_path), action.append_logs) if out_path else None
            append_err = action.append_logs or err_path == out_path
            return out, UserLog(Path(err_path), append_err) if err_path else None
        except OSError as error:
            detail = f'step "{path}" was not started: its log {error.filename} cannot be written: {error.strerror}'
            raise StepError("step_failed", detail, _STATUS_NOT_FOUND) from None

    def _prepare_work_dir(self, action: RunAction, environment: StepEnvironment, scope: Scope) -> Path:
        """Return the working directory and create it, as DeepSquare does; a container creates its own."""
        folder = self._sandbox.root / action.work_dir
        if isinstance(environment, HostEnvironment) or self._sandbox.root in (folder, *folder.parents):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                detail = (
                    f'step "{scope.path}" was not started: its workDir {folder} cannot be created: {error.strerror}'
                )
                raise StepError("step_failed", detail, _STATUS_NOT_FOUND) from None
        return folder

    def _wrap(self, environment: StepEnvironment, command: StepCommand, path: str) -> ProcessSpec:
        try:
            return environment.wrap(command)
        except FailedError as error:
            raise StepError(error.kind, f'step "{path}" was not started: {error}', _STATUS_NOT_FOUND) from None

    def _make_command(self, action: RunAction, scope: Scope, task_env: Mapping[str, str]) -> StepCommand:
        # The job's environment does not apply to a step with a container of its own.
        job_environment = self._job.environment if action.container is None else None
        use_entrypoint = action.shell == "ENTRYPOINT" or not action.command.strip()
        script = "\n".join(filter(None, (job_environment.setup if job_environment else "", action.command)))
        return StepCommand(
            _split_arguments(action.command, scope) if use_entrypoint else (action.shell, "-c", script),
            self._sandbox.root / action.work_dir,
            env=self._variables.for_scope(scope, task_env),
            step_env=self._variables.for_step(action.env),
            path_prefix=job_environment.path if job_environment else (),
            use_entrypoint=use_entrypoint,
        )

    def _run_process(self, spec: ProcessSpec, scope: Scope, out: OutputCapture, err: OutputCapture) -> int:
        try:
            child = self._context.processes.start(spec, out, err, scope.process_tree)
        except ProcessTreeClosedError:
            self._context.stop.check()  # without a stop request, the level of a launched step has ended
            raise StepError(
                "step_failed", f'step "{scope.path}" was not started: its level had ended', _STATUS_TERMINATED
            ) from None
        except (OSError, ValueError) as error:  # no such shell or folder; a variable with a zero byte
            raise StepError(
                "step_failed", f'step "{scope.path}" could not be started: {error}', _STATUS_NOT_FOUND
            ) from None
        return child.wait()

    def _classify_failure(
        self, code: int, path: str, environment: StepEnvironment, last_line: str, out_of_memory: bool
    ) -> StepError:
        startup_error = environment.startup_error(code, last_line)
        if startup_error:
            return StepError("container_failed", f'the container of step "{path}" did not start: {startup_error}', code)
        stderr = f"; last line on stderr: {last_line}" if last_line else "; stderr is empty"
        if out_of_memory:
            return StepError(
                "out_of_memory", f'step "{path}" was killed for using too much memory{stderr}', to_shell_status(code)
            )
        detail = f'step "{path}" {describe_exit(code)}{stderr}'
        if self._job.checkpoint is not None and code == self._job.checkpoint.exit_code:
            return CheckpointExit("step_failed", detail, to_shell_status(code))
        return StepError(classify_error(code, last_line), detail, to_shell_status(code))

    def _report_truncated_logs(self, path: str, *logs: LogFile) -> None:
        for error in {str(log.write_error) for log in logs if log.write_error}:
            self._context.emit_notice("steps", f'the log of step "{path}" is truncated: {error}')


def _condition_argv(condition: str, variables: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return a command that exits with _CONDITION_TRUE or _CONDITION_FALSE, or None if there is no bash.

    With any other code the condition, which is the content of bash's `[[ ]]`, is invalid.
    """
    bash = shutil.which("bash", path=variables.get("PATH"))
    if bash is None:
        return None
    return (bash, "-c", f"if [[ {condition} ]]; then exit {_CONDITION_TRUE}; fi; exit {_CONDITION_FALSE}")


def _split_arguments(command: str, scope: Scope) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        detail = f'the arguments of step "{scope.path}" cannot be split: {error} in {command!r}'
        raise StepError("step_failed", detail, _STATUS_NOT_FOUND) from None


def _find_free_port() -> int:
    """Return a free port below the ephemeral range.

    The server listens only after torch is imported, so the kernel must not assign the port to a connection meanwhile.
    """
    for _ in range(100):
        port = random.randrange(10_000, _first_ephemeral_port())  # noqa: S311 (no secret)
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("", port))
            return port
    with socket.socket() as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


def _first_ephemeral_port() -> int:
    try:
        return max(int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]), 10_100)
    except (OSError, ValueError):
        return 32_768
