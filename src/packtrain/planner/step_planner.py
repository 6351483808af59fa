"""Steps of one job: every default filled in, modules put in place of `use`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.planner.containers import plan_container
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import DiagnosticReport, did_you_mean, format_key_path
from packtrain.spec.diagnostics import KeyPath as Keys
from packtrain.spec.models import steps
from packtrain.spec.models.field_types import check_relative_path
from packtrain.spec.models.workflow import WorkflowModule

_SIGTERM = 15
_MAX_MODULE_DEPTH = 8


@dataclass
class _ModuleChildren:
    """The steps that a user gives to a module; they are put in wherever the module marks it."""

    steps: tuple[plan.Step, ...]
    is_inserted: bool = field(default=False)


def _iter_runs(planned_steps: Sequence[plan.Step]) -> Iterator[plan.RunAction]:
    """All commands of the steps, wherever they stand."""
    for step in planned_steps:
        if isinstance(step.action, plan.RunAction):
            yield step.action
        else:
            yield from _iter_runs(step.action.steps)
        yield from _iter_runs((*step.catch, *step.finally_))


class StepPlanner:
    """Plans the steps of one file: the workflow's, or those of a module that it uses."""

    def __init__(self, context: JobContext, children: _ModuleChildren | None = None, depth: int = 0) -> None:
        self._context = context
        self._children = children
        self._depth = depth

    def plan_steps(self, specs: Sequence[steps.Step]) -> tuple[plan.Step, ...]:
        """The steps of a job."""
        made = self.plan_level(specs, ("steps",))
        self._check_gpus_requested(list(_iter_runs(made)))
        return made

    def _check_gpus_requested(self, runs: Sequence[plan.RunAction]) -> None:
        """Apptainer shows GPUs only to a command that takes some: without a word, a training would be on the CPU."""
        gpus, in_images = (
            self._context.resources.gpus,
            self._context.has_container or any(run.container for run in runs),
        )
        taken = any(run.resources.gpus_per_task for run in runs)
        if gpus and in_images and not taken and not self._context.plan_context.no_container:
            message = (
                f"the job has {gpus} GPU{'s' * (gpus > 1)}, but no step takes any, and in a container none is seen"
            )
            self._context.report.warning(
                ("resources", "gpus"), message, "say `resources: {gpusPerTask: 1}` at the step"
            )

    def plan_level(self, specs: Sequence[steps.Step], key_path: Keys) -> tuple[plan.Step, ...]:
        made: list[plan.Step] = []
        for position, step in enumerate(specs):
            if self._children and step.name == steps.CHILDREN_MARKER:
                self._children.is_inserted = True
                made += self._children.steps
            else:
                made.append(self._plan_step(step, position, (*key_path, position)))
        return tuple(made)

    def _plan_step(self, spec: steps.Step, position: int, key_path: Keys) -> plan.Step:
        kind, action = self._plan_action(spec, key_path)
        return plan.Step(
            name=spec.name or f"{kind}-{position + 1}",
            action=action,
            depends_on=spec.depends_on,
            condition=self._context.fill_command(spec.if_ or ""),
            catch=self.plan_level(spec.catch, (*key_path, "catch")),
            finally_=self.plan_level(spec.finally_, (*key_path, "finally")),
        )

    def _plan_action(
        self, spec: steps.Step, key_path: Keys
    ) -> tuple[str, plan.RunAction | plan.GroupAction | plan.ForAction | plan.LaunchAction | plan.UseAction]:
        if spec.run:
            return "run", self._plan_run(spec.run, spec.resources, (*key_path, "run"))
        if spec.for_:
            return "for", self._plan_for(spec.for_, (*key_path, "for"))
        if spec.launch:
            return "launch", self._plan_launch(spec.launch, (*key_path, "launch"))
        if spec.use:
            return "use", self._plan_use(spec.use, (*key_path, "use"))
        return "steps", plan.GroupAction(self.plan_level(spec.steps or (), (*key_path, "steps")))

    def _plan_run(
        self, spec: steps.RunAction, step_resources: steps.StepResources | None, key_path: Keys
    ) -> plan.RunAction:
        self._check_host_run(spec, key_path)
        if spec.collect and (spec.work_dir or "/").startswith("/"):
            message = f"{format_key_path((*key_path, 'collect'))} needs a workDir below $STORAGE_PATH, where only the command writes"
            self._context.report.error((*key_path, "collect"), message, "say `workDir: work`")
        return plan.RunAction(
            command=self._context.fill_command(spec.command),
            shell=spec.shell,
            resources=self._plan_resources(spec.resources, step_resources, key_path),
            container=plan_container(spec.container, (*key_path, "container"), self._context),
            env=self.plan_env(spec.env, (*key_path, "env")),
            work_dir=spec.work_dir or "",
            stdout=self._fill_relative_path(spec.stdout, (*key_path, "stdout")),
            stderr=self._fill_relative_path(spec.stderr, (*key_path, "stderr")),
            collect=tuple(
                self._plan_collected_output(wanted, (*key_path, "collect", i)) for i, wanted in enumerate(spec.collect)
            ),
        )

    def _plan_collected_output(self, spec: steps.CollectedOutput, key_path: Keys) -> plan.CollectedOutput:
        return plan.CollectedOutput(
            self._fill_relative_path(spec.path, (*key_path, "path")),
            self._fill_relative_path(spec.to, (*key_path, "to")),
        )

    def _fill_relative_path(self, path: str | None, key_path: Keys) -> str:
        """A value of the matrix must not lead out of the folder either."""
        filled = self._context.fill_placeholders(path or "")
        try:
            return check_relative_path(filled) if path else ""
        except ValueError as error:
            self._context.report.error(
                key_path, f"{format_key_path(key_path)} of job {self._context.template_values['job']}: {error}"
            )
            return filled

    def _check_host_run(self, spec: steps.RunAction, key_path: Keys) -> None:
        """What a command without its container cannot do."""
        bare = self._context.plan_context.no_container
        if spec.container and bare and spec.work_dir:
            message = f"without its container the command may not find {format_key_path((*key_path, 'workDir'))} {spec.work_dir}"
            self._context.report.warning((*key_path, "workDir"), message)
        inside = (spec.container or self._context.has_container) and not bare
        if not inside and (not spec.command.strip() or spec.shell == "ENTRYPOINT"):
            message = f"{format_key_path(key_path)} means the image's entrypoint, but the step runs without a container"
            self._context.report.error((*key_path, "command"), message, "give a command")

    def _plan_resources(
        self, run_resources: steps.StepResources | None, step_resources: steps.StepResources | None, key_path: Keys
    ) -> plan.StepResources:
        job = self._context.resources
        given = {
            key: value
            for part in (step_resources, run_resources)
            if part
            for key, value in part.model_dump(exclude_none=True).items()
        }
        made = plan.StepResources(
            tasks=given.get("tasks", 1),
            cpus_per_task=given.get("cpus_per_task", job.cpus_per_task),
            mem_per_cpu_mb=given.get("mem_per_cpu", job.mem_per_cpu_mb),
            gpus_per_task=0 if self._context.plan_context.no_gpu else given.get("gpus_per_task", 0),
        )
        self._check_fits_job(made, key_path)
        return made

    def _check_fits_job(self, resources: plan.StepResources, key_path: Keys) -> None:
        """A step lives within what its job was given."""
        job = self._context.resources
        asked = {
            "GPUs": (resources.tasks * resources.gpus_per_task, job.gpus),
            "CPUs": (resources.tasks * resources.cpus_per_task, job.cpus),
        }
        for what, (wanted, given) in asked.items():
            if wanted > given:
                message = f"{format_key_path(key_path)} takes {wanted} {what}, but the whole job has {given}"
                self._context.report.error((*key_path, "resources"), message, "see `resources` at the top")

    def plan_env(self, specs: Sequence[steps.EnvVar], key_path: Keys) -> tuple[plan.EnvVar, ...]:
        return tuple(
            plan.EnvVar(
                variable.key, self._context.register_secret(variable.value, (*key_path, i, "value"), confidential=False)
            )
            for i, variable in enumerate(specs)
        )

    def _plan_for(self, spec: steps.ForAction, key_path: Keys) -> plan.ForAction:
        below = self.plan_level(spec.steps, (*key_path, "steps"))
        if spec.range is None:
            return plan.ForAction(
                "item", tuple(map(self._context.fill_placeholders, spec.items or ())), spec.parallel, below
            )
        return plan.ForAction("index", tuple(map(str, spec.range.to_range())), spec.parallel, below)

    def _plan_launch(self, spec: steps.LaunchAction, key_path: Keys) -> plan.LaunchAction:
        signal = spec.signal_on_parent_step_exit
        below = self.plan_level(spec.steps, (*key_path, "steps"))
        return plan.LaunchAction(spec.handle_name or "", _SIGTERM if signal is None else signal, below)

    def _plan_use(self, spec: steps.UseAction, key_path: Keys) -> plan.UseAction:
        children = _ModuleChildren(self.plan_level(spec.steps, (*key_path, "steps")))
        args = self.plan_env(spec.args, (*key_path, "args"))
        nothing = plan.UseAction(spec.source, args, spec.export_env_as or "", children.steps)
        if self._depth >= _MAX_MODULE_DEPTH:
            self._context.report.error(key_path, f"modules use modules more than {_MAX_MODULE_DEPTH} deep")
            return nothing
        try:
            found = self._context.plan_context.modules.resolve(spec.source, self._context.base_dir)
        except UsageError as error:
            self._context.report.error((*key_path, "source"), str(error))
            return nothing
        self._context.report.extend(found.diagnostics)
        if found.module is None:
            return nothing
        report = DiagnosticReport(found.module.source_map)
        inner = StepPlanner(self._context.for_module(report, found.folder), children, self._depth + 1)
        below = inner.plan_level(found.module.steps, ("steps",))
        self._context.report.extend(report.diagnostics)
        return plan.UseAction(
            source=spec.source,
            args=self._plan_arguments(found.module, args, key_path),
            export_prefix=spec.export_env_as or "",
            steps=below if children.is_inserted else below + children.steps,
            outputs=tuple(output.key for output in found.module.outputs),
        )

    def _plan_arguments(
        self, module: WorkflowModule, user_args: tuple[plan.EnvVar, ...], key_path: Keys
    ) -> tuple[plan.EnvVar, ...]:
        """What the user gave, then the defaults of the rest."""
        named = {variable.key for variable in user_args}
        known = {wanted.key for wanted in module.inputs}
        for key in sorted(named - known):
            message = f"the module {module.name!r} has no input {key!r}"
            self._context.report.error((*key_path, "args"), message, did_you_mean(key, known))
        rest = [wanted for wanted in module.inputs if wanted.key not in named]
        for wanted in rest:
            if wanted.default is None:
                about = f" ({wanted.description})" if wanted.description else ""
                self._context.report.error(
                    key_path, f"the module {module.name!r} needs the argument {wanted.key!r}{about}"
                )
        return user_args + tuple(plan.EnvVar(wanted.key, wanted.default or "") for wanted in rest)
