"""batch_script: the script of an array as a golden file."""

import subprocess
from pathlib import Path

from packtrain.engines.api import NO_OVERRIDES
from packtrain.engines.slurm.batch_script import render_batch_script
from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.engines.slurm.sbatch_options import sbatch_options
from packtrain.plan import Job, Limits, Resources, RunFolder

GOLDEN = Path(__file__).parents[3] / "golden/slurm"


def test_script():
    settings = RunSettings(
        cache="/shared/$USER/cache", cache_limit_bytes=10**9, kill_wait_s=30, options=(("licenses", "a b"),)
    )
    job = Job("0", (), Resources(gpus=1), Limits(wall_time_s=7200, grace_s=60), ())
    options = sbatch_options(job, NO_OVERRIDES, settings)
    script = render_batch_script("pt-run-1-0123abcd", 3, options, RunFolder(Path("/shared/my runs/run-1")), settings)
    assert script == (GOLDEN / "array.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
