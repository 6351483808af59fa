"""Tests of the environment variables of a step."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from packtrain.agent.steps.variables import expand_variables, parse_env_file, to_env_name
from packtrain.engines.bundle import build_agent
from packtrain.errors import FailedError
from packtrain.plan import EnvironmentConfig, EnvVar, Input, Resources, Secret, StepResources
from packtrain.plan.secret_files import write_inherited_variables
from tests.support.paths import PROJECT_ROOT
from tests.support.step_harness import StepHarness, make_env_vars, make_step

ONE_TASK, JOB_RESOURCES = StepResources(), Resources()
DUMP = f"{sys.executable} -I -S -c 'import json, os; print(json.dumps(dict(os.environ)))'"


@pytest.fixture
def harness(tmp_path):
    harness = StepHarness(tmp_path, secrets={"token": "s3cr3t-value"})
    yield harness
    harness.close()


def read_variables(harness, *before, step_env=(), resources=ONE_TASK, job_resources=JOB_RESOURCES, **job):
    step = make_step(DUMP, name="dump", env=step_env, resources=resources)
    harness.run(*before, step, resources=job_resources, **job)
    return json.loads(harness.read_log("dump.out").splitlines()[-1])


def test_deepsquare_variables(harness):
    variables = read_variables(harness)
    root = str(harness.sandbox.root)
    assert variables["STORAGE_PATH"] == root
    assert variables["DEEPSQUARE_INPUT"] == f"{root}/input"
    assert variables["DEEPSQUARE_OUTPUT"] == f"{root}/output"
    assert variables["DEEPSQUARE_ENV"] == str(harness.sandbox.env_file)
    temporary = ("TMP", "SHARED_TMP", "SHARED_WORLD_TMP", "DISK_TMP", "DISK_WORLD_TMP")
    assert {variables[f"DEEPSQUARE_{name}"] for name in temporary} == {f"{root}/tmp"}


def test_resource_variables_are_those_of_the_job(harness):
    """A published workflow runs one step per task of the job, which divides the frames by $NTASKS."""
    step, job = StepResources(1, 1, 100, 1), Resources(4, 3, 500, 9)
    variables = read_variables(harness, resources=step, job_resources=job)
    names = ("NTASKS", "CPUS_PER_TASK", "MEM_PER_CPU", "GPUS_PER_TASK", "CPUS", "MEM", "GPUS")
    assert [variables[name] for name in names] == ["4", "3", "500", "2", "12", "6000", "9"]
    harness.run(make_step("true", name="if", condition="$NTASKS -eq 4 && $GPUS -eq 9"), resources=job)
    assert harness.events("step.ended")[-1]["step"] == "if"


def test_packtrain_variables(harness):
    inputs = (Input("", "input"), Input("my-data.2", "inputs/my-data.2"))
    variables = read_variables(harness, inputs=inputs, point=(EnvVar("lr", "0.1"), EnvVar("batch-size", "32")))
    root = str(harness.sandbox.root)
    expected = {
        "RUN": "r",
        "JOB": "7",
        "INPUT": f"{root}/input",
        "INPUTS": f"{root}/inputs",
        "INPUT_MY_DATA_2": f"{root}/inputs/my-data.2",
        "OUTPUT": f"{root}/output",
        "TMP": f"{root}/tmp",
        "METRICS": f"{root}/metrics.jsonl",
        "POINT_LR": "0.1",
        "POINT_BATCH_SIZE": "32",
    }
    assert {name: variables.get(f"PACKTRAIN_{name}") for name in expected} == expected
    assert variables["PYTHONUNBUFFERED"] == "1"
    assert "RANK" not in variables


def test_precedence_from_host_to_step(harness):
    low = make_env_vars(A="job", B="job", C="job", STORAGE_PATH="job", FROM_HOST="job")
    variables = read_variables(
        harness,
        make_step("echo B=file >> $DEEPSQUARE_ENV; echo C=file >> $DEEPSQUARE_ENV"),
        env=low,
        step_env=make_env_vars(C="step", NTASKS="step"),
    )
    assert [variables[name] for name in ("A", "B", "C", "FROM_HOST", "NTASKS")] == [
        "job",
        "file",
        "step",
        "job",
        "step",
    ]
    assert variables["STORAGE_PATH"] == str(harness.sandbox.root)


def test_secret_is_visible_only_to_step(harness):
    token = EnvVar("TOKEN", Secret("token"))
    harness.run(
        make_step(
            'echo "it is $TOKEN"; echo "not $TOKEN" >&2; [ ${#TOKEN} = 12 ] && exit 3',
            name="t",
            env=(token,),
            catch=(make_step("true"),),
        )
    )
    assert harness.read_log("t.out") == "it is ***\n"
    assert harness.read_log("t.err") == "not ***\n"
    attempt_folder = harness.sandbox.attempt_folder
    written = b"".join(path.read_bytes() for path in (*attempt_folder.logs.iterdir(), attempt_folder.journal))
    assert b"s3cr3t-value" not in written
    assert b"not ***" in attempt_folder.journal.read_bytes()


def test_job_environment(harness):
    environment = EnvironmentConfig(setup="greeting=hello\nexport MODULE=loaded", path=("/opt/one", "/opt/two"))
    harness.run(make_step('echo "$greeting $MODULE $PATH"', name="p"), environment=environment)
    output = harness.read_log("p.out").split()
    assert output[:2] == ["hello", "loaded"]
    assert output[2].startswith("/opt/one:/opt/two:/")


def test_invalid_lines_are_reported_once(harness):
    harness.run(
        make_step("echo 'what is this' >> $DEEPSQUARE_ENV; echo OK=1 >> $DEEPSQUARE_ENV"),
        make_step("true"),
        make_step("echo $OK", name="ok"),
    )
    assert harness.read_log("ok.out") == "1\n"
    assert harness.notices().count("what is this") == 1


def test_removed_env_file_is_empty(harness):
    harness.run(make_step("rm $DEEPSQUARE_ENV"), make_step("true"))


@pytest.mark.parametrize(
    ("data", "variables", "ignored"),
    [
        (b"A=1\nA=2\nB= x y =z \n\n", {"A": "2", "B": " x y =z "}, []),
        (b"A=no newline at the end", {"A": "no newline at the end"}, []),
        (b"1A=1\nA B=2\n=3\nA\nB=\0\n", {}, ["1A=1", "A B=2", "=3", "A", "B=\0"]),
        (b"A=\xff\r\n", {"A": "\udcff\r"}, []),
        (b"", {}, []),
    ],
)
def test_parse_env_file(data, variables, ignored):
    assert parse_env_file(data) == (variables, ignored)


def test_to_env_name():
    assert to_env_name("my-data.2/x") == "MY_DATA_2_X"


@pytest.mark.slow
def test_steps_import_packtrain_from_agent_zip(tmp_path):
    """The agent runs from a zip, as on a worker."""
    agent = tmp_path / "agent.pyz"
    build_agent(agent)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path\nfrom tests.support.step_harness import StepHarness, make_step, make_env_vars\n"
        "harness = StepHarness(Path(sys.argv[3]))\n"
        f"step = make_step('{sys.executable} -S -c \"import packtrain, sys;"
        " print(packtrain.__file__, sys.path[1:3])\"',"
        " name='ask', env=make_env_vars(PYTHONPATH='/more'))\n"
        "harness.run(step)\nprint(harness.read_log('ask.out'))\nharness.close()\n"
    )
    argv = [sys.executable, "-I", "-S", "-c", program, str(agent), str(PROJECT_ROOT), str(tmp_path / "home")]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert output.split() == [f"{agent}/packtrain/__init__.py", f"['{agent}',", "'/more']"]


def test_inherited_variables(harness):
    """The machine's own variables win, and those of a job in which packtrain was called are left out."""
    environ = {
        "FROM_SHELL": "mine", "FROM_HOST": "shell", "BASH_FUNC_module%%": "() { :; }", "SLURM_JOB_ID": "1",
        "LINES": "a\nb",
    }  # fmt: skip
    write_inherited_variables(harness.context.secrets.folder, environ)
    patterns = EnvironmentConfig(inherit=("*",))
    variables = read_variables(harness, environment=patterns)
    assert variables["FROM_SHELL"] == "mine" and variables["FROM_HOST"] == "host" and variables["LINES"] == "a\nb"
    assert "SLURM_JOB_ID" not in variables
    assert "FROM_SHELL" not in read_variables(harness, environment=EnvironmentConfig(inherit=("LIN*",)))
    harness.run(make_step("module x && echo module > module.txt", shell="/bin/bash"), environment=patterns)
    assert (harness.sandbox.root / "module.txt").exists()


