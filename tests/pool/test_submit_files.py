"""Submit files like the published ones, run by `packtrain run` on a real pool."""

from __future__ import annotations

import json
import subprocess
import tarfile

import pytest

from packtrain.condor.submitfile.syntax.quoting import split_arguments
from packtrain.events import FAILURE_KINDS
from packtrain.spec import placeholders
from testbed import apptainer
from testbed.federation import Federation
from testbed.http_server import HttpServer
from tests.support import self_checkpointing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

WRAPPER = """#!/bin/bash
mkdir data
tar -xf words.tar -C data
test -s labels.txt || exit 3
cat data/words.txt > model.pt
echo "seed $2 at $GLIDEIN_Site" >> model.pt
echo trained
rm -rf data
"""
SUBMIT = """
+JOB_Site = "$$(GLIDEIN_Site:Unknown)"
log    = logs/job_$(Cluster).log
error  = logs/job_$(Cluster)_$(Process).err
output = logs/job_$(Cluster)_$(Process).out
executable = run.sh
arguments  = --seed $(Process)
transfer_input_files = helper.txt, {urls}
should_transfer_files   = YES
when_to_transfer_output = ON_EXIT
requirements = GLIDEIN_ResourceName =!= "nowhere"
require_gpus = (DriverVersion >= 10.1)
request_cpus   = 1
request_gpus   = {gpus}
request_memory = 64MB
request_disk   = 200MB
{more}
queue {count}
"""


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served" / "data"
    folder.mkdir(parents=True)
    (folder / "labels.txt").write_text("cat dog\n")
    (folder / "words.txt").write_text("words\n")
    with tarfile.open(folder / "words.tar", "w") as archive:
        archive.add(folder / "words.txt", "words.txt")
    return folder


def write_files(workspace, urls, count="", more="", gpus=1):
    workspace.write_file(WRAPPER, "run.sh")
    workspace.write_file("help\n", "helper.txt")
    workspace.write_file(SUBMIT.format(urls=", ".join(urls), count=count, more=more, gpus=gpus), "job.sub")


def test_one_job_with_mixed_inputs(workspace, served):
    with HttpServer(served) as origin:
        write_files(workspace, [f"{origin.url}/words.tar", f"{origin.url}/labels.txt"])
        workspace.run("run", "job.sub", "--on", "htcondor", "--expect", "model.pt")
    assert (workspace.folder / "model.pt").read_text().startswith("words\nseed 0 at ")
    (out,) = (workspace.folder / "logs").glob("*_0.out")
    assert out.read_text() == "trained\n"
    text = next(workspace.run_folder().glob("htcondor/*.sub")).read_text()
    assert "(DriverVersion >= 10.1)" in text and "request_gpus " in text
    (probe,) = [e.data for e in workspace.read_events("stage.ended") if e.data["stage"] == "probe"]
    assert {gpu["name"] for gpu in probe["gpus"]} <= {site.gpu_name for site in workspace.pool.sites} and probe["gpus"]
    assert 'GLIDEIN_ResourceName =!= "nowhere"' in text
    assert '"$$(GLIDEIN_Site:Unknown)"' in text


def test_unusable_gpu(workspace, served):
    with HttpServer(served) as origin, workspace.pool.override_config(USER_JOB_WRAPPER="/usr/bin/env"):
        write_files(workspace, [f"{origin.url}/words.tar", f"{origin.url}/labels.txt"], more="max_retries = 0")
        workspace.run("run", "job.sub", "--on", "htcondor", "--expect", "model.pt", exit_code=None)
    assert workspace.exit_code == FAILURE_KINDS["gpu_unusable"].exit_code
    assert "the job needs 1 GPU, but 0 usable ones were found (nvidia-smi lists none)" in workspace.run("why")


def test_fifty_jobs(workspace, served):
    with HttpServer(served) as origin:
        write_files(workspace, [f"{origin.url}/words.tar", f"{origin.url}/labels.txt"], count="50", gpus=0)
        workspace.run("run", "job.sub", "--on", "htcondor")
    models = [(workspace.run_folder() / f"jobs/{n}/output/model.pt").read_text() for n in range(50)]
    assert all(f"\nseed {n} at " in text for n, text in enumerate(models))


