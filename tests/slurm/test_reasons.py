"""The table of pending reasons is complete for the oldest and the newest version."""

from __future__ import annotations

import re

import pytest

from packtrain.slurm.job_states import reason_meaning
from testbed.slurm import install

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]

PATTERN = re.compile(r"(Assoc|QOS|Max)(Max|Min|Grp|BB|Billing|Cpu|CPU|Energy|GRES|License|Mem|Node|Unknown)\w+")


@pytest.mark.parametrize("version", [install.OLDEST, install.NEWEST])
def test_every_reason_is_known(version):
    """Slurm's library has the names of all reasons next to each other."""
    library = (install.slurm_dir(version) / install.PLUGIN_DIR / "libslurmfull.so").read_bytes()
    names = [match.decode() for match in re.findall(rb"[A-Za-z_]{4,}(?=\0)", library)]
    reasons = {name for name in names if PATTERN.fullmatch(name)}
    assert len(reasons) > 100
    assert [name for name in sorted(reasons) if reason_meaning(name).message.startswith("Slurm's reason")] == []
