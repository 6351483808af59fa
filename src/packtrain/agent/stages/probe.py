"""The stage `probe`: check within seconds, before any data is transferred, whether the machine is fit for the job.

All checks run at once, each in a thread that is abandoned if it hangs (a dead file server, a broken driver):
`machine_facts` measures the machine, and a request to the first server of each input gets its size. Pure functions then
compare the results with the job's requirements. An unreachable input is only a notice, because a service
that restarts now may answer a minute later.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from packtrain.agent.context import AttemptContext, StageStats, uses_pixi
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.stages import machine_facts
from packtrain.agent.stages.machine_facts import GpuInfo
from packtrain.errors import FailedError
from packtrain.fileutil import free_bytes
from packtrain.plan import GpuRequirements, Input, Job, Location
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.archive.disk_need import staged_disk_bytes
from packtrain.transfer.registry import get_source
from packtrain.transfer.tasks.parallel import run_with_deadline
from packtrain.transfer.urls import redact_url

_TIMEOUT_S = 4.5
_MAX_THREADS = 8
_MAX_INPUT_CHECKS = 64  # an input may have thousands of files; the first ones are a sufficient sample
_MIN_MEMORY_SHARE = 0.9  # the kernel and the firmware reserve a part of the nominal memory
_GB = 10**9

CheckKey = tuple[str, str]  # ("machine", "free_disk_bytes"), ("input", URL)
ProbeCheck = Callable[[], Any]


def probe(context: AttemptContext, stats: StageStats) -> None:
    """Create the sandbox and check the machine. Raises FailedError: disk_full, insufficient_memory, gpu_unusable, …."""
    job, sandbox = context.job, context.sandbox
    sandbox.create()
    checks = {**_machine_checks(job, sandbox), **_input_checks(job, context.secrets.resolve_secret)}
    results = run_checks(checks, context)
    inputs = {url: result for (topic, url), result in results.items() if topic == "input"}
    machine = {name: result for (topic, name), result in results.items() if topic == "machine"}
    known = {name: result for name, result in machine.items() if not isinstance(result, Exception)}
    stats.update(_machine_stats(known), inputs=[_input_result(url, result) for url, result in inputs.items()])
    limitations = known.get("filesystem_limitations", ())
    for text in (*_describe_failed_checks(machine), *limitations, *_describe_unreachable(inputs)):
        context.emit_notice("probe", text)
    sizes = {url: result for url, result in inputs.items() if isinstance(result, int)}
    disk_bytes = required_disk_bytes(job, sizes, can_stream=context.download_cache is None)
    _raise_if_unfit(job, known, disk_bytes)
    pixi = job.environment.pixi
    if pixi is not None and uses_pixi(context):
        from packtrain.pixi.machine import check_requirements

        check_requirements(pixi.requires, os.environ, known.get("driver_cuda", ""))


def run_checks(checks: Mapping[CheckKey, ProbeCheck], context: AttemptContext) -> dict[CheckKey, Any]:
    """Run all checks at once and return the results that arrive in time; an exception is the result of its check."""
    results = run_with_deadline(checks, _TIMEOUT_S, _MAX_THREADS, context.stop.check)
    late = [redact_url(name) for topic, name in checks if (topic, name) not in results]
    if late:
        context.emit_notice(
            "probe", f"no answer within {_TIMEOUT_S:g} s about {', '.join(late[:3])} ({len(late)} in all)"
        )
    return results


def _machine_checks(job: Job, sandbox: Sandbox) -> dict[CheckKey, ProbeCheck]:
    checks: dict[str, ProbeCheck] = {
        "free_disk_bytes": lambda: free_bytes(sandbox.root),
        "memory_mb": machine_facts.memory_mb,
        "filesystem_limitations": lambda: _filesystem_limitations(sandbox),
    }
    if job.resources.gpus:
        checks["gpus"] = lambda: machine_facts.list_gpus(os.environ)
    if _needs_cuda_driver(job):
        from packtrain.pixi.machine import driver_cuda_version

        checks["driver_cuda"] = lambda: driver_cuda_version(os.environ)
    if job.resources.gpus and job.resources.gpu.min_cuda:
        checks["cuda"] = lambda: machine_facts.cuda_version(os.environ)
    return {("machine", name): check for name, check in checks.items()}


def _needs_cuda_driver(job: Job) -> bool:
    return job.environment.pixi is not None and bool(job.environment.pixi.requires.min_cuda)


def _filesystem_limitations(sandbox: Sandbox) -> list[str]:
    folders = {folder.stat().st_dev: folder for folder in (sandbox.attempt_folder.root, sandbox.root)}
    return [
        f"the file system of {folder} {limitation}"
        for folder in folders.values()
        for limitation in machine_facts.filesystem_limitations(folder)
    ]


def _input_checks(job: Job, resolve_secret: SecretResolver) -> dict[CheckKey, ProbeCheck]:
    checks = [
        (location, _stat_size)
        for job_input in job.inputs
        for remote_file in job_input.files
        for location in remote_file.locations[:1]
    ]
    checks += [(job_input.prefix, _list_first) for job_input in job.inputs if job_input.prefix]
    return {
        ("input", location.url): _bind_check(check, location, resolve_secret)
        for location, check in checks[:_MAX_INPUT_CHECKS]
    }


def _bind_check(
    check: Callable[[Location, SecretResolver], Any], location: Location, resolve_secret: SecretResolver
) -> ProbeCheck:
    return lambda: check(location, resolve_secret)


def _stat_size(location: Location, resolve_secret: SecretResolver) -> int | None:
    return get_source(location, resolve_secret).stat(location).size


def _list_first(location: Location, resolve_secret: SecretResolver) -> None:
    next(iter(get_source(location, resolve_secret).list(location)), None)


def _machine_stats(results: Mapping[str, Any]) -> StageStats:
    return {
        "python": sys.version.split()[0],
        "platform": machine_facts.platform_name(),
        "host": os.uname().nodename,
        "cpus": len(os.sched_getaffinity(0)),
        "free_disk_bytes": results.get("free_disk_bytes"),
        "memory_mb": results.get("memory_mb"),
        "gpus": [vars(gpu) for gpu in results.get("gpus", ())],
    }


def _input_result(url: str, result: Any) -> dict[str, Any]:
    if isinstance(result, Exception):
        return {"url": redact_url(url), "failure_kind": getattr(result, "kind", "internal"), "detail": str(result)}
    return {"url": redact_url(url), "size": result}


def _describe_failed_checks(results: Mapping[str, Any]) -> list[str]:
    errors = {name: result for name, result in results.items() if isinstance(result, Exception)}
    return [f"the check of {name} on this machine failed: {error}" for name, error in errors.items()]


def _describe_unreachable(inputs: Mapping[str, Any]) -> list[str]:
    """Return one message for each failure kind, however many inputs have it."""
    details_by_kind: dict[str, list[str]] = {}
    for result in inputs.values():
        if isinstance(result, Exception):
            details_by_kind.setdefault(getattr(result, "kind", "internal"), []).append(str(result))
    return [f"{details[0]}{_format_more(len(details) - 1)}" for details in details_by_kind.values()]


def _format_more(count: int) -> str:
    return f" (and {count} more inputs)" if count else ""


def required_disk_bytes(job: Job, known_sizes: Mapping[str, int], can_stream: bool = True) -> int:
    """Return the disk space that the job is known to need: its inputs or its limit, whichever is larger.

    For the same sizes this is never more than the estimate of the planner, or the limit.

    Args:
        job: The job.
        known_sizes: Sizes of input files that the plan does not know, by URL.
        can_stream: Archives may be unpacked while they are downloaded.
    """
    inputs = sum(_input_disk_bytes(job_input, known_sizes, can_stream) for job_input in job.inputs)
    return max(inputs, job.limits.disk_bytes or 0)


def _input_disk_bytes(job_input: Input, known_sizes: Mapping[str, int], can_stream: bool) -> int:
    total = 0
    for remote_file in job_input.files if job_input.mode != "stream" else ():
        size = remote_file.size if remote_file.size is not None else known_sizes.get(remote_file.locations[0].url)
        total += staged_disk_bytes(job_input, remote_file, size or 0, typical=False, can_stream=can_stream)
    return total


def _raise_if_unfit(job: Job, results: Mapping[str, Any], disk_bytes: int) -> None:
    errors = (
        check_disk(results.get("free_disk_bytes"), disk_bytes),
        check_memory(results.get("memory_mb"), job.resources.memory_mb),
        check_gpus(results.get("gpus", ()), results.get("cuda", ""), job.resources.gpus, job.resources.gpu),
    )
    for error in errors:
        if error is not None:
            raise error


def check_disk(available_bytes: int | None, required_bytes: int) -> FailedError | None:
    if available_bytes is None or available_bytes >= required_bytes:
        return None
    return FailedError(
        "disk_full",
        f"the job needs {required_bytes / _GB:.3f} GB of disk, but the scratch has {available_bytes / _GB:.3f} GB free",
    )


def check_memory(available_mb: int | None, required_mb: int) -> FailedError | None:
    if available_mb is None or available_mb >= required_mb * _MIN_MEMORY_SHARE:
        return None
    return FailedError(
        "insufficient_memory", f"the job needs {required_mb} MB of memory, but may use only {available_mb} MB here"
    )


def check_gpus(
    gpus: Sequence[GpuInfo], cuda_version: str, count: int, requirements: GpuRequirements
) -> FailedError | None:
    """Return an error unless `count` GPUs meet all requirements. A figure that the driver does not report passes."""
    unmet = {f"{gpu.name} ({gpu.uuid})": unmet_requirements(gpu, cuda_version, requirements) for gpu in gpus}
    n_usable = sum(not text for text in unmet.values())
    if n_usable >= count:
        return None
    listing = "; ".join(f"{name}: {text or 'usable'}" for name, text in unmet.items()) or "nvidia-smi lists none"
    return FailedError(
        "gpu_unusable",
        f"the job needs {count} GPU{'' if count == 1 else 's'}, but {n_usable} usable ones were found ({listing})",
    )


def unmet_requirements(gpu: GpuInfo, cuda_version: str, requirements: GpuRequirements) -> str:
    """Return the requirements that this GPU does not meet, with figures; "" if it meets all."""
    figures = (
        ("memory in MB", str(gpu.memory_mb), str(requirements.min_memory_mb or "")),
        ("compute capability", gpu.capability, requirements.min_capability or ""),
        ("driver", gpu.driver, requirements.min_driver or ""),
        ("CUDA version", cuda_version, requirements.min_cuda or ""),
    )
    unmet = [
        (name, actual, required)
        for name, actual, required in figures
        if actual and required and _parse_version(actual) < _parse_version(required)
    ]
    return ", ".join(f"{name} is {actual}, required is {required}" for name, actual, required in unmet)


def _parse_version(text: str) -> tuple[int, ...]:
    parts = [int(part) for part in text.split(".") if part.isdigit()]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
