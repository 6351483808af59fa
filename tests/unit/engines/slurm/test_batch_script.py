"""batch_script: options of sbatch, and the script as a golden file."""

import subprocess
from pathlib import Path

import pytest

from packtrain.engines.api import NO_OVERRIDES, Overrides
from packtrain.engines.slurm.batch_script import SlurmSettings, format_time_limit, render_batch_script, sbatch_options
from packtrain.plan import EnvVar, Job, Limits, Resources, RunFolder

GOLDEN = Path(__file__).parents[3] / "golden/slurm"


def make_options(resources=None, limits=None, overrides=NO_OVERRIDES, disk_mb=0, user_options=(), **settings):
    job = Job("0", (), resources or Resources(), limits or Limits(), ())
    return sbatch_options(job, overrides, disk_mb, user_options, SlurmSettings(**settings))


def test_resources():
    options = make_options(Resources(tasks=2, cpus_per_task=4, mem_per_cpu_mb=2000, gpus=1), disk_mb=5000)
    assert options["ntasks"] == "2" and options["cpus-per-task"] == "4" and options["nodes"] == "1"
    assert options["mem-per-cpu"] == "2000M" and options["gpus-per-node"] == "1" and options["tmp"] == "5000M"


def test_site_without_memory_options_and_cons_tres():
    options = make_options(Resources(gpus=2), request_memory=False, gpu_option="gres")
    assert "mem-per-cpu" not in options and options["gres"] == "gpu:2"


def test_wall_time_leaves_the_agent_time_to_end():
    assert make_options(limits=Limits(wall_time_s=3600))["time"] == "0-01:01:00"
    assert "time" not in make_options()


def test_overrides():
    options = make_options(overrides=Overrides(disk_factor=2.0, avoid_nodes=("n1", "n2")), disk_mb=100)
    assert options["exclude"] == "n1,n2" and options["tmp"] == "200M"


def test_user_options_win():
    user_options = (EnvVar("partition", "gpu"), EnvVar("nodes", "2"))
    options = make_options(user_options=user_options)
    assert options["partition"] == "gpu" and options["nodes"] == "2"


@pytest.mark.parametrize(
    ("duration_s", "text"), [(1, "0-00:01:00"), (60, "0-00:01:00"), (61, "0-00:02:00"), (90000, "1-01:00:00")]
)
def test_time_limit(duration_s, text):
    assert format_time_limit(duration_s) == text


def test_script():
    script = render_batch_script(
        "pt-run-1-0123abcd",
        3,
        make_options(Resources(gpus=1), Limits(wall_time_s=7200, grace_s=60), user_options=(EnvVar("comment", "x y"),)),
        RunFolder(Path("/shared/my runs/run-1")),
        SlurmSettings(cache="/shared/cache", cache_limit_bytes=10**9),
    )
    assert script == (GOLDEN / "array.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
