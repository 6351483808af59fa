"""The pool itself, without packtrain: real, of three sites, and as unkind as told."""

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
# Lives until the test says `go`, and tells of each start.
UNTIL_TOLD = "touch {0}/started-$CONDOR_STARTER_PID; while [ ! -e {0}/go ]; do sleep 0.1; done; echo done"
AT = 'requirements = GLIDEIN_ResourceName == "{}"\n'
HERE, THERE = SITES[0].name, SITES[1].name


def out(desk):
    return (desk.folder / "out").read_text()


def started(desk, times):
    return desk.wait_for(lambda: len(list(desk.folder.glob("started-*"))) >= times)


def go(desk):
    (desk.folder / "go").touch()
    return desk.wait_for_end()


def waiting_job(desk, more=""):
    jobs = desk.condor_submit(SHELL.format(UNTIL_TOLD.format(desk.folder)) + more + "queue\n")
    started(desk, 1)
    return jobs


def test_three_sites_with_their_gpus(pool):
    wanted = ["GLIDEIN_ResourceName", "int(TotalCpus)", "TotalGPUs", "HasSIF"]
    seen = pool.run_as_user(["condor_status", "-constraint", "PartitionableSlot", "-af", *wanted]).stdout.splitlines()
    assert sorted(seen) == sorted(f"{s.name} {s.cpus} {s.gpus} true" for s in SITES)


def test_a_job_runs_as_an_ordinary_user_and_comes_back(desk):
    (desk.folder / "given").write_text("given\n")
    desk.condor_submit(SHELL.format("id -u; pwd; cat given; echo made > new") + "transfer_input_files = given\nqueue\n")
    desk.wait_for_end()
    user, place, given = out(desk).splitlines()
    assert user != "0"
    assert place.startswith(str(desk.pool.folder / "execute"))
    assert given == "given"
    assert (desk.folder / "new").read_text() == "made\n"


@pytest.mark.parametrize("line", ["container_image = image.sif", '+SingularityImage = "{}/image.sif"'])
def test_a_container_job(desk, line):
    apptainer.build_sif(desk.folder / "image.sif")
    desk.condor_submit(
        SHELL.format("test -e /bin/busybox && echo inside; pwd") + line.format(desk.folder) + "\nqueue\n"
    )
    desk.wait_for_end()
    assert out(desk).startswith("inside\n")


def test_gpus_are_chosen_by_what_they_are(desk):
    wanted = "request_gpus = 1\nrequire_gpus = (DriverVersion >= 10.1) && (Capability == 7.5)\nqueue\n"
    jobs = desk.condor_submit(SHELL.format("echo $CUDA_VISIBLE_DEVICES") + wanted)
    desk.wait_for_end()
    assert out(desk) == "GPU-00020000\n"
    assert desk.pool.history(jobs, "MachineAttrGLIDEIN_ResourceName0") == [
        {"MachineAttrGLIDEIN_ResourceName0": SITES[2].name}
    ]


def test_an_evicted_job_starts_again(desk):
    jobs = waiting_job(desk)
    desk.pool.run(["condor_vacate_job", "-fast", "-constraint", jobs])
    started(desk, 2)
    assert "004 (" in go(desk)
    assert out(desk) == "done\n"


def test_a_job_whose_starter_is_killed_starts_again(desk):
    waiting_job(desk, AT.format(HERE))
    assert desk.pool.kill("starter", THERE) == 0
    assert desk.pool.kill("starter", HERE) == 1
    started(desk, 2)
    go(desk)
    assert out(desk) == "done\n"


def test_a_job_goes_on_while_schedd_and_shadow_are_killed(desk):
    waiting_job(desk)
    assert desk.pool.kill("schedd") == 1
    desk.pool.kill("shadow")
    desk.pool.await_up()
    log = go(desk)
    assert "022 (" in log
    assert "023 (" in log
    assert len(list(desk.folder.glob("started-*"))) == 1
    assert out(desk) == "done\n"


def test_a_startd_that_is_shut_down_comes_back(desk):
    waiting_job(desk, AT.format(HERE))
    assert desk.pool.kill("startd", HERE, signal.SIGTERM) == 1
    started(desk, 2)
    assert "004 (" in go(desk)


def test_settings_for_a_while(desk):
    (desk.folder / "given").write_bytes(bytes(2 << 20))
    before = desk.pool.setting("MAX_TRANSFER_INPUT_MB")
    with desk.pool.configured(MAX_TRANSFER_INPUT_MB=1):
        jobs = desk.condor_submit(SHELL.format("true") + "transfer_input_files = given\nqueue\n")
        held = desk.pool.await_job(jobs, status=5, attributes=["HoldReasonCode"])
        assert held["HoldReasonCode"] == 32
    assert desk.pool.setting("MAX_TRANSFER_INPUT_MB") == before != "1"


def test_plugins_and_jobs_trust_our_authority_and_know_our_federation(desk, tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x").write_text("from afar")
    with Federation(tmp_path / "objects") as federation:
        desk.pool.trust(federation.ca)
        desk.pool.federation(federation.host)
        address = f"{federation.origin.url}/data/x"
        fetch = f'import urllib.request as u; print(u.urlopen(""{address}"").read().decode())'
        desk.condor_submit(
            f"executable = {sys.executable}\ntransfer_executable = false\noutput = out\nerror = err\n"
            f"arguments = \"-c '{fetch}'\"\ntransfer_input_files = osdf:///data/x\nqueue\n"
        )
        desk.wait_for_end()
    assert out(desk) == "from afar\n"


def test_a_site_that_is_cut_off_is_silent_and_its_jobs_go_on(desk):
    waiting_job(desk, AT.format(HERE) + "job_lease_duration = 1200\n")
    desk.wait_for(lambda: "006 (" in desk.read_user_log())  # who has never heard of the job is slow to miss it
    with desk.pool.cut(HERE):
        desk.wait_for(lambda: "022 (" in desk.read_user_log())
        assert desk.pool.kill("starter", HERE, 0) == 1
    desk.wait_for(lambda: "023 (" in desk.read_user_log())
    assert len(list(desk.folder.glob("started-*"))) == 1


def test_nothing_outlives_the_process_that_started_it(tmp_path):
    program = (
        "import sys; from pathlib import Path; from testbed.condor_pool import Pool\n"
        "with Pool(Path(sys.argv[1])) as pool: print(*pool.processes('startd'), flush=True); sys.stdin.read()"
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
    ended = select.poll()
    for daemon in daemons:
        ended.register(daemon, select.POLLIN)
    for _ in daemons:
        ((daemon, _),) = ended.poll(30_000)[:1]
        ended.unregister(daemon)
        os.close(daemon)
