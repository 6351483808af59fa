"""Is this machine fit for the job? Asked within seconds, before any data moves.

All questions are asked at once, each in a thread that is left behind if it hangs (a dead file
server, a broken driver). What the figures mean is decided afterwards, purely. Unreachable inputs are
news, not a verdict: a service that restarts now may well answer a minute later.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.stages import hardware
from packtrain.agent.stages.hardware import GpuInfo
from packtrain.errors import FailedError
from packtrain.plan import GpuRequirements, Input, Job, Location
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.archive.detection import can_unpack_while_downloading
from packtrain.transfer.registry import get_source
from packtrain.transfer.urls import redact_url

_TIMEOUT_S = 4.5
_MAX_THREADS = 8
_MAX_INPUT_CHECKS = 64  # inputs of thousands of files: the first ones tell enough
_MIN_MEMORY_SHARE = 0.9  # the kernel and the firmware keep some of what a machine is sold with
_GB = 10**9
_ARCHIVE_SUFFIXES = (".tar", ".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zip")

CheckKey = tuple[str, str]  # ("machine", "disk_free"), ("input", URL)
ProbeCheck = Callable[[], Any]


def probe(context: AttemptContext, stats: StageStats) -> None:
    """Make the sandbox and look around. Raises FailedError: disk_full, insufficient_memory, gpu_unusable."""
    job, box = context.job, context.sandbox
    box.create()
    answers = run_checks({**_machine_checks(job, box), **_input_checks(job, context.secrets.resolve_secret)}, context)
    inputs = {url: answer for (topic, url), answer in answers.items() if topic == "input"}
    about = {what: answer for (topic, what), answer in answers.items() if topic == "machine"}
    known = {what: answer for what, answer in about.items() if not isinstance(answer, Exception)}
    stats.update(_machine_stats(known), inputs=[_input_result(url, answer) for url, answer in inputs.items()])
    for sentence in (*_describe_failed_checks(about), *known.get("quirks", ()), *_describe_unreachable(inputs)):
        context.emit_notice("probe", sentence)
    sizes = {url: answer for url, answer in inputs.items() if isinstance(answer, int)}
    need = required_disk_bytes(job, sizes, can_stream=context.download_cache is None)
    _raise_if_unfit(job, known, need)


def run_checks(checks: Mapping[CheckKey, ProbeCheck], context: AttemptContext) -> dict[CheckKey, Any]:
    """Answers by topic, as far as they come in time; an exception that a question raises is its answer."""
    waiting: queue.SimpleQueue[tuple[CheckKey, ProbeCheck]] = queue.SimpleQueue()
    answered: queue.SimpleQueue[tuple[CheckKey, Any]] = queue.SimpleQueue()
    for item in checks.items():
        waiting.put(item)
    for _ in range(min(len(checks), _MAX_THREADS)):
        threading.Thread(target=_run_pending_checks, args=(waiting, answered), name="probe", daemon=True).start()
    answers = dict(_collect_results(answered, len(checks), context))
    if len(answers) < len(checks):
        late = [redact_url(what) for topic, what in checks if (topic, what) not in answers]
        context.emit_notice(
            "probe", f"no answer within {_TIMEOUT_S:g} s about {', '.join(late[:3])} ({len(late)} in all)"
        )
    return answers


def _run_pending_checks(pending: queue.SimpleQueue[Any], results: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            topic, question = pending.get_nowait()
        except queue.Empty:
            return
        try:
            results.put((topic, question()))
        except Exception as error:
            results.put((topic, error))


def _collect_results(
    results: queue.SimpleQueue[Any], count: int, context: AttemptContext
) -> list[tuple[CheckKey, Any]]:
    found: list[tuple[CheckKey, Any]] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        context.stop.check()
        try:
            found.append(results.get(timeout=0.1))
        except queue.Empty:
            continue
    return found


def _machine_checks(job: Job, sandbox: Sandbox) -> dict[CheckKey, ProbeCheck]:
    questions: dict[str, ProbeCheck] = {
        "disk_free": lambda: hardware.free_disk_bytes(sandbox.root),
        "memory_mb": hardware.memory_mb,
        "quirks": lambda: _filesystem_limitations(sandbox),
    }
    if job.resources.gpus:
        questions["gpus"] = lambda: hardware.list_gpus(os.environ)
    if job.resources.gpus and job.resources.gpu.min_cuda:
        questions["cuda"] = lambda: hardware.cuda_version(os.environ)
    return {("machine", what): question for what, question in questions.items()}


def _filesystem_limitations(sandbox: Sandbox) -> list[str]:
    folders = {folder.stat().st_dev: folder for folder in (sandbox.attempt_folder.root, sandbox.root)}
    return [
        f"the file system of {folder} {what}"
        for folder in folders.values()
        for what in hardware.filesystem_limitations(folder)
    ]


def _input_checks(job: Job, resolve_secret: SecretResolver) -> dict[CheckKey, ProbeCheck]:
    refs = [(ref, _stat_size) for source in job.inputs for item in source.files for ref in item.locations[:1]]
    refs += [(source.prefix, _list_first) for source in job.inputs if source.prefix]
    return {("input", ref.url): _bind_check(how, ref, resolve_secret) for ref, how in refs[:_MAX_INPUT_CHECKS]}


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
        "platform": hardware.platform_name(),
        "host": os.uname().nodename,
        "cpus": len(os.sched_getaffinity(0)),
        "disk_free": results.get("disk_free"),
        "memory_mb": results.get("memory_mb"),
        "gpus": [vars(gpu) for gpu in results.get("gpus", ())],
    }


def _input_result(url: str, result: Any) -> dict[str, Any]:
    if isinstance(result, Exception):
        return {"url": redact_url(url), "problem": getattr(result, "kind", "internal"), "detail": str(result)}
    return {"url": redact_url(url), "size": result}


def _describe_failed_checks(results: Mapping[str, Any]) -> list[str]:
    problems = {what: answer for what, answer in results.items() if isinstance(answer, Exception)}
    return [f"the {what} of this machine could not be found out: {error}" for what, error in problems.items()]


def _describe_unreachable(inputs: Mapping[str, Any]) -> list[str]:
    """One sentence for each kind of trouble, however many inputs have it."""
    troubled: dict[str, list[str]] = {}
    for answer in inputs.values():
        if isinstance(answer, Exception):
            troubled.setdefault(getattr(answer, "kind", "internal"), []).append(str(answer))
    return [f"{details[0]}{_format_more(len(details) - 1)}" for details in troubled.values()]


def _format_more(count: int) -> str:
    return f" (and {count} more inputs)" if count else ""


def required_disk_bytes(job: Job, known_sizes: Mapping[str, int], can_stream: bool = True) -> int:
    """Bytes the job is known to need: its inputs, archives that come as files twice (with what is in them), or its
    limit."""
    inputs = sum(_input_disk_bytes(source, known_sizes, can_stream) for source in job.inputs)
    return max(inputs, job.limits.disk_bytes or 0)


def _input_disk_bytes(job_input: Input, known_sizes: Mapping[str, int], can_stream: bool) -> int:
    total = 0
    for item in job_input.files if job_input.mode != "stream" else ():
        size = item.size if item.size is not None else known_sizes.get(item.locations[0].url)
        archive = job_input.unpack == "auto" and item.name.lower().endswith(_ARCHIVE_SUFFIXES)
        total += (size or 0) * (
            2 if archive and not (can_stream and can_unpack_while_downloading(job_input, item)) else 1
        )
    return total


def _raise_if_unfit(job: Job, results: Mapping[str, Any], disk_bytes: int) -> None:
    verdicts = (
        check_disk(results.get("disk_free"), disk_bytes),
        check_memory(results.get("memory_mb"), job.resources.memory_mb),
        check_gpus(results.get("gpus", ()), results.get("cuda", ""), job.resources.gpus, job.resources.gpu),
    )
    for verdict in verdicts:
        if verdict is not None:
            raise verdict


def check_disk(free_bytes: int | None, required_bytes: int) -> FailedError | None:
    if free_bytes is None or free_bytes >= required_bytes:
        return None
    return FailedError(
        "disk_full",
        f"the job needs {required_bytes / _GB:.3f} GB of disk, but the scratch has {free_bytes / _GB:.3f} GB free",
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
    """Enough GPUs must meet every need; a figure that the driver does not tell is not held against it."""
    lacks = {f"{gpu.name} ({gpu.uuid})": unmet_requirements(gpu, cuda_version, requirements) for gpu in gpus}
    good = sum(not lack for lack in lacks.values())
    if good >= count:
        return None
    seen = "; ".join(f"{name}: {lack or 'good'}" for name, lack in lacks.items()) or "nvidia-smi shows none"
    return FailedError("gpu_unusable", f"the job needs {count} GPUs, but {good} usable ones were found ({seen})")


def unmet_requirements(gpu: GpuInfo, cuda_version: str, requirements: GpuRequirements) -> str:
    """What this GPU lacks, with figures; "" if nothing."""
    compared = (
        ("memory in MB", str(gpu.memory_mb), str(requirements.min_memory_mb or "")),
        ("compute capability", gpu.capability, requirements.min_capability or ""),
        ("driver", gpu.driver, requirements.min_driver or ""),
        ("CUDA version", cuda_version, requirements.min_cuda or ""),
    )
    lacks = [
        (what, have, need)
        for what, have, need in compared
        if have and need and _parse_version(have) < _parse_version(need)
    ]
    return ", ".join(f"{what} is {have}, needed is {need}" for what, have, need in lacks)


def _parse_version(text: str) -> tuple[int, ...]:
    parts = [int(part) for part in text.split(".") if part.isdigit()]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
