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

from packtrain.agent.environments import Command, Environment
from packtrain.agent.environments.host import Host
from packtrain.agent.outputs.collect import collecting, keep_words
from packtrain.agent.parallel import run_together
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps import conditions
from packtrain.agent.steps.error_patterns import kind_of
from packtrain.agent.steps.exit_status import LeftError, StepError, describe, status
from packtrain.agent.steps.logs import Capture, LogFile, LogNames
from packtrain.agent.steps.oom import oom_kills
from packtrain.agent.steps.processes import EndedError, Family, Processes, Program
from packtrain.agent.steps.scope import Scope
from packtrain.agent.steps.variables import Variables, task_variables
from packtrain.agent.stop_request import Stop
from packtrain.errors import EXIT_CONTINUE_HERE, FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import Job, Run, RunResources, Text

_NOT_STARTED = 127  # a shell's status of a command that is not found
_ENDED = 143  # and of one that TERM ended


class CommandRunner:
    def __init__(
        self,
        job: Job,
        box: Sandbox,
        journal: Journal,
        redactor: Redactor,
        reveal: Callable[[Text], str],
        stop: Stop,
        variables: Variables,
        processes: Processes,
        agent: Path | None,
        in_container: bool = False,
        shown: Sequence[Path] = (),
    ) -> None:
        self._job, self._box, self._journal, self._redactor = job, box, journal, redactor
        self._reveal, self._stop, self._variables, self._processes = reveal, stop, variables, processes
        self._agent, self._in_container, self._shown = agent, in_container, shown
        self._names = LogNames()

    def run(self, action: Run, scope: Scope) -> None:
        """Raises StepError, or the stop's FailedError."""
        environment = self._environment(action)
        work = self._work_dir(action)
        with self._recorded(action, scope), collecting(action, work, self._box.output):
            tasks = action.resources.tasks
            if tasks == 1:
                self._run_one(action, scope, environment, {}, scope.path)
            else:
                self._run_tasks(action, scope, environment, tasks)

    def holds(self, condition: str, scope: Scope, action: Run | None) -> bool:
        """Evaluate an `if` in the environment that the step would have. Raises StepError: condition_invalid."""
        variables = self._variables.of_scope(scope, action.resources if action else self._resources(), {})
        variables.update(self._variables.of_step(action.env) if action else {})
        argv = conditions.argv(condition, variables)
        if argv is None:
            raise self._invalid(condition, scope, "there is no bash on this machine to evaluate it", _NOT_STARTED)
        out, err = Capture(self._redactor), Capture(self._redactor)
        code = self._finish(Program(argv, variables, self._box.root), scope, out, err)
        if code not in (conditions.HOLDS, conditions.FAILS):
            raise self._invalid(condition, scope, err.last_words() or describe(code), status(code))
        if code == conditions.FAILS:
            said = f" (bash said: {err.last_words()})" if err.last_words() else ""
            self._notice(f'step "{scope.path}" is skipped: its condition [[ {condition} ]] does not hold{said}')
        return code == conditions.HOLDS

    def _invalid(self, condition: str, scope: Scope, seen: str, code: int) -> StepError:
        return StepError(
            "condition_invalid", f'step "{scope.path}" has the condition [[ {condition} ]], but: {seen}', code
        )

    def _resources(self) -> RunResources:
        """Of steps that run nothing themselves: the job's."""
        job = self._job.resources
        return RunResources(job.tasks, job.cpus_per_task, job.mem_per_cpu_mb, job.gpus // job.tasks)

    def _environment(self, action: Run) -> Environment:
        container = action.container or self._job.environment.container
        if container is None or self._in_container:
            return Host()
        from packtrain.agent.environments.apptainer import Apptainer

        gpus = action.resources.tasks * action.resources.gpus_per_task
        return Apptainer(container, self._box, gpus, self._agent, self._reveal, self._shown)

    @contextlib.contextmanager
    def _recorded(self, action: Run, scope: Scope) -> Iterator[None]:
        self._stop.check()
        self._journal.emit(kinds.STEP_STARTED, step=scope.path, command=self._redactor.text(action.command))
        started, code = time.monotonic(), 0
        try:
            yield
        except FailedError as error:
            code = error.status if isinstance(error, StepError) else _ENDED
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            self._journal.emit(kinds.STEP_ENDED, step=scope.path, exit_code=code, seconds=seconds)

    def _run_tasks(self, action: Run, scope: Scope, environment: Environment, tasks: int) -> None:
        """So many copies at once; the failure of one ends the others."""
        family, port = Family(scope.family), _free_port()
        inner = scope.in_family(family)

        def copy(task: int) -> Callable[[], None]:
            variables = task_variables(task, tasks, port)
            return lambda: self._run_one(action, inner, environment, variables, f"{scope.path}/{task}")

        run_together([copy(task) for task in range(tasks)], lambda: self._processes.end(family))

    def _run_one(self, action: Run, scope: Scope, environment: Environment, task: Mapping[str, str], path: str) -> None:
        program = self._wrapped(environment, self._command(action, scope, task), path)
        name = self._names.of(path)
        out, err = (LogFile(self._redactor, self._box.home.logs / f"{name}.{kind}") for kind in ("out", "err"))
        kills = oom_kills()
        code = self._finish(program, scope, out, err)
        self._tell_lost_logs(path, out, err)
        keep_words(action, (out.path, err.path), self._box.output, task.get("PACKTRAIN_TASK", ""))
        if code:
            raise self._judge(code, path, environment, err.last_words(), oom_kills() > kills)

    def _work_dir(self, action: Run) -> Path:
        """A folder of the sandbox is made if no input has made it."""
        folder = self._box.root / action.work_dir
        if not Path(action.work_dir).is_absolute():
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _wrapped(self, environment: Environment, command: Command, path: str) -> Program:
        try:
            return environment.wrap(command)
        except FailedError as error:
            raise StepError(error.kind, f'step "{path}" was not started: {error}', _NOT_STARTED) from None

    def _command(self, action: Run, scope: Scope, task: Mapping[str, str]) -> Command:
        # A step with a container of its own says itself what surrounds it.
        around = self._job.environment if action.container is None else None
        entrypoint = action.shell == "ENTRYPOINT" or not action.command.strip()
        lines = "\n".join(filter(None, (around.setup if around else "", action.command)))
        return Command(
            _arguments(action.command, scope) if entrypoint else (action.shell, "-c", lines),
            self._work_dir(action),
            self._variables.of_scope(scope, action.resources, task),
            self._variables.of_step(action.env),
            around.path if around else (),
            entrypoint,
        )

    def _finish(self, program: Program, scope: Scope, out: Capture, err: Capture) -> int:
        try:
            child = self._processes.start(program, out, err, scope.family)
        except EndedError:
            self._stop.check()  # else a launch was ended by its level
            raise StepError(
                "step_failed", f'step "{scope.path}" was not started: its level had ended', _ENDED
            ) from None
        except (OSError, ValueError) as error:  # no such shell or folder; a variable with a zero byte
            raise StepError("step_failed", f'step "{scope.path}" could not be started: {error}', _NOT_STARTED) from None
        return child.wait()

    def _judge(self, code: int, path: str, environment: Environment, last_words: str, out_of_memory: bool) -> StepError:
        complaint = environment.complaint(code, last_words)
        if complaint:
            return StepError("container_failed", f'the container of step "{path}" did not start: {complaint}', code)
        said = f"; its last words: {last_words}" if last_words else "; it said nothing on stderr"
        if out_of_memory:
            return StepError("out_of_memory", f'step "{path}" was killed for using too much memory{said}', status(code))
        detail = f'step "{path}" {describe(code)}{said}'
        if code == EXIT_CONTINUE_HERE and self._job.checkpoint is not None:
            return LeftError("step_failed", detail, status(code))
        return StepError(kind_of(code, last_words), detail, status(code))

    def _tell_lost_logs(self, path: str, *logs: LogFile) -> None:
        for problem in {str(log.problem) for log in logs if log.problem}:
            self._notice(f'the log of step "{path}" is cut short: {problem}')

    def _notice(self, text: str) -> None:
        self._journal.emit(kinds.NOTICE, stage="steps", text=self._redactor.text(text))


def _arguments(command: str, scope: Scope) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        detail = f'the arguments of step "{scope.path}" cannot be told apart: {error} in {command!r}'
        raise StepError("step_failed", detail, _NOT_STARTED) from None


def _free_port() -> int:
    """For a server that listens only once torch is imported: none that the kernel gives to connections meanwhile."""
    for _ in range(100):
        port = random.randrange(10_000, _first_for_connections())  # noqa: S311 (no secret)
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("", port))
            return port
    with socket.socket() as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


def _first_for_connections() -> int:
    try:
        return max(int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]), 10_100)
    except (OSError, ValueError):
        return 32_768