def test_secret_among_inherited_variables(harness):
    write_inherited_variables(harness.context.secrets.folder, {"WANDB_API_KEY": "key-1234567", "LANG": "C.UTF-8"})
    environment = EnvironmentConfig(inherit=("*",))
    harness.run(make_step("echo $WANDB_API_KEY $LANG", name="print"), environment=environment)
    assert harness.read_log("print.out") == "*** C.UTF-8\n"


def test_user_logs(harness, tmp_path):
    """They are written while the program runs, with both streams in one file, and replaced by the next execution."""
    log = f"{tmp_path}/logs/${{NAME:-${{FROM_HOST}}}}.out"
    fields = {"stdout": log, "stderr": log}
    path = tmp_path / "logs/host.out"
    harness.run(make_step(f"echo out; echo err >&2; until grep -q err {path}; do sleep 0.01; done", **fields))
    assert sorted(path.read_text().split()) == ["err", "out"]
    harness.run(make_step("echo again", append_logs=True, **fields))
    assert path.read_text().endswith("again\n") and len(path.read_text().split()) == 3
    harness.run(make_step("echo new", stdout=log, stderr="err.txt"))
    assert path.read_text() == "new\n"
    assert (harness.sandbox.output / "err.txt").exists()


def test_user_log_that_cannot_be_written(harness):
    with pytest.raises(FailedError, match=r"its log /proc/none/x cannot be written|its log /proc/none cannot"):
        harness.run(make_step("touch ran", stdout="/proc/none/x"))
    assert not (harness.sandbox.root / "ran").exists()


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("${A}/x", "1/x"), ("${B:-${A}}", "1"), ("${B:-b}-$A", "b-$A"), ("${B}", ""), ("${B:-${C:-c}}", "c")],
)
def test_expand_variables(text, expanded):
    assert expand_variables(text, {"A": "1"}) == expanded
