"""Runs the levels of a job's steps: groups, loops, launches, modules, `dependsOn`, `if`, `catch` and `finally`.

`command` runs the command of a single `run`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable

from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.exit_status import CheckpointExit, StepError
from packtrain.agent.processes.process_table import ProcessTree
from packtrain.agent.steps.background import BackgroundSteps, StepLevel
from packtrain.agent.steps.command import CommandRunner
from packtrain.agent.steps.scope import Scope, unique_step_names
from packtrain.agent.steps.variables import StepVariables
from packtrain.errors import FailedError
from packtrain.fileutil import atomic_write
from packtrain.plan import ForAction, GroupAction, LaunchAction, RunAction, Step, UseAction
from packtrain.transfer.tasks.parallel import run_parallel

_POLL_INTERVAL_S = 0.1  # how often the watcher checks whether the steps have ended


class StepRunner:
    """Runs all steps of one job.

    Args:
        context: The execution.
        host_env: Variables of the agent's own environment.
        attempt_variables: Variables of this execution, for all steps.
        extra_mounts: Folders outside the sandbox that containers must mount.
    """

    def __init__(
        self,
        context: AttemptContext,
        host_env: Mapping[str, str],
        attempt_variables: Mapping[str, str] = MappingProxyType({}),
        extra_mounts: Sequence[Path] = (),
    ) -> None:
        self._context, self._stop, self._processes = context, context.stop, context.processes
        self._variables = StepVariables(context, host_env, attempt_variables)
        self._commands = CommandRunner(context, self._variables, extra_mounts)
        self._actions: dict[type, Callable[[Any, Scope, StepLevel], None]] = {
            RunAction: lambda action, scope, level: self._commands.run(action, scope),
            GroupAction: lambda action, scope, level: self._run_level(action.steps, scope),
            ForAction: self._run_for,
            LaunchAction: self._run_launch,
            UseAction: self._run_use,
        }

    def run_all(self) -> None:
        """Run all steps. Raises the FailedError of the first step that failed, or of the stop request.

        After a graceful request, steps that all exited with 0 count as finished only if the final outputs exist,
        because programs that checkpoint and exit may use any status.
        """
        with self._terminate_on_stop():
            try:
                self._run_level(
                    self._context.job.steps, Scope.root(self._context.sandbox.env_file, self._processes.root_tree)
                )
            except FailedError:
                self._stop.check()  # a step that the stop request ended did not fail by itself
                raise
            if not self._has_finished():
                self._stop.check()

    def _has_finished(self) -> bool:
        """Return whether the steps finished in spite of a graceful request to stop."""
        if not self._stop.graceful:
            return False
        from packtrain.agent.outputs.inventory import has_final_outputs

        return has_final_outputs(self._context.job, self._context.sandbox.output)

    @contextmanager
    def _terminate_on_stop(self) -> Iterator[None]:
        """Terminate all processes as soon as a stop is requested."""
        finished = threading.Event()

        def watch() -> None:
            while not finished.is_set() and not self._stop.wait(_POLL_INTERVAL_S):
                pass
            if self._stop.is_requested:
                self._write_stop_file()
                self._processes.terminate_all(is_announced=self._stop.graceful)

        watcher = threading.Thread(target=watch, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()

    def _run_level(self, steps: Sequence[Step], scope: Scope) -> None:
        level = StepLevel(self._processes)
        try:
            for step, name in zip(steps, unique_step_names(steps)):
                self._run_step(step, scope.child(name), level)
        finally:
            level.stop()

    def _write_stop_file(self) -> None:
        """Create the stop file. A container or wrapper may keep signals from the program, but not this file."""
        with suppress(OSError):
            reason = "wall_time" if self._stop.kind == "wall_time" else "term"
            atomic_write(self._context.sandbox.stop_file, reason + "\n")

    def _run_step(self, step: Step, scope: Scope, level: StepLevel) -> None:
        error: FailedError | None = None
        try:
            if not self._should_run(step, scope, level):
                return
            self._actions[type(step.action)](step.action, scope, level)
        except FailedError as failed:
            error = failed
        code = 0 if error is None else error.status if isinstance(error, StepError) else 1
        inner = scope.with_variables({"DEEPSQUARE_ERROR_CODE": str(code)})
        if isinstance(error, StepError):
            error = self._run_catch(step, inner, error)
        self._run_finally(step, inner, error)

    def _should_run(self, step: Step, scope: Scope, level: StepLevel) -> bool:
        self._stop.check()
        for handle in step.depends_on:
            level.wait_for_handle(handle, scope.path)
        if not step.condition:
            return True
        action = step.action if isinstance(step.action, RunAction) else None
        return self._commands.evaluate_condition(step.condition, scope, action)

    def _run_catch(self, step: Step, scope: Scope, error: StepError) -> FailedError | None:
        """Run the step's `catch`. Return None if it handled the error, or else the error."""
        if not step.catch or self._is_stopping(scope) or isinstance(error, CheckpointExit):
            return error
        try:
            self._run_level(step.catch, scope.child("catch"))
        except FailedError as catch_error:
            self._context.emit_notice("steps", f'the catch of step "{scope.path}" failed too: {catch_error}')
            return error
        self._context.emit_notice("steps", f'the catch of step "{scope.path}" handled its failure: {error}')
        return None

    def _run_finally(self, step: Step, scope: Scope, error: FailedError | None) -> None:
        """Run the step's `finally`, then raise the first error."""
        try:
            if not self._is_stopping(scope):
                self._run_level(step.finally_, scope.child("finally"))
            elif step.finally_:
                self._stop.check()  # the job has not finished without them
        except FailedError as finally_error:
            if error is None:
                raise
            self._context.emit_notice("steps", f'the finally of step "{scope.path}" failed too: {finally_error}')
        if error is not None:
            raise error

    def _is_stopping(self, scope: Scope) -> bool:
        return self._stop.is_requested or scope.process_tree.is_closed

    def _run_for(self, action: ForAction, scope: Scope, level: StepLevel) -> None:
        def make_body(number: int, value: str) -> Callable[[], None]:
            inner = scope.child(str(number)).with_variables({action.variable: value})
            return lambda: self._run_level(action.steps, inner)

        bodies = [make_body(number, value) for number, value in enumerate(action.values)]
        # In a sequential loop, the first failure ends the loop.
        for batch in [bodies] if action.parallel else [[body] for body in bodies]:
            run_parallel(batch)

    def _run_launch(self, action: LaunchAction, scope: Scope, level: StepLevel) -> None:
        inner = scope.in_process_tree(ProcessTree(scope.process_tree))

        def body() -> None:
            try:
                self._run_level(action.steps, inner)
            except Exception as error:
                if not self._is_stopping(inner):
                    self._context.emit_notice("steps", f'the launched step "{scope.path}" failed: {error}')
                raise

        level.add(action.handle, BackgroundSteps(action.signal_on_parent_exit, inner.process_tree, body))

    def _run_use(self, action: UseAction, scope: Scope, level: StepLevel) -> None:
        env_file = self._context.sandbox.env_file
        module_env_file = env_file.with_name(f"{env_file.name}.{scope.path.replace('/', '.')}")
        module_env_file.touch()
        inner = scope.with_variables(self._variables.resolve_env(action.args)).with_env_file(module_env_file)
        self._run_level(action.steps, inner)
        self._export_outputs(action, scope, self._variables.read_layer(module_env_file))

    def _export_outputs(self, action: UseAction, scope: Scope, variables: Mapping[str, str]) -> None:
        """Append the module's outputs to the DEEPSQUARE_ENV of the surrounding level."""
        prefix = f"{action.export_prefix}_" if action.export_prefix else ""
        for name in action.outputs:
            if name not in variables:
                self._context.emit_notice(
                    "steps", f'the module of step "{scope.path}" did not write its output {name} to DEEPSQUARE_ENV'
                )
        lines = "".join(f"{prefix}{name}={variables[name]}\n" for name in action.outputs if name in variables)
        with open(scope.env_file, "ab") as file:
            file.write(b"\n")  # a step may not have ended its last line
            file.write(lines.encode("utf-8", "surrogateescape"))
