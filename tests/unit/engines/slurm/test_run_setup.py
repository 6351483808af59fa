"""run_setup: the settings of a new run, and what Slurm or the engine would reject."""

import pytest

from packtrain.engines.api import NO_OVERRIDES
from packtrain.engines.slurm.run_setup import set_up_run
from packtrain.engines.slurm.sbatch_options import sbatch_options
from packtrain.plan import EnvVar, GpuRequirements, Job, Limits, Plan, Resources
from packtrain.slurm.cluster_config import ClusterConfig
from packtrain.spec.user_config import SlurmConfig
from packtrain.state.site_history import EMPTY_HISTORY, SiteHistory, SiteObservation

CLUSTER = ClusterConfig(max_tmp_disk_mb=50_000)


JOB = Job("0", (), Resources(), Limits(), ())


def set_up(
    config=None, *, resources=None, limits=None, options=(), cluster=CLUSTER, disk_bytes=None, history=EMPTY_HISTORY
):
    job = Job("0", (), resources or Resources(), limits or Limits(), ())
    plan = Plan("run-1", "run", "slurm", (job,), slurm=tuple(EnvVar(key, value) for key, value in options))
    setup = set_up_run(plan, SlurmConfig.model_validate(config or {}), cluster, disk_bytes, history)
    return setup.settings, [str(problem) for problem in setup.problems]


def test_defaults():
    settings, problems = set_up()
    assert not problems and settings.requests_memory and settings.may_requeue and settings.disk_mb == 0
    assert settings.scratch.startswith("${SLURM_TMPDIR")


def test_workflow_options_come_last():
    settings, _ = set_up({"options": {"partition": "cpu", "account": "lab"}}, options=[("partition", "gpu")])
    assert settings.options == (("partition", "cpu"), ("account", "lab"), ("partition", "gpu"))


@pytest.mark.parametrize(
    ("config", "has_cons_tres", "expected"),
    [({}, True, "gpus-per-node"), ({}, False, "gres"), ({"gpuOption": "gres"}, True, "gres")],
)
def test_gpu_option(config, has_cons_tres, expected):
    settings, _ = set_up(config, cluster=ClusterConfig(has_cons_tres=has_cons_tres))
    assert settings.gpu_option == expected


@pytest.mark.parametrize(
    ("limit", "estimate", "config", "expected"),
    [
        (None, 10 << 20, {}, 10 + 1024),
        (100 << 20, 10 << 20, {}, 100),
        (None, None, {}, 0),
        (100 << 20, None, {"scratch": "/local"}, 0),
    ],
)
def test_disk(limit, estimate, config, expected):
    settings, problems = set_up(config, limits=Limits(disk_bytes=limit), disk_bytes=estimate)
    assert settings.disk_mb == expected and not problems


def test_nodes_that_failed_in_earlier_runs():
    """Old failures have lost their weight, and a run that avoids every node never starts."""
    now = 100 * 86400.0
    old = now - 40 * 86400.0
    observations = [
        *(make_observation("n1", now, n, "gpu_unusable") for n in range(3)),
        *(make_observation("n2", old, n, "gpu_unusable") for n in range(3)),
        *(make_observation("n3", now, n) for n in range(3)),
    ]
    history = SiteHistory.from_observations(observations, now, "slurm")
    settings, _ = set_up(history=history)
    assert list(settings.avoid_nodes) == ["n1"]
    assert sbatch_options(JOB, NO_OVERRIDES, settings)["exclude"] == "n1"
    only_bad = SiteHistory.from_observations(observations[:3], now, "slurm")
    assert not set_up(history=only_bad)[0].avoid_nodes


def make_observation(node, ended_at, number, failure_kind=""):
    return SiteObservation(
        f"run-{number}", f"0/{node}", ended_at, "slurm", node, node, failure_kind, is_site_fault=bool(failure_kind)
    )


def test_cluster_without_tmp_disk():
    assert set_up(disk_bytes=1 << 30, cluster=ClusterConfig())[0].disk_mb == 0


def test_more_disk_than_any_node_has():
    settings, (problem,) = set_up(limits=Limits(disk_bytes=100_000 << 20))
    assert settings.disk_mb == 0 and "warning" in problem and "no node has more than 50000 MB" in problem


@pytest.mark.parametrize(
    ("config", "options", "expected"),
    [
        ({}, [("array", "0-9")], "slurm.array cannot be set: packtrain sets it itself"),
        ({"options": {"output": "x"}}, [], "slurm.options.output of the settings cannot be set"),
    ],
)
def test_reserved_options(config, options, expected):
    _, (problem,) = set_up(config, options=options)
    assert expected in problem and "warning" not in problem


class TestGpuRequirements:
    RESOURCES = Resources(gpus=1, gpu=GpuRequirements(min_memory_mb=30_000))

    def test_constraint(self):
        settings, problems = set_up({"constraints": {"a100": {"memory": "40GB"}}}, resources=self.RESOURCES)
        assert settings.constraint == "a100" and not problems

    def test_not_described(self):
        settings, (problem,) = set_up(resources=self.RESOURCES)
        assert not settings.constraint and "warning: Slurm is not asked for resources.gpu.minMemory" in problem

    def test_no_suitable_node(self):
        _, (problem,) = set_up({"constraints": {"v100": {"memory": "16GB"}}}, resources=self.RESOURCES)
        assert "no entry of `slurm.constraints` in the settings offers minMemory 30000 MB" in problem
        assert "warning" not in problem

    def test_user_chooses_the_nodes(self):
        settings, problems = set_up(
            {"constraints": {"v100": {"memory": "16GB"}}}, resources=self.RESOURCES, options=[("constraint", "h100")]
        )
        assert not settings.constraint and not problems

    def test_run_without_gpus(self):
        assert set_up(resources=Resources(gpu=GpuRequirements(min_memory_mb=1)))[1] == []
