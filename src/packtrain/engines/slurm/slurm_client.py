"""Calls Slurm's commands. The only module of the engine that starts processes.

Commands get a small environment: sbatch copies its own into the job, so it must have neither secrets nor the SLURM_*
variables of a job that packtrain itself runs in.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from packtrain.engines.job_environment import job_environment
from packtrain.errors import FailedError, UnavailableError, UsageError
from packtrain.slurm.accounting.text_format import accounting_argv
from packtrain.slurm.cluster_config import CONFIG_ARGV, TMP_DISK_ARGV, ClusterConfig, parse_cluster_config
from packtrain.slurm.sacct import parse_sacct, sacct_argv
from packtrain.slurm.squeue import TaskStatus, parse_squeue, squeue_argv

_logger = logging.getLogger("packtrain.engines.slurm")
# Slurm's commands give up by themselves only after minutes, and a supervisor must renew its lease twice a minute.
_TIMEOUT_S = 25.0
_REPORT_TIMEOUT_S = 600.0  # of a query for a report, which may cover months
# The submission may have been accepted although its answer was lost.
_UNREACHABLE = re.compile(
    r"Socket timed out|Unable to contact|Connection refused|Connection reset|Zero Bytes were transmitted|"
    r"slurm_load_jobs error|temporarily unable|Resource temporarily unavailable|Communication connection failure|"
    r"Munge|munge|Slurm backup controller|I/O error writing|Transport endpoint|Protocol authentication|timed out",
)
_SUBMIT_LIMIT = re.compile(r"SubmitJobLimit|job submit limit|MaxJobCount|AssocGrpSubmit|QOSMaxSubmit", re.IGNORECASE)


class SlurmUnreachableError(UnavailableError):
    """Slurm's controller does not answer at the moment."""


class SubmitLimitError(UnavailableError):
    """The site does not accept that many jobs at the moment."""


class SlurmClient:
    """Calls the Slurm of this machine.

    Args:
        user_env: The user's environment.
    """

    def __init__(self, user_env: Mapping[str, str] | None = None) -> None:
        env = os.environ if user_env is None else user_env
        self._env = {**job_environment(env), "SLURM_TIME_FORMAT": "%s"}
        self._env.pop("TMPDIR", None)  # a folder of this machine; nodes have their own
        if "SLURM_CONF" in env:
            self._env["SLURM_CONF"] = env["SLURM_CONF"]

    def submit(self, script: Path, options: Sequence[str] = ()) -> int:
        """Submit a batch script and return the number of the job.

        If the answer is lost, Slurm may have accepted the job: look for its name before submitting it again.

        Args:
            script: The batch script.
            options: Replace those of the script.

        Raises:
            SlurmUnreachableError: Slurm does not answer.
            SubmitLimitError: A limit on the number of jobs is reached.
            FailedError: Slurm rejects the script (submit_rejected).
        """
        result = self._run(["sbatch", "--parsable", *options, str(script)])
        number = result.stdout.strip().partition(";")[0]
        if result.returncode == 0 and number.isdigit():
            return int(number)
        message = _error_message(result)
        if _SUBMIT_LIMIT.search(message):
            raise SubmitLimitError(message)
        if _UNREACHABLE.search(message) or result.returncode == 0:
            raise SlurmUnreachableError(message)
        raise FailedError("submit_rejected", f"sbatch rejected the job: {message}")

    def query(self, names: Sequence[str]) -> list[TaskStatus]:
        """Return the tasks of the jobs with these names.

        Raises:
            SlurmUnreachableError: Slurm does not answer.
        """
        if not names:
            return []
        return list(parse_squeue(self._read(squeue_argv(names))))

    def read(self, argv: Sequence[str], timeout_s: float = _TIMEOUT_S) -> str:
        """Return what a command prints that changes nothing.

        Raises:
            SlurmUnreachableError: The command failed.
        """
        return self._read(argv, timeout_s)

    def read_accounting(self, since: str, until: str = "", user: str = "") -> str:
        """Return what sacct prints for `accounting_argv`.

        Raises:
            SlurmUnreachableError: The accounting database does not answer.
            UsageError: sacct rejects an argument, or the site has no accounting.
        """
        result = self._run(accounting_argv(since, until, user), _REPORT_TIMEOUT_S)
        if result.returncode == 0:
            return result.stdout
        message = _error_message(result)
        if _UNREACHABLE.search(message):
            raise SlurmUnreachableError(f"sacct did not answer: {message}")
        raise UsageError(f"sacct failed: {message}")

    def query_accounting(self, array_jobs: Sequence[int]) -> list[TaskStatus]:
        """Return the tasks of arrays as the accounting database knows them, in any state.

        Raises:
            SlurmUnreachableError: The database does not answer.
        """
        return list(parse_sacct(self._read(sacct_argv(array_jobs)))) if array_jobs else []

    def terminate(self, native_ids: Sequence[str]) -> None:
        """Send SIGTERM to the agents of running tasks. Slurm does not end the jobs by itself then."""
        self._act(["scancel", "--batch", "--signal=TERM"], native_ids)

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Cancel tasks: SIGTERM to all their processes, SIGKILL after the site's KillWait. Unknown ones are ignored."""
        self._act(["scancel"], native_ids)

    def release(self, native_ids: Sequence[str]) -> None:
        """Release held tasks."""
        self._act(["scontrol", "release"], native_ids)

    def read_config(self) -> ClusterConfig:
        """Return the configuration of the cluster.

        Raises:
            SlurmUnreachableError: Slurm does not answer.
        """
        return parse_cluster_config(*(self._read(argv) for argv in (CONFIG_ARGV, TMP_DISK_ARGV)))

    def _act(self, argv: Sequence[str], native_ids: Sequence[str], max_ids: int = 500) -> None:
        for start in range(0, len(native_ids), max_ids):
            result = self._run([*argv, *native_ids[start : start + max_ids]])
            message = _error_message(result)
            if result.returncode and _UNREACHABLE.search(message):
                raise SlurmUnreachableError(message)

    def _read(self, argv: Sequence[str], timeout_s: float = _TIMEOUT_S) -> str:
        result = self._run(argv, timeout_s)
        if result.returncode:
            raise SlurmUnreachableError(_error_message(result))
        return result.stdout

    def _run(self, argv: Sequence[str], timeout_s: float = _TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        _logger.debug("%s", " ".join(argv[:8]))
        try:
            return subprocess.run(
                argv, capture_output=True, text=True, errors="replace", env=self._env, timeout=timeout_s,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except FileNotFoundError:
            raise UsageError(
                f"`{argv[0]}` was not found; run this on a login node of a Slurm cluster, or load its module"
            ) from None
        except subprocess.TimeoutExpired:
            raise SlurmUnreachableError(f"{argv[0]} did not answer within {timeout_s:.0f} s") from None


def _error_message(result: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of stderr, without the name of the program."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error: )?", "", " ".join(lines)) or f"exit code {result.returncode} without a message"
