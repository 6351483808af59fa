"""The table of sbatch's options, versions 22.05 to 26.05: what happens to each one of a batch script.

A test compares the names and their arguments with the installed versions of sbatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Argument(Enum):
    """Whether an option has an argument."""

    NONE = "none"
    OPTIONAL = "optional"  # only as `--name=value`
    REQUIRED = "required"


class Handling(Enum):
    """What happens to an option."""

    PASSED_THROUGH = "passed through"  # to Slurm, unchanged
    TRANSLATED = "translated"  # becomes a key of the workflow; see `resources`, `jobs` and `program`
    IGNORED = "ignored"  # has no meaning here; without a warning
    WARNED = "ignored with a warning"
    REFUSED = "refused"


@dataclass(frozen=True)
class Option:
    """One long option.

    Attributes:
        name: Without the dashes.
        argument: Whether it has an argument.
        handling: What happens to it.
        reason: For WARNED and REFUSED, the end of the sentence `--name is …: `.
    """

    name: str
    argument: Argument
    handling: Handling
    reason: str = ""


_TRANSLATED = """
    array chdir cpus-per-task error export gpus gpus-per-node gpus-per-socket gpus-per-task gres input job-name mem
    mem-per-cpu mem-per-gpu nodes ntasks ntasks-per-node open-mode output signal time
"""
_PASSED_THROUGH = """
    account acctg-freq batch bb bbf begin cluster-constraint constraint context core-spec cores-per-socket cpu-freq
    cpus-per-gpu deadline delay-boot distribution exclude extra extra-node-info gpu-bind gpu-freq gres-flags hint
    licenses mail-type mail-user mcs-label mem-bind mem-update mincpus network nodefile nodelist ntasks-per-core
    ntasks-per-gpu ntasks-per-socket ntasks-per-tres partition power prefer priority profile qos reservation resources
    segment sockets-per-node switches thread-spec threads-per-core time-min tmp tres-bind tres-per-task
    wait-all-nodes wckey
"""
_PASSED_THROUGH_OPTIONAL = "exclusive nice no-kill oom-kill-step propagate requeue resv-ports"
_PASSED_THROUGH_FLAGS = """
    consolidate-segments contiguous no-requeue overcommit oversubscribe reboot spread-job spread-segments stepmgr
    use-min-nodes
"""
# Options of the Pyxis plugin, which runs jobs in container images. They exist only where a site has installed it.
_PYXIS = "container-env container-image container-mounts container-name container-save container-workdir"
_PYXIS_FLAGS = """
    container-entrypoint container-entrypoint-log container-mount-home container-readonly container-remap-root
    container-writable no-container-entrypoint no-container-mount-home no-container-remap-root
"""
_IGNORED_FLAGS = "help ignore-pbs parsable quiet usage verbose version wait"
_WARNED = {
    "comment": (Argument.REQUIRED, "packtrain sets the comment of its jobs"),
    "get-user-env": (Argument.OPTIONAL, "start the script with `#!/bin/bash -l` instead, which reads your profile"),
}
_ONE_CLUSTER = "packtrain submits to the cluster of this machine"
_OCI = "packtrain's agent would run in the container; use a workflow with `environment.container`"
_REFUSED = {
    "autocomplete": "it does not belong in a script",
    "cluster": _ONE_CLUSTER,
    "clusters": _ONE_CLUSTER,
    "container": _OCI,
    "container-id": _OCI,
    "container-type": _OCI,
    "dependency": "packtrain may submit a job again when the other one has left the queue; "
    "start the run when the other job has ended",
    "export-file": "write the variables into the script",
    "gid": "only root may use it",
    "kill-on-invalid-dep": "it belongs to --dependency, which is not supported",
    "uid": "only root may use it",
    "wrap": "it replaces the script",
}
_REFUSED_FLAGS = {
    "external": "such a job runs no program",
    "hold": "packtrain does not submit jobs on hold; remove the line",
    "test-only": "such a job does not run; `packtrain run --dry-run` checks a script",
}


def _make_table() -> dict[str, Option]:
    groups = (
        (_PYXIS, Argument.REQUIRED, Handling.PASSED_THROUGH),
        (_PYXIS_FLAGS, Argument.NONE, Handling.PASSED_THROUGH),
        (_TRANSLATED, Argument.REQUIRED, Handling.TRANSLATED),
        (_PASSED_THROUGH, Argument.REQUIRED, Handling.PASSED_THROUGH),
        (_PASSED_THROUGH_OPTIONAL, Argument.OPTIONAL, Handling.PASSED_THROUGH),
        (_PASSED_THROUGH_FLAGS, Argument.NONE, Handling.PASSED_THROUGH),
        (_IGNORED_FLAGS, Argument.NONE, Handling.IGNORED),
    )
    options = [Option(name, argument, handling) for names, argument, handling in groups for name in names.split()]
    options += [Option(name, argument, Handling.WARNED, reason) for name, (argument, reason) in _WARNED.items()]
    options += [Option(name, Argument.REQUIRED, Handling.REFUSED, reason) for name, reason in _REFUSED.items()]
    options += [Option(name, Argument.NONE, Handling.REFUSED, reason) for name, reason in _REFUSED_FLAGS.items()]
    return {option.name: option for option in options}


OPTIONS = _make_table()
PYXIS_OPTIONS = frozenset((_PYXIS + _PYXIS_FLAGS).split())
ALIASES = {"tasks-per-node": "ntasks-per-node"}
"""Long options with another name."""

SHORT_OPTIONS = {
    "A": "account", "B": "extra-node-info", "C": "constraint", "D": "chdir", "F": "nodefile", "G": "gpus",
    "H": "hold", "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "O": "overcommit", "Q": "quiet",
    "S": "core-spec", "V": "version", "W": "wait", "a": "array", "b": "begin", "c": "cpus-per-task",
    "d": "dependency", "e": "error", "h": "help", "i": "input", "k": "no-kill", "m": "distribution", "n": "ntasks",
    "o": "output", "p": "partition", "q": "qos", "s": "oversubscribe", "t": "time", "v": "verbose", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip


VARIABLES = {
    "SBATCH_ACCOUNT": "account", "SBATCH_CONSTRAINT": "constraint", "SBATCH_ERROR": "error", "SBATCH_GPUS": "gpus",
    "SBATCH_GRES": "gres", "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_NODE": "mem", "SBATCH_OUTPUT": "output", "SBATCH_PARTITION": "partition", "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation", "SBATCH_TIMELIMIT": "time", "SBATCH_WCKEY": "wckey",
}  # fmt: skip
"""Environment variables that set an option; they win over the script, as in sbatch."""


def find_options(name: str) -> list[Option]:
    """Return the option that a long name or its beginning means; several if it is ambiguous, none if unknown."""
    if exact := OPTIONS.get(ALIASES.get(name, name)):
        return [exact]
    own_names = (long for long in (*OPTIONS, *ALIASES) if long not in PYXIS_OPTIONS)
    matches = {ALIASES.get(long, long) for long in own_names if name and long.startswith(name)}
    return [OPTIONS[match] for match in sorted(matches)]
