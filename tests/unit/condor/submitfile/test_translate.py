"""Submit files as workflows: what becomes of each key, and what is named because nothing can become of it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from packtrain.condor.submitfile.context import SubmitContext
from packtrain.condor.submitfile.convert import convert_text, is_submit_file, load_submit_file
from packtrain.condor.submitfile.wrapper_check import find_masking_command


@pytest.fixture
def adopted(tmp_path):
    def make(text, queue="queue", expect=()):
        whole = f"executable = run.sh\n{text}\n{queue}\n"
        return convert_text(whole, "j.sub", SubmitContext(tmp_path, {}), expect)

    return make


@pytest.fixture
def document(adopted):
    def make(*arguments, **more):
        found = adopted(*arguments, **more)
        assert found.load_result.workflow is not None, found.load_result.problems
        return found.document

    return make


def told(found):
    return "\n".join(str(problem) for problem in found.load_result.diagnostics)


def run_of(document):
    return document["steps"][0]["run"]


def test_resources(document):
    made = document(
        "request_cpus = 3\nrequest_memory = 4GB\nrequest_disk = 1048576\nrequest_gpus = 2\ngpus_minimum_memory = 8 GB\n"
        "gpus_minimum_capability = 8.0\ngpus_minimum_runtime = 12.1\nmax_retries = 2"
    )
    gpu = {"minMemory": 8192, "minCapability": "8.0", "minCuda": "12.1"}
    assert made["resources"] == {"tasks": 1, "cpusPerTask": 3, "memPerCpu": 1366, "gpus": 2, "gpu": gpu}
    assert made["limits"] == {"disk": "1GiB", "attempts": 3}
    assert made["steps"][0]["resources"] == {"gpusPerTask": 2}


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ('+SingularityImage = "/cvmfs/x/y:latest"', "/cvmfs/x/y:latest"),
        ("container_image = osdf:///a/b.sif", "osdf:///a/b.sif"),
        ("universe = container\ncontainer_image = ./b.sif", "./b.sif"),
        ("universe = docker\ndocker_image = python:3.11", "docker://python:3.11"),
    ],
)
def test_containers(document, text, image):
    assert document(text)["environment"]["container"]["image"] == image


def test_inputs_land_beside_the_program(document, tmp_path):
    (tmp_path / "folder").mkdir()
    made = document(
        "transfer_input_files = main.py, https://h.org/a%20b.tar.gz, osdf:///x/y.tar, stash:///x/z, folder, folder/,"
        " pelican://f.org/many?recursive, osdf:///x/packed.tar?pack=auto\ninput = numbers.txt"
    )
    plain = {"folder": "work", "unpack": "never"}
    assert made["inputs"] == {
        "run.sh": {"file": {"path": "run.sh"}, **plain},
        "main.py": {"file": {"path": "main.py"}, **plain},
        "a-b.tar.gz": {"http": {"url": "https://h.org/a%20b.tar.gz"}, **plain},
        "y.tar": {"osdf": {"url": "osdf:///x/y.tar"}, **plain},
        "z": {"osdf": {"url": "osdf:///x/z"}, **plain},
        "folder": {"file": {"path": "folder"}, "folder": "work/folder", "unpack": "never"},
        "folder-2": {"file": {"path": "folder"}, **plain},
        "many": {"osdf": {"url": "pelican://f.org/many?recursive"}, "folder": "work/many", "unpack": "never"},
        "packed.tar": {"osdf": {"url": "osdf:///x/packed.tar"}, "folder": "work", "unpack": "auto"},
        "numbers.txt": {"file": {"path": "numbers.txt"}, **plain},
    }
    assert run_of(made)["command"].endswith("exec ./run.sh < numbers.txt\n")


def test_inputs_are_relative_to_initialdir_and_the_program_is_not(document):
    made = document("initialdir = runs/$(Process)\ntransfer_input_files = a, ../b, /c", "queue 2")
    assert [entry["file"]["path"] for entry in made["inputs"].values()] == ["run.sh", "runs/{job}/a", "runs/b", "/c"]
    assert made["output"] == {"file": {"path": "runs/{job}"}}


def test_inputs_of_items(document):
    made = document("transfer_input_files = $(f), data/$(f).$(Process)", "queue f in (a b)")
    assert [entry["file"]["path"] for entry in made["inputs"].values()] == ["run.sh", "{f}", "data/{f}.{job}"]


def test_an_item_may_hold_several_files(document):
    made = document("transfer_input_files = main.py, $(files)", "queue files from (\na.txt, b.txt\nc.txt, d.txt\n)")
    assert [entry["file"]["path"] for entry in made["inputs"].values()] == ["run.sh", "main.py", "{file}", "{file2}"]
    assert made["matrix"]["include"][1] == {"files": "c.txt, d.txt", "file": "c.txt", "file2": "d.txt"}


def ran(document, *more):
    """What the program would be given, by a real shell."""
    command = run_of(document)["command"].splitlines()[-1].replace("exec ./run.sh", "printf '%s\\n'")
    environment = {"PATH": "/bin:/usr/bin", "PACKTRAIN_JOB": "7", "PACKTRAIN_RUN": "r-abcd", "PACKTRAIN_POINT_X": "p q"}
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("a  b", ["a", "b"]),
        ("it's $HOME `ls` *", ["it's", "$HOME", "`ls`", "*"]),
        (r"say \"hi\"", ["say", '"hi"']),
        ("\"a 'b c' 'it''s' \"\"q\"\" ''\"", ["a", "b c", "it's", '"q"', ""]),
        ('"--x=$(Process) $(Cluster).$(ProcId)"', ["--x=7", "r-abcd.7"]),
        ("{job} {x} {y}", ["{job}", "{x}", "{y}"]),
    ],
)
def test_arguments(document, written, given):
    assert ran(document(f"arguments = {written}", "queue 9")) == given


def test_a_quoted_item_is_one_argument(document):
    assert ran(document("arguments = \"'$(x)' {x}\"", "queue x from (\np q\nr\n)")) == ["p q", "{x}"]


def test_an_item_with_blanks_is_several_arguments(document):
    made = document("arguments = --fast $(options)", "queue options from (\n--lr 1\n--lr 2 'x;y'\n)")
    assert run_of(made)["command"].splitlines()[-1] == "exec ./run.sh {arguments}"
    texts = [point["arguments"] for point in made["matrix"]["include"]]
    assert [shlex.split(text) for text in texts] == [["--fast", "--lr", "1"], ["--fast", "--lr", "2", "'x;y'"]]


def test_variables(document):
    made = document("environment = \"A=1 B='x y' PATH=/opt/bin:/bin C=$(Process) D={name}\"", "queue 2")
    assert made["env"] == [{"key": "A", "value": "1"}, {"key": "B", "value": "x y"}, {"key": "C", "value": "{job}"}]
    assert "export PATH=/opt/bin:/bin\nexport D='{''name}'\n" in run_of(made)["command"]
    assert document("environment = A=1;B=x y")["env"][1] == {"key": "B", "value": "x y"}


def test_outputs_that_are_not_declared_are_all_new_files(document):
    made = document("output = logs/out.$(Cluster).$(Process)\nerror = /dev/null")
    assert run_of(made)["collect"] == ["*"]
    assert run_of(made)["stdout"] == "logs/out.{run}.{job}"
    assert "stderr" not in run_of(made)
    assert made["output"] == {"file": {"path": "."}}
    assert "expect" not in made


def test_declared_outputs_are_expected_where_htcondor_puts_them(document):
    made = document(
        'transfer_output_files = a.pt, sub/b.json, folder/, c\ntransfer_output_remaps = "c = models/c-$(Process).pt"',
        expect=("a.pt", "more.txt"),
    )
    kept = ["a.pt", "sub/b.json", "folder/", {"path": "c", "to": "models/c-{job}.pt"}, "more.txt"]
    assert run_of(made)["collect"] == kept
    assert made["expect"] == [
        {"path": "b.json", "minSize": 0},
        {"path": "models/c-{job}.pt", "minSize": 0},
        "a.pt",
        "more.txt",
    ]


def test_declared_outputs_of_each_job_have_names_of_their_own(document):
    made = document("transfer_output_files = out/model_$(Process).pt, $(kind).json", "queue kind in (a, b)")
    assert run_of(made)["collect"] == ["out/model_{job}.pt", "{kind}.json"]
    assert [entry["path"] for entry in made["expect"]] == ["model_{job}.pt", "{kind}.json"]


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("transfer_output_files = a/x.pt, b/x.pt", "a/x.pt and b/x.pt would both be x.pt"),
        ("transfer_output_files = $(kind).pt, two.pt", "$(kind).pt and two.pt would both be two.pt"),
        ("transfer_output_files = two.pt, $(kind).pt", "two.pt and $(kind).pt would both be $(kind).pt"),
        ("transfer_output_files = $(number), v/$(Process)", "$(number) and v/$(Process) would both be $(Process)"),
        ('transfer_output_files = a, b\ntransfer_output_remaps = "a = b"', "a and b would both be b"),
    ],
)
def test_outputs_of_any_job_that_would_overwrite_each_other_are_refused(adopted, text, both):
    """Of some only the second or third job has them."""
    found = adopted(text, "queue kind, number from (\none 7\ntwo 8\nthree 2\n)")
    assert both in told(found)
    assert found.loaded.workflow is None


def test_inputs_of_any_job_with_one_name_are_refused(adopted):
    found = adopted("transfer_input_files = data/two.csv, $(kind).csv", "queue kind in (one, two)")
    assert "data/two.csv and $(kind).csv would have the same name there" in told(found)
    apart = adopted("transfer_input_files = data/two.csv, $(kind).csv", "queue kind in (one, three)")
    assert "the same name" not in told(apart)


def test_jobs_of_which_two_have_one_destination_are_refused(adopted):
    found = adopted("output_destination = osdf:///data/$(kind)", "queue kind in (one, two, one)")
    assert "3 jobs would write to osdf:///data/$(kind), some of them to the same place" in told(found)


def test_jobs_that_would_overwrite_each_other_are_kept_apart(adopted):
    found = adopted("", "queue 50")
    assert "output" not in found.document
    assert "j.sub:3:1: warning: 50 jobs would write to ., where the last one wins: outputs are kept apart" in told(
        found
    )


def test_files_in_passed_lines_are_those_of_the_submit_side(document, tmp_path):
    made = document("x509userproxy = proxy.pem\nscitokens_file = /t")
    assert made["htcondor"] == {"x509userproxy": str(tmp_path / "proxy.pem"), "scitokens_file": "/t"}


def test_an_image_that_is_a_folder(document, tmp_path):
    (tmp_path / "tree").mkdir()
    assert document("container_image = tree")["environment"]["container"]["image"] == str(tmp_path / "tree")


def test_lines_for_htcondor_are_passed_on(document):
    made = document(
        'requirements = (HasX == True)\n+JOB_Site = "$$(GLIDEIN_Site:Unknown)"\nMY.Tag = "$(Cluster).$(ProcId)"\n'
        "use_oauth_services = box\nbox_oauth_permissions = read\nrequest_fpgas = 1\nrank = $(unset:0)"
    )
    assert made["htcondor"] == {
        "requirements": "(HasX == True)",
        "+JOB_Site": '"$$(GLIDEIN_Site:Unknown)"',
        "+Tag": '"$(Cluster).$(Process)"',
        "use_oauth_services": "box",
        "box_oauth_permissions": "read",
        "request_fpgas": "1",
        "rank": "0",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("universe = grid", "the universe grid is not supported"),
        ("universe = container", "the universe container needs an image"),
        ("container_image = ubuntu", "the image ubuntu is neither a file nor an address"),
        ("arguments = $$(Memory)", "$$(…) is known only when HTCondor has found a machine"),
        ("should_transfer_files = NO", "relies on a file system that all machines share"),
        ("checkpoint_exit_code = 85", "checkpoint_exit_code is not supported: packtrain carries checkpoints"),
        ("success_exit_code = 3", "success_exit_code is not supported"),
        ("vm_type = kvm", "vm_type is not supported"),
        ("request_memory = 4 * 1024", "request_memory should be a size such as 4GB, but is '4 * 1024'"),
        ("request_cpus = many", "request_cpus should be a whole number"),
        ("request_cpus = $(x)", "request_cpus differs from job to job"),
        ("+Tag = $(x)", "+Tag differs from job to job"),
        ("transfer_input_files = s3://b/k", "s3://b/k cannot be fetched"),
        ("transfer_input_files = a/x, b/x", "a/x and b/x would have the same name"),
        ("transfer_output_files = ../x", "would not stay in its folder"),
        (
            'transfer_output_files = a\ntransfer_output_remaps = "a = /etc/a"',
            "should go to /etc/a, but outputs go below",
        ),
        ("output_destination = https://h/x", "outputs cannot go to https://h/x"),
        ("when_to_transfer_output = NEVER", "when_to_transfer_output = never is not known"),
        ('arguments = "a', "has a double quote that does not match"),
        ('arguments = "\'a"', "a single quote does not match"),
        ("environment = A", "'A', which is no NAME=VALUE"),
        ("environment = A-B=1", "'A-B' cannot be the name of a variable"),
        ("arguments = $RANDOM_INTEGER(1,6)", "$RANDOM_INTEGER(…) is not understood"),
        ("arguments = $(SUBMIT_TIME)", "$(SUBMIT_TIME) is not supported"),
        ("transfer_executable = maybe", "transfer_executable should be true or false"),
    ],
)
def test_what_cannot_be_honoured_is_named(adopted, text, sentence):
    found = adopted(text, "queue x in (1 2)")
    assert found.load_result.workflow is None
    assert sentence in told(found)
    assert all(problem.line >= 2 for problem in found.loaded.problems if sentence in problem.message)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "on_exit_hold = (ExitCode != 0)",
            "on_exit_hold is left out: it would look at the exit code of packtrain's agent",
        ),
        ("stream_output = true", "stream_output is left out"),
        ("reqest_memory = 4GB", "nothing uses reqest_memory; did you mean 'request_memory'?"),
        ("arguments = $(nothing)", "$(nothing) is not set anywhere"),
        ("getenv = true", "getenv counts in a pool only"),
        ("output = /elsewhere/out", "output goes to out among the outputs"),
        ("log = job.log", "log is left out: HTCondor's log is in the run's folder"),
        ("when_to_transfer_output = ON_EXIT_OR_EVICT", "what an evicted job had written is kept aside"),
    ],
)
def test_what_is_left_out_is_said(adopted, text, sentence):
    found = adopted(text)
    assert found.load_result.workflow is not None
    assert f"warning: {sentence}" in told(found)


def test_no_executable(tmp_path):
    found = convert_text("queue\n", "j.sub", SubmitContext(tmp_path, {}))
    assert "there is no executable" in told(found)


def test_a_program_of_the_worker(document):
    made = document("transfer_executable = false")
    assert "inputs" not in made
    assert run_of(made)["command"].endswith("exec run.sh\n")


HIDES = "#!/bin/bash\npython3 train.py\n# tidy up\nrm -rf data \\\n  more\n\n"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (HIDES, 4),
        ("#!/usr/bin/env bash\npython3 train.py; echo done\n", 2),
        ("#!/bin/sh\ntrain\nexit 0\n", 3),
        (HIDES.replace("\npython3", "\nset -euo pipefail\npython3"), None),
        (HIDES.replace("\npython3", "\nset -o errexit\npython3"), None),
        (HIDES.replace("bash", "bash -e"), None),
        ("#!/bin/sh\nmkdir data\npython3 train.py\n", None),
        ("#!/bin/sh\ntrain\nexit $?\n", None),
        ("#!/bin/sh\nif train; then\n echo yes\nfi\n", None),
        ("#!/bin/sh\ntrain && rm data\n", None),
        ("#!/usr/bin/env python3\nprint('rm')\n", None),
        ("\x7fELF", None),
    ],
)
def test_scripts_that_hide_failures(script, line):
    found = find_masking_command(script)
    assert (found.line if found else None) == line


def test_a_hiding_script_is_pointed_out_unless_something_is_expected(adopted, tmp_path):
    (tmp_path / "run.sh").write_text(HIDES)
    assert "run.sh:4:1: warning: the exit code is that of `rm -rf data more`" in told(adopted(""))
    assert "--expect FILE" in told(adopted(""))
    assert "exit code" not in told(adopted("", expect=("model.pt",)))
    assert "exit code" not in told(adopted("transfer_output_files = model.pt"))


def test_which_files_are_submit_files(tmp_path):
    submit, workflow, plain = tmp_path / "job.sub", tmp_path / "w.yaml", tmp_path / "job"
    for path in (submit, workflow):
        path.write_text("executable = x\nqueue\n")
    assert is_submit_file(submit)
    assert not is_submit_file(workflow)
    plain.write_text("# c\nExecutable = x\n Queue 5\n")
    assert is_submit_file(plain)
    plain.write_text("steps: []\n")
    assert not is_submit_file(plain)


def test_a_missing_file_is_told(tmp_path):
    found = load_submit_file(tmp_path / "none.sub").load_result
    assert found.workflow is None
    assert "cannot be read: No such file" in str(found.diagnostics[0])
