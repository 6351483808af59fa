"""Tests of the facts read from the ClassAds of the job and the machine."""

import time

import pytest

from packtrain.agent.condor_slot import CondorSlot


@pytest.fixture
def make_slot(tmp_path):
    def make(job="", machine=""):
        (tmp_path / "job.ad").write_text(job)
        (tmp_path / "machine.ad").write_text(machine)
        names = {"_CONDOR_JOB_AD": tmp_path / "job.ad", "_CONDOR_MACHINE_AD": tmp_path / "machine.ad"}
        return CondorSlot({name: str(path) for name, path in names.items()})

    return make


@pytest.mark.parametrize(
    ("machine", "site"),
    [
        ('Machine = "node1"\nGLIDEIN_Site = "Wisconsin"\nGLIDEIN_ResourceName = "CHTC-Spark-CE1"\n', "CHTC-Spark-CE1"),
        ('Machine = "node1"\nglidein_site = "Wisconsin"\n', "Wisconsin"),
        ('Machine = "node1"\nGLIDEIN_ResourceName = undefined\n', "node1"),
    ],
)
def test_site(make_slot, machine, site):
    assert make_slot(machine=machine).site == site


def test_without_ads(tmp_path):
    for environ in ({}, {"_CONDOR_JOB_AD": str(tmp_path / "none"), "_CONDOR_MACHINE_AD": str(tmp_path)}):
        empty = CondorSlot(environ)
        assert empty.site
        assert empty.deadline_at() is None
        assert not empty.transfers_checkpoints
        assert empty.grace_s(30) == 30


@pytest.mark.parametrize(
    ("job", "hours"),
    [
        ('JobDurationCategory = "Medium"\n', 20),
        ('JobDurationCategory = "Long"\n', 40),
        ("AllowedExecuteDuration = 3600\n", 1),
        ('JobDurationCategory = "Long"\nAllowedExecuteDuration = 7200\n', 2),
        ('JobDurationCategory = "Medium"\nAllowedExecuteDuration = 360000\n', 20),
    ],
)
def test_deadline(make_slot, job, hours):
    before = time.time()
    assert before + hours * 3600 <= make_slot(job).deadline_at() <= time.time() + hours * 3600


@pytest.mark.parametrize("job", ["", "AllowedExecuteDuration = undefined\n", "AllowedExecuteDuration = 2 * Other\n"])
def test_no_deadline(make_slot, job):
    assert make_slot(job).deadline_at() is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"checkpoint"', True),
        ('"journal.jsonl, logs,checkpoint/"', True),
        ('"checkpoint.pt"', False),
        ("undefined", False),
    ],
)
def test_transfers_checkpoints(make_slot, value, expected):
    assert make_slot(f"TransferCheckpoint = {value}\n").transfers_checkpoints is expected


def test_grace_period_fits_vacate_time(make_slot):
    assert make_slot("JobMaxVacateTime = 600\n", "MachineMaxVacateTime = 50\n").grace_s(30) == pytest.approx(20)
    assert make_slot("JobMaxVacateTime = 600\n").grace_s(30) == 30
    assert make_slot(machine="MachineMaxVacateTime = 1\n").grace_s(30) == 1
