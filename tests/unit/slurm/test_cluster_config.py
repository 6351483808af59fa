"""cluster_config: the configuration as scontrol and sinfo print it."""

from packtrain.slurm.cluster_config import ClusterConfig, parse_cluster_config

CONFIG = """\
Configuration data as of 2026-11-18T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
MaxArraySize            = 10001
SelectType              = select/{select}
"""


def test_values():
    config = parse_cluster_config(CONFIG.format(select="cons_tres"), "0\n50000\n3000+\n")
    assert config == ClusterConfig(10000, has_cons_tres=True, has_accounting=True, max_tmp_disk_mb=50000)


def test_old_select_plugin():
    assert not parse_cluster_config(CONFIG.format(select="cons_res")).has_cons_tres


def test_unknown_output():
    assert parse_cluster_config("", "N/A\n") == ClusterConfig()
