"""The supervisor as a job of the access point itself (scheduler universe), as DAGMan is: it outlives the terminal and
a restart of the schedd, and one condor_rm of it removes the jobs of its run, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packtrain.engines.htcondor.client import Client
from packtrain.engines.htcondor.text import check_path
from packtrain.errors import EXIT_INTERNAL
from packtrain.plan import RunFolder

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
_PASSED_PREFIXES = ("PACKTRAIN_", "CONDOR_CONFIG", "_CONDOR_", "XDG_", "SSL_CERT_")
_NOT_PASSED = ("_CONDOR_CREDS", "PACKTRAIN_TOKEN")
_MOST_STARTS = 10


def submit_supervisor(run: str, folder: RunFolder, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """The job's name, e.g. 12.0. Raises FailedError or RefusedError."""
    check_path(folder.root)
    text = supervisor_text(run, folder, command, passed(environ))
    (folder.htcondor / "supervisor.sub").write_text(text, encoding="utf-8")
    return f"{Client().submit(text)}.0"


def passed(environ: Mapping[str, str]) -> dict[str, str]:
    """A job ad can be read by everybody: only what finds programs and files goes in."""
    names = (n for n in environ if n in _PASSED or n.startswith(_PASSED_PREFIXES))
    return {name: environ[name] for name in sorted(names) if name not in _NOT_PASSED}


def supervisor_text(run: str, folder: RunFolder, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """TERM (the schedd shuts down) lets the jobs go on; USR1 (condor_rm) ends them. A defect (exit code 1) or a signal
    starts it again, a few times."""
    executable, *words = command
    settled = f"(ExitBySignal == false && ExitCode != {EXIT_INTERNAL}) || NumJobStarts >= {_MOST_STARTS}"
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
