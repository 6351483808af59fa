"""The workflow of a submit file: the translation of each command, and diagnostics for the others."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from packtrain.condor.submitfile.convert import convert_text, is_submit_file, load_submit_file
from packtrain.condor.submitfile.syntax.context import SubmitContext
from packtrain.spec.script_check import find_masking_command


@pytest.fixture
def convert(tmp_path):
    def convert_lines(text, queue="queue", expect=()):
        submit_text = f"executable = run.sh\n{text}\n{queue}\n"
        return convert_text(submit_text, "j.sub", SubmitContext(tmp_path, {}), expect)

    return convert_lines


@pytest.fixture
def make_document(convert):
    def make(*arguments, **more):
        converted = convert(*arguments, **more)
        assert converted.load_result.workflow is not None, converted.load_result.diagnostics
        return converted.document

    return make


def messages(converted):
    return "\n".join(str(problem) for problem in converted.load_result.diagnostics)


def input_paths(document):
    return [entry["file"]["path"] for entry in document["inputs"].values()]


def run_action(document):
    return document["steps"][0]["run"]


def test_resources(make_document):
    document = make_document(
        "request_cpus = 3\nrequest_memory = 4GB\nrequest_disk = 1048576\nrequest_gpus = 2\ngpus_minimum_memory = 8 GB\n"
        "gpus_minimum_capability = 8.0\ngpus_minimum_runtime = 12.1\nmax_retries = 2"
    )
    gpu = {"minMemory": 8192, "minCapability": "8.0", "minCuda": "12.1"}
    assert document["resources"] == {"tasks": 1, "cpusPerTask": 3, "memPerCpu": 1366, "gpus": 2, "gpu": gpu}
    assert document["limits"] == {"disk": "1GiB", "maxAttempts": 3}
    assert document["steps"][0]["resources"] == {"gpusPerTask": 2}


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ('+SingularityImage = "/cvmfs/x/y:latest"', "/cvmfs/x/y:latest"),
        ("container_image = osdf:///a/b.sif", "osdf:///a/b.sif"),
        ("universe = container\ncontainer_image = ./b.sif", "./b.sif"),
        ("universe = docker\ndocker_image = python:3.11", "docker://python:3.11"),
    ],
)
def test_containers(make_document, text, image):
    assert make_document(text)["environment"]["container"]["image"] == image


def test_inputs(make_document, tmp_path):
    (tmp_path / "folder").mkdir()
    document = make_document(
        "transfer_input_files = main.py, https://h.org/a%20b.tar.gz, osdf:///x/y.tar, stash:///x/z, folder, folder/,"
        " pelican://f.org/many?recursive, osdf:///x/packed.tar?pack=auto\ninput = numbers.txt"
    )
    plain = {"folder": "work", "unpack": "never"}
    assert document["inputs"] == {
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
    assert run_action(document)["command"].endswith("exec ./run.sh < numbers.txt\n")


def test_initialdir(make_document):
    document = make_document("initialdir = runs/$(Process)\ntransfer_input_files = a, ../b, /c", "queue 2")
    assert input_paths(document) == ["run.sh", "runs/{job}/a", "runs/b", "/c"]
    assert document["output"] == {"file": {"path": "runs/{job}"}}


def test_inputs_of_items(make_document):
    document = make_document("transfer_input_files = $(f), data/$(f).$(Process)", "queue f in (a b)")
    assert input_paths(document) == ["run.sh", "{f}", "data/{f}.{job}"]


def test_item_with_several_files(make_document):
    document = make_document(
        "transfer_input_files = main.py, $(files)", "queue files from (\na.txt, b.txt\nc.txt, d.txt\n)"
    )
    assert input_paths(document) == ["run.sh", "main.py", "{file}", "{file2}"]
    assert document["matrix"]["include"][1] == {"files": "c.txt, d.txt", "file": "c.txt", "file2": "d.txt"}


def shell_arguments(document):
    """Return the arguments that a real shell passes to the program."""
    command = run_action(document)["command"].splitlines()[-1].replace("exec ./run.sh", "printf '%s\\n'")
    environment = {"PATH": "/bin:/usr/bin", "PACKTRAIN_JOB": "7", "PACKTRAIN_RUN": "r-abcd", "PACKTRAIN_POINT_X": "p q"}
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("a  b", ["a", "b"]),
        ("it's $HOME `ls` *", ["it's", "$HOME", "`ls`", "*"]),
        (r"say \"hi\"", ["say", '"hi"']),
        ("\"a 'b c' 'it''s' \"\"q\"\" ''\"", ["a", "b c", "it's", '"q"', ""]),
        ('"--x=$(Process) $(Cluster).$(ProcId)"', ["--x=7", "r-abcd.7"]),
        ("{job} {x} {y}", ["{job}", "{x}", "{y}"]),
    ],
)
def test_arguments(make_document, text, arguments):
    assert shell_arguments(make_document(f"arguments = {text}", "queue 9")) == arguments


def test_quoted_item(make_document):
    assert shell_arguments(make_document("arguments = \"'$(x)' {x}\"", "queue x from (\np q\nr\n)")) == ["p q", "{x}"]


def test_item_with_several_arguments(make_document):
    document = make_document("arguments = --fast $(options)", "queue options from (\n--lr 1\n--lr 2 'x;y'\n)")
    assert run_action(document)["command"].splitlines()[-1] == "exec ./run.sh {arguments}"
    texts = [point["arguments"] for point in document["matrix"]["include"]]
    assert [shlex.split(text) for text in texts] == [["--fast", "--lr", "1"], ["--fast", "--lr", "2", "'x;y'"]]


def test_variables(make_document):
    document = make_document("environment = \"A=1 B='x y' PATH=/opt/bin:/bin C=$(Process) D={name}\"", "queue 2")
    assert document["env"] == [{"key": "A", "value": "1"}, {"key": "B", "value": "x y"}, {"key": "C", "value": "{job}"}]
    assert "export PATH=/opt/bin:/bin\nexport D='{''name}'\n" in run_action(document)["command"]
    assert make_document("environment = A=1;B=x y")["env"][1] == {"key": "B", "value": "x y"}


def test_undeclared_outputs(make_document):
    document = make_document("output = logs/out.$(Cluster).$(Process)\nerror = /dev/null")
    assert run_action(document)["collect"] == ["*"]
    assert run_action(document)["stdout"] == "logs/out.{run}.{job}"
    assert "stderr" not in run_action(document)
    assert document["output"] == {"file": {"path": "."}}
    assert "expect" not in document


def test_declared_outputs(make_document):
    document = make_document(
        'transfer_output_files = a.pt, sub/b.json, folder/, c\ntransfer_output_remaps = "c = models/c-$(Process).pt"',
        expect=("a.pt", "more.txt"),
    )
    collected = ["a.pt", "sub/b.json", "folder/", {"path": "c", "to": "models/c-{job}.pt"}, "more.txt"]
    assert run_action(document)["collect"] == collected
    assert document["expect"] == [
        {"path": "b.json", "minSize": 0},
        {"path": "models/c-{job}.pt", "minSize": 0},
        "a.pt",
        "more.txt",
    ]


def test_declared_outputs_per_job(make_document):
    document = make_document("transfer_output_files = out/model_$(Process).pt, $(kind).json", "queue kind in (a, b)")
    assert run_action(document)["collect"] == ["out/model_{job}.pt", "{kind}.json"]
    assert [entry["path"] for entry in document["expect"]] == ["model_{job}.pt", "{kind}.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transfer_output_files = a/x.pt, b/x.pt", "a/x.pt and b/x.pt would both be stored as x.pt"),
        ("transfer_output_files = $(kind).pt, two.pt", "$(kind).pt and two.pt would both be stored as two.pt"),
        ("transfer_output_files = two.pt, $(kind).pt", "two.pt and $(kind).pt would both be stored as $(kind).pt"),
        (
            "transfer_output_files = $(number), v/$(Process)",
            "$(number) and v/$(Process) would both be stored as $(Process)",
        ),
        ('transfer_output_files = a, b\ntransfer_output_remaps = "a = b"', "a and b would both be stored as b"),
    ],
)
def test_conflicting_outputs(convert, text, message):
    """Some conflicts are only in the second or third job."""
    converted = convert(text, "queue kind, number from (\none 7\ntwo 8\nthree 2\n)")
    assert message in messages(converted)
    assert converted.load_result.workflow is None


def test_conflicting_inputs(convert):
    converted = convert("transfer_input_files = data/two.csv, $(kind).csv", "queue kind in (one, two)")
    assert "data/two.csv and $(kind).csv would have the same name on the worker" in messages(converted)
    other = convert("transfer_input_files = data/two.csv, $(kind).csv", "queue kind in (one, three)")
    assert "the same name" not in messages(other)


def test_conflicting_destinations(convert):
    converted = convert("output_destination = osdf:///data/$(kind)", "queue kind in (one, two, one)")
    assert "several of the 3 jobs would upload to the same URL osdf:///data/$(kind)" in messages(converted)


def test_jobs_get_their_own_output_folder(convert):
    converted = convert("", "queue 50")
    assert "output" not in converted.document
    assert "j.sub:3:1: warning: 50 jobs would overwrite each other's outputs in ." in messages(converted)


def test_paths_in_passed_through_commands(make_document, tmp_path):
    document = make_document("x509userproxy = proxy.pem\nscitokens_file = /t")
    assert document["htcondor"] == {"x509userproxy": str(tmp_path / "proxy.pem"), "scitokens_file": "/t"}


def test_image_folder(make_document, tmp_path):
    (tmp_path / "tree").mkdir()
    assert make_document("container_image = tree")["environment"]["container"]["image"] == str(tmp_path / "tree")


def test_passed_through_commands(make_document):
    document = make_document(
        'requirements = (HasX == True)\n+JOB_Site = "$$(GLIDEIN_Site:Unknown)"\nMY.Tag = "$(Cluster).$(ProcId)"\n'
        "use_oauth_services = box\nbox_oauth_permissions = read\nrequest_fpgas = 1\nrank = $(unset:0)"
    )
    assert document["htcondor"] == {
        "requirements": "(HasX == True)",
        "+JOB_Site": '"$$(GLIDEIN_Site:Unknown)"',
        "+Tag": '"$(Cluster).$(Process)"',
        "use_oauth_services": "box",
        "box_oauth_permissions": "read",
        "request_fpgas": "1",
        "rank": "0",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("universe = grid", "the universe grid is not supported"),
        ("universe = container", "the universe container needs an image"),
        ("container_image = ubuntu", "the image ubuntu is neither a file nor a URL"),
        ("arguments = $$(Memory)", "$$(…) is not supported"),
        ("should_transfer_files = NO", "requires a file system that all nodes share"),
        ("checkpoint_exit_code = x", "checkpoint_exit_code should be from 1 to 255, but is 'x'"),
        ("checkpoint_destination = osdf:///x", "checkpoint_destination is not supported"),
        ("success_exit_code = 3", "success_exit_code is not supported"),
        ("vm_type = kvm", "vm_type is not supported"),
        ("request_memory = 4 * 1024", "request_memory should be a size such as 4GB, but is '4 * 1024'"),
        ("request_cpus = many", "request_cpus should be an integer"),
        ("request_cpus = $(x)", "request_cpus differs from job to job"),
        ("+Tag = $(x)", "+Tag differs from job to job"),
        ("transfer_input_files = s3://b/k", "s3://b/k cannot be fetched without its keys"),
        ("transfer_input_files = a/x, b/x", "a/x and b/x would have the same name"),
        ("transfer_output_files = ../x", "would be outside its folder"),
        (
            'transfer_output_files = a\ntransfer_output_remaps = "a = /etc/a"',
            "the remap `a = /etc/a` is not supported",
        ),
        ("output_destination = https://h/x", "outputs cannot be uploaded to https://h/x"),
        ("when_to_transfer_output = NEVER", "when_to_transfer_output = never is not supported"),
        ('arguments = "a', "has an unmatched double quote"),
        ('arguments = "\'a"', "unmatched single quote"),
        ("environment = A", "'A', which is not NAME=VALUE"),
        ("environment = A-B=1", "'A-B' is not a valid variable name"),
        ("arguments = $RANDOM_INTEGER(1,6)", "$RANDOM_INTEGER(…) is not supported"),
        ("arguments = $(SUBMIT_TIME)", "$(SUBMIT_TIME) is not supported"),
        ("transfer_executable = maybe", "transfer_executable should be true or false"),
    ],
)
def test_unsupported_commands(convert, text, message):
    converted = convert(text, "queue x in (1 2)")
    assert converted.load_result.workflow is None
    assert message in messages(converted)
    assert all(problem.line >= 2 for problem in converted.load_result.diagnostics if message in problem.message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "on_exit_hold = (ExitCode != 0)",
            "on_exit_hold is ignored: it would check the exit code of packtrain's agent",
        ),
        ("stream_output = true", "stream_output is ignored"),
        ("reqest_memory = 4GB", "nothing uses reqest_memory; did you mean 'request_memory'?"),
        ("arguments = $(nothing)", "$(nothing) is empty, because it is not set"),
        ("arguments = $(RETRY)", "$(retry) is empty, because only DAGMan sets it"),
        ("getenv = true", "getenv has an effect only on a pool"),
        ("output = /elsewhere/out", "output is stored as out"),
        ("log = job.log", "log is ignored: HTCondor's log is in the run folder"),
        ("transfer_checkpoint_files = c", "transfer_checkpoint_files has no effect without checkpoint_exit_code"),
    ],
)
def test_warnings(convert, text, message):
    converted = convert(text)
    assert converted.load_result.workflow is not None
    assert f"warning: {message}" in messages(converted)


def test_no_executable(tmp_path):
    converted = convert_text("queue\n", "j.sub", SubmitContext(tmp_path, {}))
    assert "there is no executable" in messages(converted)


def test_program_on_the_worker(make_document):
    document = make_document("transfer_executable = false")
    assert "inputs" not in document
    assert run_action(document)["command"].endswith("exec run.sh\n")


MASKING_SCRIPT = "#!/bin/bash\npython3 train.py\n# tidy up\nrm -rf data \\\n  more\n\n"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (MASKING_SCRIPT, 4),
        ("#!/usr/bin/env bash\npython3 train.py; echo done\n", 2),
        ("#!/bin/sh\ntrain\nexit 0\n", 3),
        (MASKING_SCRIPT.replace("\npython3", "\nset -euo pipefail\npython3"), None),
        (MASKING_SCRIPT.replace("\npython3", "\nset -o errexit\npython3"), None),
        (MASKING_SCRIPT.replace("bash", "bash -e"), None),
        ("#!/bin/sh\nmkdir data\npython3 train.py\n", None),
        ("#!/bin/sh\ntrain\nexit $?\n", None),
        ("#!/bin/sh\nif train; then\n echo yes\nfi\n", None),
        ("#!/bin/sh\ntrain && rm data\n", None),
        ("#!/usr/bin/env python3\nprint('rm')\n", None),
        ("\x7fELF", None),
    ],
)
def test_find_masking_command(script, line):
    masking = find_masking_command(script)
    assert (masking.line if masking else None) == line


def test_masking_script_warning(convert, tmp_path):
    (tmp_path / "run.sh").write_text(MASKING_SCRIPT)
    assert "run.sh:4:1: warning: the exit code is that of `rm -rf data more`" in messages(convert(""))
    assert "--expect FILE" in messages(convert(""))
    assert "exit code" not in messages(convert("", expect=("model.pt",)))
    assert "exit code" not in messages(convert("transfer_output_files = model.pt"))


def test_is_submit_file(tmp_path):
    submit, workflow, plain = tmp_path / "job.sub", tmp_path / "w.yaml", tmp_path / "job"
    for path in (submit, workflow):
        path.write_text("executable = x\nqueue\n")
    assert is_submit_file(submit)
    assert not is_submit_file(workflow)
    plain.write_text("# c\nExecutable = x\n Queue 5\n")
    assert is_submit_file(plain)
    plain.write_text("steps: []\n")
    assert not is_submit_file(plain)


def test_missing_file(tmp_path):
    result = load_submit_file(tmp_path / "none.sub").load_result
    assert result.workflow is None
    assert "cannot be read: No such file" in str(result.diagnostics[0])


@pytest.mark.parametrize("text", ["request_memory = $(memory:6GB)", "arguments = $(a:$(b:c))", "arguments = $(a:)"])
def test_default_of_a_macro_is_no_warning(convert, text):
    assert "warning" not in messages(convert(text))


def test_macro_with_and_without_default(convert):
    assert "$(a) is empty, because it is not set" in messages(convert("arguments = $(a:1) $(a)"))


def test_submit_file_of_a_dag(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "diamond.dag").write_text(
        'JOB one j.sub\nJOB two other.sub\nVARS ALL_NODES seed="0"\n'
        'VARS one message="a b" size = "1"\nVARS two not_here="1"\n'
    )
    text = "executable = run.sh\narguments = $(JOB) $(message) $(seed) $(size) $(not_here)\nqueue\n"
    converted = convert_text(text, "j.sub", SubmitContext(tmp_path))
    found = messages(converted)
    assert (
        "j.sub:2:1: warning: this file belongs to diamond.dag, which sets $(job), $(message), $(seed), $(size)" in found
    )
    assert "$(not_here) is empty, because it is not set" in found


@pytest.mark.parametrize("url", ["file:///staging/me/data.zip", "box://folder/data.zip", "chtc+https://h/data.zip"])
def test_urls_for_the_plugins_of_the_pool(make_document, url):
    (entry,) = [
        entry for entry in make_document(f"transfer_input_files = {url}")["inputs"].values() if entry.get("plugin")
    ]
    assert entry == {"plugin": {"url": url}, "folder": "work", "unpack": "never"}


def test_checkpoint(make_document):
    text = "checkpoint_exit_code = 77\ntransfer_checkpoint_files = a.h5, state/"
    expected = {"paths": ["a.h5", "state"], "folder": "work", "when": "exit", "exitCode": 77}
    assert make_document(text)["checkpoint"] == expected
    evict = make_document("when_to_transfer_output = ON_EXIT_OR_EVICT\ntransfer_output_files = out")["checkpoint"]
    assert evict == {"paths": ["out"], "folder": "work", "when": "exitOrEvict", "exitCode": 0}
    assert make_document("CheckpointExitCode = 85")["checkpoint"]["paths"] == ["*", ".*"]
    assert "checkpoint" not in make_document("when_to_transfer_output = ON_EXIT")
