"""The reader of batch scripts and the table of options, compared with the installed sbatch of each version."""

from __future__ import annotations

import re
import string

import pytest

from packtrain.slurm.batchfile.directives import read_directives, read_variables, render_directives, split_arguments
from packtrain.slurm.batchfile.option_table import (
    ALIASES,
    OPTIONS,
    PYXIS_OPTIONS,
    SHORT_OPTIONS,
    Argument,
    find_options,
)
from packtrain.slurm.batchfile.values import parse_array
from packtrain.spec.diagnostics import DiagnosticReport, SourceMap
from tests.slurm.conftest import TWO_CLUSTERS
from tests.support.batch_workspace import BatchWorkspace

pytestmark = [
    pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True),
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
]
FOUND = re.compile(r'debug2: Found in script, argument "(.*)"$', re.MULTILINE)


@pytest.fixture
def workspace(cluster, tmp_path):
    tmp_path.chmod(0o777)
    return BatchWorkspace(cluster, tmp_path)


def sbatch_error(workspace, *arguments):
    return workspace.slurm("sbatch", *arguments, "/dev/null", check=False)


def list_options(workspace):
    """Return all long options of sbatch, which it lists when a beginning is ambiguous."""
    names = set()
    for letter in string.ascii_lowercase:
        message = sbatch_error(workspace, f"--{letter}")
        if "possibilities" in message:
            names.update(re.findall(r"'--([a-z-]+)'", message.partition("possibilities")[2]))
        elif "unrecognized" not in message:
            (only,) = find_options(letter)  # ambiguous in our table, if sbatch had another one
            names.add(only.name)
    return names


def test_every_option_is_known(workspace):
    names = list_options(workspace)
    assert len(names) > 90
    assert {ALIASES.get(name, name) for name in names} <= OPTIONS.keys() - PYXIS_OPTIONS
    for name in names:
        argument = OPTIONS[ALIASES.get(name, name)].argument
        requires = "requires an argument" in workspace.slurm("sbatch", f"--{name}", check=False)
        assert requires == (argument is Argument.REQUIRED), name
        if argument is Argument.NONE:
            assert "doesn't allow an argument" in sbatch_error(workspace, f"--{name}=x"), name


def test_every_short_option_is_known(workspace):
    for letter in string.ascii_letters:
        message = workspace.slurm("sbatch", f"-{letter}", check=False)
        assert ("invalid option" in message) == (letter not in SHORT_OPTIONS), letter
        if letter in SHORT_OPTIONS:
            requires = OPTIONS[SHORT_OPTIONS[letter]].argument is Argument.REQUIRED
            assert ("requires an argument" in message) == requires, letter


LINES = r"""
 -J "a b" --comment='it"s' #comment here
	-N1 -n 2	-c2
X --nodes=3
--mem=100
 --time 10   --part=main
 -p main,low --exclusive -d "" --hold
 --error "x\"y.err" --x=""  -y
 --constraint="a100&fast" --mail-type=END#x
 --tmp=5 \
 "a\b\"c" 'a\'b' a\"b"c d"e
 a"b #c"d#e f
 a\\b \\c a\#b c
 ""abc 'it"s' a:
 a\
 a'b'"c"'d e' é=ü
 -- foo -n 3
""".strip("\n").split("\n")


def test_arguments(workspace):
    workspace.write_file("".join(["#!/bin/bash\n", *(f"#SBATCH{line}\n" for line in LINES), "true\n"]), "job.sh")
    theirs = FOUND.findall(workspace.slurm("sbatch", "-vvv", "--test-only", "job.sh", check=False))
    assert [argument for line in LINES for argument in split_arguments(line)] == theirs


HEADERS = [
    "#SBATCH -n1\n# comment\n\n \t\n#SBATCH -c1\necho\n#SBATCH -N1\n",
    "##SBATCH -n1\n #SBATCH -n2\n# SBATCH -n3\n#sbatch -n4\n#SBATCH -n5\n",
    "#SBATCH -n1\nX=1 #SBATCH\n#SBATCH -n2\n",
    "\f\v#\n#SBATCH\v-n1\n",
]


@pytest.mark.parametrize("header", HEADERS)
def test_lines(workspace, header):
    text = f"#!/bin/bash\n{header}true\n"
    workspace.write_file(text, "job.sh")
    theirs = FOUND.findall(workspace.slurm("sbatch", "-vvv", "--test-only", "job.sh", check=False))
    report = DiagnosticReport(SourceMap("job.sh"))
    ours = [OPTIONS[option.name] for option in read_directives(text, report)]
    assert [option.name for option in ours] == [SHORT_OPTIONS[argument[1]] for argument in theirs]


