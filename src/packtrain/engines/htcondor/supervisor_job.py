"""Runs the supervisor as a job of the access point (scheduler universe), like DAGMan.

It outlives the terminal and a restart of the schedd. One condor_rm of it also removes the jobs of its run.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Collection, Mapping, Sequence

from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.submit_description import check_path
from packtrain.errors import EXIT_INTERNAL, UsageError
from packtrain.fileutil import atomic_write
from packtrain.plan import RunFolder

_logger = logging.getLogger("packtrain.engines.htcondor")
_ENV_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
_PACKTRAIN_ENV_NAMES = ("PACKTRAIN_STORE", "PACKTRAIN_CONFIG")  # no prefix: users have PACKTRAIN_… variables, too
_ENV_PREFIXES = ("CONDOR_CONFIG", "_CONDOR_", "XDG_", "SSL_CERT_")  # _CONDOR_…: configuration, which is public
_EXCLUDED_ENV_NAMES = ("_CONDOR_CREDS",)
_MAX_QUICK_RESTARTS, _MIN_RESTART_INTERVAL_S = 10, 20


def submit_supervisor(
    run_id: str,
    folder: RunFolder,
    command: Sequence[str],
    environ: Mapping[str, str],
    secret_names: Collection[str] = (),
) -> str:
    """Submit the supervisor of a run and return its native id, for example 12.0.

    Args:
        run_id: The run to supervise.
        folder: The folder of the run.
        command: The command of the supervisor.
        environ: The user's variables.
        secret_names: Names of variables that hold secrets of the workflow; the job does not get them.

    Raises FailedError if the schedd rejects the job, or UnavailableError if it does not answer.
    """
    check_path(folder.root)
    text = render_supervisor_job(run_id, folder, command, supervisor_environment(environ, secret_names))
    atomic_write(folder.htcondor / "supervisor.sub", text)
    _logger.debug("submit the supervisor of %s: %s", run_id, shlex.join(command))
    return f"{CondorClient().submit(text)}.0"


def reject_getenv(settings: RunSettings) -> None:
    """Raise UsageError if the run uses `getenv`.

    HTCondor would copy the environment of the process that submits the jobs, which is the supervisor.
    """
    if settings.get_submit_line("getenv").lower() not in ("", "false", "no", "f", "0"):
        raise UsageError(
            "`getenv` does not work with --detach: the supervisor submits the jobs, and it has only a few of your "
            "variables; list the variables that jobs need in `environment` (`env` of a workflow), or omit --detach"
        )


def supervisor_environment(environ: Mapping[str, str], secret_names: Collection[str] = ()) -> dict[str, str]:
    """Return the variables for the supervisor's job: only those that locate programs and files.

    All users of the pool can read a job ad, so it must not contain secrets.
    """
    names = (n for n in environ if n in (*_ENV_NAMES, *_PACKTRAIN_ENV_NAMES) or n.startswith(_ENV_PREFIXES))
    return {name: environ[name] for name in sorted(names) if name not in (*_EXCLUDED_ENV_NAMES, *secret_names)}


def render_supervisor_job(run_id: str, folder: RunFolder, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the submit description of the supervisor.

    On SIGTERM (the schedd shuts down) the supervisor exits and the jobs continue; on SIGUSR1 (condor_rm) it cancels
    them. HTCondor restarts the supervisor after an internal error (exit code 1) or a signal, but not if that happens
    many times in quick succession.
    """
    executable, *arguments = command
    is_looping = f"(NumJobStarts >= {_MAX_QUICK_RESTARTS} && time() - QDate < {_MIN_RESTART_INTERVAL_S} * NumJobStarts)"
    is_done = f"(ExitBySignal == false && ExitCode != {EXIT_INTERNAL}) || {is_looping}"
    lines = {
        "universe": "scheduler",
        "batch_name": run_id,
        "executable": executable,
        "arguments": f'"{" ".join(map(_quote, arguments))}"',
        "environment": '"' + " ".join(f"{name}={_quote(value)}" for name, value in environ.items()) + '"',
        "initialdir": str(folder.root),
        "output": str(folder.supervisor_log),
        "error": str(folder.supervisor_log),
        "log": str(folder.htcondor / "supervisor.log"),
        "kill_sig": "SIGTERM",
        "remove_kill_sig": "SIGUSR1",
        "on_exit_remove": is_done,
        "+PacktrainRun": f'"{run_id}"',
        "+OtherJobRemoveRequirements": f'"PacktrainRun =?= \\"{run_id}\\" && PacktrainAttempt =!= undefined"',
    }
    width = max(map(len, lines))
    return "".join(f"{key:<{width}} = {value}\n" for key, value in lines.items()) + "\nqueue\n"


def _quote(value: str) -> str:
    """Quote a value for HTCondor's new syntax of arguments and environment."""
    return "'" + value.replace("'", "''").replace('"', '""') + "'"
