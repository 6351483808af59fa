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


def read_output(desk):
    return (desk.folder / "out").read_text()


def wait_for_starts(desk, n_starts):
    return desk.wait_for(lambda: len(list(desk.folder.glob("started-*"))) >= n_starts)


def finish(desk):
    (desk.folder / "go").touch()
    return desk.wait_for_end()


def submit_waiting_job(desk, more=""):
    jobs = desk.condor_submit(SHELL.format(WAIT_FOR_GO.format(desk.folder)) + more + "queue\n")
    wait_for_starts(desk, 1)
    return jobs


def test_three_sites_with_their_gpus(pool):
    attributes = ["GLIDEIN_ResourceName", "int(TotalCpus)", "TotalGPUs", "HasSIF"]
    command = ["condor_status", "-constraint", "PartitionableSlot", "-af", *attributes]
    assert sorted(pool.run_as_user(command).stdout.splitlines()) == sorted(
        f"{s.name} {s.cpus} {s.gpus} true" for s in SITES
    )


def test_job_runs_as_user(desk):
    (desk.folder / "given").write_text("given\n")
    desk.condor_submit(SHELL.format("id -u; pwd; cat given; echo made > new") + "transfer_input_files = given\nqueue\n")
    desk.wait_for_end()
    user_id, folder, given = read_output(desk).splitlines()
    assert user_id != "0"
    assert folder.startswith(str(desk.pool.folder / "execute"))
    assert given == "given"
    assert (desk.folder / "new").read_text() == "made\n"


@pytest.mark.parametrize("line", ["container_image = image.sif", '+SingularityImage = "{}/image.sif"'])
def test_container_job(desk, line):
    apptainer.build_sif(desk.folder / "image.sif")
    desk.condor_submit(
        SHELL.format("test -e /bin/busybox && echo inside; pwd") + line.format(desk.folder) + "\nqueue\n"
    )
    desk.wait_for_end()
    assert read_output(desk).startswith("inside\n")


def test_gpu_requirements(desk):
    requests = "request_gpus = 1\nrequire_gpus = (DriverVersion >= 10.1) && (Capability == 7.5)\nqueue\n"
    jobs = desk.condor_submit(SHELL.format("echo $CUDA_VISIBLE_DEVICES") + requests)
    desk.wait_for_end()
    assert read_output(desk) == "GPU-00020000\n"
    assert desk.pool.history(jobs, "MachineAttrGLIDEIN_ResourceName0") == [
        {"MachineAttrGLIDEIN_ResourceName0": SITES[2].name}
    ]


def test_evicted_job_restarts(desk):
    jobs = submit_waiting_job(desk)
    desk.pool.run_as_user(["condor_vacate_job", "-fast", "-constraint", jobs])
    wait_for_starts(desk, 2)
    assert "004 (" in finish(desk)
    assert read_output(desk) == "done\n"


def test_killed_starter_restarts_job(desk):
    submit_waiting_job(desk, AT.format(HERE))
    assert desk.pool.kill_daemon("starter", THERE) == 0
    assert desk.pool.kill_daemon("starter", HERE) == 1
    wait_for_starts(desk, 2)
    finish(desk)
    assert read_output(desk) == "done\n"


def test_job_outlives_schedd_and_shadow(desk):
    submit_waiting_job(desk)
    assert desk.pool.kill_daemon("schedd") == 1
    desk.pool.kill_daemon("shadow")
    desk.pool.wait_until_up()
    log = finish(desk)
    assert "022 (" in log
    assert "023 (" in log
    assert len(list(desk.folder.glob("started-*"))) == 1
    assert read_output(desk) == "done\n"


def test_startd_restarts(desk):
    submit_waiting_job(desk, AT.format(HERE))
    assert desk.pool.kill_daemon("startd", HERE, signal.SIGTERM) == 1
    wait_for_starts(desk, 2)
    assert "004 (" in finish(desk)


def test_override_config(desk):
    (desk.folder / "given").write_bytes(bytes(2 << 20))
    before = desk.pool.get_setting("MAX_TRANSFER_INPUT_MB")
    with desk.pool.override_config(MAX_TRANSFER_INPUT_MB=1):
        jobs = desk.condor_submit(SHELL.format("true") + "transfer_input_files = given\nqueue\n")
        held = desk.pool.wait_for_job(jobs, status=5, attributes=["HoldReasonCode"])
        assert held["HoldReasonCode"] == 32
    assert desk.pool.get_setting("MAX_TRANSFER_INPUT_MB") == before != "1"


def test_trusted_ca_and_federation(desk, tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x").write_text("remote data")
    with Federation(tmp_path / "objects") as federation:
        desk.pool.trust_ca(federation.ca)
        desk.pool.set_federation(federation.host)
        url = f"{federation.origin.url}/data/x"
        fetch = f'import urllib.request as u; print(u.urlopen(""{url}"").read().decode())'
        desk.condor_submit(
            f"executable = {sys.executable}\ntransfer_executable = false\noutput = out\nerror = err\n"
            f"arguments = \"-c '{fetch}'\"\ntransfer_input_files = osdf:///data/x\nqueue\n"
        )
        desk.wait_for_end()
    assert read_output(desk) == "remote data\n"


def test_disconnected_site(desk):
    submit_waiting_job(desk, AT.format(HERE) + "job_lease_duration = 1200\n")
    desk.wait_for(lambda: "006 (" in desk.read_user_log())  # without an update, HTCondor takes longer to notice
    with desk.pool.disconnect_site(HERE):
        desk.wait_for(lambda: "022 (" in desk.read_user_log())
        assert desk.pool.kill_daemon("starter", HERE, 0) == 1
    desk.wait_for(lambda: "023 (" in desk.read_user_log())
    assert len(list(desk.folder.glob("started-*"))) == 1


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
