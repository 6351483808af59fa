"""Renders the batch script of a job array. Pure: golden files show its output.

The script contains no secret: Slurm keeps a copy, and sites may store it in their accounting database.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.engines.slurm.sbatch_options import announced_s
from packtrain.plan import RunFolder
from packtrain.slurm.batchfile.directives import render_directives

TASKS_SUFFIX = ".tasks"


def render_batch_script(
    name: str, n_tasks: int, options: Mapping[str, str], folder: RunFolder, settings: RunSettings
) -> str:
    """Return the script of an array.

    Args:
        name: The job name, unique to the submission.
        n_tasks: Number of tasks of the array.
        options: Options of sbatch by long name; an empty value means an option without an argument.
        folder: The run's folder, which all nodes see.
        settings: The settings of the run.
    """
    fixed = {
        "job-name": name,
        "comment": f"packtrain {folder.root.name}",
        "array": f"0-{n_tasks - 1}{options.get('array', '')}",  # the option has only the limit, e.g. %4
        "output": str(folder.slurm / f"{name}.out"),
        "open-mode": "append",
        "export": "ALL",  # of an environment that has only harmless variables, see `slurm_client`
    }
    agent_options = [f"--announced {signal_s}"] if (signal_s := announced_s(options)) else []
    agent_options += [f"--kill-wait {settings.kill_wait_s}"] if settings.kill_wait_s else []
    agent_options += [f'--cache "{settings.cache}"'] if settings.cache else []
    agent_options += [f"--cache-limit {settings.cache_limit_bytes}"] if settings.cache_limit_bytes else []
    return _TEMPLATE.format(
        directives=render_directives({**options, **fixed, **_container_options(options, folder)}),
        root=shlex.quote(str(folder.root)),
        tasks=shlex.quote(str(folder.slurm / f"{name}{TASKS_SUFFIX}")),
        scratch=settings.scratch,
        agent_options=" ".join(["", *agent_options]),
    )


def _container_options(options: Mapping[str, str], folder: RunFolder) -> dict[str, str]:
    """Return the options of the Pyxis plugin that let the agent, which runs in the image, see the run's folder."""
    if "container-image" not in options:
        return {}
    user_folder = folder.root.parents[2]  # in which packtrain was called; it has the run's folder
    mounts = filter(None, (options.get("container-mounts", ""), f"{user_folder}:{user_folder}"))
    return {"container-mounts": ",".join(mounts)}


_TEMPLATE = """\
#!/bin/bash
{directives}
trap '' USR1  # until the agent receives it, the announced end of the job must not end it
# Run the attempt that the task's line in the tasks file names: job id, attempt id.
run={root}
mapfile -t -s "$SLURM_ARRAY_TASK_ID" -n 1 line < {tasks} && read -r job attempt <<< "${{line[0]}}" || exit 71
folder=$run/jobs/$job/attempts/$attempt
plan=$folder/plan.json
[ -e "$plan" ] || plan=$run/jobs/$job/plan.json
mkdir -p "$folder" && exec >> "$folder/agent.out" 2>&1 || exit 56
unset SLURM_EXPORT_ENV  # so that `srun` in a step passes the step's variables on
exec /bin/sh "$run/launch.sh" "$plan" --attempt-id "$attempt" --attempt-folder "$folder" --secrets "$run/secrets" \\
    --execution "$((${{SLURM_RESTART_COUNT:-0}} + 1))" --site "$SLURMD_NODENAME" --scratch "{scratch}" \\
    --deadline auto{agent_options}
"""
