"""Runs the supervisor as a small Slurm job that requeues itself before its time limit.

It outlives the login session, and sites that end processes on login nodes. The lease of the run makes sure that no two
supervisors act at once, whatever Slurm restarts.
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from packtrain.engines.slurm.run_settings import SETTINGS_FILE, RunSettings
from packtrain.engines.slurm.sbatch_options import format_time_limit, merge_options
from packtrain.engines.slurm.slurm_client import SlurmClient
from packtrain.errors import EXIT_INTERNAL
from packtrain.fileutil import atomic_write
from packtrain.plan import RunFolder
from packtrain.slurm.batchfile.directives import render_directives
from packtrain.spec.user_config import SlurmSupervisorConfig, load_user_config

_logger = logging.getLogger("packtrain.engines.slurm")
_MEMORY_MB = 500
_MAX_HANDOVER_S = 120  # before the time limit; Slurm sends the signal up to a minute early
# Options of the run's jobs that say who submits them, and where.
_INHERITED_OPTIONS = ("account", "partition", "qos", "reservation", "wckey")
# The supervisor submits jobs, so it needs no more than these. sbatch passes on the variables that jobs get.
_ENV_NAMES = ("PACKTRAIN_STORE", "PACKTRAIN_CONFIG", "SLURM_CONF", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "PYTHONPATH")


def submit_supervisor(
    run_id: str,
    folder: RunFolder,
    command: Sequence[str],
    environ: Mapping[str, str],
    secret_names: Collection[str] = (),
) -> str:
    """Submit the supervisor of a run and return the number of its job.

    Args:
        run_id: The run to supervise.
        folder: The folder of the run.
        command: The command of the supervisor.
        environ: The user's variables.
        secret_names: Names of variables that hold secrets of the workflow; the script does not contain them.

    Raises:
        FailedError: Slurm rejects the job.
        UnavailableError: Slurm does not answer.
    """
    settings = RunSettings.read(folder.slurm / SETTINGS_FILE)
    options = supervisor_options(settings, load_user_config().slurm.supervisor)
    variables = {name: environ[name] for name in _ENV_NAMES if name in environ and name not in secret_names}
    path = folder.slurm / "supervisor.sh"
    atomic_write(path, render_supervisor_script(run_id, folder, path, command, options, variables))
    _logger.debug("submit the supervisor of %s: %s", run_id, shlex.join(command))
    return str(SlurmClient(environ).submit(path))


def supervisor_options(settings: RunSettings, config: SlurmSupervisorConfig) -> dict[str, str]:
    """Return the options of sbatch.

    Args:
        settings: The settings of the run; the supervisor gets the account and the partition of its jobs.
        config: `slurm.supervisor` of the user's settings, which wins.
    """
    run_options = merge_options(settings.options)
    handover_s = min(_MAX_HANDOVER_S, max(1, math.floor(config.time / 2)))
    return {
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": "1",
        **({"mem-per-cpu": f"{_MEMORY_MB}M"} if settings.requests_memory else {}),
        "time": format_time_limit(config.time),
        "signal": f"B:USR1@{handover_s}",
        **{name: run_options[name] for name in _INHERITED_OPTIONS if name in run_options},
        **({"partition": config.partition} if config.partition else {}),
        **({"requeue": ""} if settings.may_requeue else {}),
        **merge_options(config.options.items()),
    }


def render_supervisor_script(
    run_id: str,
    folder: RunFolder,
    path: Path,
    command: Sequence[str],
    options: Mapping[str, str],
    variables: Mapping[str, str],
) -> str:
    """Return the batch script, which will be at `path`.

    Before the time limit, Slurm sends USR1 to the script: the supervisor hands over, and the job requeues itself. So
    it does after an internal error (exit code 1) or when the supervisor was killed, but not if that happens many times
    in quick succession. Where jobs may not be requeued, it submits itself again. When the job is cancelled, the
    supervisor hands over, too, and `packtrain resume` continues.
    """
    fixed = {
        "job-name": f"packtrain-{run_id}",
        "comment": f"packtrain {run_id}",
        "output": str(folder.supervisor_log),
        "open-mode": "append",
        "export": "ALL",  # of an environment that has only harmless variables, see `slurm_client`
    }
    return _TEMPLATE.format(
        directives=render_directives({**options, **fixed}),
        exports="".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()),
        requeue='scontrol requeue "$job"' if "requeue" in options else f"sbatch {shlex.quote(str(path))}",
        command=shlex.join(command),
        internal=EXIT_INTERNAL,
    )


_TEMPLATE = """\
#!/bin/bash
{directives}
job=$SLURM_JOB_ID restarts=${{SLURM_RESTART_COUNT:-0}} requeue= cancelled=
unset TMPDIR  # that of this job; the run's jobs have their own
for name in "${{!SLURM_@}}" "${{!SBATCH_@}}"; do [ "$name" = SLURM_CONF ] || unset "$name"; done
{exports}
trap 'requeue=1; kill -TERM "$supervisor"' USR1
trap 'cancelled=1; kill -TERM "$supervisor"' TERM
{command} &
supervisor=$!
wait "$supervisor"; code=$?
while kill -0 "$supervisor" 2>/dev/null; do wait "$supervisor"; code=$?; done  # a signal interrupts `wait`

if [ "$code" -eq {internal} ] || [ "$code" -eq 137 ]; then  # an internal error, or killed
    [ "$SECONDS" -lt 60 ] && [ "$restarts" -ge 10 ] || requeue=1
fi
if [ -n "$requeue" ] && [ -z "$cancelled" ]; then
    {requeue}
fi
exit "$code"
"""
