"""Renders the batch script of a job array. Pure: golden files show its output.

The script contains no secret: Slurm keeps a copy, and sites may store it in their accounting database.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packtrain.engines.api import Overrides
from packtrain.plan import EnvVar, Job, RunFolder

TASKS_SUFFIX = ".tasks"
# The agent receives SIGUSR1 this long before the time limit; Slurm sends it up to a minute early.
_MIN_SIGNAL_S = 60
_MAX_SIGNAL_S = 65535  # Slurm's maximum
_TIME_MARGIN_S = 60  # between `limits.wallTime`, which the agent enforces, and Slurm's own limit


@dataclass(frozen=True)
class SlurmSettings:
    """How this cluster differs from others; from `slurm:` of the user's settings.

    Attributes:
        scratch: Folder on the node's own disk for sandboxes; environment variables are expanded on the node.
        request_memory: False where the site refuses memory options.
        gpu_option: `gpus-per-node`, or `gres` for sites without the cons_tres plugin.
        cache: Download cache on a shared disk, "" for none.
        cache_limit_bytes: Maximum size of that cache; 0 for the default.
    """

    scratch: str = "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
    request_memory: bool = True
    gpu_option: str = "gpus-per-node"
    cache: str = ""
    cache_limit_bytes: int = 0


def sbatch_options(
    job: Job, overrides: Overrides, disk_mb: int, user_options: Sequence[EnvVar], settings: SlurmSettings
) -> dict[str, str]:
    """Return the options of sbatch for a job, by long name. Jobs with equal options share an array.

    Args:
        job: The job, with its overrides applied.
        overrides: More disk, and nodes to avoid.
        disk_mb: Disk space that the job needs on its node; 0 if unknown.
        user_options: `slurm:` of the workflow; they win over computed ones.
        settings: The cluster's peculiarities.
    """
    resources = job.resources
    options = {
        "nodes": "1",
        "ntasks": str(resources.tasks),
        "cpus-per-task": str(resources.cpus_per_task),
    }
    if settings.request_memory:
        options["mem-per-cpu"] = f"{resources.mem_per_cpu_mb}M"
    if resources.gpus:
        prefix = "gpu:" if settings.gpu_option == "gres" else ""
        options[settings.gpu_option] = f"{prefix}{resources.gpus}"
    if job.limits.wall_time_s is not None:
        options["time"] = format_time_limit(job.limits.wall_time_s + _TIME_MARGIN_S)
    if disk_mb:
        options["tmp"] = f"{math.ceil(disk_mb * overrides.disk_factor)}M"
    if overrides.avoid_nodes:
        options["exclude"] = ",".join(overrides.avoid_nodes)
    signal_s = min(max(_MIN_SIGNAL_S, math.ceil(2 * job.limits.grace_s)), _MAX_SIGNAL_S)
    options["signal"] = f"B:USR1@{signal_s}"
    return {**options, **{option.key: str(option.value) for option in user_options}}


def format_time_limit(duration_s: float) -> str:
    """Return a duration as Slurm's `D-HH:MM:SS`, rounded up to a minute, the unit in which Slurm enforces limits."""
    minutes = math.ceil(duration_s / 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"


def render_batch_script(
    name: str, n_tasks: int, options: Mapping[str, str], folder: RunFolder, settings: SlurmSettings
) -> str:
    """Return the script of an array.

    Args:
        name: The job name, unique to the submission.
        n_tasks: Number of tasks of the array.
        options: Options of sbatch by long name; an empty value means an option without an argument.
        folder: The run's folder, which all nodes see.
        settings: The cluster's peculiarities.
    """
    fixed = {
        "job-name": name,
        "comment": f"packtrain {folder.root.name}",
        "array": f"0-{n_tasks - 1}",
        "output": str(folder.slurm / f"{name}.out"),
        "open-mode": "append",
        "requeue": "",
        "export": "ALL",  # of an environment that has only harmless variables, see `slurm_client`
    }
    directives = "".join(
        f"#SBATCH --{key}{f'={_quote(value)}' if value else ''}\n" for key, value in {**options, **fixed}.items()
    )
    cache = ["--cache", shlex.quote(settings.cache)] if settings.cache else []
    cache += ["--cache-limit", str(settings.cache_limit_bytes)] if settings.cache_limit_bytes else []
    return _TEMPLATE.format(
        directives=directives,
        root=shlex.quote(str(folder.root)),
        tasks=shlex.quote(str(folder.slurm / f"{name}{TASKS_SUFFIX}")),
        scratch=settings.scratch,
        cache=" ".join(["", *cache]),
    )


def _quote(value: str) -> str:
    """Quote a value as sbatch reads it: spaces separate options, and there are no escapes inside quotes."""
    return f'"{value}"' if any(character in value for character in " #") else value


_TEMPLATE = """\
#!/bin/bash
{directives}
# Run the attempt that the task's line in the tasks file names: job id, attempt id.
run={root}
mapfile -t -s "$SLURM_ARRAY_TASK_ID" -n 1 line < {tasks} && read -r job attempt <<< "${{line[0]}}" || exit 71
folder=$run/jobs/$job/attempts/$attempt
plan=$folder/plan.json
[ -e "$plan" ] || plan=$run/jobs/$job/plan.json
mkdir -p "$folder" && exec >> "$folder/agent.out" 2>&1 || exit 56
unset SLURM_EXPORT_ENV  # so that `srun` in a step passes the step's variables on
exec /bin/sh "$run/launch.sh" "$plan" --attempt-id "$attempt" --attempt-folder "$folder" --secrets "$run/secrets" \\
    --execution "$((${{SLURM_RESTART_COUNT:-0}} + 1))" --site "$SLURM_JOB_PARTITION" --scratch "{scratch}" \\
    --reuse-folder "$run/jobs/$job/reusable-inputs" --deadline auto{cache}
"""
