"""Whether HTCondor itself can put a whole job into one image, agent and all."""

from __future__ import annotations

from collections.abc import Iterator

from packtrain.plan import Container, Job, RunAction, Step


def job_image(job: Job) -> str:
    """The one image of all its commands; "" if there is none, or the agent has to start containers itself."""
    found = set(_step_containers(job))
    if len(found) != 1:
        return ""
    (only,) = found
    return only.image if only is not None and _is_supported_by_condor(only) else ""


def _is_supported_by_condor(container: Container) -> bool:
    """Logins and mounts are things that only our own call of Apptainer can give."""
    return not (container.username or container.password or container.mounts or container.mount_home)


def _step_containers(job: Job) -> Iterator[Container | None]:
    around = job.environment.container
    for step in _walk_steps(job.steps):
        if isinstance(step.action, RunAction):
            yield step.action.container or around


def _walk_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        below = () if isinstance(step.action, RunAction) else step.action.steps
        yield from _walk_steps(below + step.catch + step.finally_)
