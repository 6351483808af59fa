"""The test pool itself, without packtrain: three sites, and the faults that tests can cause."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from testbed import apptainer, debian
from testbed.condor_config import SITES
from testbed.federation import Federation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

SHELL = "executable = /bin/sh\ntransfer_executable = false\narguments = \"-c '{}'\"\noutput = out\nerror = err\n"
# Runs until the test creates the file `go`, and creates a file at each start.
WAIT_FOR_GO = "touch {0}/started-$CONDOR_STARTER_PID; while [ ! -e {0}/go ]; do sleep 0.1; done; echo done"
AT = 'requirements = GLIDEIN_ResourceName == "{}"\n'
HERE, THERE = SITES[0].name, SITES[1].name


def read_output(workspace):
    return (workspace.folder / "out").read_text()


def wait_for_starts(workspace, n_starts):
    return workspace.wait_for(lambda: len(list(workspace.folder.glob("started-*"))) >= n_starts)


def finish(workspace):
    (workspace.folder / "go").touch()
    return workspace.wait_for_end()


def submit_waiting_job(workspace, more=""):
    jobs = workspace.condor_submit(SHELL.format(WAIT_FOR_GO.format(workspace.folder)) + more + "queue\n")
    wait_for_starts(workspace, 1)
    return jobs


def test_three_sites_with_their_gpus(pool):
    attributes = ["GLIDEIN_ResourceName", "int(TotalCpus)", "TotalGPUs", "HasSIF"]
    command = ["condor_status", "-constraint", "PartitionableSlot", "-af", *attributes]
    assert sorted(pool.run_as_user(command).stdout.splitlines()) == sorted(
        f"{s.name} {s.cpus} {s.gpus} true" for s in SITES
    )


def test_job_runs_as_user(workspace):
    (workspace.folder / "given").write_text("given\n")
    workspace.condor_submit(
        SHELL.format("id -u; pwd; cat given; echo made > new") + "transfer_input_files = given\nqueue\n"
    )
    workspace.wait_for_end()
    user_id, folder, given = read_output(workspace).splitlines()
    assert user_id != "0"
    assert folder.startswith(str(workspace.pool.folder / "execute"))
    assert given == "given"
    assert (workspace.folder / "new").read_text() == "made\n"


@pytest.mark.parametrize("line", ["container_image = image.sif", '+SingularityImage = "{}/image.sif"'])
def test_container_job(workspace, line):
    apptainer.build_sif(workspace.folder / "image.sif")
    workspace.condor_submit(
        SHELL.format("test -e /bin/busybox && echo inside; pwd") + line.format(workspace.folder) + "\nqueue\n"
    )
    workspace.wait_for_end()
    assert read_output(workspace).startswith("inside\n")


def test_gpu_requirements(workspace):
    requests = "request_gpus = 1\nrequire_gpus = (DriverVersion >= 10.1) && (Capability == 7.5)\nqueue\n"
    jobs = workspace.condor_submit(SHELL.format("echo $CUDA_VISIBLE_DEVICES") + requests)
    workspace.wait_for_end()
    assert read_output(workspace) == "GPU-00020000\n"
    assert workspace.pool.history(jobs, "MachineAttrGLIDEIN_ResourceName0") == [
        {"MachineAttrGLIDEIN_ResourceName0": SITES[2].name}
    ]


def test_evicted_job_restarts(workspace):
    jobs = submit_waiting_job(workspace)
    workspace.pool.run_as_user(["condor_vacate_job", "-fast", "-constraint", jobs])
    wait_for_starts(workspace, 2)
    assert "004 (" in finish(workspace)
    assert read_output(workspace) == "done\n"


def test_killed_starter_restarts_job(workspace):
    submit_waiting_job(workspace, AT.format(HERE))
    assert workspace.pool.kill_daemon("starter", THERE) == 0
    assert workspace.pool.kill_daemon("starter", HERE) == 1
    wait_for_starts(workspace, 2)
    finish(workspace)
    assert read_output(workspace) == "done\n"


def test_job_outlives_schedd_and_shadow(workspace):
    submit_waiting_job(workspace)
    assert workspace.pool.kill_daemon("schedd") == 1
    workspace.pool.kill_daemon("shadow")
    workspace.pool.wait_until_up()
    log = finish(workspace)
    assert "022 (" in log
    assert "023 (" in log
    assert len(list(workspace.folder.glob("started-*"))) == 1
    assert read_output(workspace) == "done\n"


def test_startd_restarts(workspace):
    submit_waiting_job(workspace, AT.format(HERE))
    assert workspace.pool.kill_daemon("startd", HERE, signal.SIGTERM) == 1
    wait_for_starts(workspace, 2)
    assert "004 (" in finish(workspace)


def test_override_config(workspace):
    (workspace.folder / "given").write_bytes(bytes(2 << 20))
    before = workspace.pool.get_setting("MAX_TRANSFER_INPUT_MB")
    with workspace.pool.override_config(MAX_TRANSFER_INPUT_MB=1):
        jobs = workspace.condor_submit(SHELL.format("true") + "transfer_input_files = given\nqueue\n")
        held = workspace.pool.wait_for_job(jobs, status=5, attributes=["HoldReasonCode"])
        assert held["HoldReasonCode"] == 32
    assert workspace.pool.get_setting("MAX_TRANSFER_INPUT_MB") == before != "1"


def test_trusted_ca_and_federation(workspace, tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x").write_text("remote data")
    with Federation(tmp_path / "objects") as federation:
        workspace.pool.trust_ca(federation.ca)
        workspace.pool.set_federation(federation.host)
        url = f"{federation.origin.url}/data/x"
        fetch = f'import urllib.request as u; print(u.urlopen(""{url}"").read().decode())'
        workspace.condor_submit(
            f"executable = {sys.executable}\ntransfer_executable = false\noutput = out\nerror = err\n"
            f"arguments = \"-c '{fetch}'\"\ntransfer_input_files = osdf:///data/x\nqueue\n"
        )
        workspace.wait_for_end()
    assert read_output(workspace) == "remote data\n"


def test_disconnected_site(workspace):
    submit_waiting_job(workspace, AT.format(HERE) + "job_lease_duration = 1200\n")
    workspace.wait_for(
        lambda: "006 (" in workspace.read_user_log()
    )  # without an update, HTCondor takes longer to notice
    with workspace.pool.disconnect_site(HERE):
        workspace.wait_for(lambda: "022 (" in workspace.read_user_log())
        assert workspace.pool.kill_daemon("starter", HERE, 0) == 1
    workspace.wait_for(lambda: "023 (" in workspace.read_user_log())
    assert len(list(workspace.folder.glob("started-*"))) == 1


def test_pool_ends_with_its_process(tmp_path):
    program = (
        "import sys; from pathlib import Path; from testbed.condor_pool import CondorPool\n"
        "with CondorPool(Path(sys.argv[1])) as pool:\n"
        "    print(*pool.find_processes('startd'), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        cwd=debian.PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    daemons = [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]
    assert len(daemons) == len(SITES)
    process.kill()
    process.communicate()
    poller = select.poll()
    for daemon in daemons:
        poller.register(daemon, select.POLLIN)
    for _ in daemons:
        ((daemon, _),) = poller.poll(30_000)[:1]
        poller.unregister(daemon)
        os.close(daemon)
