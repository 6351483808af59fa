"""Steps of one job: every default filled in, modules put in place of `use`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.planner.containers import plan_container
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.diagnostics import Report, did_you_mean, shown
from packtrain.spec.models import steps
from packtrain.spec.models.field_types import inside
from packtrain.spec.models.workflow import Module

_SIGTERM = 15
_DEEPEST_MODULE = 8


@dataclass
class _Children:
    """The steps that a user gives to a module; they are put in wherever the module marks it."""

    steps: tuple[plan.Step, ...]
    placed: bool = field(default=False)


def _runs(given: Sequence[plan.Step]) -> Iterator[plan.Run]:
    """All commands of the steps, wherever they stand."""
    for step in given:
        if isinstance(step.action, plan.Run):
            yield step.action
        else:
            yield from _runs(step.action.steps)
        yield from _runs((*step.catch, *step.finally_))


class StepPlanner:
    """Plans the steps of one file: the workflow's, or those of a module that it uses."""

    def __init__(self, job: JobContext, children: _Children | None = None, depth: int = 0) -> None:
        self._job = job
        self._children = children
        self._depth = depth

    def all(self, given: Sequence[steps.Step]) -> tuple[plan.Step, ...]:
        """The steps of a job."""
        made = self.level(given, ("steps",))
        self._check_gpus_are_seen(list(_runs(made)))
        return made

    def _check_gpus_are_seen(self, runs: Sequence[plan.Run]) -> None:
        """Apptainer shows GPUs only to a command that takes some: without a word, a training would be on the CPU."""
        gpus, in_images = self._job.resources.gpus, self._job.has_container or any(run.container for run in runs)
        taken = any(run.resources.gpus_per_task for run in runs)
        if gpus and in_images and not taken and not self._job.setting.no_container:
            message = (
                f"the job has {gpus} GPU{'s' * (gpus > 1)}, but no step takes any, and in a container none is seen"
            )
            self._job.report.warning(("resources", "gpus"), message, "say `resources: {gpusPerTask: 1}` at the step")

    def level(self, given: Sequence[steps.Step], keys: Keys) -> tuple[plan.Step, ...]:
        made: list[plan.Step] = []
        for position, step in enumerate(given):
            if self._children and step.name == steps.CHILDREN:
                self._children.placed = True
                made += self._children.steps
            else:
                made.append(self._step(step, position, (*keys, position)))
        return tuple(made)

    def _step(self, step: steps.Step, position: int, keys: Keys) -> plan.Step:
        kind, action = self._action(step, keys)
        return plan.Step(
            name=step.name or f"{kind}-{position + 1}",
            action=action,
            depends_on=step.depends_on,
            condition=self._job.command(step.if_ or ""),
            catch=self.level(step.catch, (*keys, "catch")),
            finally_=self.level(step.finally_, (*keys, "finally")),
        )

    def _action(
        self, step: steps.Step, keys: Keys
    ) -> tuple[str, plan.Run | plan.Group | plan.For | plan.Launch | plan.Use]:
        if step.run:
            return "run", self._run(step.run, step.resources, (*keys, "run"))
        if step.for_:
            return "for", self._for(step.for_, (*keys, "for"))
        if step.launch:
            return "launch", self._launch(step.launch, (*keys, "launch"))
        if step.use:
            return "use", self._use(step.use, (*keys, "use"))
        return "steps", plan.Group(self.level(step.steps or (), (*keys, "steps")))

    def _run(self, run: steps.Run, beside: steps.StepResources | None, keys: Keys) -> plan.Run:
        self._check_host_run(run, keys)
        if run.collect and (run.work_dir or "/").startswith("/"):
            message = f"{shown((*keys, 'collect'))} needs a workDir below $STORAGE_PATH, where only the command writes"
            self._job.report.error((*keys, "collect"), message, "say `workDir: work`")
        return plan.Run(
            command=self._job.command(run.command),
            shell=run.shell,
            resources=self._resources(run.resources, beside, keys),
            container=plan_container(run.container, (*keys, "container"), self._job),
            env=self.env(run.env, (*keys, "env")),
            work_dir=run.work_dir or "",
            stdout=self._inside(run.stdout, (*keys, "stdout")),
            stderr=self._inside(run.stderr, (*keys, "stderr")),
            collect=tuple(self._collect(wanted, (*keys, "collect", i)) for i, wanted in enumerate(run.collect)),
        )

    def _collect(self, wanted: steps.Collect, keys: Keys) -> plan.Collect:
        return plan.Collect(self._inside(wanted.path, (*keys, "path")), self._inside(wanted.to, (*keys, "to")))

    def _inside(self, path: str | None, keys: Keys) -> str:
        """A value of the matrix must not lead out of the folder either."""
        filled = self._job.fill(path or "")
        try:
            return inside(filled) if path else ""
        except ValueError as error:
            self._job.report.error(keys, f"{shown(keys)} of job {self._job.values['job']}: {error}")
            return filled

    def _check_host_run(self, run: steps.Run, keys: Keys) -> None:
        """What a command without its container cannot do."""
        bare = self._job.setting.no_container
        if run.container and bare and run.work_dir:
            message = f"without its container the command may not find {shown((*keys, 'workDir'))} {run.work_dir}"
            self._job.report.warning((*keys, "workDir"), message)
        inside = (run.container or self._job.has_container) and not bare
        if not inside and (not run.command.strip() or run.shell == "ENTRYPOINT"):
            message = f"{shown(keys)} means the image's entrypoint, but the step runs without a container"
            self._job.report.error((*keys, "command"), message, "give a command")

    def _resources(
        self, own: steps.StepResources | None, beside: steps.StepResources | None, keys: Keys
    ) -> plan.RunResources:
        job = self._job.resources
        given = {
            key: value for part in (beside, own) if part for key, value in part.model_dump(exclude_none=True).items()
        }
        made = plan.RunResources(
            tasks=given.get("tasks", 1),
            cpus_per_task=given.get("cpus_per_task", job.cpus_per_task),
            mem_per_cpu_mb=given.get("mem_per_cpu", job.mem_per_cpu_mb),
            gpus_per_task=0 if self._job.setting.no_gpu else given.get("gpus_per_task", 0),
        )
        self._check_share(made, keys)
        return made

    def _check_share(self, step: plan.RunResources, keys: Keys) -> None:
        """A step lives within what its job was given."""
        job = self._job.resources
        asked = {
            "GPUs": (step.tasks * step.gpus_per_task, job.gpus),
            "CPUs": (step.tasks * step.cpus_per_task, job.cpus),
        }
        for what, (wanted, given) in asked.items():
            if wanted > given:
                message = f"{shown(keys)} takes {wanted} {what}, but the whole job has {given}"
                self._job.report.error((*keys, "resources"), message, "see `resources` at the top")

    def env(self, given: Sequence[steps.EnvVar], keys: Keys) -> tuple[plan.EnvVar, ...]:
        return tuple(
            plan.EnvVar(variable.key, self._job.secret(variable.value, (*keys, i, "value"), confidential=False))
            for i, variable in enumerate(given)
        )

    def _for(self, loop: steps.For, keys: Keys) -> plan.For:
        below = self.level(loop.steps, (*keys, "steps"))
        if loop.range is None:
            return plan.For("item", tuple(map(self._job.fill, loop.items or ())), loop.parallel, below)
        return plan.For("index", tuple(map(str, loop.range.numbers())), loop.parallel, below)

    def _launch(self, launch: steps.Launch, keys: Keys) -> plan.Launch:
        signal = launch.signal_on_parent_step_exit
        below = self.level(launch.steps, (*keys, "steps"))
        return plan.Launch(launch.handle_name or "", _SIGTERM if signal is None else signal, below)

    def _use(self, use: steps.Use, keys: Keys) -> plan.Use:
        children = _Children(self.level(use.steps, (*keys, "steps")))
        args = self.env(use.args, (*keys, "args"))
        nothing = plan.Use(use.source, args, use.export_env_as or "", children.steps)
        if self._depth >= _DEEPEST_MODULE:
            self._job.report.error(keys, f"modules use modules more than {_DEEPEST_MODULE} deep")
            return nothing
        try:
            found = self._job.setting.modules.get(use.source, self._job.where)
        except UsageError as error:
            self._job.report.error((*keys, "source"), str(error))
            return nothing
        self._job.report.extend(found.problems)
        if found.module is None:
            return nothing
        report = Report(found.module.origin)
        inner = StepPlanner(self._job.inside(report, found.folder), children, self._depth + 1)
        below = inner.level(found.module.steps, ("steps",))
        self._job.report.extend(report.problems)
        return plan.Use(
            source=use.source,
            args=self._arguments(found.module, args, keys),
            export_prefix=use.export_env_as or "",
            steps=below if children.placed else below + children.steps,
            outputs=tuple(output.key for output in found.module.outputs),
        )

    def _arguments(self, module: Module, given: tuple[plan.EnvVar, ...], keys: Keys) -> tuple[plan.EnvVar, ...]:
        """What the user gave, then the defaults of the rest."""
        named = {variable.key for variable in given}
        known = {wanted.key for wanted in module.inputs}
        for key in sorted(named - known):
            message = f"the module {module.name!r} has no input {key!r}"
            self._job.report.error((*keys, "args"), message, did_you_mean(key, known))
        rest = [wanted for wanted in module.inputs if wanted.key not in named]
        for wanted in rest:
            if wanted.default is None:
                about = f" ({wanted.description})" if wanted.description else ""
                self._job.report.error(keys, f"the module {module.name!r} needs the argument {wanted.key!r}{about}")
        return given + tuple(plan.EnvVar(wanted.key, wanted.default or "") for wanted in rest)
