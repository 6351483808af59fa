"""Interprets a job's steps: what runs, in which order, and what follows from a failure.

`commands` runs a single `run`; here are the levels around it: groups, loops, launches, modules,
`dependsOn`, `if`, `catch` and `finally`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable

import packtrain
from packtrain.agent.parallel import run_together
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.background import Launched, Level
from packtrain.agent.steps.command import CommandRunner
from packtrain.agent.steps.exit_status import LeftError, StepError
from packtrain.agent.steps.processes import Family, Processes
from packtrain.agent.steps.scope import Scope, step_names
from packtrain.agent.steps.variables import Variables
from packtrain.agent.stop_request import Stop
from packtrain.errors import FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import For, Group, Job, Launch, Run, Step, Text, Use

_GLANCE_S = 0.1  # how often the watcher looks whether the steps are over


class StepRunner:
    def __init__(
        self,
        job: Job,
        box: Sandbox,
        journal: Journal,
        redactor: Redactor,
        reveal: Callable[[Text], str],
        stop: Stop,
        host_env: Mapping[str, str],
        run: str,
        processes: Processes,
        more: Mapping[str, str] = MappingProxyType({}),
        in_container: bool = False,
        shown: Sequence[Path] = (),
    ) -> None:
        """`more` are variables of this attempt, for all steps; `shown` are folders for them outside of the sandbox."""
        self._job, self._box, self._journal, self._stop, self._processes = job, box, journal, stop, processes
        agent = agent_zip()
        self._variables = Variables(job, box, run, host_env, agent, reveal, self._notice, more)
        self._commands = CommandRunner(
            job, box, journal, redactor, reveal, stop, self._variables, processes, agent, in_container, shown
        )
        self._actions: dict[type, Callable[[Any, Scope, Level], None]] = {
            Run: lambda action, scope, level: self._commands.run(action, scope),
            Group: lambda action, scope, level: self._level(action.steps, scope),
            For: self._for,
            Launch: self._launch,
            Use: self._use,
        }

    def run_all(self) -> None:
        """Raises FailedError: the first step's that failed, or the stop's. Steps that were asked to leave and all ended
        with 0 have come to their end only if the outputs show it: programs leave with any status."""
        with self._stopping():
            try:
                self._level(self._job.steps, Scope.top(self._box.env_file, self._processes.root))
            except FailedError:
                self._stop.check()  # what it ended did not fail by itself
                raise
            if not self._came_to_the_end():
                self._stop.check()

    def _came_to_the_end(self) -> bool:
        """Though they were asked to leave."""
        if not self._stop.gentle:
            return False
        from packtrain.agent.outputs.inventory import shows_the_end

        return shows_the_end(self._job, self._box.output)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """While steps run, a requested stop ends their processes at once."""
        over = threading.Event()

        def watch() -> None:
            while not over.is_set() and not self._stop.wait(_GLANCE_S):
                pass
            if self._stop.requested:
                self._ask_to_leave()
                self._processes.terminate_all()

        watcher = threading.Thread(target=watch, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _level(self, steps: Sequence[Step], scope: Scope) -> None:
        level = Level(self._processes)
        try:
            for step, name in zip(steps, step_names(steps)):
                self._step(step, scope.below(name), level)
        finally:
            level.end()

    def _ask_to_leave(self) -> None:
        """A file besides the signal: a container or a wrapper may keep signals from the program."""
        with suppress(OSError):
            word = "wall_time" if self._stop.kind == "wall_time" else "term"
            temporary = self._box.stop_file.with_suffix(".new")
            temporary.write_text(word + "\n", encoding="ascii")
            temporary.replace(self._box.stop_file)

    def _step(self, step: Step, scope: Scope, level: Level) -> None:
        error: FailedError | None = None
        try:
            if not self._due(step, scope, level):
                return
            self._actions[type(step.action)](step.action, scope, level)
        except FailedError as failed:
            error = failed
        if isinstance(error, StepError):
            error = self._caught(step, scope, error)
        self._finally(step, scope, error)

    def _due(self, step: Step, scope: Scope, level: Level) -> bool:
        self._stop.check()
        for handle in step.depends_on:
            level.await_handle(handle, scope.path)
        if not step.condition:
            return True
        action = step.action if isinstance(step.action, Run) else None
        return self._commands.holds(step.condition, scope, action)

    def _caught(self, step: Step, scope: Scope, error: StepError) -> FailedError | None:
        """What is left of the error after the step's `catch`."""
        if not step.catch or self._leaving(scope) or isinstance(error, LeftError):
            return error
        inner = scope.below("catch").adding({"DEEPSQUARE_ERROR_CODE": str(error.status)})
        try:
            self._level(step.catch, inner)
        except FailedError as worse:
            self._notice(f'the catch of step "{scope.path}" failed too: {worse}')
            return error
        self._notice(f'the failure of step "{scope.path}" is handled by its catch: {error}')
        return None

    def _finally(self, step: Step, scope: Scope, error: FailedError | None) -> None:
        """Run the step's `finally`, then raise what went wrong first."""
        try:
            if not self._leaving(scope):
                self._level(step.finally_, scope.below("finally"))
            elif step.finally_:
                self._stop.check()  # without them the steps have not come to their end
        except FailedError as late:
            if error is None:
                raise
            self._notice(f'the finally of step "{scope.path}" failed too: {late}')
        if error is not None:
            raise error

    def _leaving(self, scope: Scope) -> bool:
        return self._stop.requested or scope.family.closed

    def _for(self, action: For, scope: Scope, level: Level) -> None:
        def body(number: int, value: str) -> Callable[[], None]:
            inner = scope.below(str(number)).adding({action.variable: value})
            return lambda: self._level(action.steps, inner)

        bodies = [body(number, value) for number, value in enumerate(action.values)]
        # One after the other, the first failure ends the loop.
        for together in [bodies] if action.parallel else [[one] for one in bodies]:
            run_together(together)

    def _launch(self, action: Launch, scope: Scope, level: Level) -> None:
        inner = scope.in_family(Family(scope.family))

        def body() -> None:
            try:
                self._level(action.steps, inner)
            except Exception as error:
                if not self._leaving(inner):
                    self._notice(f'the launched step "{scope.path}" failed: {error}')
                raise

        level.add(action.handle, Launched(action.signal_at_exit, inner.family, body))

    def _use(self, action: Use, scope: Scope, level: Level) -> None:
        private = self._box.env_file.with_name(f"{self._box.env_file.name}.{scope.path.replace('/', '.')}")
        private.touch()
        inner = scope.adding(self._variables.revealed(action.args)).with_env_file(private)
        self._level(action.steps, inner)
        self._export(action, scope, self._variables.read(private))

    def _export(self, action: Use, scope: Scope, found: Mapping[str, str]) -> None:
        """A module's outputs become lines of the DEEPSQUARE_ENV around it."""
        prefix = f"{action.export_prefix}_" if action.export_prefix else ""
        for name in action.outputs:
            if name not in found:
                self._notice(f'the module of step "{scope.path}" did not write its output {name} to DEEPSQUARE_ENV')
        lines = "".join(f"{prefix}{name}={found[name]}\n" for name in action.outputs if name in found)
        with open(scope.env_file, "ab") as file:
            file.write(b"\n")  # in case that a step left the last line open
            file.write(lines.encode("utf-8", "surrogateescape"))

    def _notice(self, text: str) -> None:
        self._journal.emit(kinds.NOTICE, stage="steps", text=text)


def agent_zip() -> Path | None:
    """The zip that this agent runs from; None if it runs from plain files."""
    path = Path(packtrain.__file__).parents[1]
    return path if path.is_file() else None
