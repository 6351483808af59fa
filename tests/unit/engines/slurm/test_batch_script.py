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


def test_image_of_the_pyxis_plugin():
    """The plugin cannot be had for tests: this shows only what it would get."""
    options = {"container-image": "nvcr.io#nvidia/pytorch:24.05-py3", "container-mounts": "/data:/data"}
    folder = RunFolder(Path("/home/me/project/.packtrain/runs/run-1"))
    script = render_batch_script("pt-run-1-0123abcd", 1, options, folder, RunSettings())
    assert '#SBATCH --container-image="nvcr.io#nvidia/pytorch:24.05-py3"\n' in script
    assert "#SBATCH --container-mounts=/data:/data,/home/me/project:/home/me/project\n" in script


def test_limit_of_an_array():
    script = render_batch_script("pt-r-0", 10, {"array": "%4"}, RunFolder(Path("/shared/r")), RunSettings())
    assert script.count("--array") == 1 and "#SBATCH --array=0-9%4\n" in script


def test_quotes_and_backslashes_in_options():
    options = {"comment": "x", "reservation": 'my "own" \\ #1'}
    script = render_batch_script("pt-r-0", 1, options, RunFolder(Path("/shared/r")), RunSettings())
    assert '#SBATCH --reservation="my \\"own\\" \\\\ #1"\n' in script
