"""What the probe finds out about a machine, and what it makes of it."""

import os
import sys

import pytest

from packtrain.agent.stages import hardware, probe
from packtrain.agent.stages.hardware import GpuInfo
from packtrain.plan import GpuRequirements, Input, Job, Limits, Location, RemoteFile, Resources

A100 = GpuInfo("0", "GPU-1a2b3c4d-0000", "NVIDIA A100-SXM4-40GB", 40960, "535.104.05", "8.0")
P100 = GpuInfo("1", "GPU-99999999-0000", "Tesla P100", 16280, "535.104.05", "6.0")

CSV = """\
0, GPU-1a2b3c4d-0000, NVIDIA A100-SXM4-40GB, 40960, 535.104.05, 8.0
1, GPU-99999999-0000, Tesla P100, 16280, 535.104.05, 6.0
"""


def job(inputs=(), **limits):
    return Job("0", (), Resources(), Limits(**limits), (), inputs=inputs)


def item(name, size=None):
    return RemoteFile(name, (Location(f"http://host/{name}"),), size)


# memory


def test_memory_of_the_machine(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\nMemFree: 1 kB\n")
    assert hardware.memory_mb(tmp_path, tmp_path / "none") == 16000


def test_a_limit_of_any_group_above_counts(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/slot/job\n")
    groups = tmp_path / "cgroup"
    (groups / "slot" / "job").mkdir(parents=True)
    (groups / "slot" / "job" / "memory.max").write_text("max\n")
    (groups / "slot" / "memory.max").write_text(f"{2**30}\n")
    assert hardware.memory_mb(tmp_path, groups) == 1024


def test_old_groups_have_another_place(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("5:cpu,cpuacct:/x\n4:memory:/slot\n")
    (tmp_path / "cgroup" / "memory" / "slot").mkdir(parents=True)
    (tmp_path / "cgroup" / "memory" / "slot" / "memory.limit_in_bytes").write_text(f"{2**29}\n")
    assert hardware.memory_mb(tmp_path, tmp_path / "cgroup") == 512


def test_this_machine_has_memory_and_disk(tmp_path):
    assert hardware.memory_mb() > 100
    assert hardware.free_disk_bytes(tmp_path) > 0


@pytest.mark.parametrize(("have", "short"), [(1000, False), (900, False), (899, True), (None, False)])
def test_memory_is_short_only_if_clearly_less(have, short):
    verdict = probe.check_memory(have, 1000)
    assert (verdict is not None) == short
    assert not short or (verdict.kind, verdict.detail) == (
        "insufficient_memory",
        "the job needs 1000 MB of memory, but may use only 899 MB here",
    )


# disk


def test_archives_that_come_as_files_count_twice():
    inputs = (Input("", "input", (item("data.zip", 100), item("labels.csv", 7))),)
    assert probe.required_disk_bytes(job(inputs), {}) == 207


def test_archives_that_are_unpacked_on_their_way_count_once():
    inputs = (Input("", "input", (item("data.tar.gz", 100), item("data.tar", 1000))),)
    assert probe.required_disk_bytes(job(inputs), {}) == 1100
    assert probe.required_disk_bytes(job(inputs), {}, can_stream=False) == 2200


def test_archives_that_stay_packed_count_once():
    assert probe.required_disk_bytes(job((Input("", "input", (item("data.zip", 100),), unpack="never"),)), {}) == 100


def test_a_size_that_only_the_server_knows_counts():
    assert probe.required_disk_bytes(job((Input("", "input", (item("x"),)),)), {"http://host/x": 55}) == 55


def test_the_limit_is_a_need():
    assert probe.required_disk_bytes(job(disk_bytes=10**12), {}) == 10**12


def test_too_little_disk_is_told_with_figures():
    verdict = probe.check_disk(2 * 10**9, 3 * 10**9)
    assert verdict.kind == "disk_full"
    assert "needs 3.000 GB" in verdict.detail
    assert "2.000 GB free" in verdict.detail
    assert probe.check_disk(3 * 10**9, 3 * 10**9) is None


# GPUs


def test_what_nvidia_smi_says():
    assert hardware.parse_gpus(CSV) == [A100, P100]


@pytest.mark.parametrize(
    ("chosen", "seen"),
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
def test_only_visible_gpus_count(chosen, seen):
    assert hardware.filter_visible([A100, P100], chosen) == seen


@pytest.mark.parametrize(
    ("needs", "lack"),
    [
        (GpuRequirements(), ""),
        (GpuRequirements(min_memory_mb=40960, min_capability="8.0", min_driver="525.60", min_cuda="12.2"), ""),
        (GpuRequirements(min_capability="8"), ""),
        (GpuRequirements(min_memory_mb=80000), "memory in MB is 40960, needed is 80000"),
        (GpuRequirements(min_capability="9.0"), "compute capability is 8.0, needed is 9.0"),
        (GpuRequirements(min_driver="550.54.14"), "driver is 535.104.05, needed is 550.54.14"),
        (GpuRequirements(min_cuda="12.10"), "CUDA version is 12.2, needed is 12.10"),
    ],
)
def test_needs_are_compared_as_versions(needs, lack):
    assert probe.unmet_requirements(A100, "12.2", needs) == lack


def test_enough_good_ones_must_exist():
    needs = GpuRequirements(min_capability="7.0")
    assert probe.check_gpus([A100, P100], "", 1, needs) is None
    verdict = probe.check_gpus([A100, P100], "", 2, needs)
    assert verdict.kind == "gpu_unusable"
    assert "needs 2 GPUs, but 1 usable" in verdict.detail
    assert "Tesla P100 (GPU-99999999-0000): compute capability is 6.0, needed is 7.0" in verdict.detail


def test_none_at_all_is_told():
    assert "nvidia-smi shows none" in probe.check_gpus([], "", 1, GpuRequirements()).detail
    assert probe.check_gpus([], "", 0, GpuRequirements()) is None


def tool(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(f"#!{sys.executable}\nimport sys\n{text}")
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": str(folder)}


def test_the_tool_is_asked(tmp_path):
    environ = tool(tmp_path / "bin", f"print({CSV!r}, end='')")
    assert hardware.list_gpus(environ) == [A100, P100]
    assert hardware.list_gpus({**environ, "CUDA_VISIBLE_DEVICES": "1"}) == [P100]


def test_an_old_driver_does_not_know_the_capability(tmp_path):
    old = "print('0, GPU-1, Tesla K40, 11441, 460.32.03') if 'compute_cap' not in sys.argv[1] else sys.exit(2)"
    assert hardware.list_gpus(tool(tmp_path / "bin", old)) == [
        GpuInfo("0", "GPU-1", "Tesla K40", 11441, "460.32.03", "")
    ]


def test_a_broken_driver_shows_no_gpus(tmp_path):
    assert hardware.list_gpus(tool(tmp_path / "bin", "print('NVIDIA-SMI has failed'); sys.exit(9)")) == []


def test_the_cuda_version_stands_in_the_banner(tmp_path):
    banner = "print('| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |')"
    assert hardware.cuda_version(tool(tmp_path / "bin", banner)) == "12.2"


# file system


def test_a_good_file_system_has_no_quirks(tmp_path):
    assert hardware.filesystem_limitations(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_what_an_ability_raises_is_a_quirk(tmp_path):
    def unlucky(trial):
        raise OSError("Function not implemented")

    assert hardware._is_supported(unlucky, tmp_path) is False
