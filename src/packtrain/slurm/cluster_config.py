"""The configuration of a cluster as `scontrol show config` and `sinfo` print it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEFAULT_MAX_ARRAY_SIZE = 1001
CONFIG_ARGV = ("scontrol", "show", "config")
TMP_DISK_ARGV = ("sinfo", "--noheader", "--format=%d")


@dataclass(frozen=True)
class ClusterConfig:
    """What matters to jobs.

    Attributes:
        max_array_tasks: Maximum number of tasks of an array.
        has_cons_tres: Jobs can request GPUs per node (--gpus-per-node); without it only --gres works.
        has_accounting: sacct can answer, because slurmdbd stores the jobs.
        kill_wait_s: Time between SIGTERM and SIGKILL when Slurm ends a job.
        max_tmp_disk_mb: Disk space of the largest node for --tmp; 0 if the site has not configured it.
    """

    max_array_tasks: int = _DEFAULT_MAX_ARRAY_SIZE - 1
    has_cons_tres: bool = True
    has_accounting: bool = False
    kill_wait_s: int = 0
    max_tmp_disk_mb: int = 0


def parse_cluster_config(config: str, tmp_disks: str = "") -> ClusterConfig:
    """Parse the output of `CONFIG_ARGV` and `TMP_DISK_ARGV`. Missing lines count as Slurm's defaults."""
    values = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, re.MULTILINE))
    return ClusterConfig(
        max_array_tasks=max(1, _parse_int(values.get("MaxArraySize", ""), _DEFAULT_MAX_ARRAY_SIZE) - 1),
        has_cons_tres=values.get("SelectType", "select/cons_tres") == "select/cons_tres",
        has_accounting=values.get("AccountingStorageType", "").endswith("slurmdbd"),
        kill_wait_s=_parse_int(values.get("KillWait", "")),
        max_tmp_disk_mb=max(map(_parse_int, tmp_disks.split()), default=0),
    )


def _parse_int(text: str, default: int = 0) -> int:
    """Return the number that a text starts with, as in `30 sec` or `50000+`."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else default
