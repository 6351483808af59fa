"""The configuration of a cluster as `scontrol show config` and `sinfo` print it."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
        max_tmp_disk_mb: Disk space of the largest node for --tmp; 0 if the site has not configured it.
    """

    max_array_tasks: int = _DEFAULT_MAX_ARRAY_SIZE - 1
    has_cons_tres: bool = True
    has_accounting: bool = False
    max_tmp_disk_mb: int = 0


def parse_cluster_config(config: str, tmp_disks: str = "") -> ClusterConfig:
    """Parse the output of `CONFIG_ARGV` and `TMP_DISK_ARGV`. Missing lines count as Slurm's defaults."""
    values = _parse_values(config)
    array_size = values.get("MaxArraySize", "")
    return ClusterConfig(
        max_array_tasks=max(1, (int(array_size) if array_size.isdigit() else _DEFAULT_MAX_ARRAY_SIZE) - 1),
        has_cons_tres=values.get("SelectType", "select/cons_tres") == "select/cons_tres",
        has_accounting=values.get("AccountingStorageType", "").endswith("slurmdbd"),
        max_tmp_disk_mb=max((int(text) for text in re.findall(r"^(\d+)\+?\s*$", tmp_disks, re.MULTILINE)), default=0),
    )


def _parse_values(config: str) -> Mapping[str, str]:
    return dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, re.MULTILINE))
