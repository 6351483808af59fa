"""Images without Python: the agent cannot run in them, so HTCondor's plugins fetch, and a shell script does the rest.

Known beforehand for images that lie here; `shell_runner.sh` has the part that is the same for all jobs.
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
from packtrain.events import Failure
from packtrain.plan import ExpectedOutput, Input, Job, Plan, RunAction, RunFolder
from packtrain.plan.local_inputs import LOCAL_INPUT_SCHEME
from packtrain.spec.diagnostics import ERROR, WARNING, Diagnostic, SourceMap

_NO_PYTHON_EXIT_CODE = 50  # the launcher's exit code
_PROBE_TIMEOUT_S = 120
_SCRIPT_BODY_PATH = Path(__file__).with_name("shell_runner.sh")
_IMAGE_KEYS = ("environment", "container", "image")


@dataclass(frozen=True)
class RunnerChoice:
    """`plan` is as it was, unless the jobs go without the agent."""

    plan: Plan
    without_agent: bool = False
    problems: tuple[Diagnostic, ...] = ()


def choose_runner(plan: Plan, origin: SourceMap | None) -> RunnerChoice:
    """Whether the jobs have to do without the agent, and the sentence that says so."""
    image = job_image(plan.jobs[0])
    if not lacks_python(image):
        return RunnerChoice(plan)
    said = f"the image {image} has no Python 3.9 or newer, so packtrain's agent cannot run in it"
    reason = next(_reasons_agent_needed(plan.jobs[0]), "")
    if reason:
        return RunnerChoice(
            plan, False, (_make_problem(ERROR, f"{said}, and {reason}", "use an image with Python", origin),)
        )
    message = (
        f"{said}: HTCondor's own plugins fetch what has an address, and of outputs only that they exist is checked"
    )
    return RunnerChoice(_use_plugin_transfer(plan), True, (_make_problem(WARNING, message, "", origin),))


def _make_problem(severity: str, message: str, hint: str, origin: SourceMap | None) -> Diagnostic:
    where = origin or SourceMap()
    place = where.position(_IMAGE_KEYS)
    return Diagnostic(where.filename, place.line, place.column, severity, message, hint)


def lacks_python(image: str) -> bool:
    """Asks the image itself, by the launcher that would look for one. False also where that cannot be known."""
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


def _use_plugin_transfer(plan: Plan) -> Plan:
    def with_transfer_method(source: Input) -> Input:
        return replace(source, transfer=CONDOR if is_local(source) else PLUGIN)

    jobs = tuple(replace(job, inputs=tuple(map(with_transfer_method, job.inputs))) for job in plan.jobs)
    return replace(
        plan, jobs=jobs, recovery=replace(plan.recovery, fallback_to_agent=False)
    )  # no agent could take over


def _reasons_agent_needed(job: Job) -> Iterator[str]:
    """What only the agent can do."""
    step = job.steps[0]
    plain = not (step.condition or step.catch or step.finally_)
    if len(job.steps) != 1 or not plain or not isinstance(step.action, RunAction) or step.action.resources.tasks != 1:
        yield "the job has more than one plain step"
    if any(source.unpack != "never" for source in job.inputs):
        yield "inputs have to be unpacked"
    if any(source.mode == "stream" for source in job.inputs):
        yield "an input is streamed"
    if any(source.prefix and not is_local(source) for source in job.inputs):
        yield "a folder of a server has to be fetched"
    if any(_needs_agent(expected) for expected in job.expect):
        yield "outputs have to be looked into"
    if job.checkpoint or (job.output and not job.output.location.url.startswith("file:")):
        yield "checkpoints or outputs have to be uploaded"
    env = [*job.env, *(step.action.env if isinstance(step.action, RunAction) else ())]
    if any(not isinstance(variable.value, str) for variable in env):
        yield "variables hold secrets"


def _needs_agent(expected: ExpectedOutput) -> bool:
    plain = replace(expected, path="", min_bytes=1)
    return plain != ExpectedOutput("") or expected.min_bytes > 1


def write_scripts(plan: Plan, folder: RunFolder) -> None:
    """One beside each job's plan."""
    sent = collect_condor_inputs(plan)
    for job in plan.jobs:
        script_path(folder, job.id).write_text(render_script(plan.run, job_for_worker(job, sent)), encoding="utf-8")


def script_path(folder: RunFolder, job_id: str) -> Path:
    return folder.job_folder(job_id) / "shell_runner.sh"


