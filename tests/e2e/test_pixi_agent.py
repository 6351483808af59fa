"""Agents that install a Pixi environment and run their steps in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.plan import EnvVar, MachineRequirements, PixiCommand, PixiTask, Resources
from testbed.http_server import HttpServer, ResponseFault
from testbed.pixi.packages import CondaPackage, build_wheel
from tests.support.agent_runs import make_job, make_step
from tests.support.pixi_environments import (
    PLACEHOLDER,
    SITE_PACKAGES,
    lock_package,
    make_lock,
    pixi_config,
    small_packages,
    write_environment,
)

STAGES = ["probe", "fetch", "unpack", "install", "steps", "check", "sync", "clean"]


class Channel:
    """Packages behind a server."""

    def __init__(self, folder, server, paths):
        self.folder, self.server, self.paths = folder, server, paths

    def lock(self, **fields):
        urls = [f"{self.server.url}/{path.relative_to(self.folder).as_posix()}" for path in self.paths]
        return make_lock(*map(lock_package, self.paths, urls), **fields)

    def downloads(self):
        """Return how often each package was requested."""
        paths = [request.path for request in self.server.requests if request.method == "GET"]
        return {path: paths.count(path) for path in paths}


@pytest.fixture
def channel(tmp_path):
    """Serve three packages."""
    folder = tmp_path / "channel"
    paths = small_packages(folder)
    with HttpServer(folder) as server:
        yield Channel(folder, server, paths)


def make_pixi_job(environment, *commands, **fields):
    steps = [make_step(command, f"step-{number}") for number, command in enumerate(commands)]
    return make_job(*steps, environment=pixi_config(environment), **fields)


def test_steps_run_in_the_environment(attempt, channel, tmp_path):
    environment = write_environment(tmp_path / "env", channel.lock(), activation_env=(EnvVar("FROM", "$TOOL_HOME/x"),))
    command = 'tool && echo "$TOOL_HOME|$FROM|$CONDA_PREFIX|$PIXI_ENVIRONMENT_NAME|$PIXI_PROJECT_NAME"'
    run = attempt(make_pixi_job(environment, command)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert [event.data["stage"] for event in run.events("stage.ended")] == STAGES
    first, second = (run.attempt_folder.logs / "step-0.out").read_text().splitlines()
    prefix = first.rpartition(" ")[2]
    assert second == f"{prefix}/share|{prefix}/share/x|{prefix}|default|ws"
    installed = next(event.data for event in run.events("stage.ended") if event.data["stage"] == "install")
    assert (installed["packages"], installed["files"], installed["bytes"]) == (3, 3, environment.download_bytes)
    assert installed["seconds"] > 0 and installed["was_installed"]


def install_data(run):
    return next(event.data for event in run.events("stage.ended") if event.data["stage"] == "install")


def assert_failed(run, kind, stage, *texts):
    failure = run.end_data["failure"]
    assert (failure["kind"], failure["stage"]) == (kind, stage), failure
    for text in texts:
        assert text in failure["detail"]
    assert run.is_sandbox_removed


def test_environment_precedes_the_workflow_and_follows_the_host(attempt, channel, tmp_path):
    """A variable of the step wins over the environment's, and the environment's over the agent's."""
    environment = write_environment(tmp_path / "env", channel.lock())
    step = make_step('echo "$TOOL_HOME" >&2; echo "$TOOL_HOME|$CONDA_SHLVL"', env=(EnvVar("TOOL_HOME", "own"),))
    run = attempt(make_job(step, environment=pixi_config(environment)), environ={**os.environ, "CONDA_SHLVL": "7"})
    run.start_and_wait()
    assert (run.attempt_folder.logs / "step.out").read_text() == "own|1\n"


def test_scripts_that_call_pixi(attempt, channel, tmp_path):
    task = PixiTask("greet", (PixiCommand("echo hello", (EnvVar("A", "x"),)),))
    environment = write_environment(tmp_path / "env", channel.lock(tasks=(task,)), "gpu", workspace_name="w")
    commands = (
        "pixi install --locked && pixi run -e gpu tool | cut -c1-7",
        "pixi run greet you",
        'eval "$(pixi shell-hook -e gpu)" && tool | cut -c1-7',
        "pixi run -e cpu tool",
    )
    run = attempt(make_pixi_job(environment, *commands)).start_and_wait()
    logs = [(run.attempt_folder.logs / f"step-{n}.out").read_text() for n in range(3)]
    assert logs == ["tool in\n", "hello you\n", "tool in\n"]
    assert_failed(run, "step_failed", "steps", "this job has the environment gpu, not cpu")