def test_federation(pool, workspace, served):
    with Federation(served.parent) as federation:
        pool.trust_ca(federation.ca)
        urls = [f"pelican://{federation.host}/data/words.tar", f"pelican://{federation.host}/data/labels.txt"]
        write_files(workspace, urls, gpus=0, more="transfer_output_files = model.pt")
        workspace.run("run", "job.sub", "--on", "htcondor")
    assert (workspace.folder / "model.pt").read_text().startswith("words\n")


def test_failing_program(workspace, served):
    (served / "labels.txt").write_text("")
    with HttpServer(served) as origin:
        write_files(workspace, [f"{origin.url}/words.tar", f"{origin.url}/labels.txt"], gpus=0, more="max_retries = 0")
        workspace.run("run", "job.sub", "--on", "htcondor", exit_code=None)
    assert workspace.exit_code not in (0, 1, 2)
    assert "exit code 3" in workspace.run("why")
    assert not (workspace.folder / "model.pt").exists()


def test_image_without_python(workspace, served):
    image = apptainer.build_sif(workspace.folder / "image.sif")
    workspace.environment["PATH"] = f"{apptainer.install_dir()}/usr/bin:{workspace.environment['PATH']}"
    with HttpServer(served) as origin:
        write_files(workspace, [f"{origin.url}/words.tar", f"{origin.url}/labels.txt"], gpus=0, count="2")
        workspace.write_file(WRAPPER.replace("/bin/bash", "/bin/sh"), "run.sh")
        submit = (workspace.folder / "job.sub").read_text()
        workspace.write_file(f'+SingularityImage = "{image}"\n{submit}', "job.sub")
        workspace.run("run", "job.sub", "--on", "htcondor", "--expect", "model.pt")
    assert "job.sub:1:1: warning: the image" in workspace.stderr
    assert "so packtrain's agent cannot run in it: HTCondor's plugins fetch inputs" in workspace.stderr
    assert all(
        "agent-shell-" in path.read_text() for path in workspace.run_folder().glob("jobs/*/attempts/*/journal.jsonl")
    )
    models = [(workspace.run_folder() / f"jobs/{n}/output/model.pt").read_text() for n in range(2)]
    assert [text.split(" at ")[0] for text in models] == ["words\nseed 0", "words\nseed 1"]


def test_url_for_the_plugins_of_the_pool(workspace):
    """`file:///…` is a path on the execution points, which HTCondor's own plugin fetches."""
    staging = workspace.folder / "staging"
    staging.mkdir()
    (staging / "data.txt").write_text("staged\n")
    workspace.write_file("#!/bin/sh\ncat data.txt > copy.txt\n", "run.sh")
    workspace.write_file(
        f"executable = run.sh\ntransfer_input_files = file://{staging}/data.txt\n"
        'requirements = GLIDEIN_ResourceName =!= "nowhere"\nqueue\n',
        "job.sub",
    )
    workspace.run("run", "job.sub", "--on", "htcondor")
    assert (workspace.folder / "copy.txt").read_text() == "staged\n"
    text = next(workspace.run_folder().glob("htcondor/*.sub")).read_text()
    assert 'stringListIMember("file", TARGET.HasFileTransferPluginMethods)' in text
    assert f"file://{staging}/data.txt" in text
    fetched = [e.data for e in workspace.read_events("stage.ended") if e.data["stage"] == "fetch"]
    assert fetched[0]["bytes"] >= len("staged\n"), "its bytes are counted"


def test_self_checkpointing_example(workspace):
    """HTCondor's own example, unchanged: it counts, exits with code 85, is evicted and resumed."""
    workspace.write_file(self_checkpointing.PROGRAM.replace("PACE", "1"), "example.py")
    workspace.write_file(self_checkpointing.SUBMIT, "job.sub")
    run = workspace.start("run", "job.sub", "--on", "htcondor")
    workspace.wait_for(lambda: "checkpoint.restored" in _read_event_log(workspace))
    workspace.pool.run_as_user(["condor_vacate_job", "-constraint", "JobUniverse == 5"], check=False)
    _, stderr = run.communicate(timeout=400)
    assert run.returncode == 0, stderr
    lines = (workspace.folder / "example.out").read_text().splitlines()
    starts = [line for line in lines if line.startswith("Starting")]
    assert set(starts) == set(self_checkpointing.STARTS), "it never starts from the beginning again"
    assert starts.count("Starting from 0") == 1
    assert lines[-1] == "Computation complete"
    assert "\n004 (" in _read_event_log(workspace), "it was evicted"
    submit_text = next(workspace.run_folder().glob("htcondor/*.sub")).read_text()
    assert "is_resumable" in submit_text and "checkpoint_exit_code" in submit_text


