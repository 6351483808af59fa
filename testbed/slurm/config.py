"""The configuration of a Slurm cluster on one machine, with nodes and GPUs that exist in name only."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.slurm.install import PLUGIN_DIR

CLUSTER_NAME = "testbed"


@dataclass(frozen=True)
class Node:
    """A node of the cluster."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int
    gpu_type: str
    features: str
    tmp_mb: int = 50_000


@dataclass(frozen=True)
class Ports:
    """Ports of the daemons; `nodes` has one for each node."""

    slurmctld: int
    slurmdbd: int
    nodes: tuple[int, ...]


NODES = (
    Node("n1", cpus=16, memory_mb=64_000, gpus=2, gpu_type="a100", features="a100,fast"),
    Node("n2", cpus=8, memory_mb=32_000, gpus=1, gpu_type="v100", features="v100"),
    Node("n3", cpus=8, memory_mb=32_000, gpus=1, gpu_type="v100", features="v100"),
)
# A GPU needs a character device. These exist in every container; without cgroups Slurm never opens them.
_GPU_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# Timeouts are short, so that faults show in seconds.
_SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
PluginDir={plugin_dir}
SlurmctldPort={ports.slurmctld}
SlurmdPort={ports.nodes[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
SlurmctldDebug=info
SlurmdDebug=info
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/completions
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
DefMemPerCPU=500
SchedulerType=sched/backfill
SchedulerParameters=requeue_delay=1,bf_interval=2,sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_continue
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=2
SlurmdTimeout=5
SlurmctldTimeout=10
InactiveLimit=0
MinJobAge=60
MessageTimeout=10
BatchStartTimeout=10
CompleteWait=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
MaxArraySize=10001
MaxJobCount=50000
"""
_ACCOUNTING_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports.slurmdbd}
AccountingStoragePass={folder}/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment,job_script,job_env
"""
# low is preempted by requeueing, preemptible by cancelling.
_PARTITIONS = """\
PartitionName=main Nodes=ALL Default=YES MaxTime=24:00:00 DefaultTime=00:30:00 State=UP PriorityTier=10
PartitionName=low Nodes=ALL MaxTime=24:00:00 DefaultTime=00:30:00 State=UP PriorityTier=1 PreemptMode=REQUEUE \
GraceTime=2
PartitionName=preemptible Nodes=ALL MaxTime=24:00:00 DefaultTime=00:30:00 State=UP PriorityTier=1 PreemptMode=CANCEL \
GraceTime=2
PartitionName=high Nodes=ALL MaxTime=24:00:00 DefaultTime=00:30:00 State=UP PriorityTier=100
PartitionName=short Nodes=n1 MaxTime=00:01:00 DefaultTime=00:01:00 State=UP PriorityTier=10
"""
_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
PluginDir={plugin_dir}
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={ports.slurmdbd}
SlurmUser={user}
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=slurm_acct
"""


def write_config(
    folder: Path,
    slurm_dir: Path,
    *,
    version: tuple[int, int],
    ports: Ports,
    nodes: Sequence[Node],
    user: str,
    settings: Mapping[str, str],
    has_accounting: bool,
) -> Path:
    """Create the folder of a cluster and return the path of its slurm.conf.

    Args:
        folder: For configuration, state, logs and the spool.
        slurm_dir: Where Slurm is installed.
        version: Slurm's major version, e.g. (22, 5).
        ports: Free ports.
        nodes: The nodes.
        user: The user that all daemons and jobs run as.
        settings: Lines of slurm.conf that replace the default ones; an empty value removes the line.
        has_accounting: The cluster has slurmdbd.
    """
    _make_folders(folder, nodes)
    values = {
        "cluster": CLUSTER_NAME, "host": socket.gethostname(), "folder": folder, "user": user, "ports": ports,
        "plugin_dir": slurm_dir / PLUGIN_DIR,
    }  # fmt: skip
    conf = (_SLURM_CONF + (_ACCOUNTING_CONF if has_accounting else "")).format(**values)
    conf = _replace_settings(conf, settings) + _node_lines(nodes, ports) + _PARTITIONS
    (folder / "etc/slurm.conf").write_text(conf)
    (folder / "etc/gres.conf").write_text("AutoDetect=off\n" + _gpu_lines(nodes))
    if version >= (24, 5):  # older versions reject the value, and use no cgroups with these plugins
        (folder / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n")
    if has_accounting:
        path = folder / "etc/slurmdbd.conf"
        path.write_text(_SLURMDBD_CONF.format(**values))
        path.chmod(0o600)
    return folder / "etc/slurm.conf"


def _make_folders(folder: Path, nodes: Sequence[Node]) -> None:
    for name in ("etc", "log", "run", "state", "munge", *(f"spool/{node.name}" for node in nodes)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "munge").chmod(0o711)
    key = folder / "munge/key"
    if not key.exists():
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)


def _node_lines(nodes: Sequence[Node], ports: Ports) -> str:
    host = socket.gethostname()
    return "".join(
        f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={node.cpus}"
        f" RealMemory={node.memory_mb} TmpDisk={node.tmp_mb} Feature={node.features}"
        f"{f' Gres=gpu:{node.gpu_type}:{node.gpus}' if node.gpus else ''} State=UNKNOWN\n"
        for node, port in zip(nodes, ports.nodes, strict=True)
    )


def _gpu_lines(nodes: Sequence[Node]) -> str:
    return "".join(
        f"NodeName={node.name} Name=gpu Type={node.gpu_type} File={device}\n"
        for node in nodes
        for device in _GPU_DEVICES[: node.gpus]
    )


def _replace_settings(conf: str, settings: Mapping[str, str]) -> str:
    lines = [line for line in conf.splitlines() if line.partition("=")[0] not in settings]
    return "\n".join([*lines, *(f"{key}={value}" for key, value in settings.items() if value)]) + "\n"