def test_jobs_share_packages_and_prefixes(attempt, channel, tmp_path):
    """Two jobs at once and a third later: each package is downloaded once, and the prefix installed once."""
    environment = write_environment(tmp_path / "env", channel.lock())
    options = ("--cache", str(tmp_path / "cache"))
    runs = [attempt(make_pixi_job(environment, "tool"), options=options).start() for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    runs.append(attempt(make_pixi_job(environment, "tool"), options=options).start_and_wait())
    assert sorted(install_data(run)["was_installed"] for run in runs) == [False, False, True]
    assert set(channel.downloads().values()) == {1}
    assert install_data(runs[2])["bytes"] == 0
    logs = {(run.attempt_folder.logs / "step-0.out").read_text() for run in runs}
    assert len(logs) == 1 and str(tmp_path / "cache") in logs.pop()


def test_environments_share_packages(attempt, channel, tmp_path):
    options = ("--cache", str(tmp_path / "cache"))
    lock = channel.lock()
    first = write_environment(tmp_path / "env1", lock)
    second = write_environment(tmp_path / "env2", replace(lock, packages=lock.packages[:2]), "other")
    for environment in (first, second):
        assert attempt(make_pixi_job(environment, "tool"), options=options).start_and_wait().process.returncode == 0
    assert set(channel.downloads().values()) == {1}


def prefixes(cache):
    """Return the complete prefixes, and the leftovers of others."""
    entries = [path for path in cache.glob("*/*") if path.is_dir()]
    complete = [path for path in entries if "." not in path.name]
    return complete, [path.name for path in entries if path not in complete]


@pytest.mark.parametrize("package", range(3))
def test_agent_killed_while_it_installs(attempt, channel, tmp_path, package):
    """Whichever package is still missing, the prefix is absent, and the next job makes it complete."""
    environment = write_environment(tmp_path / "env", channel.lock())
    cache = tmp_path / "cache"
    stalled = f"/{channel.paths[package].relative_to(channel.folder)}"
    channel.server.faults = _StallOf(stalled, channel.server)
    run = attempt(make_pixi_job(environment, "tool"), options=("--cache", str(cache))).start()
    channel.server.stall_started.wait()
    run.process.send_signal(signal.SIGKILL)
    run.wait()
    assert prefixes(cache)[0] == []
    channel.server.faults = []
    channel.server.release_stalls()
    run = attempt(make_pixi_job(environment, "tool"), options=("--cache", str(cache))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    complete, leftovers = prefixes(cache)
    assert (len(complete), leftovers) == (1, [])
    assert len(list(complete[0].rglob("library.so"))) == 1


class _StallOf(list):
    """Faults of a server that stall the responses for one path."""

    def __init__(self, path, server):
        super().__init__([None])
        self._path, self._server = path, server

    def pop(self, index=0):
        is_stalled = self._server.requests[-1].path == self._path
        return ResponseFault(stall_after_bytes=1) if is_stalled else None


def test_wrong_digest(attempt, channel, tmp_path):
    environment = write_environment(tmp_path / "env", channel.lock())
    for path in channel.paths:
        path.write_bytes(bytes(path.stat().st_size))
    run = attempt(make_pixi_job(environment, "tool")).start_and_wait()
    assert_failed(run, "digest_mismatch", "install", "has the sha256", "but should have")


def test_channel_down(attempt, channel, tmp_path):
    environment = write_environment(tmp_path / "env", channel.lock())
    channel.server.faults = [ResponseFault(status=503)] * 1000
    run = attempt(make_pixi_job(environment, "tool")).start_and_wait()
    assert_failed(run, "service_unavailable", "install", "503")


def test_package_is_missing(attempt, channel, tmp_path):
    environment = write_environment(tmp_path / "env", channel.lock())
    channel.paths[0].unlink()
    run = attempt(make_pixi_job(environment, "tool")).start_and_wait()
    assert_failed(run, "object_missing", "install", channel.paths[0].name)


def test_unsafe_package(attempt, channel, tmp_path):
    channel.paths.append(CondaPackage("evil").add("../../evil", "x").write(channel.folder))
    run = attempt(make_pixi_job(write_environment(tmp_path / "env", channel.lock()), "tool")).start_and_wait()
    assert_failed(run, "package_broken", "install", "'../../evil' of evil-1.0-0.conda would be written outside")


def test_activation_script_ends_the_shell(attempt, channel, tmp_path):
    package = CondaPackage("licensed").add("etc/conda/activate.d/a.sh", "echo no license >&2\nexit 4\n")
    channel.paths.append(package.write(channel.folder))
    run = attempt(make_pixi_job(write_environment(tmp_path / "env", channel.lock()), "tool")).start_and_wait()
    assert_failed(run, "activation_failed", "install", "code 4; its last line: no license")


@pytest.mark.parametrize(
    ("requires", "environ", "kind", "text"),
    [
        (
            MachineRequirements(min_glibc="2.28"),
            {"CONDA_OVERRIDE_GLIBC": "2.17"},
            "environment_unsupported",
            "glibc 2.28",
        ),
        (MachineRequirements(min_cuda="12.4"), {"CONDA_OVERRIDE_CUDA": "12.2"}, "gpu_unusable", "CUDA 12.2"),
        (MachineRequirements(min_cuda="12.4"), {"CONDA_OVERRIDE_CUDA": ""}, "gpu_unusable", "no NVIDIA driver"),
    ],
)
def test_unfit_machine(attempt, channel, tmp_path, requires, environ, kind, text):
    """Nothing is fetched."""
    environment = write_environment(tmp_path / "env", channel.lock(), requires=requires)
    run = attempt(make_pixi_job(environment, "tool"), environ={**os.environ, **environ}).start_and_wait()
    assert_failed(run, kind, "probe", text)
    assert channel.downloads() == {}


def test_disk_full_during_installation(attempt, channel, small_disk, tmp_path):
    """Neither the sandbox nor the cache keeps half an environment."""
    package = CondaPackage("large").add("share/large", bytes(9 << 20))
    channel.paths.append(package.write(channel.folder))
    environment = write_environment(tmp_path / "env", channel.lock())
    run = attempt(make_pixi_job(environment, "tool"), options=("--cache", str(small_disk / "cache")))
    run.scratch = small_disk / "scratch"
    run.start_and_wait()
    failure = run.end_data["failure"]
    assert (failure["kind"], failure["stage"]) in [("archive_too_large", "install"), ("disk_full", "install")]
    assert prefixes(small_disk / "cache") == ([], [])


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    process = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True)
    if process.returncode != 0:
        pytest.skip("mounting is not permitted")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_path_longer_than_the_placeholder(attempt, channel, tmp_path):
    """The environment is used by a short link, which is removed at the end."""
    environment = write_environment(tmp_path / "env", channel.lock())
    run = attempt(make_pixi_job(environment, "tool", "pixi run tool"))
    run.scratch = tmp_path / ("x" * 120) / ("y" * 120)
    run.scratch.mkdir(parents=True)
    run.start_and_wait()
    assert run.process.returncode == 0, run.stderr
    prefix = Path((run.attempt_folder.logs / "step-0.out").read_text().split()[-1])
    assert prefix.parent == Path("/tmp") and not os.path.lexists(prefix)
    assert "bytes, but may have only 255" in " ".join(event.data["text"] for event in run.events("notice"))


def test_placeholder_shorter_than_any_path(attempt, channel, tmp_path):
    package = CondaPackage("old").add("lib/old.so", b"/b\0", placeholder="/b", file_mode="binary")
    channel.paths.append(package.write(channel.folder))
    run = attempt(make_pixi_job(write_environment(tmp_path / "env", channel.lock()), "tool")).start_and_wait()
    assert_failed(run, "environment_unsupported", "install", "may have only 2", "no shorter path could be used")


def test_package_of_the_environments_folder(attempt, channel, tmp_path):
    """A local wheel is sent with the job, and has no URL."""
    lock = channel.lock()
    (tmp_path / "env").mkdir()
    channel.paths[2].replace(tmp_path / "env" / channel.paths[2].name)
    local = replace(lock, packages=(*lock.packages[:2], replace(lock.packages[2], url="")))
    run = attempt(make_pixi_job(write_environment(tmp_path / "env", local), "tool")).start_and_wait()
    assert run.process.returncode == 0, run.stderr


def test_cache_that_cannot_hold_the_environment(attempt, channel, small_disk, tmp_path):
    """Its disk is full; the job installs the environment in its scratch folder."""
    channel.paths.append(CondaPackage("large").add("share/large", bytes(9 << 20)).write(channel.folder))
    environment = write_environment(tmp_path / "env", channel.lock())
    run = attempt(make_pixi_job(environment, "tool"), options=("--cache", str(small_disk / "cache"))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert "cannot be in the download cache" in " ".join(event.data["text"] for event in run.events("notice"))
    assert prefixes(small_disk / "cache") == ([], [])


def write_site_pixi(folder, install_code=0):
    """Write a stand-in for the site's own pixi, which logs its arguments."""
    folder.mkdir()
    variables = '{"environment_variables": {"FROM_SITE": "yes", "PATH": "/site/bin:/usr/bin:/bin"}}'
    lines = ("#!/bin/sh", f'echo "$@" >> {folder}/calls', f"[ $1 = shell-hook ] && echo '{variables}' && exit 0")
    (folder / "pixi").write_text("\n".join((*lines, "echo solving >&2", f"exit {install_code}\n")))
    (folder / "pixi").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_pixi_of_the_site(attempt, channel, tmp_path):
    environment = write_environment(tmp_path / "env", channel.lock(), "gpu", use="site")
    environ = write_site_pixi(tmp_path / "site")
    run = attempt(make_pixi_job(environment, 'echo "$FROM_SITE|$PATH"'), environ=environ).start_and_wait()
    assert (run.attempt_folder.logs / "step-0.out").read_text() == "yes|/site/bin:/usr/bin:/bin\n"
    first, *others = (tmp_path / "site/calls").read_text().splitlines()
    assert first.startswith("install --frozen --manifest-path ") and first.endswith("pixi.toml --environment gpu")
    assert all(call.startswith("shell-hook --json --frozen") for call in others)
    assert channel.downloads() == {}


@pytest.mark.parametrize("is_there", [True, False])
def test_pixi_of_the_site_fails(attempt, channel, tmp_path, is_there):
    environment = write_environment(tmp_path / "env", channel.lock(), use="site")
    environ = write_site_pixi(tmp_path / "site", install_code=1) if is_there else dict(os.environ)
    run = attempt(make_pixi_job(environment, "true"), environ=environ).start_and_wait()
    text = "failed with code 1: solving" if is_there else "there is no pixi on the PATH"
    assert_failed(run, "environment_unsupported", "install", text)


@pytest.mark.parametrize("works", [True, False])
def test_kernel_check(attempt, channel, tmp_path, works):
    """Where a GPU is requested, the environment's PyTorch runs a kernel before the steps; here it is a stand-in."""
    body = "sys.exit(0)" if works else "raise RuntimeError('no kernel image is available for execution on the device')"
    channel.paths.append(build_wheel(channel.folder, "torch", files={"torch.py": f"import sys\n{body}\n"}))
    python = CondaPackage("python", "3.12").add("bin/python", symlink="python3.12")
    wrapper = f'#!/bin/sh\nPYTHONPATH={PLACEHOLDER}/{SITE_PACKAGES} exec {sys.executable} "$@"\n'
    channel.paths.append(python.add("bin/python3.12", wrapper, 0o755, placeholder=PLACEHOLDER).write(channel.folder))
    environment = write_environment(tmp_path / "env", channel.lock())
    resources = Resources(mem_per_cpu_mb=16, gpus=1)
    nvidia_smi = tmp_path / "bin" / "nvidia-smi"
    nvidia_smi.parent.mkdir()
    nvidia_smi.write_text("#!/bin/sh\necho '0, GPU-1, Tesla K40, 11441, 460.32.03, 3.5'\n")
    nvidia_smi.chmod(0o755)
    environ = {**os.environ, "PATH": f"{nvidia_smi.parent}:{os.environ['PATH']}"}
    run = attempt(make_pixi_job(environment, "tool", resources=resources), environ=environ).start_and_wait()
    if works:
        assert run.process.returncode == 0, run.stderr
    else:
        assert_failed(run, "gpu_unusable", "install", "cannot run a kernel on this GPU", "no kernel image is available")
