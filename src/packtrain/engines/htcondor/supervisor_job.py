"""The supervisor as a job of the access point itself (scheduler universe), as DAGMan is: it outlives the terminal and
a restart of the schedd, and one condor_rm of it removes the jobs of its run, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.submit_description import check_path
from packtrain.errors import EXIT_INTERNAL, UsageError
from packtrain.plan import RunFolder

_ENV_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
_PACKTRAIN_ENV_NAMES = ("PACKTRAIN_STORE", "PACKTRAIN_CONFIG")  # people name their own variables like this, too
_ENV_PREFIXES = ("CONDOR_CONFIG", "_CONDOR_", "XDG_", "SSL_CERT_")  # _CONDOR_: settings, which all may read
_EXCLUDED_ENV_NAMES = ("_CONDOR_CREDS",)
_MAX_QUICK_RESTARTS, _MIN_RESTART_INTERVAL_S = 10, 20


def submit_supervisor(
    run_id: str,
    folder: RunFolder,
    command: Sequence[str],
    environ: Mapping[str, str],
    secret_names: Collection[str] = (),
) -> str:
    """The job's name, e.g. 12.0; `secret` are the variables that the workflow refers to. Raises FailedError or
    RefusedError."""
    check_path(folder.root)
    text = render_supervisor_job(run_id, folder, command, supervisor_environment(environ, secret_names))
    (folder.htcondor / "supervisor.sub").write_text(text, encoding="utf-8")
    return f"{CondorClient().submit(text)}.0"


def reject_getenv(settings: RunSettings) -> None:
    """HTCondor would look into the environment of the one who submits the jobs: the supervisor's. Raises UsageError."""
    if settings.get_submit_line("getenv").lower() not in ("", "false", "no", "f", "0"):
        raise UsageError(
            "`getenv` does not work with --detach: the supervisor submits the jobs, and has few of your variables; "
            "name those that the jobs need with `environment` (`env` of a workflow), or run without --detach"
        )


def supervisor_environment(environ: Mapping[str, str], secret_names: Collection[str] = ()) -> dict[str, str]:
    """A job ad can be read by everybody: only what finds programs and files goes in."""
    names = (n for n in environ if n in (*_ENV_NAMES, *_PACKTRAIN_ENV_NAMES) or n.startswith(_ENV_PREFIXES))
    return {name: environ[name] for name in sorted(names) if name not in (*_EXCLUDED_ENV_NAMES, *secret_names)}


def render_supervisor_job(run_id: str, folder: RunFolder, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """TERM (the schedd shuts down) lets the jobs go on; USR1 (condor_rm) ends them. A defect, a store that cannot be
    written (exit code 1) or a signal starts it again; many times in a long run, but not over and over."""
    executable, *words = command
    hopeless = f"(NumJobStarts >= {_MAX_QUICK_RESTARTS} && time() - QDate < {_MIN_RESTART_INTERVAL_S} * NumJobStarts)"
    settled = f"(ExitBySignal == false && ExitCode != {EXIT_INTERNAL}) || {hopeless}"
    lines = {
        "universe": "scheduler",
        "batch_name": run_id,
        "executable": executable,
        "arguments": f'"{" ".join(map(_quote, words))}"',
        "environment": '"' + " ".join(f"{name}={_quote(value)}" for name, value in environ.items()) + '"',
        "initialdir": str(folder.root),
        "output": str(folder.supervisor_log),
        "error": str(folder.supervisor_log),
        "log": str(folder.htcondor / "supervisor.log"),
        "kill_sig": "SIGTERM",
        "remove_kill_sig": "SIGUSR1",
        "on_exit_remove": settled,
        "+PacktrainRun": f'"{run_id}"',
        "+OtherJobRemoveRequirements": f'"PacktrainRun =?= \\"{run_id}\\" && PacktrainAttempt =!= undefined"',
    }
    width = max(map(len, lines))
    return "".join(f"{key:<{width}} = {value}\n" for key, value in lines.items()) + "\nqueue\n"


def _quote(value: str) -> str:
    """For HTCondor's new syntax of arguments and environment."""
    return "'" + value.replace("'", "''").replace('"', '""') + "'"
