"""Runs jobs in images without Python, where the agent cannot run: a shell script replaces it.

HTCondor and its plugins transfer all inputs. Only images that are files of this machine are checked for Python.
`shell_runner.sh` is the part of the script that is the same for all jobs; this module generates the rest.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from packtrain import __version__
from packtrain.engines.bundle import write_launcher
from packtrain.engines.htcondor.container import job_image
from packtrain.engines.htcondor.input_transfer import CONDOR, PLUGIN, collect_condor_inputs, is_local, job_for_worker
from packtrain.events import Event, Failure
from packtrain.plan import ExpectedOutput, Input, Job, Plan, RunAction, RunFolder
from packtrain.plan.local_inputs import LOCAL_INPUT_SCHEME
from packtrain.spec.diagnostics import ERROR, WARNING, Diagnostic, SourceMap

_NO_PYTHON_EXIT_CODE = 50  # of the launcher
_PROBE_TIMEOUT_S = 120
_SCRIPT_BODY_PATH = Path(__file__).with_name("shell_runner.sh")
_IMAGE_KEYS = ("environment", "container", "image")


@dataclass(frozen=True)
class RunnerChoice:
    """Whether a run does without the agent; then its plan needs `use_plugin_transfer`."""

    without_agent: bool = False
    problems: tuple[Diagnostic, ...] = ()


def choose_runner(plan: Plan, origin: SourceMap | None) -> RunnerChoice:
    """Decide whether the jobs of a plan can use the agent, with a diagnostic if they cannot."""
    image = job_image(plan.jobs[0])
    if not lacks_python(image):
        return RunnerChoice()
    message = f"the image {image} has no Python 3.9 or newer, so packtrain's agent cannot run in it"
    reason = next(_reasons_agent_needed(plan.jobs[0]), "")
    if reason:
        error = _make_problem(ERROR, f"{message}, but {reason}", "use an image with Python", origin)
        return RunnerChoice(problems=(error,))
    message += ": HTCondor's plugins fetch inputs with a URL, and outputs are only checked for existence"
    message += ", and an evicted job starts from the beginning" if plan.jobs[0].checkpoint else ""
    warning = _make_problem(WARNING, message, "", origin)
    return RunnerChoice(without_agent=True, problems=(warning,))


def _make_problem(severity: str, message: str, hint: str, origin: SourceMap | None) -> Diagnostic:
    source_map = origin or SourceMap()
    position = source_map.position(_IMAGE_KEYS)
    return Diagnostic(source_map.filename, position.line, position.column, severity, message, hint)


def lacks_python(image: str) -> bool:
    """Return whether an image is known to have no Python, by running the launcher in it.

    Returns False if that cannot be checked: the image is not a file, or this machine has no Apptainer.
    """
    program = shutil.which("apptainer")
    if program is None or not image.startswith("/") or not Path(image).exists():
        return False
    command = [program, "-q", "exec", "--no-home", "--cleanenv", image, "/bin/sh", "-s"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            launcher = Path(folder, "launch.sh")
            write_launcher(launcher)
            script = launcher.read_bytes()
        done = subprocess.run(command, input=script, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == _NO_PYTHON_EXIT_CODE


def use_plugin_transfer(plan: Plan) -> Plan:
    """Return the plan of a run without the agent: HTCondor and its plugins transfer all inputs."""

    def with_transfer_method(source: Input) -> Input:
        return replace(source, transfer=CONDOR if is_local(source) else PLUGIN)

    jobs = tuple(
        replace(job, inputs=tuple(map(with_transfer_method, job.inputs)), checkpoint=None) for job in plan.jobs
    )
    return replace(plan, jobs=jobs, recovery=replace(plan.recovery, fallback_to_agent=False))


def _reasons_agent_needed(job: Job) -> Iterator[str]:
    """Yield what the job needs that only the agent can do."""
    step = job.steps[0]
    is_plain = not (step.condition or step.catch or step.finally_)
    is_single_task = isinstance(step.action, RunAction) and step.action.resources.tasks == 1
    if len(job.steps) != 1 or not is_plain or not is_single_task:
        yield "the job has more than one plain step"
    if any(source.unpack != "never" for source in job.inputs):
        yield "inputs have to be unpacked"
    if any(source.mode == "stream" for source in job.inputs):
        yield "an input is streamed"
    if any(source.prefix and not is_local(source) for source in job.inputs):
        yield "a folder has to be fetched from a server"
    if any(_needs_agent(expected) for expected in job.expect):
        yield "the contents of outputs have to be checked"
    has_checkpoints = job.checkpoint is not None and job.checkpoint.exit_code > 0
    if has_checkpoints or (job.output and not job.output.location.url.startswith("file:")):
        yield "checkpoints or outputs have to be uploaded"
    env = [*job.env, *(step.action.env if isinstance(step.action, RunAction) else ())]
    if any(not isinstance(variable.value, str) for variable in env):
        yield "variables contain secrets"


def _needs_agent(expected: ExpectedOutput) -> bool:
    """Return whether more has to be checked than that the file exists and is not empty."""
    without_path_and_size = replace(expected, path="", min_bytes=1)
    return without_path_and_size != ExpectedOutput("") or expected.min_bytes > 1


def write_scripts(plan: Plan, folder: RunFolder) -> None:
    """Write a script for each job, next to its plan."""
    condor_inputs = collect_condor_inputs(plan)
    for job in plan.jobs:
        script = render_script(plan.run, job_for_worker(job, condor_inputs))
        script_path(folder, job.id).write_text(script, encoding="utf-8")


def script_path(folder: RunFolder, job_id: str) -> Path:
    """Return the path of a job's script."""
    return folder.job_folder(job_id) / "shell_runner.sh"


