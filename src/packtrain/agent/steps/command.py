"""Runs one `run` action: variables, environment, processes, logs, and the verdict on how it ended."""

from __future__ import annotations

import contextlib
import random
import shlex
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable

from packtrain.agent.environments import StepCommand, StepEnvironment
from packtrain.agent.environments.host import HostEnvironment
from packtrain.agent.outputs.collect import collect_outputs, copy_logs
from packtrain.agent.parallel import run_parallel
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps import conditions
from packtrain.agent.steps.error_patterns import classify_error
from packtrain.agent.steps.exit_status import CheckpointExit, StepError, describe_exit, to_shell_status
from packtrain.agent.steps.logs import LogFile, LogNames, OutputCapture
from packtrain.agent.steps.oom import count_oom_kills
from packtrain.agent.steps.processes import ProcessSpec, ProcessTable, ProcessTree, ProcessTreeClosedError
from packtrain.agent.steps.scope import Scope
from packtrain.agent.steps.variables import StepVariables, task_variables
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import EXIT_RESUME_IN_PLACE, FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import Job, RunAction, SecretOrStr, StepResources

_STATUS_NOT_FOUND = 127  # a shell's status of a command that is not found
_STATUS_TERMINATED = 143  # and of one that TERM ended


class CommandRunner:
    def __init__(
        self,
        job: Job,
        sandbox: Sandbox,
        journal: Journal,
        redactor: Redactor,
        resolve_secret: Callable[[SecretOrStr], str],
        stop: StopRequest,
        variables: StepVariables,
        processes: ProcessTable,
        agent_zip: Path | None,
        in_container: bool = False,
        extra_mounts: Sequence[Path] = (),
    ) -> None:
        self._job, self._sandbox, self._journal, self._redactor = job, sandbox, journal, redactor
        self._resolve_secret, self._stop, self._variables, self._processes = resolve_secret, stop, variables, processes
        self._agent_zip, self._in_container, self._extra_mounts = agent_zip, in_container, extra_mounts
        self._log_names = LogNames()

    def run(self, action: RunAction, scope: Scope) -> None:
        """Raises StepError, or the stop's FailedError."""
        environment = self._make_environment(action)
        work = self._prepare_work_dir(action)
        with self._emit_step_events(action, scope), collect_outputs(action, work, self._sandbox.output):
            tasks = action.resources.tasks
            if tasks == 1:
                self._run_task(action, scope, environment, {}, scope.path)
            else:
                self._run_tasks(action, scope, environment, tasks)

    def evaluate_condition(self, condition: str, scope: Scope, action: RunAction | None) -> bool:
        """Evaluate an `if` in the environment that the step would have. Raises StepError: condition_invalid."""
        variables = self._variables.for_scope(scope, action.resources if action else self._job_resources(), {})
        variables.update(self._variables.for_step(action.env) if action else {})
        argv = conditions.condition_argv(condition, variables)
        if argv is None:
            raise self._condition_error(
                condition, scope, "there is no bash on this machine to evaluate it", _STATUS_NOT_FOUND
            )
        out, err = OutputCapture(self._redactor), OutputCapture(self._redactor)
        code = self._run_process(ProcessSpec(argv, variables, self._sandbox.root), scope, out, err)
        if code not in (conditions.STATUS_TRUE, conditions.STATUS_FALSE):
            raise self._condition_error(condition, scope, err.last_line() or describe_exit(code), to_shell_status(code))
        if code == conditions.STATUS_FALSE:
            said = f" (bash said: {err.last_line()})" if err.last_line() else ""
            self._emit_notice(f'step "{scope.path}" is skipped: its condition [[ {condition} ]] does not hold{said}')
        return code == conditions.STATUS_TRUE

    def _condition_error(self, condition: str, scope: Scope, detail: str, status: int) -> StepError:
        return StepError(
            "condition_invalid", f'step "{scope.path}" has the condition [[ {condition} ]], but: {detail}', status
        )

    def _job_resources(self) -> StepResources:
        """Of steps that run nothing themselves: the job's."""
        job = self._job.resources
        return StepResources(job.tasks, job.cpus_per_task, job.mem_per_cpu_mb, job.gpus // job.tasks)

    def _make_environment(self, action: RunAction) -> StepEnvironment:
        container = action.container or self._job.environment.container
        if container is None or self._in_container:
            return HostEnvironment()
        from packtrain.agent.environments.apptainer import ApptainerEnvironment

        gpus = action.resources.tasks * action.resources.gpus_per_task
        return ApptainerEnvironment(
            container, self._sandbox, gpus, self._agent_zip, self._resolve_secret, self._extra_mounts
        )

    @contextlib.contextmanager
    def _emit_step_events(self, action: RunAction, scope: Scope) -> Iterator[None]:
        self._stop.check()
        self._journal.emit(kinds.STEP_STARTED, step=scope.path, command=self._redactor.redact_text(action.command))
        started, code = time.monotonic(), 0
        try:
            yield
        except FailedError as error:
            code = error.status if isinstance(error, StepError) else _STATUS_TERMINATED
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            self._journal.emit(kinds.STEP_ENDED, step=scope.path, exit_code=code, seconds=seconds)

    def _run_tasks(self, action: RunAction, scope: Scope, environment: StepEnvironment, n_tasks: int) -> None:
        """So many copies at once; the failure of one ends the others."""
        family, port = ProcessTree(scope.process_tree), _find_free_port()
        inner = scope.in_process_tree(family)

        def make_task(task: int) -> Callable[[], None]:
            variables = task_variables(task, n_tasks, port)
            return lambda: self._run_task(action, inner, environment, variables, f"{scope.path}/{task}")

        run_parallel([make_task(task) for task in range(n_tasks)], lambda: self._processes.terminate(family))

    def _run_task(
        self, action: RunAction, scope: Scope, environment: StepEnvironment, task_env: Mapping[str, str], path: str
    ) -> None:
        program = self._wrap(environment, self._make_command(action, scope, task_env), path)
        name = self._log_names.name_for(path)
        out, err = (
            LogFile(self._redactor, self._sandbox.attempt_folder.logs / f"{name}.{kind}") for kind in ("out", "err")
        )
        kills = count_oom_kills()
        code = self._run_process(program, scope, out, err)
        self._report_truncated_logs(path, out, err)
        copy_logs(action, (out.path, err.path), self._sandbox.output, task_env.get("PACKTRAIN_TASK", ""))
        if code:
            raise self._classify_failure(code, path, environment, err.last_line(), count_oom_kills() > kills)

    def _prepare_work_dir(self, action: RunAction) -> Path:
        """A folder of the sandbox is made if no input has made it."""
        folder = self._sandbox.root / action.work_dir
        if not Path(action.work_dir).is_absolute():
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _wrap(self, environment: StepEnvironment, command: StepCommand, path: str) -> ProcessSpec:
        try:
            return environment.wrap(command)
        except FailedError as error:
            raise StepError(error.kind, f'step "{path}" was not started: {error}', _STATUS_NOT_FOUND) from None

    def _make_command(self, action: RunAction, scope: Scope, task_env: Mapping[str, str]) -> StepCommand:
        # A step with a container of its own says itself what surrounds it.
        around = self._job.environment if action.container is None else None
        entrypoint = action.shell == "ENTRYPOINT" or not action.command.strip()
        lines = "\n".join(filter(None, (around.setup if around else "", action.command)))
        return StepCommand(
            _split_arguments(action.command, scope) if entrypoint else (action.shell, "-c", lines),
            self._prepare_work_dir(action),
            self._variables.for_scope(scope, action.resources, task_env),
            self._variables.for_step(action.env),
            around.path if around else (),
            entrypoint,
        )

    def _run_process(self, spec: ProcessSpec, scope: Scope, out: OutputCapture, err: OutputCapture) -> int:
        try:
            child = self._processes.start(spec, out, err, scope.process_tree)
        except ProcessTreeClosedError:
            self._stop.check()  # else a launch was ended by its level
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
        complaint = environment.startup_error(code, last_line)
        if complaint:
            return StepError("container_failed", f'the container of step "{path}" did not start: {complaint}', code)
        said = f"; its last words: {last_line}" if last_line else "; it said nothing on stderr"
        if out_of_memory:
            return StepError(
                "out_of_memory", f'step "{path}" was killed for using too much memory{said}', to_shell_status(code)
            )
        detail = f'step "{path}" {describe_exit(code)}{said}'
        if code == EXIT_RESUME_IN_PLACE and self._job.checkpoint is not None:
            return CheckpointExit("step_failed", detail, to_shell_status(code))
        return StepError(classify_error(code, last_line), detail, to_shell_status(code))

    def _report_truncated_logs(self, path: str, *logs: LogFile) -> None:
        for problem in {str(log.write_error) for log in logs if log.write_error}:
            self._emit_notice(f'the log of step "{path}" is cut short: {problem}')

    def _emit_notice(self, text: str) -> None:
        self._journal.emit(kinds.NOTICE, stage="steps", text=self._redactor.redact_text(text))


def _split_arguments(command: str, scope: Scope) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        detail = f'the arguments of step "{scope.path}" cannot be told apart: {error} in {command!r}'
        raise StepError("step_failed", detail, _STATUS_NOT_FOUND) from None


def _find_free_port() -> int:
    """For a server that listens only once torch is imported: none that the kernel gives to connections meanwhile."""
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
