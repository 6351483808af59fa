"""Plan containers: resolve images to what Apptainer accepts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from packtrain import plan
from packtrain.planner.local_paths import resolve_path
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import KeyPath
from packtrain.spec.models.steps import Container

_DOCKER_HUB_HOSTS = ("registry-1.docker.io", "docker.io", "index.docker.io")
_IMAGE_FILE_SUFFIXES = (".sif", ".sqsh")


def plan_container(container: Container | None, key_path: KeyPath, context: JobContext) -> plan.Container | None:
    """Plan a container, or return None if there is none or `--no-container` is set."""
    if container is None or context.plan_context.no_container:
        return None
    image = resolve_image(context.fill_placeholders(container.image), container.registry, context.base_dir)
    if container.deepsquare_hosted and image.startswith("docker://"):
        context.report.error(
            (*key_path, "deepsquareHosted"),
            f"the image {container.image} exists only on DeepSquare's own machines",
            "name an image that you can reach, or run on the host with --no-container",
        )
    if image.lower().startswith("file:") and context.plan_context.engine != "htcondor":
        image = _local_image(image, key_path, context)
    return plan.Container(
        image=image,
        username=context.register_optional_secret(container.username, (*key_path, "username"), confidential=False),
        password=context.register_optional_secret(container.password, (*key_path, "password")),
        mount_home=container.mount_home,
        read_only=container.read_only_root_fs,
        mounts=tuple(plan.Mount(m.host_dir, m.container_dir, m.options) for m in container.mounts),
    )


def _local_image(url: str, key_path: KeyPath, context: JobContext) -> str:
    """Return the path of a file:// image, which only HTCondor's plugins can fetch from another machine."""
    path = unquote(urlsplit(url).path)
    if not Path(path).is_file():
        message = f"{url} does not exist on this machine; only the transfer plugins of an HTCondor pool can fetch it"
        context.report.error((*key_path, "image"), message, "use --on htcondor, or another image")
    return path


def resolve_image(image: str, registry: str, base_dir: Path) -> str:
    """Return the absolute path of an image file, a URL unchanged, else the docker:// URL of the image."""
    if image.startswith("/") or "://" in image:
        return image
    if image.endswith(_IMAGE_FILE_SUFFIXES):
        return str(resolve_path(base_dir, image))
    # Only Docker's own client expands `ubuntu` to `library/ubuntu`.
    official = "library/" if registry in _DOCKER_HUB_HOSTS and "/" not in image else ""
    return f"docker://{registry}/{official}{image}"
