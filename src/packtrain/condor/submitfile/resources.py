"""What a job asks for: CPUs, memory, disk, GPUs, the container, and the lines that only HTCondor understands."""

from __future__ import annotations

import math
import re

from packtrain.condor.submitfile import commands, macros
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit, WorkflowDraft
from packtrain.condor.submitfile.quoting import unquote_classad
from packtrain.spec.diagnostics import did_you_mean

_DEFAULT_MEMORY_MB = 1024
_QUANTITY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_IMAGE_SUFFIXES = (".sif", ".sqsh")
_SUPPORTED_UNIVERSES = ("", "vanilla", "container", "docker", "5")


def add_resources(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    cpus = _parse_int(submit, "request_cpus", 1) or 1
    memory = _parse_bytes(submit, "request_memory", "M")
    mb = _DEFAULT_MEMORY_MB if memory is None else max(memory >> 20, 1)
    gpus = _parse_int(submit, "request_gpus", 0)
    place = submit.position("request_cpus")
    draft.set_value(("resources", "tasks"), 1, place)
    draft.set_value(("resources", "cpusPerTask"), cpus, place)
    draft.set_value(("resources", "memPerCpu"), math.ceil(mb / cpus), submit.position("request_memory"))
    draft.set_value(("resources", "gpus"), gpus, submit.position("request_gpus"))
    if gpus:
        _add_gpu(submit, draft)
    disk = _parse_bytes(submit, "request_disk", "K")
    if disk:
        draft.set_value(("limits", "disk"), _format_size(disk), submit.position("request_disk"))
    if submit.has("max_retries"):
        draft.set_value(
            ("limits", "attempts"), _parse_int(submit, "max_retries", 2) + 1, submit.position("max_retries")
        )


def _add_gpu(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    memory = _parse_bytes(submit, "gpus_minimum_memory", "M")
    if memory:
        draft.set_value(("resources", "gpu", "minMemory"), memory >> 20, submit.position("gpus_minimum_memory"))
    for key, name in (("gpus_minimum_capability", "minCapability"), ("gpus_minimum_runtime", "minCuda")):
        if submit.has(key):
            draft.set_value(("resources", "gpu", name), submit.common_value(key), submit.position(key))


def _parse_int(submit: ParsedSubmit, key: str, default: int) -> int:
    text = submit.common_value(key)
    if not text or re.fullmatch(r"\d{1,9}", text):
        return int(text or default)
    submit.error(key, f"{key} should be a whole number, but is {text[:60]!r}", "write the number itself")
    return default


def _parse_bytes(submit: ParsedSubmit, key: str, default_unit: str) -> int | None:
    """A size; a plain number is in kibibytes or mebibytes, as the key has it."""
    text = submit.common_value(key)
    if not text:
        return None
    found = _QUANTITY.fullmatch(text)
    if not found:
        submit.error(key, f"{key} should be a size such as 4GB, but is {text[:60]!r}", "write the size itself")
        return None
    number, prefix = found.groups()
    return int(float(number) * 1024 ** _POWERS[(prefix or default_unit).upper()])


def _format_size(size: int) -> str | int:
    return next((f"{size // unit}{name}" for unit, name in _UNITS if size % unit == 0), size)


def add_container(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    universe = submit.common_value("universe").lower()
    if universe not in _SUPPORTED_UNIVERSES:
        submit.error("universe", f"the universe {universe} is not supported", "packtrain knows vanilla and container")
    for key in ("container_image", "docker_image", "+singularityimage"):
        image = unquote_classad(submit.common_value(key))
        if image:
            draft.set_value(
                ("environment", "container", "image"),
                submit.to_workflow_text(key, _resolve_image(submit, key, image)),
                submit.position(key),
            )
            return
    if universe in ("container", "docker"):
        submit.error("universe", f"the universe {universe} needs an image", "add container_image = …")


def _resolve_image(submit: ParsedSubmit, key: str, image: str) -> str:
    """An address, or a path; a name alone is one of Docker's only where the key says so."""
    if "://" in image or image.startswith("/") or image.endswith(_IMAGE_SUFFIXES):
        return image
    if key == "docker_image":
        return f"docker://{image}"
    if not submit.context.exists(image):
        submit.error(
            key, f"the image {image[:80]} is neither a file nor an address", "write for example docker://NAME:TAG"
        )
    return str(submit.context.folder / image)


def add_other_commands(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Everything that is not translated: passed on, or named."""
    for name, setting in submit.description.commands.items():
        key = commands.canonical_name(name)
        if key in commands.TRANSLATED:
            continue
        refused = commands.REJECTED.get(key)
        if refused is None and key.startswith(commands.REJECTED_PREFIXES):
            refused = ("packtrain runs programs in the pool itself", "use condor_submit")
        if refused:
            submit.error(key, f"{setting.key} is not supported: {refused[0]}", refused[1])
        elif key in commands.IGNORED:
            submit.warning(key, f"{setting.key} is left out: {commands.IGNORED[key]}")
        elif commands.is_passed_through(key):
            _pass_through(submit, draft, key, setting.key, setting.value)
        else:
            _warn_unused(submit, name, setting.key)


def _pass_through(submit: ParsedSubmit, draft: WorkflowDraft, key: str, written_key: str, value: str) -> None:
    try:
        filled = submit.job_table.to_condor_text(value).strip()
    except macros.PerJobValueError:
        submit.error(
            key, f"{written_key} differs from job to job, which cannot be passed on", "make it the same for all"
        )
    except macros.MacroError as error:
        submit.error(key, f"{written_key}: {error}")
    else:
        if key in commands.PATH_COMMANDS and filled and not filled.startswith("/"):
            filled = str(submit.context.folder / filled)  # HTCondor looks from the folder of the attempt
        if "\n" in filled:
            submit.error(key, f"{written_key} has several lines, which cannot be passed on")
        elif filled:
            draft.set_value(("htcondor", written_key), filled, submit.position(key))


def _warn_unused(submit: ParsedSubmit, name: str, written_key: str) -> None:
    """A key that HTCondor does not know is a macro; if nothing uses it, it is more likely a typing error."""
    used = set(submit.description.referenced_names)
    for setting in submit.description.commands.values():
        used |= macros.referenced_names(setting.value)
    if name not in used:
        submit.warning(name, f"nothing uses {written_key}", _spelling_hint(name))


def _spelling_hint(name: str) -> str:
    hint = did_you_mean(name, commands.KNOWN_COMMANDS)
    return hint if "did you mean" in hint else "is it a typing error?"
