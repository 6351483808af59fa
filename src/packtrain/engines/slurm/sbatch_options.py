"""Chooses the options of sbatch for a job. Pure.

The user's options win over computed ones, except those by which the engine finds a job and starts its agent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from packtrain.engines.api import Overrides
from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.plan import GpuRequirements, Job

if TYPE_CHECKING:
    from packtrain.spec.user_config import GpuProperties  # needs pydantic, which most commands do without

# The agent receives SIGUSR1 this long before the time limit; Slurm sends it up to a minute early.
_MIN_SIGNAL_S = 60
_MAX_SIGNAL_S = 65535  # Slurm's maximum
# The agent itself enforces `limits.wallTime`, so Slurm's limit and its signal come later.
_TIME_MARGIN_S = 120
_SIGNAL_AFTER_WALL_TIME_S = 10
_GPU_OPTIONS = ("gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket", "gres")
_MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")
# Options of the user that Slurm does not accept together with a computed one, or that would contradict it.
_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "mem-per-cpu": ("mem", "mem-per-gpu"),
    "gpus-per-node": _GPU_OPTIONS,
    "gres": _GPU_OPTIONS,
    "ntasks": ("ntasks-per-node", "ntasks-per-gpu"),
    "cpus-per-task": ("cpus-per-gpu",),
    "requeue": ("no-requeue",),
    "constraint": ("nodelist", "nodefile"),
}
RESERVED_OPTIONS: dict[str, str] = {
    **dict.fromkeys(("array", "job-name", "comment", "export", "export-file"), "packtrain sets it itself"),
    **dict.fromkeys(("output", "error", "input", "open-mode"), "`packtrain logs` shows what a job prints"),
    **dict.fromkeys(("wrap", "parsable", "wait", "test-only", "quiet", "verbose", "help", "usage", "version"),
                    "it changes what sbatch does"),
    "chdir": "`workDir` of a step sets its working folder",
    "clusters": "packtrain submits to one cluster",
}  # fmt: skip


def merge_options(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the user's options by name; later ones win.

    `true` means an option without a value, as in `exclusive: true`; `false` leaves an option out.
    """
    merged = dict(options)
    return {name: "" if value == "true" else value for name, value in merged.items() if value != "false"}


def sbatch_options(job: Job, overrides: Overrides, settings: RunSettings) -> dict[str, str]:
    """Return the options for a job by long name. Jobs with equal options share an array.

    Args:
        job: The job, with its overrides applied.
        overrides: More disk, and nodes to avoid. A site of Slurm is a node.
        settings: The settings of the run.
    """
    user_options = merge_options(settings.options)
    computed = {
        name: value
        for name, value in _computed_options(job, overrides, settings).items()
        if not set(_ALTERNATIVES.get(name, ())) & user_options.keys()
    }
    for name in user_options.keys() & set(_MEMORY_OPTIONS):
        user_options[name] = _scale_memory(user_options[name], overrides.memory_factor)
    if avoided := {*settings.avoid_nodes, *overrides.avoid_nodes, *overrides.avoid_sites}:
        user_options["exclude"] = ",".join(filter(None, (user_options.get("exclude"), *sorted(avoided))))
    omitted = {name for name, value in settings.options if value == "false"} - user_options.keys()
    return {name: value for name, value in {**computed, **user_options}.items() if name not in omitted}


def _computed_options(job: Job, overrides: Overrides, settings: RunSettings) -> dict[str, str]:
    resources = job.resources
    options = {
        "nodes": "1",
        "ntasks": str(resources.tasks),
        "cpus-per-task": str(resources.cpus_per_task),
    }
    if settings.requests_memory:
        options["mem-per-cpu"] = f"{resources.mem_per_cpu_mb}M"
    if resources.gpus:
        prefix = "gpu:" if settings.gpu_option == "gres" else ""
        options[settings.gpu_option] = f"{prefix}{resources.gpus}"
    if settings.constraint:
        options["constraint"] = settings.constraint
    if settings.disk_mb:
        options["tmp"] = f"{math.ceil(settings.disk_mb * overrides.disk_factor)}M"
    options.update(_time_options(job, has_own_limit="time" in dict(settings.options)))
    options["requeue" if settings.may_requeue else "no-requeue"] = ""
    return options


