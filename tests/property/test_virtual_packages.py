"""The minimum versions of the plan against rattler's own reading of specs."""

from __future__ import annotations

import pytest
import rattler
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.pixi_workspace.machine_requirements import (
    collect_requirements,
    minimum_version,
    parse_version,
    wheel_glibc,
)
from packtrain.plan import MachineRequirements

VERSIONS = st.builds("{}.{}".format, st.integers(0, 20), st.integers(0, 40)) | st.integers(0, 20).map(str)
OPERATORS = st.sampled_from([">=", ">", "<=", "<", "==", "!=", "~=", "="])
PARTS = st.builds("{}{}".format, OPERATORS, VERSIONS | VERSIONS.map("{}.1".format))
PARTS |= VERSIONS | VERSIONS.map("{}.*".format) | st.just("*")
SPECS = st.lists(st.lists(PARTS, min_size=1, max_size=3).map(",".join), min_size=1, max_size=3).map("|".join)


@settings(max_examples=200)
@given(SPECS, VERSIONS)
def test_no_accepted_version_is_below_the_minimum(spec, version):
    """A machine is never excluded on which rattler would run the packages."""
    if rattler.VersionSpec(spec).matches(rattler.Version(version)):
        assert parse_version(version) >= parse_version(minimum_version(spec))


@given(VERSIONS, VERSIONS)
def test_a_lower_bound_excludes_what_rattler_excludes(bound, version):
    is_accepted = rattler.VersionSpec(f">={bound},<99.0a0").matches(rattler.Version(version))
    assert is_accepted == (parse_version(version) >= parse_version(minimum_version(f">={bound},<99.0a0")))


DEPENDENCIES = {
    (): MachineRequirements(),
    ("__glibc >=2.17,<3.0.a0", "__glibc >=2.28", "numpy >=1.9"): MachineRequirements(min_glibc="2.28"),
    ("__cuda  >=12.8", "__cuda >=12.10"): MachineRequirements(min_cuda="12.10"),
    ("__linux >=4.18", "__unix", "__cuda"): MachineRequirements(min_linux="4.18"),
    ("__glibc >=2.5|>=2.12",): MachineRequirements(min_glibc="2.5"),
    ("__archspec 1 x86_64_v3", "__archspec 1 x86_64_v2"): MachineRequirements(archspec="x86_64_v3"),
    ("_x86_64-microarch-level >=3", "__archspec 1 skylake"): MachineRequirements(archspec="x86_64_v3"),
}


@pytest.mark.parametrize("dependencies", DEPENDENCIES)
def test_requirements_of_dependencies(dependencies):
    assert collect_requirements(dependencies, (), "") == DEPENDENCIES[dependencies]


def test_requirements_of_platform_and_wheels():
    wheels = ["a-1-cp312-cp312-manylinux_2_34_x86_64.whl", "b-1-py3-none-any.whl"]
    expected = MachineRequirements(min_glibc="2.34", min_cuda="12.8")
    assert collect_requirements(["__cuda >=12", "__glibc >=2.28"], wheels, "12.8") == expected


@pytest.mark.parametrize(
    ("tags", "glibc"),
    [
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", "2.17"),
        ("manylinux_2_27_x86_64.manylinux_2_28_x86_64", "2.27"),
        ("manylinux1_x86_64", "2.5"),
        ("manylinux2010_x86_64", "2.12"),
        ("musllinux_1_2_x86_64", ""),
        ("linux_x86_64", ""),
    ],
)
def test_glibc_of_a_wheel(tags, glibc):
    assert wheel_glibc(f"a-1-cp312-cp312-{tags}.whl") == glibc
