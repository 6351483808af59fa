"""sbatch_options: what is requested for a job, and what the user's options replace."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.api import NO_OVERRIDES, Overrides
from packtrain.engines.slurm.run_settings import SETTINGS_FILE, RunSettings
from packtrain.engines.slurm.sbatch_options import (
    announced_s,
    choose_constraint,
    format_time_limit,
    merge_options,
    sbatch_options,
)
from packtrain.plan import EnvVar, GpuRequirements, Job, Limits, Plan, Resources
from packtrain.spec.user_config import GpuProperties

A100, H100 = GpuProperties(memory=40_000, capability="8.0", cuda="12.2"), GpuProperties(memory=80_000, capability="9.0")
V100 = GpuProperties(memory=16_000, capability="7.0")
CONSTRAINTS = {"v100": V100, "a100&fast": A100, "h100": H100}


def make_options(resources=None, limits=None, overrides=NO_OVERRIDES, **settings):
    job = Job("0", (), resources or Resources(), limits or Limits(), ())
    return sbatch_options(job, overrides, RunSettings(**settings))


def with_options(*options, **more):
    return make_options(options=options, **more)


def test_resources():
    options = make_options(Resources(tasks=2, cpus_per_task=4, mem_per_cpu_mb=2000, gpus=1), disk_mb=5000)
    assert options["ntasks"] == "2" and options["cpus-per-task"] == "4" and options["nodes"] == "1"
    assert options["mem-per-cpu"] == "2000M" and options["gpus-per-node"] == "1" and options["tmp"] == "5000M"


def test_site_without_memory_options_and_cons_tres():
    options = make_options(Resources(gpus=2), requests_memory=False, gpu_option="gres")
    assert "mem-per-cpu" not in options and options["gres"] == "gpu:2"


def test_slurm_announces_its_limit_after_the_wall_time():
    """It does so up to a minute early, and the agent must not stop before the wall time has passed."""
    options = make_options(limits=Limits(wall_time_s=3600, grace_s=300))
    assert (options["time"], options["signal"]) == ("0-01:02:00", "B:USR1@10")


@pytest.mark.parametrize(("grace_s", "signal"), [(1, "B:USR1@60"), (300, "B:USR1@600"), (10**6, "B:USR1@65535")])
@pytest.mark.parametrize(
    ("limits", "own_options"), [({}, ()), ({"wall_time_s": 9000}, [("time", "60")])], ids=["none", "the user's own"]
)
def test_limits_of_others_are_announced_in_time(grace_s, signal, limits, own_options):
    options = with_options(*own_options, limits=Limits(grace_s=grace_s, **limits))
    assert options["signal"] == signal and options.get("time") == dict(own_options).get("time")


@pytest.mark.parametrize(
    ("signal", "expected"), [("B:USR1@90", 90), ("B:SIGUSR1", 60), ("USR1@90", 0), ("B:TERM@90", 0), ("", 0)]
)
def test_announced_s(signal, expected):
    assert announced_s({"signal": signal}) == expected


def test_site_that_forbids_requeueing():
    assert "requeue" in make_options() and "no-requeue" in make_options(may_requeue=False)
    assert "requeue" not in make_options(may_requeue=False)


def test_overrides():
    options = make_options(overrides=Overrides(disk_factor=2.0, avoid_nodes=("n1", "n2")), disk_mb=100)
    assert options["exclude"] == "n1,n2" and options["tmp"] == "200M"


@pytest.mark.parametrize(
    ("name", "value", "replaced"),
    [
        ("nodes", "2", ""),
        ("mem", "8G", "mem-per-cpu"),
        ("mem-per-gpu", "8G", "mem-per-cpu"),
        ("gpus", "a100:2", "gpus-per-node"),
        ("gres", "gpu:a100:1", "gpus-per-node"),
        ("ntasks-per-node", "4", "ntasks"),
        ("no-requeue", "", "requeue"),
        ("nodelist", "n3", "constraint"),
    ],
)
def test_user_options_win(name, value, replaced):
    options = with_options((name, value), resources=Resources(gpus=1), constraint="a100")
    assert options[name] == value and replaced not in options


def test_later_options_win():
    options = with_options(
        ("partition", "cpu"), ("exclusive", "true"), ("partition", "gpu"), ("tmp", "false"), disk_mb=9
    )
    assert options["partition"] == "gpu" and options["exclusive"] == "" and "tmp" not in options


def test_excluded_nodes_are_joined():
    options = with_options(("exclude", "n[1-2]"), overrides=Overrides(avoid_nodes=("n3",)))
    assert options["exclude"] == "n[1-2],n3"


@pytest.mark.parametrize(
    ("duration_s", "text"), [(1, "0-00:01:00"), (60, "0-00:01:00"), (61, "0-00:02:00"), (90000, "1-01:00:00")]
)
def test_time_limit(duration_s, text):
    assert format_time_limit(duration_s) == text


@given(st.floats(1, 10**8))
def test_time_limit_is_rounded_up(duration_s):
    days, clock = format_time_limit(duration_s).split("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    limit_s = int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    assert duration_s <= limit_s < duration_s + 60 and hours < 24 and minutes < 60


@pytest.mark.parametrize(
    ("requirements", "constraint", "missing"),
    [
        (GpuRequirements(), "", []),
        (GpuRequirements(min_memory_mb=16_000), "v100|(a100&fast)|h100", []),
        (GpuRequirements(min_memory_mb=41_000), "h100", []),
        (GpuRequirements(min_capability="8"), "(a100&fast)|h100", []),
        (GpuRequirements(min_cuda="12"), "a100&fast", []),
        (GpuRequirements(min_driver="525"), "", ["minDriver"]),
        (GpuRequirements(min_memory_mb=80_000, min_driver="525"), "h100", ["minDriver"]),
    ],
)
def test_constraint(requirements, constraint, missing):
    assert choose_constraint(requirements, CONSTRAINTS) == (constraint, missing)


def test_versions_are_compared_as_numbers():
    offers = {"new": GpuProperties(driver="1000.5"), "old": GpuProperties(driver="525")}
    assert choose_constraint(GpuRequirements(min_driver="525.0"), offers) == ("new|old", [])


def test_no_node_is_good_enough():
    with pytest.raises(ValueError, match="offers minCapability 10"):
        choose_constraint(GpuRequirements(min_capability="10.0"), CONSTRAINTS)


def test_true_and_false():
    assert merge_options([("a", "1"), ("b", "true"), ("c", "false"), ("a", "2")]) == {"a": "2", "b": ""}


def test_settings_are_stored(tmp_path):
    plan = Plan("run-1", "run", "slurm", (), slurm=(EnvVar("partition", "gpu"),))
    settings = replace(RunSettings.for_plan(plan), disk_mb=7, cache="/c", query_interval_s=1.5, may_requeue=False)
    settings.write(tmp_path / SETTINGS_FILE)
    assert RunSettings.read(tmp_path / SETTINGS_FILE) == settings


@pytest.mark.parametrize(("option", "value", "more"), [("mem", "4G", "8G"), ("mem-per-gpu", "500", "1000")])
def test_more_memory_than_the_user_requested(option, value, more):
    assert with_options((option, value))[option] == value
    assert with_options((option, value), overrides=Overrides(memory_factor=2.0))[option] == more
