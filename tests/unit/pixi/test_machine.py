"""The machine is compared with what the packages need, before anything is fetched."""

from __future__ import annotations

import pytest

from packtrain.errors import FailedError
from packtrain.pixi.machine import check_requirements, cpu_level, driver_cuda_version, glibc_version
from packtrain.plan import MachineRequirements

V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


def test_this_machine():
    check_requirements(MachineRequirements("2.17", "3.10", "", "x86_64_v1"), {}, "")
    assert glibc_version({}).startswith("2.")
    assert glibc_version({"CONDA_OVERRIDE_GLIBC": "2.12"}) == "2.12"
    assert driver_cuda_version({"CONDA_OVERRIDE_CUDA": "12.4"}) == "12.4"
    assert driver_cuda_version({"CONDA_OVERRIDE_CUDA": ""}) == ""


@pytest.mark.parametrize(
    ("requires", "environ", "cuda", "kind", "problem"),
    [
        (MachineRequirements(min_cuda="12.4"), {}, "", "gpu_unusable", "it has no NVIDIA driver"),
        (MachineRequirements(min_cuda="12.4"), {}, "12.2", "gpu_unusable", "its driver supports CUDA 12.2"),
        (MachineRequirements("2.28"), {"CONDA_OVERRIDE_GLIBC": "2.17"}, "", "environment_unsupported", "glibc 2.28"),
        (MachineRequirements(min_linux="99.1"), {}, "", "environment_unsupported", "Linux 99.1 or newer"),
    ],
)
def test_unmet(requires, environ, cuda, kind, problem):
    with pytest.raises(FailedError) as error:
        check_requirements(requires, environ, cuda)
    assert (error.value.kind, problem in error.value.detail) == (kind, True)


@pytest.mark.parametrize(
    ("needed", "found"), [("12", "12.4"), ("12.4", "12.4"), ("12.4.0", "12.4"), ("12.4", "13"), ("2.9", "2.28")]
)
def test_versions_are_compared_as_numbers(needed, found):
    check_requirements(MachineRequirements(min_cuda=needed), {}, found)


@pytest.mark.parametrize(("flags", "level"), [("fpu sse2", 1), (V2, 2), (V3, 3), (V3.replace("fma", "x"), 2)])
def test_cpu_level(tmp_path, monkeypatch, flags, level):
    (tmp_path / "cpuinfo").write_text(f"model name\t: X\nflags\t\t: {flags}\nbugs\t\t:\n")
    assert cpu_level(tmp_path / "cpuinfo") == level
    monkeypatch.setattr("packtrain.pixi.machine.cpu_level", lambda: level)
    check_requirements(MachineRequirements(archspec=f"x86_64_v{level}"), {}, "")
    check_requirements(MachineRequirements(archspec="zen4"), {}, "")
    with pytest.raises(FailedError, match=f"this one has the level x86_64_v{level}"):
        check_requirements(MachineRequirements(archspec=f"x86_64_v{level + 1}"), {}, "")


def test_unknown_cpu(tmp_path):
    assert cpu_level(tmp_path / "none") is None
