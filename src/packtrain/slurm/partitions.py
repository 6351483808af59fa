"""The partitions as `scontrol show partition --oneliner` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packtrain.slurm.accounting.values import parse_duration_s

PARTITIONS_ARGV = ("scontrol", "show", "partition", "--oneliner")
_UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "N/A", "")


@dataclass(frozen=True)
class Partition:
    """One partition.

    Attributes:
        name: Its name.
        is_default: Jobs without a partition run here.
        is_up: Jobs start here.
        max_time_s: The longest time limit; None for none.
        nodes: Number of nodes.
        gpus: Number of GPUs on all nodes.
        priority_tier: Jobs of higher tiers may preempt those of lower ones.
        preempt_mode: OFF, REQUEUE, CANCEL or SUSPEND.
        grace_s: Time between the announcement of a preemption and its end.
        accounts: Accounts that may use it; "" for all.
    """

    name: str
    is_default: bool = False
    is_up: bool = True
    max_time_s: float | None = None
    nodes: int = 0
    gpus: int = 0
    priority_tier: int = 1
    preempt_mode: str = "OFF"
    grace_s: int = 0
    accounts: str = ""


def parse_partitions(output: str) -> Iterator[Partition]:
    """Parse the output of `PARTITIONS_ARGV`. Lines without a name are left out."""
    for line in output.splitlines():
        values = dict(re.findall(r"(\w+)=(\S*)", line))
        if values.get("PartitionName"):
            yield _parse_partition(values, line)


def _parse_partition(values: Mapping[str, str], line: str) -> Partition:
    gpus = re.search(r"\bgres/gpu=(\d+)", line)
    accounts = values.get("AllowAccounts", "ALL")
    return Partition(
        name=values["PartitionName"],
        is_default=values.get("Default") == "YES",
        is_up=values.get("State", "UP") == "UP",
        max_time_s=_parse_time(values.get("MaxTime", "")),
        nodes=_parse_int(values.get("TotalNodes", "")),
        gpus=int(gpus[1]) if gpus else 0,
        priority_tier=_parse_int(values.get("PriorityTier", "1")),
        preempt_mode=values.get("PreemptMode", "OFF"),
        grace_s=_parse_int(values.get("GraceTime", "")),
        accounts="" if accounts == "ALL" else accounts,
    )


def _parse_time(text: str) -> float | None:
    try:
        return None if text in _UNLIMITED else parse_duration_s(text)
    except ValueError:
        return None


def _parse_int(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