def _time_options(job: Job, has_own_limit: bool) -> dict[str, str]:
    """Return the time limit, and when Slurm announces the end of the job."""
    if job.limits.wall_time_s is not None and not has_own_limit:
        time_limit = format_time_limit(job.limits.wall_time_s + _TIME_MARGIN_S)
        return {"time": time_limit, "signal": f"B:USR1@{_SIGNAL_AFTER_WALL_TIME_S}"}
    signal_s = min(max(_MIN_SIGNAL_S, math.ceil(2 * job.limits.grace_s)), _MAX_SIGNAL_S)
    return {"signal": f"B:USR1@{signal_s}"}


def _scale_memory(text: str, factor: float) -> str:
    """Return a memory size of the user multiplied by a factor, in its own unit."""
    match = re.fullmatch(r"(\d+)(\D*)", text)
    return f"{math.ceil(int(match[1]) * factor)}{match[2]}" if match and factor != 1 else text


def announced_s(options: Mapping[str, str]) -> int:
    """Return how long before the time limit Slurm sends SIGUSR1 to the agent; 0 if it does not."""
    match = re.fullmatch(r"B:(?:SIG)?USR1(?:@(\d+))?", options.get("signal", ""))
    return int(match[1] or _MIN_SIGNAL_S) if match else 0


def format_time_limit(duration_s: float) -> str:
    """Return a duration as Slurm's `D-HH:MM:SS`, rounded up to a minute, the unit in which Slurm enforces limits."""
    minutes = math.ceil(duration_s / 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"


# Requirements: the name in a workflow, in GpuRequirements, and in the settings' GpuProperties.
_REQUIREMENTS = (
    ("minMemory", "min_memory_mb", "memory"),
    ("minCapability", "min_capability", "capability"),
    ("minDriver", "min_driver", "driver"),
    ("minCuda", "min_cuda", "cuda"),
)


def choose_constraint(gpu: GpuRequirements, constraints: Mapping[str, GpuProperties]) -> tuple[str, Sequence[str]]:
    """Return the constraint that selects nodes whose GPUs meet the requirements, and the requirements not described.

    Args:
        gpu: The requirements of the workflow.
        constraints: `slurm.constraints` of the settings.

    Raises:
        ValueError: No entry of the settings meets the requirements.
    """
    wanted = {
        name: (getattr(gpu, attribute), property_name)
        for name, attribute, property_name in _REQUIREMENTS
        if getattr(gpu, attribute) is not None
    }
    described = {
        name: (minimum, property_name)
        for name, (minimum, property_name) in wanted.items()
        if any(getattr(offer, property_name) is not None for offer in constraints.values())
    }
    missing = [name for name in wanted if name not in described]
    if not described:
        return "", missing
    suitable = [
        expression
        for expression, offer in constraints.items()
        if all(_is_enough(getattr(offer, property_name), minimum) for minimum, property_name in described.values())
    ]
    if not suitable:
        listed = " and ".join(
            f"{name} {minimum}{' MB' if isinstance(minimum, int) else ''}" for name, (minimum, _) in described.items()
        )
        raise ValueError(f"no entry of `slurm.constraints` in the settings offers {listed}")
    return "|".join(map(_group, suitable) if len(suitable) > 1 else suitable), missing


def _is_enough(offer: int | str | None, minimum: int | str) -> bool:
    if offer is None:
        return False
    if isinstance(offer, int) or isinstance(minimum, int):
        return int(offer) >= int(minimum)
    return _parse_version(offer) >= _parse_version(minimum)


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version without trailing zeros, so that 12 and 12.0 are equal."""
    return tuple(map(int, re.sub(r"(\.0)+$", "", text).split(".")))


def _group(expression: str) -> str:
    return f"({expression})" if re.search(r"[&|,]", expression) and "(" not in expression else expression