def script_inputs(folder: RunFolder, job_id: str) -> tuple[str, ...]:
    """What HTCondor has to bring for it, if the job goes without the agent."""
    path = script_path(folder, job_id)
    return (str(path),) if path.exists() else ()


def render_script(run_id: str, job: Job) -> str:
    """For one job as its worker sees it."""
    return "\n".join(
        [
            "#!/bin/sh",
            *_variable_lines(run_id, job),
            *_function_lines(job),
            _SCRIPT_BODY_PATH.read_text(encoding="utf-8"),
        ]
    )


def _variable_lines(run_id: str, job: Job) -> Iterator[str]:
    action = job.steps[0].action
    assert isinstance(action, RunAction)
    variables = {"PACKTRAIN_RUN": run_id, "PACKTRAIN_JOB": job.id}
    variables |= {f"PACKTRAIN_POINT_{point.key.upper()}": str(point.value) for point in job.point}
    variables |= {variable.key: str(variable.value) for variable in (*job.env, *action.env)}
    yield from (f"export {key}={shlex.quote(value)}" for key, value in variables.items())
    lines = "\n".join(filter(None, (job.environment.setup, action.command)))
    own = {"command": lines, "shell": action.shell, "step": job.steps[0].name.replace("/", "_"), "version": __version__}
    for kind, stage, detail in _FAILURES:
        failure = Failure.from_kind(kind, stage, detail)
        own |= {kind: json.dumps(failure.to_data()), f"{kind}_code": str(failure.exit_code)}
    yield from (f"{key}={shlex.quote(value)}" for key, value in own.items())
    yield f'work="$PWD/sandbox/{action.work_dir}"'


_FAILURES = (
    ("transfer_failed", "fetch", "an input is not where HTCondor should have put it, or could not be copied"),
    ("step_failed", "steps", "the program ended with exit code %d"),
    ("output_missing", "check", "an expected output is missing"),
    ("output_empty", "check", "an expected output is empty"),
)


def _function_lines(job: Job) -> Iterator[str]:
    action = job.steps[0].action
    assert isinstance(action, RunAction)
    yield _shell_function("take_inputs", _input_commands(job))
    yield _shell_function("collect", _collect_commands(action))
    yield _shell_function("keep_words", _stdio_copy_commands(action, job.steps[0].name.replace("/", "_")))
    yield _shell_function("check", (f"must {_output_pattern(e.path)} {e.min_bytes}" for e in job.expect))


def _output_pattern(path: str) -> str:
    """Its marks for any names stay marks, all else is meant literally: blanks, too."""
    literal = "".join(mark if mark in "*?[!]" else shlex.quote(mark) for mark in path)
    return f'"$box/output"/{literal}'


def _shell_function(name: str, lines: Iterator[str]) -> str:
    return "\n".join([f"{name}() {{", "    :", *(f"    {line}" for line in lines), "}"])


def _input_commands(job: Job) -> Iterator[str]:
    for source in job.inputs:
        if source.prefix:
            yield f"take {_input_path(source.prefix.url)} {_sandbox_path(source.folder)}"
        for item in source.files:
            yield f"take {_input_path(item.locations[0].url)} {_sandbox_path(f'{source.folder}/{item.name}')}"


def _input_path(url: str) -> str:
    return '"$here"/' + shlex.quote(url.removeprefix(LOCAL_INPUT_SCHEME))


def _sandbox_path(path: str) -> str:
    return '"$box"/' + shlex.quote(path)


def _collect_commands(action: RunAction) -> Iterator[str]:
    for wanted in action.collect:
        if wanted.path == "*":
            yield "bring_new"
        else:
            whole = wanted.path.endswith("/") and not wanted.to
            to = "." if whole else wanted.to or PurePosixPath(wanted.path).name
            yield f"bring {shlex.quote(wanted.path.rstrip('/'))} {shlex.quote(to)}"


def _stdio_copy_commands(action: RunAction, step: str) -> Iterator[str]:
    for name, kind in ((action.stdout, "out"), (action.stderr, "err")):
        if name:
            target = f'"$box/output"/{shlex.quote(name)}'
            folder = f'"$box/output"/{shlex.quote(str(PurePosixPath(name).parent))}'
            yield f'mkdir -p {folder} && cat "$here/logs"/{shlex.quote(f"{step}.{kind}")} >>{target}'
