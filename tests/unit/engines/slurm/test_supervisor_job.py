"""The batch script of the supervisor."""

from __future__ import annotations

from pathlib import Path

from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.engines.slurm.supervisor_job import render_supervisor_script, supervisor_options
from packtrain.plan import RunFolder
from packtrain.spec.user_config import SlurmSupervisorConfig
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden" / "slurm" / "supervisor.sh"
FOLDER = RunFolder(Path("/home/ada/my runs/cifar-x7kq"))
COMMAND = ["/opt/venv/bin/python", "-m", "packtrain", "supervise", "cifar-x7kq", "--in-job"]
VARIABLES = {"PACKTRAIN_STORE": "/home/ada/it's here/store.db"}


def render(settings: RunSettings, **config: object) -> str:
    options = supervisor_options(settings, SlurmSupervisorConfig.model_validate(config))
    return render_supervisor_script("cifar-x7kq", FOLDER, FOLDER.slurm / "supervisor.sh", COMMAND, options, VARIABLES)


def test_golden():
    settings = RunSettings(options=(("account", "lab"), ("partition", "gpu"), ("gres", "gpu:2"), ("qos", "long")))
    script = render(settings, partition="cpu", time="1d", options={"nice": "100"})
    assert script == GOLDEN.read_text(encoding="utf-8")


def test_site_without_requeueing_and_memory_options():
    script = render(RunSettings(may_requeue=False, requests_memory=False))
    assert "--requeue" not in script and "--mem" not in script
    assert "sbatch '/home/ada/my runs/cifar-x7kq/slurm/supervisor.sh'" in script


def test_short_time_limit():
    assert supervisor_options(RunSettings(), SlurmSupervisorConfig(time=60.0))["signal"] == "B:USR1@30"
