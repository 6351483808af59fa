"""translate: what a workflow has of a script's options."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.slurm.batchfile.convert import convert_text, is_batch_file, load_batch_file
from packtrain.slurm.batchfile.parsed_batch import BatchContext

CONTEXT = BatchContext(Path("/home/me/work"), Path("/home/me/work"))


def convert(*lines, body="set -e\ntrain\n", shebang="#!/bin/bash", expect=()):
    directives = "".join(f"#SBATCH {line}\n" for line in lines)
    return convert_text(f"{shebang}\n{directives}{body}", "job.sbatch", CONTEXT, expect)


def workflow(*lines, **options):
    converted = convert(*lines, **options)
    assert converted.load_result.workflow is not None, converted.load_result.diagnostics
    return converted.document


def messages(*lines, **options):
    return [str(problem) for problem in convert(*lines, **options).load_result.diagnostics]


@pytest.mark.parametrize(
    ("lines", "resources"),
    [
        ([], (1, 1, 1024, 0)),
        (["-n 4 -c 2 --mem=8G"], (4, 2, 1024, 0)),
        (["-N 2 -n 8 --gpus=4 --mem-per-cpu=1G"], (4, 1, 1024, 2)),
        (["-N 2 --ntasks-per-node=3 --gpus-per-task=1"], (3, 1, 342, 3)),
        (["-N 2"], (1, 1, 1024, 0)),
        (["--gres=gpu:v100:2,nvme:1 -N 3"], (1, 1, 1024, 2)),
        (["-G 2 --mem-per-gpu=4G"], (1, 1, 8192, 2)),
        (["--mem=0 --exclusive"], (1, 1, 1024, 0)),
    ],
)
def test_resources(lines, resources):
    assert tuple(workflow(*lines)["resources"].values()) == resources


def test_slurm_gets_the_options_of_the_script_and_no_others():
    options = workflow("--mem=8G -n 4", "--mem=4G --time=10 --exclusive --requeue")["slurm"]
    assert options == {
        "ntasks": "4", "mem": "4G", "time": "10", "exclusive": True, "requeue": True,
        "nodes": False, "cpus-per-task": False, "tmp": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "stdout", "stderr"),
    [
        ([], "/home/me/work/slurm-${SLURM_JOB_ID:-local}.out", None),
        (["-o log -e err.%j"], "/home/me/work/log", "/home/me/work/err.${SLURM_JOB_ID:-local}"),
        (["-J me -o /logs/%x-%u-%s-%%"], "/logs/me-${USER:-}-batch-%", None),
        (["-D sub -o ../%N.log"], "/home/me/work/${SLURMD_NODENAME:-localhost}.log", None),
        (["-a 1-2 -o %a.log"], "/home/me/work/{task}.log", None),
        (["-o %a.log"], "/home/me/work/4294967294.log", None),
        ([r"-o a\\%j"], "/home/me/work/a%j", None),
    ],
)
def test_log_files(lines, stdout, stderr):
    run = workflow(*lines)["steps"][0]["run"]
    assert (run["stdout"], run["stderr"]) == (stdout, stderr or stdout)


def test_working_folder_and_variables():
    run = workflow("-D ../other -J name")["steps"][0]["run"]
    assert run["workDir"] == "/home/me/other"
    variables = {variable["key"]: variable["value"] for variable in run["env"]}
    assert variables == {"SLURM_JOB_NAME": "name", "SLURM_SUBMIT_DIR": "/home/me/work"}


@pytest.mark.parametrize(
    ("line", "inherited", "values"),
    [
        ("", "*", {}),
        ("--export=ALL,A=1", "*", {"A": "1"}),
        ("--export=NONE", None, {}),
        ("--export=HF_HOME,SEED=3", ["HF_HOME"], {"SEED": "3"}),
    ],
)
def test_exported_variables(line, inherited, values):
    document = workflow(line)
    assert document.get("environment", {}).get("inherit") == inherited
    variables = {variable["key"]: variable["value"] for variable in document["steps"][0]["run"]["env"]}
    assert {key: value for key, value in variables.items() if not key.startswith("SLURM")} == values


def test_variables_win_over_the_script():
    context = BatchContext(Path("/w"), Path("/w"), {"SBATCH_PARTITION": "gpu", "SBATCH_TIMELIMIT": "5", "OTHER": "1"})
    text = "#!/bin/sh\n#SBATCH -p cpu --qos=high\nset -e\ntrain\n"
    document = convert_text(text, "job.sbatch", context).document
    assert document["slurm"]["partition"] == "gpu" and document["slurm"]["qos"] == "high"
    assert document["limits"]["wallTime"] == 300


def test_signal():
    document = workflow("--signal=B:USR1@120")
    assert document["limits"]["grace"] == 120 and document["steps"][0]["run"]["stopSignal"] == "B:USR1"
    assert "--signal should be TERM" in messages("--signal=KILL@10")[0]


def test_script_that_hides_failures():
    assert "without `set -e`, the exit code is that of `train`" in messages(body="load data\ntrain\n")[0]
    assert "the exit code is that of `rm -r data`" in messages(body="train\nrm -r data\n")[0]
    assert messages(body="X=1\nexport Y=2\ntrain\n") == []
    assert messages(body="train\nrm -r data\n", shebang="#!/bin/bash -e") == []
    assert messages(body="train\nrm -r data\n", expect=("model.pt",)) == []
    assert messages(body="import torch\ntrain()\n", shebang="#!/usr/bin/env python3") == []


def test_scripts_that_sbatch_would_reject():
    assert "the script has no interpreter" in messages(shebang="")[0]
    assert "the script has DOS line breaks" in messages(body="set -e\r\ntrain\r\n")[0]


def test_unreadable_file(tmp_path):
    assert "cannot be read" in str(load_batch_file(tmp_path / "none.sbatch").load_result.diagnostics[0])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.sbatch", "", True),
        ("a.slurm", "", True),
        ("a.sh", "#!/bin/sh\n#SBATCH -N1\n", True),
        ("a.job", "#!/bin/sh\n#SBATCH --nodes=1\n", True),
        ("train", "#!/bin/sh\n#SBATCH --nodes=1\n", True),
        ("a.sh", "#!/bin/sh\necho\n", False),
        ("a.yaml", "#!/bin/sh\n#SBATCH -N1\n", False),
        ("a.sub", "#!/bin/sh\n#SBATCH -N1\n", False),
    ],
)
def test_recognized_files(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert is_batch_file(tmp_path / name) is expected