SCRIPTS = [
    "#SBATCH --job-name=train --partition=low --time=2:30:00 --nodes=2 --ntasks-per-node=3 --cpus-per-task=2",
    "#SBATCH -J train -p low -t 150 -N2 --tasks-per-node 3 -c2 --mem=1G",
    '#SBATCH -J "two words" --chdir /tmp -o "my log.out" -e err --nice=7 # --hold',
    "#SBATCH -t 1-2 --time-min=10 --mem=100 -n4\n#SBATCH --mem=200 -n 2",
    "#SBATCH --mem-per-cpu=100M",
    "#SBATCH --gres=gpu:a100:2 -C fast --exclusive",
    "#SBATCH -G1 --mem-per-gpu=1g --cpus-per-gpu 2 --gpu-bind=none",
    "#SBATCH --gpus-per-node=v100:1 -w n2,n3 -N2 -x n1 --contiguous",
    "#SBATCH --constr=v100|a100 --requeue --no-req --mail-type=END,FAIL --mail-user=me@example.org",
    "#SBATCH -a 1-9:2%2 --overs --open-mode=append --signal=B:USR1@60 --begin=now+1hour",
    '#SBATCH --comment="it\'s \\"quoted\\" #1" --wckey=a\\\\b --threads-per-core=1 --hint=nomultithread',
    "#SBATCH -sO -k --spread-job --switches=1@10 --licenses= --dist=block:cyclic --tmp=5M -B 1:1",
]
DIFFERENT = (
    "JobId", "ArrayJobId", "SLUID", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "StartTime", "EndTime",
    "Command", "SubmitLine", "Priority",
)  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_options(workspace, script):
    """A script and the options that the reader found in it make the same job."""
    report = DiagnosticReport(SourceMap("job.sh"))
    options = [(option.name, option.value) for option in read_directives(f"#!/bin/sh\n{script}\n", report)]
    assert report.diagnostics == ()
    jobs = [submit_held(workspace, text) for text in (f"{script}\n", render_directives(options))]
    assert jobs[0] == jobs[1]


def submit_held(workspace, header):
    """Submit a job on hold and return what Slurm knows about it, without what differs between two jobs."""
    workspace.write_file(f"#!/bin/sh\n{header}true\n", "job.sh")
    job_id = workspace.slurm("sbatch", "--parsable", "--hold", "job.sh").split()[-1]
    lines = workspace.slurm("scontrol", "show", "job", job_id).replace(f"/slurm-{job_id}", "/slurm-JOB").splitlines()
    return [field for line in lines for field in line.split() if field.partition("=")[0] not in DIFFERENT]


def test_variables(workspace):
    """Environment variables win over the script."""
    text = "#SBATCH -p main --gres=gpu:2 --mem=10 -t 5 -J script -o script.out --wckey=a --constraint=fast\n"
    variables = {
        "SBATCH_ACCOUNT": "physics", "SBATCH_CONSTRAINT": "a100", "SBATCH_ERROR": "var.err", "SBATCH_GRES": "gpu:1",
        "SBATCH_JOB_NAME": "var", "SBATCH_MEM_PER_NODE": "20", "SBATCH_OUTPUT": "var.out", "SBATCH_PARTITION": "low",
        "SBATCH_TIMELIMIT": "7", "SBATCH_WCKEY": "b",
    }  # fmt: skip
    report = DiagnosticReport(SourceMap("job.sh"))
    options = [*read_directives(f"#!/bin/sh\n{text}", report), *read_variables(variables)]
    ours = submit_held(workspace, render_directives([(option.name, option.value) for option in options]))
    workspace.environment.update(variables)
    assert submit_held(workspace, text) == ours


@pytest.mark.parametrize("text", ["1-10:2%4", "1,3,5-7", "3,1,1", "[1-3]", "1-3%0", "0-2,", " 1-2", "1, 2", "2-3:5"])
def test_array_indexes(workspace, text):
    output = workspace.slurm("sbatch", "--parsable", "--hold", f"--array={text}", "--wrap", "true")
    shown = workspace.slurm("squeue", "-h", "-r", "-j", output.strip(), "-O", "ArrayTaskID:|").replace("|", "").split()
    assert sorted(map(int, shown)) == list(parse_array(text).indexes)


@pytest.mark.parametrize("text", ["0x3", "5-3", "1-3:0", "1-2:", "1-2 ", "a"])
def test_invalid_array_indexes(workspace, text):
    assert "Invalid job array" in workspace.slurm("sbatch", f"--array={text}", "--wrap", "true", check=False)
    with pytest.raises(ValueError, match="should"):
        parse_array(text)
