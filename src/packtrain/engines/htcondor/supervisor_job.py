"""The supervisor as a job of the access point itself (scheduler universe), as DAGMan is: it outlives the terminal and
a restart of the schedd, and one condor_rm of it removes the jobs of its run, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from packtrain.engines.htcondor.condor_client import Client
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.submit_description import check_path
from packtrain.errors import EXIT_INTERNAL, UsageError
from packtrain.plan import RunFolder

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
_OURS = ("PACKTRAIN_STORE", "PACKTRAIN_CONFIG")  # people name their own variables like this, too
_PASSED_PREFIXES = ("CONDOR_CONFIG", "_CONDOR_", "XDG_", "SSL_CERT_")  # _CONDOR_: settings, which all may read
_NOT_PASSED = ("_CONDOR_CREDS",)
_MOST_STARTS, _SOON_S = 10, 20


def submit_supervisor(
    run: str, folder: RunFolder, command: Sequence[str], environ: Mapping[str, str], secret: Collection[str] = ()
) -> str:
    """The job's name, e.g. 12.0; `secret` are the variables that the workflow refers to. Raises FailedError or
    RefusedError."""
    check_path(folder.root)
    text = supervisor_text(run, folder, command, passed(environ, secret))
    (folder.htcondor / "supervisor.sub").write_text(text, encoding="utf-8")
    return f"{Client().submit(text)}.0"


def refuse_getenv(settings: RunSettings) -> None:
    """HTCondor would look into the environment of the one who submits the jobs: the supervisor's. Raises UsageError."""
    if settings.line("getenv").lower() not in ("", "false", "no", "f", "0"):
        raise UsageError(
            "`getenv` does not work with --detach: the supervisor submits the jobs, and has few of your variables; "
            "name those that the jobs need with `environment` (`env` of a workflow), or run without --detach"
        )


def passed(environ: Mapping[str, str], secret: Collection[str] = ()) -> dict[str, str]:
    """A job ad can be read by everybody: only what finds programs and files goes in."""
    names = (n for n in environ if n in (*_PASSED, *_OURS) or n.startswith(_PASSED_PREFIXES))
    return {name: environ[name] for name in sorted(names) if name not in (*_NOT_PASSED, *secret)}


def supervisor_text(run: str, folder: RunFolder, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """TERM (the schedd shuts down) lets the jobs go on; USR1 (condor_rm) ends them. A defect, a store that cannot be
    written (exit code 1) or a signal starts it again; many times in a long run, but not over and over."""
    executable, *words = command
    hopeless = f"(NumJobStarts >= {_MOST_STARTS} && time() - QDate < {_SOON_S} * NumJobStarts)"
    settled = f"(ExitBySignal == false && ExitCode != {EXIT_INTERNAL}) || {hopeless}"
    lines = {
        "universe": "scheduler",
        "batch_name": run,
        "executable": executable,
        "arguments": f'"{" ".join(map(_quoted, words))}"',
        "environment": '"' + " ".join(f"{name}={_quoted(value)}" for name, value in environ.items()) + '"',
        "initialdir": str(folder.root),
        "output": str(folder.supervisor_log),
        "error": str(folder.supervisor_log),
        "log": str(folder.htcondor / "supervisor.log"),
        "kill_sig": "SIGTERM",
        "remove_kill_sig": "SIGUSR1",
        "on_exit_remove": settled,
        "+PacktrainRun": f'"{run}"',
        "+OtherJobRemoveRequirements": f'"PacktrainRun =?= \\"{run}\\" && PacktrainDecision =!= undefined"',
    }
    width = max(map(len, lines))
    return "".join(f"{key:<{width}} = {value}\n" for key, value in lines.items()) + "\nqueue\n"


def _quoted(word: str) -> str:
    """For HTCondor's new syntax of arguments and environment."""
    return "'" + word.replace("'", "''").replace('"', '""') + "'"
