"""The checks of a Slurm cluster, on sites that the testbed does not have."""

from __future__ import annotations

import pytest

from packtrain.engines.setup_check import ERROR, OK, WARN
from packtrain.engines.slurm.cluster_checks import check_cluster
from packtrain.engines.slurm.slurm_client import SlurmUnreachableError
from packtrain.slurm.cluster_config import CONFIG_ARGV
from packtrain.slurm.partitions import PARTITIONS_ARGV, Partition, parse_partitions

CONFIG = "ClusterName = hpc\nSelectType = select/cons_tres\nPreemptType = preempt/partition_prio\n"
PARTITION = (
    "PartitionName={} Default={} State={} MaxTime={} PriorityTier={} PreemptMode=REQUEUE TotalNodes=4 GraceTime=0"
)
MAIN = PARTITION.format("main", "YES", "UP", "2-00:00:00", 10)


class SiteClient:
    """Answers like the commands of a site."""

    def __init__(self, config: str = CONFIG, partitions: str = MAIN, **answers: str) -> None:
        self._answers = {CONFIG_ARGV: config, PARTITIONS_ARGV: partitions}
        self._by_command = {"sbatch": "slurm 24.11.5", **answers}

    def read(self, argv, timeout_s=0.0):
        answer = self._answers.get(tuple(argv)) or self._by_command.get(argv[0])
        if answer is None:
            raise SlurmUnreachableError(f"{argv[0]} did not answer")
        return answer


@pytest.fixture(autouse=True)
def config_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def find(folder, text, client, **options):
    (check,) = [check for check in check_cluster(client, folder, **options) if text in check.message]
    return check


def test_no_default_partition(tmp_path):
    client = SiteClient(partitions=PARTITION.format("gpu", "NO", "UP", "UNLIMITED", 1))
    assert find(tmp_path, "no default partition", client).status == WARN
    assert find(tmp_path, "partition gpu", client).message == "partition gpu: 4 nodes, no time limit"


def test_partition_that_is_down(tmp_path):
    client = SiteClient(partitions=f"{MAIN}\n{PARTITION.format('old', 'NO', 'DRAIN', '1:00', 1)}")
    assert find(tmp_path, "partition old", client).status == WARN


def test_preemption(tmp_path):
    partitions = f"{MAIN}\n{PARTITION.format('low', 'NO', 'UP', '1:00', 1)}"
    check = find(tmp_path, "partition low", SiteClient(partitions=partitions))
    assert "may be preempted (REQUEUE)" in check.message and "checkpoint" in check.hint
    without = SiteClient(CONFIG.replace("partition_prio", "none"), partitions)
    assert "preempted" not in find(tmp_path, "partition low", without).message


@pytest.mark.parametrize(
    ("line", "text", "status"),
    [
        ("JobRequeue = 0", "not requeued by default", OK),
        ("SelectType = select/linear", "requested with --gres", OK),
        ("SlurmctldParameters = rl_enable,rl_refill_rate=2", "limits the rate of commands (rl_refill_rate=2)", OK),
        ("MaxArraySize = 0", "does not allow job arrays", ERROR),
        ("AccountingStorageType = accounting_storage/slurmdbd", "sacct does not answer", WARN),
        ("AccountingStorageType = (null)", "no accounting database", OK),
    ],
)
def test_configuration(tmp_path, line, text, status):
    config = "\n".join([row for row in CONFIG.splitlines() if row.split()[0] != line.split()[0]] + [line])
    assert find(tmp_path, text, SiteClient(config)).status == status


def test_invalid_settings(tmp_path, config_path):
    config_path.write_text("slurm: {memory: perhaps}\n")
    assert [check.status for check in check_cluster(SiteClient(), tmp_path)].count(ERROR) == 1


@pytest.mark.parametrize(
    ("output", "text", "status"),
    [
        ("node1\nfolder\npython 3 12\napptainer\nscratch /local/1\n", "node1 has scratch space in /local/1", OK),
        ("node1\npython 3 12\n", "node1 does not see this folder", ERROR),
        ("node1\nfolder\npython 3 6\n", "node1 has Python 3.6", ERROR),
        ("node1\nfolder\n", "node1 has no python3", ERROR),
        ("node1\nfolder\n", "node1 has no Apptainer", WARN),
        (None, "no node could be checked: srun did not answer", WARN),
    ],
)
def test_node(tmp_path, output, text, status):
    answers = {} if output is None else {"srun": output}
    assert find(tmp_path, text, SiteClient(**answers), with_node=True).status == status


def test_partition_values():
    line = "PartitionName=gpu AllowAccounts=lab MaxTime=1:30:00 TotalNodes=2 TRES=cpu=8,gres/gpu=4,gres/gpu:a100=4"
    (partition,) = parse_partitions(f"{line}\nnoise\n")
    assert partition == Partition("gpu", max_time_s=5400, nodes=2, gpus=4, accounts="lab")
