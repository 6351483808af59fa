"""Plan the steps of a job: fill in defaults and insert modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.formatting import pluralize
from packtrain.pixi_workspace.errors import PixiError
from packtrain.planner.containers import plan_container
from packtrain.planner.pixi_planner import WORKSPACE_FOLDER
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import DiagnosticReport, KeyPath, did_you_mean, format_key_path
from packtrain.spec.models import steps
from packtrain.spec.models.field_types import check_relative_path
from packtrain.spec.models.workflow import WorkflowModule

_SIGTERM = 15
_MAX_MODULE_DEPTH = 8


@dataclass
class _ModuleChildren:
    """The child steps that a user passes to a module, inserted at the module's marker."""

    steps: tuple[plan.Step, ...]
    is_inserted: bool = field(default=False)


def _iter_runs(planned_steps: Sequence[plan.Step]) -> Iterator[plan.RunAction]:
    """Yield all commands of the steps, at any depth."""
    for step in planned_steps:
        if isinstance(step.action, plan.RunAction):
            yield step.action
        else:
            yield from _iter_runs(step.action.steps)
        yield from _iter_runs((*step.catch, *step.finally_))


class StepPlanner:
    """Plans the steps of one file: the workflow, or a module that it uses."""

    def __init__(self, context: JobContext, children: _ModuleChildren | None = None, depth: int = 0) -> None:
        self._context = context
        self._children = children
        self._depth = depth

    def plan_steps(self, specs: Sequence[steps.Step]) -> tuple[plan.Step, ...]:
        """Plan the steps of a job."""
        planned = self.plan_level(specs, ("steps",))
        self._check_gpus_requested(list(_iter_runs(planned)))
        return planned

    def _check_gpus_requested(self, runs: Sequence[plan.RunAction]) -> None:
        """Warn if no step requests GPUs: Apptainer exposes GPUs only on request, so the training would use the CPU."""
        gpus = self._context.resources.gpus
        has_container = self._context.has_container or any(run.container for run in runs)
        are_requested = any(run.resources.gpus_per_task for run in runs)
        if gpus and has_container and not are_requested and not self._context.plan_context.no_container:
            message = f"the job has {pluralize(gpus, 'GPU')}, but no step requests any, so containers cannot use them"
            self._context.report.warning(
                ("resources", "gpus"), message, "set `resources: {gpusPerTask: 1}` in the step"
            )

    def plan_level(self, specs: Sequence[steps.Step], key_path: KeyPath) -> tuple[plan.Step, ...]:
        """Plan the steps of one level."""
        planned: list[plan.Step] = []
        for position, step in enumerate(specs):
            if self._children and step.name == steps.CHILDREN_MARKER:
                self._children.is_inserted = True
                planned += self._children.steps
            else:
                planned.append(self._plan_step(step, position, (*key_path, position)))
        return tuple(planned)

    def _plan_step(self, spec: steps.Step, position: int, key_path: KeyPath) -> plan.Step:
        kind, action = self._plan_action(spec, key_path)
        return plan.Step(
            name=spec.name or f"{kind}-{position + 1}",
            action=action,
            depends_on=tuple(name.lower() for name in spec.depends_on),
            condition=self._context.fill_command(spec.if_ or ""),
            catch=self.plan_level(spec.catch, (*key_path, "catch")),
            finally_=self.plan_level(spec.finally_, (*key_path, "finally")),
        )

    def _plan_action(
        self, spec: steps.Step, key_path: KeyPath
    ) -> tuple[str, plan.RunAction | plan.GroupAction | plan.ForAction | plan.LaunchAction | plan.UseAction]:
        if spec.run and spec.run.task is not None:
            return self._plan_task(spec.run, spec.run.task, spec.resources, (*key_path, "run"))
        if spec.run:
            return "run", self._plan_run(spec.run, spec.resources, (*key_path, "run"))
        if spec.for_:
            return "for", self._plan_for(spec.for_, (*key_path, "for"))
        if spec.launch:
            return "launch", self._plan_launch(spec.launch, (*key_path, "launch"))
        if spec.use:
            return "use", self._plan_use(spec, spec.use, (*key_path, "use"))
        return "steps", plan.GroupAction(self.plan_level(spec.steps or (), (*key_path, "steps")))

    def _plan_run(
        self, spec: steps.RunAction, step_resources: steps.StepResources | None, key_path: KeyPath
    ) -> plan.RunAction:
        self._check_host_run(spec, key_path)
        work_dir = spec.work_dir or self._default_work_dir(spec)
        if spec.collect and not self._has_own_work_dir(spec, work_dir):
            collect_path = (*key_path, "collect")
            message = f"{format_key_path(collect_path)} needs a workDir of its own that exists outside of the container"
            self._context.report.error(collect_path, message, "set `workDir: work`")
        return plan.RunAction(
            command=self._context.fill_command(spec.command),
            shell=spec.shell,
            resources=self._plan_resources(spec.resources, step_resources, key_path),
            container=plan_container(spec.container, (*key_path, "container"), self._context),
            env=self.plan_env(spec.env, (*key_path, "env")),
            work_dir=work_dir,
            stdout=self._fill_log_path(spec.stdout, (*key_path, "stdout")),
            stderr=self._fill_log_path(spec.stderr, (*key_path, "stderr")),
            append_logs=spec.append_logs,
            stop_signal=spec.stop_signal or "",
            collect=tuple(
                self._plan_collected_output(output, (*key_path, "collect", i)) for i, output in enumerate(spec.collect)
            ),
        )

    def _default_work_dir(self, spec: steps.RunAction) -> str:
        """Return the folder of a command that names none: the Pixi workspace, or "" for the sandbox."""
        return WORKSPACE_FOLDER if self._context.pixi and spec.container is None else ""

    def _plan_task(
        self, spec: steps.RunAction, task: str, step_resources: steps.StepResources | None, key_path: KeyPath
    ) -> tuple[str, plan.RunAction | plan.GroupAction]:
        """Plan a Pixi task: one command, or a group of it and the tasks that it depends on."""
        action = self._plan_run(spec, step_resources, key_path)
        name = self._context.fill_placeholders(task)
        args = [self._context.fill_placeholders(arg) for arg in spec.args]
        commands: tuple[plan.PixiCommand, ...] = ()
        if self._context.pixi:
            try:
                commands = self._context.pixi.tasks.render(name, args)
            except PixiError as error:
                for problem in error.problems:
                    self._context.report.error((*key_path, "task"), problem.message, problem.hint)
        elif self._context.workflow.environment.pixi is None:
            message = f"the task {name!r} needs a Pixi environment"
            self._context.report.error((*key_path, "task"), message, "add `environment: {pixi: {manifest: pixi.toml}}`")
        actions = [self._plan_task_command(action, spec, command) for command in commands]
        if len(actions) == 1:
            return "run", actions[0]
        # Outputs of the tasks before the last one are not those of the step.
        actions = [*(replace(one, stdout="", stderr="", collect=()) for one in actions[:-1]), *actions[-1:]]
        return "steps", plan.GroupAction(
            tuple(plan.Step(f"{name}-{number}", one) for number, one in enumerate(actions, 1))
        )

    @staticmethod
    def _plan_task_command(action: plan.RunAction, spec: steps.RunAction, command: plan.PixiCommand) -> plan.RunAction:
        work_dir = spec.work_dir or str(PurePosixPath(WORKSPACE_FOLDER, command.work_dir))
        return replace(action, command=command.command, env=(*command.env, *action.env), work_dir=work_dir)

    def _has_own_work_dir(self, spec: steps.RunAction, work_dir: str) -> bool:
        is_absolute = work_dir.startswith("/")
        return bool(work_dir) and not (is_absolute and self._is_in_container(spec))

    def _is_in_container(self, spec: steps.RunAction) -> bool:
        return bool(spec.container or self._context.has_container) and not self._context.plan_context.no_container

    def _fill_log_path(self, path: str | None, key_path: KeyPath) -> str:
        is_absolute = (path or "").startswith("/")
        return self._context.fill_placeholders(path or "") if is_absolute else self._fill_relative_path(path, key_path)

    def _plan_collected_output(self, spec: steps.CollectedOutput, key_path: KeyPath) -> plan.CollectedOutput:
        return plan.CollectedOutput(
            self._fill_relative_path(spec.path, (*key_path, "path")),
            self._fill_relative_path(spec.to, (*key_path, "to")),
        )

    def _fill_relative_path(self, path: str | None, key_path: KeyPath) -> str:
        """Fill placeholders and check that the path stays below its folder."""
        filled = self._context.fill_placeholders(path or "")
        try:
            return check_relative_path(filled) if path else ""
        except ValueError as error:
            self._context.report.error(
                key_path, f"{format_key_path(key_path)} of job {self._context.template_values['job']}: {error}"
            )
            return filled

    def _check_host_run(self, spec: steps.RunAction, key_path: KeyPath) -> None:
        """Report what a command cannot do without its container."""
        no_container = self._context.plan_context.no_container
        if spec.container and no_container and spec.work_dir:
            work_dir_path = (*key_path, "workDir")
            message = f"{format_key_path(work_dir_path)} {spec.work_dir} may not exist without the container"
            self._context.report.warning(work_dir_path, message)
        has_command = bool(spec.command.strip()) or spec.task is not None
        if not self._is_in_container(spec) and (not has_command or spec.shell == "ENTRYPOINT"):
            message = f"{format_key_path(key_path)} uses the image's entrypoint, but the step runs without a container"
            self._context.report.error((*key_path, "command"), message, "give a command")

    def _plan_resources(
        self, run_resources: steps.StepResources | None, step_resources: steps.StepResources | None, key_path: KeyPath
    ) -> plan.StepResources:
        job = self._context.resources
        values = {
            key: value
            for part in (step_resources, run_resources)
            if part
            for key, value in part.model_dump(exclude_none=True).items()
        }
        resources = plan.StepResources(
            tasks=values.get("tasks", 1),
            cpus_per_task=values.get("cpus_per_task", job.cpus_per_task),
            mem_per_cpu_mb=values.get("mem_per_cpu", job.mem_per_cpu_mb),
            gpus_per_task=0 if self._context.plan_context.no_gpu else values.get("gpus_per_task", 0),
        )
        self._check_fits_job(resources, key_path)
        return resources

    def _check_fits_job(self, resources: plan.StepResources, key_path: KeyPath) -> None:
        """Report steps that request more than their job."""
        job = self._context.resources
        requests = {
            "GPU": (resources.tasks * resources.gpus_per_task, job.gpus),
            "CPU": (resources.tasks * resources.cpus_per_task, job.cpus),
        }
        for unit, (requested, available) in requests.items():
            if requested > available:
                message = (
                    f"{format_key_path(key_path)} requests {pluralize(requested, unit)}, but the job has {available}"
                )
                self._context.report.error((*key_path, "resources"), message, "see `resources` at the top")

    def plan_env(self, specs: Sequence[steps.EnvVar], key_path: KeyPath) -> tuple[plan.EnvVar, ...]:
        return tuple(
            plan.EnvVar(
                variable.key, self._context.register_secret(variable.value, (*key_path, i, "value"), confidential=False)
            )
            for i, variable in enumerate(specs)
        )

    def _plan_for(self, spec: steps.ForAction, key_path: KeyPath) -> plan.ForAction:
        nested = self.plan_level(spec.steps, (*key_path, "steps"))
        if spec.range is None:
            return plan.ForAction(
                "item", tuple(map(self._context.fill_placeholders, spec.items or ())), spec.parallel, nested
            )
        return plan.ForAction("index", tuple(map(str, spec.range.to_range())), spec.parallel, nested)

    def _plan_launch(self, spec: steps.LaunchAction, key_path: KeyPath) -> plan.LaunchAction:
        signal = spec.signal_on_parent_step_exit
        nested = self.plan_level(spec.steps, (*key_path, "steps"))
        return plan.LaunchAction((spec.handle_name or "").lower(), _SIGTERM if signal is None else signal, nested)

    def _plan_use(self, step: steps.Step, spec: steps.UseAction, key_path: KeyPath) -> plan.UseAction:
        children = _ModuleChildren(self.plan_level(spec.steps, (*key_path, "steps")))
        args = self.plan_env(spec.args, (*key_path, "args"))
        fallback = plan.UseAction(spec.source, args, spec.export_env_as or "", children.steps)
        if self._depth >= _MAX_MODULE_DEPTH:
            self._context.report.error(key_path, f"modules are nested more than {_MAX_MODULE_DEPTH} levels deep")
            return fallback
        try:
            modules = self._context.plan_context.modules
            resolved = modules.resolve(spec.source, self._context.base_dir, self._context.workflow, step)
        except UsageError as error:
            self._context.report.error((*key_path, "source"), str(error))
            return fallback
        self._context.report.extend(resolved.diagnostics)
        if resolved.default_commit:
            message = (
                f"the module {spec.source} names no version, so it may change; now it is {resolved.default_commit}"
            )
            self._context.report.warning((*key_path, "source"), message, "append @TAG or @COMMIT")
        if resolved.module is None:
            return fallback
        self._check_minimum_resources(resolved.module, spec.source, key_path)
        report = DiagnosticReport(resolved.module.source_map)
        inner = StepPlanner(self._context.for_module(report, resolved.folder), children, self._depth + 1)
        nested = inner.plan_level(resolved.module.steps, ("steps",))
        self._context.report.extend(report.diagnostics)
        return plan.UseAction(
            source=spec.source,
            args=self._plan_arguments(resolved.module, args, key_path),
            export_prefix=spec.export_env_as or "",
            steps=nested if children.is_inserted else nested + children.steps,
            outputs=tuple(output.key for output in resolved.module.outputs),
        )

    def _check_minimum_resources(self, module: WorkflowModule, source: str, key_path: KeyPath) -> None:
        """Report a job that has less than the module needs, which DeepSquare refuses too."""
        minimum, job = module.minimum_resources, self._context.resources
        requirements = {
            "tasks": (minimum.tasks, job.tasks),
            "cpusPerTask": (minimum.cpus_per_task, job.cpus_per_task),
            "memPerCpu": (minimum.mem_per_cpu or 0, job.mem_per_cpu_mb),
            "gpus": (0 if self._context.plan_context.no_gpu else minimum.gpus, job.gpus),
        }
        for key, (needed, available) in requirements.items():
            if available < needed:
                message = f"the module {source} needs `{key}: {needed}`, but the job has {available}"
                self._context.report.error((*key_path, "source"), message, "see `resources` at the top")

    def _plan_arguments(
        self, module: WorkflowModule, user_args: tuple[plan.EnvVar, ...], key_path: KeyPath
    ) -> tuple[plan.EnvVar, ...]:
        """Return the user's arguments, then the defaults of the other inputs."""
        user_keys = {variable.key for variable in user_args}
        input_keys = {one.key for one in module.inputs}
        for key in sorted(user_keys - input_keys):
            message = f"the module {module.name!r} has no input {key!r}"
            self._context.report.error((*key_path, "args"), message, did_you_mean(key, input_keys))
        defaults = [one for one in module.inputs if one.key not in user_keys]
        for one in defaults:
            if one.default is None:
                description = f" ({one.description})" if one.description else ""
                message = f"the module {module.name!r} gets an empty {one.key}{description}: it has no default"
                self._context.report.warning(key_path, message, f"set it in `args` if the module needs {one.key}")
        return user_args + tuple(plan.EnvVar(one.key, one.default or "") for one in defaults)