def test_files_of_an_evicted_job(workspace):
    """ON_EXIT_OR_EVICT: the next start finds what the last one wrote, although it saved no checkpoint."""
    gate = workspace.folder / "gate"
    script = (
        "#!/bin/sh\nif [ -e state ]; then echo resumed; exit 0; fi\necho 1 > state\necho first\n"
        f"touch {gate}; while :; do sleep 0.2; done\n"
    )
    workspace.write_file(script, "run.sh")
    workspace.write_file(
        "executable = run.sh\noutput = out.txt\nwhen_to_transfer_output = ON_EXIT_OR_EVICT\nqueue\n", "job.sub"
    )
    run = workspace.start("run", "job.sub", "--on", "htcondor")
    workspace.wait_for(gate.exists)
    workspace.pool.run_as_user(["condor_vacate_job", "-constraint", "JobUniverse == 5"])
    _, stderr = run.communicate(timeout=400)
    assert run.returncode == 0, stderr
    assert (workspace.folder / "out.txt").read_text().splitlines() == ["first", "resumed"]


def _read_event_log(workspace):
    return "".join(path.read_text() for path in workspace.folder.glob(".packtrain/runs/*/htcondor/event.log"))


ARGUMENTS = (
    "--seed $(Process) plain  words",
    r"it's a \"quoted\" $HOME *",
    "\"a 'b c' 'it''s' \"\"q\"\" '' $(Process)$(x)\"",
    "$(x) $(y:default) $Fnx(path) $INT(Process,%03d)",
)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_as_in_htcondor(workspace, arguments):
    """Compare the arguments of `condor_submit -dry-run` with those that a shell passes for our command.

    HTCondor prints the arguments once if they are the same for all jobs.
    """
    text = f"executable = /bin/true\npath = /a/b.c\narguments = {arguments}\nqueue 2 x from (\np\nq\n)\n"
    workspace.write_file(text, "job.sub")
    workspace.pool.run_as_user(["condor_submit", "-dry-run", "ads", "job.sub"], cwd=workspace.folder)
    theirs = [
        _parse_arguments(line) for line in (workspace.folder / "ads").read_text().splitlines() if line.startswith("Arg")
    ]
    workflow = workspace.run_json("convert", "job.sub")["workflow"]
    points = [point for point in _matrix_points(workflow) for _ in range(workflow.get("count", 1))]
    command = workflow["steps"][0]["run"]["command"].splitlines()[-1].removeprefix("exec ./true")
    assert [_shell_arguments(command, job, point) for job, point in enumerate(points)] == (
        theirs if len(theirs) > 1 else theirs * len(points)
    )


def _parse_arguments(line):
    """Parse a line of an ad: `Args = "…"` is the old syntax, `Arguments = "…"` the new one."""
    key, _, value = line.partition("=")
    text = json.loads(value.strip())
    return split_arguments(text.replace('"', r"\"") if key == "Args" else '"' + text.replace('"', '""') + '"')


def _matrix_points(workflow):
    matrix = workflow["matrix"]
    return matrix["include"] if "include" in matrix else [{"x": value} for value in matrix["x"]]


def _shell_arguments(command, job, point):
    variables = {f"PACKTRAIN_POINT_{key.upper()}": value for key, value in point.items()}
    arguments = placeholders.fill_placeholders(command, point)
    environment = {"PATH": "/usr/bin:/bin", "PACKTRAIN_JOB": str(job), **variables}
    stdout = subprocess.check_output(["/bin/sh", "-c", f"printf '%s\\0' {arguments}"], env=environment, text=True)
    return stdout.split("\0")[:-1]
