"""Tests of the probe: the facts about a machine, and their comparison with the job's requirements."""

import os
import sys

import pytest

from packtrain.agent.stages import machine_facts, probe
from packtrain.agent.stages.machine_facts import GpuInfo
from packtrain.plan import GpuRequirements, Input, Job, Limits, Location, RemoteFile, Resources

A100 = GpuInfo("0", "GPU-1a2b3c4d-0000", "NVIDIA A100-SXM4-40GB", 40960, "535.104.05", "8.0")
P100 = GpuInfo("1", "GPU-99999999-0000", "Tesla P100", 16280, "535.104.05", "6.0")

CSV = """\
0, GPU-1a2b3c4d-0000, NVIDIA A100-SXM4-40GB, 40960, 535.104.05, 8.0
1, GPU-99999999-0000, Tesla P100, 16280, 535.104.05, 6.0
"""


def make_job(inputs=(), **limits):
    return Job("0", (), Resources(), Limits(**limits), (), inputs=inputs)


def make_file(name, size=None):
    return RemoteFile(name, (Location(f"http://host/{name}"),), size)


# memory


def test_machine_memory(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\nMemFree: 1 kB\n")
    assert machine_facts.memory_mb(tmp_path, tmp_path / "none") == 16000


def test_limit_of_parent_cgroup(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/slot/job\n")
    groups = tmp_path / "cgroup"
    (groups / "slot" / "job").mkdir(parents=True)
    (groups / "slot" / "job" / "memory.max").write_text("max\n")
    (groups / "slot" / "memory.max").write_text(f"{2**30}\n")
    assert machine_facts.memory_mb(tmp_path, groups) == 1024


def test_limit_of_cgroup_v1(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("5:cpu,cpuacct:/x\n4:memory:/slot\n")
    (tmp_path / "cgroup" / "memory" / "slot").mkdir(parents=True)
    (tmp_path / "cgroup" / "memory" / "slot" / "memory.limit_in_bytes").write_text(f"{2**29}\n")
    assert machine_facts.memory_mb(tmp_path, tmp_path / "cgroup") == 512


def test_figures_of_this_machine(tmp_path):
    assert machine_facts.memory_mb() > 100


@pytest.mark.parametrize(("available_mb", "is_short"), [(1000, False), (900, False), (899, True), (None, False)])
def test_memory_check_has_a_tolerance(available_mb, is_short):
    error = probe.check_memory(available_mb, 1000)
    assert (error is not None) == is_short
    assert not is_short or (error.kind, error.detail) == (
        "insufficient_memory",
        "the job needs 1000 MB of memory, but may use only 899 MB here",
    )


# disk


def test_archive_fetched_as_file_counts_twice():
    inputs = (Input("", "input", (make_file("data.zip", 100), make_file("labels.csv", 7))),)
    assert probe.required_disk_bytes(make_job(inputs), {}) == 207


def test_streamed_archive_counts_once():
    inputs = (Input("", "input", (make_file("data.tar.gz", 100), make_file("data.tar", 1000))),)
    assert probe.required_disk_bytes(make_job(inputs), {}) == 1100
    assert probe.required_disk_bytes(make_job(inputs), {}, can_stream=False) == 2200


def test_archive_without_unpack_counts_once():
    assert (
        probe.required_disk_bytes(make_job((Input("", "input", (make_file("data.zip", 100),), unpack="never"),)), {})
        == 100
    )


def test_size_from_server_counts():
    assert probe.required_disk_bytes(make_job((Input("", "input", (make_file("x"),)),)), {"http://host/x": 55}) == 55


def test_disk_limit_is_required():
    assert probe.required_disk_bytes(make_job(disk_bytes=10**12), {}) == 10**12


def test_disk_error_has_figures():
    error = probe.check_disk(2 * 10**9, 3 * 10**9)
    assert error.kind == "disk_full"
    assert "needs 3.000 GB" in error.detail
    assert "2.000 GB free" in error.detail
    assert probe.check_disk(3 * 10**9, 3 * 10**9) is None


# GPUs


def test_parse_nvidia_smi():
    assert machine_facts.parse_gpus(CSV) == [A100, P100]


@pytest.mark.parametrize(
    ("visible_devices", "expected"),
    [
        (None, [A100, P100]),
        ("0", [A100]),
        ("1,0", [A100, P100]),
        ("GPU-9999", [P100]),
        ("", []),
        ("10000", []),
        ("MIG-abc", [A100, P100]),
    ],
)
def test_only_visible_gpus_count(visible_devices, expected):
    assert machine_facts.filter_visible([A100, P100], visible_devices) == expected


@pytest.mark.parametrize(
    ("requirements", "unmet"),
    [
        (GpuRequirements(), ""),
        (GpuRequirements(min_memory_mb=40960, min_capability="8.0", min_driver="525.60", min_cuda="12.2"), ""),
        (GpuRequirements(min_capability="8"), ""),
        (GpuRequirements(min_memory_mb=80000), "memory in MB is 40960, required is 80000"),
        (GpuRequirements(min_capability="9.0"), "compute capability is 8.0, required is 9.0"),
        (GpuRequirements(min_driver="550.54.14"), "driver is 535.104.05, required is 550.54.14"),
        (GpuRequirements(min_cuda="12.10"), "CUDA version is 12.2, required is 12.10"),
    ],
)
def test_requirements_are_compared_as_versions(requirements, unmet):
    assert probe.unmet_requirements(A100, "12.2", requirements) == unmet


def test_enough_usable_gpus():
    requirements = GpuRequirements(min_capability="7.0")
    assert probe.check_gpus([A100, P100], "", 1, requirements) is None
    error = probe.check_gpus([A100, P100], "", 2, requirements)
    assert error.kind == "gpu_unusable"
    assert "needs 2 GPUs, but 1 usable" in error.detail
    assert "Tesla P100 (GPU-99999999-0000): compute capability is 6.0, required is 7.0" in error.detail


def test_no_gpus():
    assert "nvidia-smi lists none" in probe.check_gpus([], "", 1, GpuRequirements()).detail
    assert probe.check_gpus([], "", 0, GpuRequirements()) is None


def install_nvidia_smi(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(f"#!{sys.executable}\nimport sys\n{text}")
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": str(folder)}


def test_list_gpus(tmp_path):
    environ = install_nvidia_smi(tmp_path / "bin", f"print({CSV!r}, end='')")
    assert machine_facts.list_gpus(environ) == [A100, P100]
    assert machine_facts.list_gpus({**environ, "CUDA_VISIBLE_DEVICES": "1"}) == [P100]


def test_old_driver_without_capability(tmp_path):
    old = "print('0, GPU-1, Tesla K40, 11441, 460.32.03') if 'compute_cap' not in sys.argv[1] else sys.exit(2)"
    assert machine_facts.list_gpus(install_nvidia_smi(tmp_path / "bin", old)) == [
        GpuInfo("0", "GPU-1", "Tesla K40", 11441, "460.32.03", "")
    ]


def test_broken_driver_lists_no_gpus(tmp_path):
    assert (
        machine_facts.list_gpus(install_nvidia_smi(tmp_path / "bin", "print('NVIDIA-SMI has failed'); sys.exit(9)"))
        == []
    )


def test_cuda_version_from_banner(tmp_path):
    banner = "print('| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |')"
    assert machine_facts.cuda_version(install_nvidia_smi(tmp_path / "bin", banner)) == "12.2"


# file system


def test_good_filesystem_has_no_limitations(tmp_path):
    assert machine_facts.filesystem_limitations(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_failed_check_is_a_limitation(tmp_path):
    def fail(folder):
        raise OSError("Function not implemented")

    assert machine_facts._is_supported(fail, tmp_path) is False
