"""What a job asks for: CPUs, memory, disk, GPUs, the container, and the lines that only HTCondor understands."""

from __future__ import annotations

import math
import re

from packtrain.condor.submitfile import commands, macros
from packtrain.condor.submitfile.parsed_submit import Draft, Told
from packtrain.condor.submitfile.quoting import unquoted
from packtrain.spec.diagnostics import did_you_mean

_DEFAULT_MEMORY_MB = 1024
_QUANTITY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_IMAGE_FILES = (".sif", ".sqsh")
_UNIVERSES = ("", "vanilla", "container", "docker", "5")


def put_needs(told: Told, draft: Draft) -> None:
    cpus = _whole(told, "request_cpus", 1) or 1
    memory = _bytes(told, "request_memory", "M")
    mb = _DEFAULT_MEMORY_MB if memory is None else max(memory >> 20, 1)
    gpus = _whole(told, "request_gpus", 0)
    place = told.place("request_cpus")
    draft.put(("resources", "tasks"), 1, place)
    draft.put(("resources", "cpusPerTask"), cpus, place)
    draft.put(("resources", "memPerCpu"), math.ceil(mb / cpus), told.place("request_memory"))
    draft.put(("resources", "gpus"), gpus, told.place("request_gpus"))
    if gpus:
        _put_gpu(told, draft)
    disk = _bytes(told, "request_disk", "K")
    if disk:
        draft.put(("limits", "disk"), _shown(disk), told.place("request_disk"))
    if told.has("max_retries"):
        draft.put(("limits", "attempts"), _whole(told, "max_retries", 2) + 1, told.place("max_retries"))


def _put_gpu(told: Told, draft: Draft) -> None:
    memory = _bytes(told, "gpus_minimum_memory", "M")
    if memory:
        draft.put(("resources", "gpu", "minMemory"), memory >> 20, told.place("gpus_minimum_memory"))
    for key, name in (("gpus_minimum_capability", "minCapability"), ("gpus_minimum_runtime", "minCuda")):
        if told.has(key):
            draft.put(("resources", "gpu", name), told.fixed(key), told.place(key))


def _whole(told: Told, key: str, default: int) -> int:
    text = told.fixed(key)
    if not text or re.fullmatch(r"\d{1,9}", text):
        return int(text or default)
    told.error(key, f"{key} should be a whole number, but is {text[:60]!r}", "write the number itself")
    return default


def _bytes(told: Told, key: str, unit: str) -> int | None:
    """A size; a plain number is in kibibytes or mebibytes, as the key has it."""
    text = told.fixed(key)
    if not text:
        return None
    found = _QUANTITY.fullmatch(text)
    if not found:
        told.error(key, f"{key} should be a size such as 4GB, but is {text[:60]!r}", "write the size itself")
        return None
    number, prefix = found.groups()
    return int(float(number) * 1024 ** _POWERS[(prefix or unit).upper()])


def _shown(size: int) -> str | int:
    return next((f"{size // unit}{name}" for unit, name in _UNITS if size % unit == 0), size)


def put_container(told: Told, draft: Draft) -> None:
    universe = told.fixed("universe").lower()
    if universe not in _UNIVERSES:
        told.error("universe", f"the universe {universe} is not supported", "packtrain knows vanilla and container")
    for key in ("container_image", "docker_image", "+singularityimage"):
        image = unquoted(told.fixed(key))
        if image:
            draft.put(
                ("environment", "container", "image"), told.braces(key, _image(told, key, image)), told.place(key)
            )
            return
    if universe in ("container", "docker"):
        told.error("universe", f"the universe {universe} needs an image", "add container_image = …")


def _image(told: Told, key: str, image: str) -> str:
    """An address, or a path; a name alone is one of Docker's only where the key says so."""
    if "://" in image or image.startswith("/") or image.endswith(_IMAGE_FILES):
        return image
    if key == "docker_image":
        return f"docker://{image}"
    if not told.around.exists(image):
        told.error(
            key, f"the image {image[:80]} is neither a file nor an address", "write for example docker://NAME:TAG"
        )
    return str(told.around.where / image)


def put_lines(told: Told, draft: Draft) -> None:
    """Everything that is not translated: passed on, or named."""
    for name, setting in told.description.settings.items():
        key = commands.canonical(name)
        if key in commands.TRANSLATED:
            continue
        refused = commands.REFUSED.get(key)
        if refused is None and key.startswith(commands.REFUSED_PREFIXES):
            refused = ("packtrain runs programs in the pool itself", "use condor_submit")
        if refused:
            told.error(key, f"{setting.key} is not supported: {refused[0]}", refused[1])
        elif key in commands.LEFT_OUT:
            told.warning(key, f"{setting.key} is left out: {commands.LEFT_OUT[key]}")
        elif commands.is_passed(key):
            _pass_on(told, draft, key, setting.key, setting.value)
        else:
            _name_unused(told, name, setting.key)


def _pass_on(told: Told, draft: Draft, key: str, written: str, value: str) -> None:
    try:
        filled = told.jobs.native(value).strip()
    except macros.VariesError:
        told.error(key, f"{written} differs from job to job, which cannot be passed on", "make it the same for all")
    except macros.MacroError as error:
        told.error(key, f"{written}: {error}")
    else:
        if key in commands.PATHS and filled and not filled.startswith("/"):
            filled = str(told.around.where / filled)  # HTCondor looks from the folder of the attempt
        if "\n" in filled:
            told.error(key, f"{written} has several lines, which cannot be passed on")
        elif filled:
            draft.put(("htcondor", written), filled, told.place(key))


def _name_unused(told: Told, name: str, written: str) -> None:
    """A key that HTCondor does not know is a macro; if nothing uses it, it is more likely a typing error."""
    used = set(told.description.asked)
    for setting in told.description.settings.values():
        used |= macros.names_in(setting.value)
    if name not in used:
        told.warning(name, f"nothing uses {written}", _hint(name))


def _hint(name: str) -> str:
    hint = did_you_mean(name, commands.KNOWN)
    return hint if "did you mean" in hint else "is it a typing error?"
