"""Checks what a Slurm cluster allows, for `packtrain doctor`.

The checks cover the version, the accounting, partitions with their limits and preemption, arrays, requeueing, GPUs,
rate limits, the shared folder and the user's settings. Only with `with_node` a short srun also checks a node.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packtrain.engines.setup_check import ERROR, OK, WARN, SetupCheck
from packtrain.engines.slurm.slurm_client import SlurmClient
from packtrain.errors import PacktrainError
from packtrain.formatting import format_duration, pluralize
from packtrain.slurm.cluster_config import CONFIG_ARGV
from packtrain.slurm.partitions import PARTITIONS_ARGV, Partition, parse_partitions
from packtrain.spec.user_config import SlurmConfig, load_user_config, user_config_path

_MAX_PARTITIONS = 8
_MIN_PYTHON = (3, 9)
_NODE_TIMEOUT_S = 120.0  # for srun, including its time in the queue


def check_cluster(
    client: SlurmClient, folder: Path, *, has_network_folder: bool = False, with_node: bool = False
) -> Iterator[SetupCheck]:
    """Run all checks, or only the first one if the controller does not answer.

    Args:
        client: Calls Slurm's commands.
        folder: Where runs are started.
        has_network_folder: It is on a network file system.
        with_node: Also run a short job on a node.
    """
    try:
        version = client.read(("sbatch", "--version")).strip()
        config = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", client.read(CONFIG_ARGV), re.MULTILINE))
        partitions = list(parse_partitions(client.read(PARTITIONS_ARGV)))
    except PacktrainError as error:
        yield SetupCheck(ERROR, str(error), "check whether the controller answers: `scontrol ping`")
        return
    yield SetupCheck(OK, f"{version}, cluster {config.get('ClusterName', 'without a name')}")
    yield _check_accounting(client, config)
    yield from _check_partitions(partitions, config)
    yield _check_arrays(config)
    yield _check_requeue(config)
    yield _check_gpus(config, partitions)
    yield _check_rate_limit(config)
    yield from _check_folder(has_network_folder, with_node)
    settings = _load_settings()
    yield _check_settings(settings)
    if with_node and isinstance(settings, SlurmConfig):
        yield from _check_node(client, folder, settings)


def _check_accounting(client: SlurmClient, config: Mapping[str, str]) -> SetupCheck:
    if not config.get("AccountingStorageType", "").endswith("slurmdbd"):
        message = "no accounting database: packtrain follows jobs with squeue alone"
        return SetupCheck(OK, message, "`packtrain report --since` does not work here")
    try:
        client.read(("sacct", "--noheader", "--allocations", "--starttime=now"))
    except PacktrainError as error:
        return SetupCheck(WARN, f"sacct does not answer: {error}", "packtrain uses squeue until it does")
    enforced = config.get("AccountingStorageEnforce", "none")
    suffix = "" if enforced in ("none", "(null)") else f"; enforced: {enforced}"
    return SetupCheck(OK, f"sacct answers{suffix}")


def _check_partitions(partitions: Sequence[Partition], config: Mapping[str, str]) -> Iterator[SetupCheck]:
    if not any(partition.is_default for partition in partitions):
        hint = f"set `slurm: {{options: {{partition: …}}}}` in {user_config_path()}"
        yield SetupCheck(WARN, "no default partition", hint)
    may_preempt = config.get("PreemptType", "preempt/none") != "preempt/none"
    for partition in partitions[:_MAX_PARTITIONS]:
        higher = any(other.priority_tier > partition.priority_tier for other in partitions)
        yield _check_partition(partition, may_preempt and (higher or "qos" in config["PreemptType"]))
    if len(partitions) > _MAX_PARTITIONS:
        yield SetupCheck(OK, f"and {pluralize(len(partitions) - _MAX_PARTITIONS, 'more partition')}; see `sinfo`")


def _check_partition(partition: Partition, may_be_preempted: bool) -> SetupCheck:
    name = f"partition {partition.name}{' (default)' if partition.is_default else ''}"
    limit = "no time limit" if partition.max_time_s is None else f"at most {format_duration(partition.max_time_s)}"
    parts = [pluralize(partition.nodes, "node"), *([pluralize(partition.gpus, "GPU")] if partition.gpus else []), limit]
    if partition.accounts:
        parts.append(f"accounts {partition.accounts}")
    if not partition.is_up:
        return SetupCheck(WARN, f"{name}: it does not start jobs", "choose another one, or ask the site")
    hint = ""
    if may_be_preempted and partition.preempt_mode != "OFF":
        grace = f" after {format_duration(partition.grace_s)}" if partition.grace_s else ""
        parts.append(f"jobs may be preempted ({partition.preempt_mode}{grace})")
        hint = "use `checkpoint:`, so that preempted trainings continue"
    return SetupCheck(OK, f"{name}: {', '.join(parts)}", hint)


def _check_arrays(config: Mapping[str, str]) -> SetupCheck:
    size = _parse_int(config.get("MaxArraySize", ""), 1001)
    if size <= 1:
        return SetupCheck(ERROR, "the site does not allow job arrays (MaxArraySize)", "ask the site to allow them")
    return SetupCheck(OK, f"arrays of up to {size - 1:,} tasks (MaxArraySize), {config.get('MaxJobCount', '?')} jobs")


def _check_requeue(config: Mapping[str, str]) -> SetupCheck:
    if config.get("JobRequeue", "1") == "1":
        return SetupCheck(OK, "jobs may be requeued (JobRequeue)")
    message = "jobs are not requeued by default (JobRequeue); packtrain asks for it with --requeue"
    return SetupCheck(OK, message, "if the site refuses it, set `slurm: {requeue: false}` in your settings")


def _check_gpus(config: Mapping[str, str], partitions: Sequence[Partition]) -> SetupCheck:
    if config.get("SelectType", "select/cons_tres") == "select/cons_tres":
        return SetupCheck(OK, "GPUs can be requested per node (select/cons_tres)")
    n_gpus = max((partition.gpus for partition in partitions), default=0)
    message = f"no select/cons_tres: {pluralize(n_gpus, 'GPU')}, requested with --gres"
    return SetupCheck(OK, message, "packtrain chooses --gres by itself (`slurm.gpuOption`)")


def _check_rate_limit(config: Mapping[str, str]) -> SetupCheck:
    parameters = config.get("SlurmctldParameters", "")
    if "rl_enable" in parameters:
        rate = re.search(r"rl_refill_rate=\d+", parameters)
        limit = f" ({rate[0]})" if rate else ""
        message = f"the controller limits the rate of commands{limit}; packtrain sends one query every 10 s"
        return SetupCheck(OK, message, "a larger `slurm.queryInterval` in your settings sends fewer")
    return SetupCheck(OK, "no rate limit for commands; packtrain sends one query every 10 s")


def _check_folder(has_network_folder: bool, with_node: bool) -> Iterator[SetupCheck]:
    if has_network_folder:
        yield SetupCheck(OK, "this folder is on a network file system, which nodes usually share")
    elif not with_node:
        hint = "start runs from a shared folder; `packtrain doctor --node` checks whether a node sees this one"
        yield SetupCheck(WARN, "this folder is not on a network file system", hint)


def _load_settings() -> SlurmConfig | PacktrainError:
    try:
        return load_user_config().slurm
    except PacktrainError as error:
        return error


def _check_settings(settings: SlurmConfig | PacktrainError) -> SetupCheck:
    path = user_config_path()
    if isinstance(settings, PacktrainError):
        return SetupCheck(ERROR, str(settings), "fix the file, or remove it")
    if not path.exists():
        hint = "many sites need `slurm: {options: {account: …, partition: …}}` there"
        return SetupCheck(OK, f"no settings file ({path})", hint)
    options = " ".join(f"--{name}={value}" for name, value in settings.options.items()) or "none"
    return SetupCheck(OK, f"settings from {path}; options for every run: {options}")


def _check_node(client: SlurmClient, folder: Path, settings: SlurmConfig) -> Iterator[SetupCheck]:
    """Check what a job finds on a node: the folder, Python and Apptainer."""
    inherited = {name: value for name, value in settings.options.items() if name in ("account", "partition", "qos")}
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".packtrain-doctor-") as file:
        Path(file.name).chmod(0o644)
        script = (
            f"echo $SLURMD_NODENAME; test -e {shlex.quote(file.name)} && echo folder; "
            "python3 -c 'import sys; print(\"python\", *sys.version_info[:2])'; "
            'command -v apptainer >/dev/null && echo apptainer; echo "scratch ${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"'
        )
        options = [f"--{name}={value}" for name, value in inherited.items()]
        argv = ("srun", "--nodes=1", "--ntasks=1", "--time=1", "--chdir=/", *options, "/bin/sh", "-c", script)
        try:
            output = client.read(argv, _NODE_TIMEOUT_S)
        except PacktrainError as error:
            hint = "try `srun hostname`; if it waits for a node, try again later"
            yield SetupCheck(WARN, f"no node could be checked: {error}", hint)
            return
    lines = output.splitlines()
    node = lines[0] if lines else "the node"
    if "folder" in lines:
        yield SetupCheck(OK, f"{node} sees this folder")
    else:
        yield SetupCheck(ERROR, f"{node} does not see this folder", "start runs from a folder that all nodes share")
    yield _check_node_python(node, output)
    if "apptainer" in lines:
        yield SetupCheck(OK, f"{node} has Apptainer")
    else:
        yield SetupCheck(WARN, f"{node} has no Apptainer", "steps with a `container` need it; is there a module?")
    scratch = re.search(r"^scratch (.*)$", output, re.MULTILINE)
    if scratch:
        yield SetupCheck(OK, f"{node} has scratch space in {scratch[1]}")


def _check_node_python(node: str, output: str) -> SetupCheck:
    match = re.search(r"^python (\d+) (\d+)$", output, re.MULTILINE)
    hint = "the agent needs Python 3.9: load a module in your shell before `packtrain run`, or set PACKTRAIN_PYTHON"
    if not match:
        return SetupCheck(ERROR, f"{node} has no python3", hint)
    version = int(match[1]), int(match[2])
    if version < _MIN_PYTHON:
        return SetupCheck(ERROR, f"{node} has Python {match[1]}.{match[2]}", hint)
    return SetupCheck(OK, f"{node} has Python {match[1]}.{match[2]}")


def _parse_int(text: str, default: int) -> int:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else default
