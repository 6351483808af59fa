"""Translates the resource requests of a job: CPUs, memory, disk, GPUs and the container image."""

from __future__ import annotations

import math
import re

from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.condor.submitfile.syntax.quoting import unquote_classad
from packtrain.spec.converted_file import WorkflowDraft
from packtrain.spec.units import to_workflow_size

_DEFAULT_MEMORY_MB = 1024
_QUANTITY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_IMAGE_SUFFIXES = (".sif", ".sqsh")
_SUPPORTED_UNIVERSES = ("", "vanilla", "container", "docker", "5")


def add_resources(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Add `resources` and `limits` to the workflow."""
    cpus = _parse_int(submit, "request_cpus", 1) or 1
    memory_bytes = _parse_bytes(submit, "request_memory", "M")
    memory_mb = _DEFAULT_MEMORY_MB if memory_bytes is None else max(memory_bytes >> 20, 1)
    gpus = _parse_int(submit, "request_gpus", 0)
    cpus_position = submit.position("request_cpus")
    draft.set_value(("resources", "tasks"), 1, cpus_position)
    draft.set_value(("resources", "cpusPerTask"), cpus, cpus_position)
    draft.set_value(("resources", "memPerCpu"), math.ceil(memory_mb / cpus), submit.position("request_memory"))
    draft.set_value(("resources", "gpus"), gpus, submit.position("request_gpus"))
    if gpus:
        _add_gpu(submit, draft)
    disk_bytes = _parse_bytes(submit, "request_disk", "K")
    if disk_bytes:
        draft.set_value(("limits", "disk"), to_workflow_size(disk_bytes), submit.position("request_disk"))
    if submit.has("max_retries"):
        max_attempts = _parse_int(submit, "max_retries", 2) + 1
        draft.set_value(("limits", "maxAttempts"), max_attempts, submit.position("max_retries"))


def _add_gpu(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    memory_bytes = _parse_bytes(submit, "gpus_minimum_memory", "M")
    if memory_bytes:
        position = submit.position("gpus_minimum_memory")
        draft.set_value(("resources", "gpu", "minMemory"), memory_bytes >> 20, position)
    for key, name in (("gpus_minimum_capability", "minCapability"), ("gpus_minimum_runtime", "minCuda")):
        if submit.has(key):
            draft.set_value(("resources", "gpu", name), submit.common_value(key), submit.position(key))


def _parse_int(submit: ParsedSubmit, key: str, default: int) -> int:
    text = submit.common_value(key)
    if not text or re.fullmatch(r"\d{1,9}", text):
        return int(text or default)
    submit.error(key, f"{key} should be an integer, but is {text[:60]!r}", "packtrain does not evaluate expressions")
    return default


def _parse_bytes(submit: ParsedSubmit, key: str, default_unit: str) -> int | None:
    """Return a size in bytes. A plain number is in KiB or MiB, depending on the command."""
    text = submit.common_value(key)
    if not text:
        return None
    match = _QUANTITY.fullmatch(text)
    if not match:
        message = f"{key} should be a size such as 4GB, but is {text[:60]!r}"
        submit.error(key, message, "packtrain does not evaluate expressions")
        return None
    number, prefix = match.groups()
    return int(float(number) * 1024 ** _POWERS[(prefix or default_unit).upper()])


def add_container(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Add the container image to the workflow."""
    universe = submit.common_value("universe").lower()
    if universe not in _SUPPORTED_UNIVERSES:
        submit.error("universe", f"the universe {universe} is not supported", "use vanilla or container")
    for key in ("container_image", "docker_image", "+singularityimage"):
        image = unquote_classad(submit.common_value(key))
        if image:
            text = submit.to_workflow_text(key, _resolve_image(submit, key, image))
            draft.set_value(("environment", "container", "image"), text, submit.position(key))
            return
    if universe in ("container", "docker"):
        submit.error("universe", f"the universe {universe} needs an image", "add container_image = …")


def _resolve_image(submit: ParsedSubmit, key: str, image: str) -> str:
    """Return the URL or path of an image. A plain name is a Docker image only for `docker_image`."""
    if "://" in image or image.startswith("/") or image.endswith(_IMAGE_SUFFIXES):
        return image
    if key == "docker_image":
        return f"docker://{image}"
    if not submit.context.exists(image):
        submit.error(key, f"the image {image[:80]} is neither a file nor a URL", "for example, use docker://NAME:TAG")
    return str(submit.context.folder / image)
