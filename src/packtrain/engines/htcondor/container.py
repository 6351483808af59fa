"""Decides whether HTCondor itself can run a whole job, with the agent, in one container image."""

from __future__ import annotations

from collections.abc import Iterator

from packtrain.plan import Container, Job, RunAction, Step


def job_image(job: Job) -> str:
    """Return the image of all commands of a job.

    Returns "" if the job has no image or several, or if only the agent can start its containers.
    """
    containers = set(_step_containers(job))
    if len(containers) != 1:
        return ""
    (container,) = containers
    return container.image if container is not None and _is_supported_by_condor(container) else ""


def _is_supported_by_condor(container: Container) -> bool:
    """Return whether HTCondor can start it: only the agent supports logins and mounts."""
    return not (container.username or container.password or container.mounts or container.mount_home)


def _step_containers(job: Job) -> Iterator[Container | None]:
    for step in _walk_steps(job.steps):
        if isinstance(step.action, RunAction):
            yield step.action.container or job.environment.container


def _walk_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        inner_steps = () if isinstance(step.action, RunAction) else step.action.steps
        yield from _walk_steps(inner_steps + step.catch + step.finally_)