def script_inputs(folder: RunFolder, job_id: str) -> tuple[str, ...]:
    """Return the files that HTCondor has to send for the script, if the job has one."""
    path = script_path(folder, job_id)
    return (str(path),) if path.exists() else ()


def render_script(run_id: str, job: Job) -> str:
    """Return the script for one job. The job must come from `job_for_worker`."""
    body = _SCRIPT_BODY_PATH.read_text(encoding="utf-8")
    return "\n".join(["#!/bin/sh", *_variable_lines(run_id, job), *_function_lines(job), body])


def _variable_lines(run_id: str, job: Job) -> Iterator[str]:
    action = job.steps[0].action
    assert isinstance(action, RunAction)
    exported = {"PACKTRAIN_RUN": run_id, "PACKTRAIN_JOB": job.id}
    exported |= {f"PACKTRAIN_POINT_{point.key.upper()}": str(point.value) for point in job.point}
    exported |= {variable.key: str(variable.value) for variable in (*job.env, *action.env)}
    yield from (f"export {key}={shlex.quote(value)}" for key, value in exported.items())
    command = "\n".join(filter(None, (job.environment.setup, action.command)))
    variables = {"command": command, "shell": action.shell, "step": _log_name(job.steps[0].name)}
    variables |= {"version": __version__, "event_format": _event_format()}
    for kind, stage, detail in _FAILURES:
        failure = Failure.from_kind(kind, stage, detail)
        variables |= {kind: json.dumps(failure.to_data()), f"{kind}_code": str(failure.exit_code)}
    yield from (f"{key}={shlex.quote(value)}" for key, value in variables.items())
    yield f'work_dir="$PWD/sandbox/{action.work_dir}"'


def _log_name(step_name: str) -> str:
    return step_name.replace("/", "_")


def _event_format() -> str:
    """Return the format of a journal line for printf: run, job, emitter, seq, kind, wall, mono, data."""
    line = Event("%s", "%s", "%s", 0, "%s", 0.0, 0.0).to_json()
    return line.replace(" 0,", " %d,").replace(" 0.0,", " %s,").replace("{}", "%s")


_FAILURES = (
    ("transfer_failed", "fetch", "an input is missing in the attempt folder, or could not be copied"),
    ("step_failed", "steps", "the program ended with exit code %d"),
    ("output_missing", "check", "an expected output is missing"),
    ("output_empty", "check", "an expected output is empty"),
)


def _function_lines(job: Job) -> Iterator[str]:
    action = job.steps[0].action
    assert isinstance(action, RunAction)
    yield _shell_function("copy_inputs", _input_commands(job))
    yield _shell_function("collect_outputs", _collect_commands(action))
    yield _shell_function("copy_stdio", _stdio_copy_commands(action, _log_name(job.steps[0].name)))
    checks = (f"require_output {_output_pattern(output.path)} {output.min_bytes}" for output in job.expect)
    yield _shell_function("check_outputs", checks)


def _output_pattern(path: str) -> str:
    """Return a shell pattern: wildcards stay wildcards, all other characters are quoted."""
    quoted = "".join(char if char in "*?[!]" else shlex.quote(char) for char in path)
    return f'"$sandbox/output"/{quoted}'


def _shell_function(name: str, commands: Iterator[str]) -> str:
    return "\n".join([f"{name}() {{", "    :", *(f"    {command}" for command in commands), "}"])


def _input_commands(job: Job) -> Iterator[str]:
    for source in job.inputs:
        if source.prefix:
            yield f"copy_input {_input_path(source.prefix.url)} {_sandbox_path(source.folder)}"
        for file in source.files:
            yield f"copy_input {_input_path(file.locations[0].url)} {_sandbox_path(f'{source.folder}/{file.name}')}"


def _input_path(url: str) -> str:
    return '"$attempt_folder"/' + shlex.quote(url.removeprefix(LOCAL_INPUT_SCHEME))


def _sandbox_path(path: str) -> str:
    return '"$sandbox"/' + shlex.quote(path)


def _collect_commands(action: RunAction) -> Iterator[str]:
    for output in action.collect:
        if output.path == "*":
            yield "collect_new_files"
        else:
            is_folder_content = output.path.endswith("/") and not output.to
            to = "." if is_folder_content else output.to or PurePosixPath(output.path).name
            yield f"collect_output {shlex.quote(output.path.rstrip('/'))} {shlex.quote(to)}"


def _stdio_copy_commands(action: RunAction, log_name: str) -> Iterator[str]:
    for name, suffix in ((action.stdout, "out"), (action.stderr, "err")):
        if name:
            target = f'"$sandbox/output"/{shlex.quote(name)}'
            folder = f'"$sandbox/output"/{shlex.quote(str(PurePosixPath(name).parent))}'
            log = f'"$attempt_folder/logs"/{shlex.quote(f"{log_name}.{suffix}")}'
            yield f"mkdir -p {folder} && cat {log} >>{target}"
