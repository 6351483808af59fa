"""Images as Apptainer takes them."""

from __future__ import annotations

from pathlib import Path

from packtrain import plan
from packtrain.planner.local_paths import absolute
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.models.steps import Container

_DOCKER_HUB = ("registry-1.docker.io", "docker.io", "index.docker.io")
_FILES = (".sif", ".sqsh")


def plan_container(container: Container | None, keys: Keys, job: JobContext) -> plan.Container | None:
    if container is None or job.setting.no_container:
        return None
    return plan.Container(
        image=image_of(job.fill(container.image), container.registry, job.where),
        username=job.secret_or_none(container.username, (*keys, "username"), confidential=False),
        password=job.secret_or_none(container.password, (*keys, "password")),
        mount_home=container.mount_home,
        read_only=container.read_only_root_fs,
        mounts=tuple(plan.Mount(m.host_dir, m.container_dir, m.options) for m in container.mounts),
    )


def image_of(image: str, registry: str, where: Path) -> str:
    """A file by its absolute path, an address as it is, else the image of the registry."""
    if image.startswith("/") or "://" in image:
        return image
    if image.endswith(_FILES):
        return str(absolute(where, image))
    # Only Docker's own client knows that `ubuntu` there means `library/ubuntu`.
    official = "library/" if registry in _DOCKER_HUB and "/" not in image else ""
    return f"docker://{registry}/{official}{image}"
