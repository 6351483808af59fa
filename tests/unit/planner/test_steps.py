"""Steps, modules, and what the switches of the command line change."""

import subprocess

import pytest

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.planner.containers import resolve_image
from packtrain.planner.module_resolver import split_source


def errors(made):
    return [str(problem) for problem in made.diagnostics if problem.is_error]


def only(job, line, **options):
    (step,) = job(steps=f"steps:\n  - {line}\n", **options).steps
    return step


def test_defaults_of_a_command_are_the_jobs(job):
    step = only(job, "run: {command: x}")
    assert step == plan.Step("run-1", plan.RunAction("x", resources=plan.StepResources(1, 2, 100, 0)))


def test_resources_beside_run_count_and_those_of_run_win(job):
    step = only(job, "{resources: {gpusPerTask: 1, cpusPerTask: 2}, run: {command: x, resources: {cpusPerTask: 1}}}")
    assert step.action.resources == plan.StepResources(1, 1, 100, 1)


def test_a_step_may_not_take_more_than_its_job(planned):
    made = planned(steps="steps:\n  - run: {command: x, resources: {tasks: 3, gpusPerTask: 1}}\n")
    assert errors(made) == [
        "w.yaml:3:34: steps[0].run requests 3 GPUs, but the job has 1; see `resources` at the top",
        "w.yaml:3:34: steps[0].run requests 6 CPUs, but the job has 2; see `resources` at the top",
    ]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("range: {begin: 1, end: 3}", ("1", "2", "3")),
        ("range: {begin: 3, end: 1, increment: -2}", ("3", "1")),
        ("range: {begin: 0, end: 5, increment: 2}", ("0", "2", "4")),
        ("range: {begin: 2, end: 1}", ()),
    ],
)
def test_ranges_include_their_end(job, line, values):
    loop = only(job, f"for: {{parallel: false, {line}, steps: []}}").action
    assert (loop.variable, loop.values) == ("index", values)


def test_items(job):
    loop = only(job, "for: {parallel: true, items: [a, 0.10], steps: [{run: {command: x}}]}").action
    assert (loop.variable, loop.values, loop.parallel, loop.steps[0].name) == ("item", ("a", "0.10"), True, "run-1")


@pytest.mark.parametrize(
    ("given", "signal"), [("", 15), ("signalOnParentStepExit: 0,", 0), ("signalOnParentStepExit: 2,", 2)]
)
def test_signals_of_launched_steps(job, given, signal):
    launch = only(job, f"launch: {{handleName: h, {given} steps: []}}").action
    assert launch == plan.LaunchAction("h", signal, ())


def test_conditions_catch_and_finally(job):
    step = only(job, "{name: n, if: '-e x', steps: [], catch: [{run: {command: c}}], finally: [{run: {command: f}}]}")
    assert (step.name, step.condition, step.action) == ("n", "-e x", plan.GroupAction(()))
    assert (step.catch[0].action.command, step.finally_[0].action.command) == ("c", "f")


@pytest.mark.parametrize(
    ("image", "registry", "made"),
    [
        ("/images/a.sif", "r", "/images/a.sif"),
        ("oras://r.example/a", "r", "oras://r.example/a"),
        ("owner/a:1", "ghcr.io", "docker://ghcr.io/owner/a:1"),
        ("owner/a", "registry-1.docker.io", "docker://registry-1.docker.io/owner/a"),
        ("ubuntu:24.04", "registry-1.docker.io", "docker://registry-1.docker.io/library/ubuntu:24.04"),
    ],
)
def test_images(tmp_path, image, registry, made):
    assert resolve_image(image, registry, tmp_path) == made


def test_an_image_file_is_relative_to_the_workflow(tmp_path):
    assert resolve_image("images/a.sif", "r", tmp_path) == str(tmp_path / "images" / "a.sif")


def test_a_container(job):
    container = (
        "{image: o/a, registry: ghcr.io, username: me, password: '${env:P}', mountHome: true, readOnlyRootFS: true, "
        "mounts: [{hostDir: /a, containerDir: /b, options: ro}]}"
    )
    made = only(job, f"run: {{command: x, container: {container}}}").action.container
    assert made == plan.Container(
        "docker://ghcr.io/o/a", "me", plan.Secret("P"), True, True, (plan.Mount("/a", "/b", "ro"),)
    )


def test_without_containers_nothing_has_one(planned):
    text = "environment: {container: {image: o/a}}\n"
    steps = "steps:\n  - run: {command: x, workDir: /app, container: {image: o/b, password: hidden}}\n"
    made = planned(text, steps=steps, no_container=True)
    assert made.plan.jobs[0].environment.container is None
    assert made.plan.jobs[0].steps[0].action.container is None
    assert made.secrets == {}
    assert "steps[0].run.workDir /app may not exist" in str(made.diagnostics[0])


@pytest.mark.parametrize("line", ["run: {command: ''}", "run: {command: x, shell: ENTRYPOINT}"])
def test_an_entrypoint_needs_a_container(planned, job, line):
    steps = f"steps:\n  - {line}\n"
    assert "uses the image's entrypoint" in errors(planned(steps=steps))[0]
    assert job("environment: {container: {image: o/a}}\n", steps=steps).environment.container is not None
    assert (
        "uses the image's entrypoint"
        in errors(planned("environment: {container: {image: o/a}}\n", steps=steps, no_container=True))[0]
    )


IN_IMAGE = "container: {image: a.sif}"


@pytest.mark.parametrize(
    ("steps", "warned"),
    [
        (f"[{{run: {{command: x, {IN_IMAGE}}}}}]", True),
        (f"[{{steps: [{{run: {{command: x, {IN_IMAGE}}}}}]}}]", True),
        ("[{run: {command: x}}]", False),
        (f"[{{run: {{command: x, {IN_IMAGE}}}}}, {{resources: {{gpusPerTask: 1}}, run: {{command: x}}}}]", False),
    ],
)
def test_gpus_that_no_command_in_an_image_sees(planned, steps, warned):
    said = [str(problem) for problem in planned(steps=f"steps: {steps}\n").diagnostics]
    assert [("no step requests any" in text and text.startswith("w.yaml:1:")) for text in said] == [True] * warned
    assert planned(steps=f"steps: {steps}\n", no_gpu=True).diagnostics == ()
    assert planned(steps=f"steps: {steps}\n", no_container=True).diagnostics == ()


def test_without_gpus_nothing_asks_for_one(planned):
    resources = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 2, gpu: {minMemory: 24GB}}\n"
    steps = "steps:\n  - run: {command: x, resources: {gpusPerTask: 2}}\n"
    made = planned(resources=resources, steps=steps, no_gpu=True)
    assert made.diagnostics == ()
    assert made.plan.jobs[0].resources.gpus == 0
    assert made.plan.jobs[0].resources.gpu == plan.GpuRequirements()
    assert made.plan.jobs[0].steps[0].action.resources.gpus_per_task == 0


def test_commands_of_many_jobs_are_filled_in(planned):
    steps = "steps:\n  - run: {command: 'train --lr {lr} --seed {job} ${lr} {x}'}\n"
    made = planned("matrix: {lr: [0.10]}\n", steps=steps)
    assert made.plan.jobs[0].steps[0].action.command == "train --lr 0.10 --seed 0 ${lr} {x}"


def test_commands_of_a_single_job_are_left_alone(job):
    assert only(job, """run: {command: 'python -c "print(f\\"{name}\\")"'}""").action.command.count("{name}") == 1


# Modules

MODULE = """
name: greet
inputs:
  - {key: WHO, description: whom to greet}
  - {key: HOW, default: hello}
outputs:
  - {key: SAID}
steps:
  - run: {command: echo before}
  - steps:
      - '{{ .Step.Steps }}'
  - run: {command: echo after}
"""


@pytest.fixture
def module(tmp_path):
    folder = tmp_path / "greet"
    folder.mkdir()
    (folder / "module.yaml").write_text(MODULE)
    return folder


def use(rest):
    return f"{{name: u, use: {{source: ./greet, {rest}}}}}"


def test_a_module_takes_arguments_and_has_its_users_steps_in_its_midst(job, module):
    made = only(
        job, use("args: [{key: WHO, value: me}], exportEnvAs: G, steps: [{name: mine, run: {command: x}}]")
    ).action
    assert made.args == (plan.EnvVar("WHO", "me"), plan.EnvVar("HOW", "hello"))
    assert (made.export_prefix, made.outputs) == ("G", ("SAID",))
    assert [step.name for step in made.steps] == ["run-1", "steps-2", "run-3"]
    assert [step.name for step in made.steps[1].action.steps] == ["mine"]


def test_steps_for_a_module_without_a_place_for_them_come_last(job, module):
    (module / "module.yaml").write_text("name: m\nsteps: [{name: own, run: {command: x}}]\n")
    made = only(job, use("steps: [{name: mine, run: {command: x}}]")).action
    assert [step.name for step in made.steps] == ["own", "mine"]


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("args: []", "the module 'greet' needs the argument 'WHO' (whom to greet)"),
        ("args: [{key: WHO, value: x}, {key: WOH, value: x}]", "has no input 'WOH'; did you mean 'WHO'?"),
    ],
)
def test_arguments_must_fit(planned, module, rest, says):
    assert any(says in message for message in errors(planned(steps=f"steps:\n  - {use(rest)}\n")))


def test_errors_in_a_module_name_its_file(planned, module):
    (module / "module.yaml").write_text("name: m\nsteps: [{ran: {command: x}}]\n")
    (message,) = errors(planned(steps=f"steps:\n  - {use('args: []')}\n"))
    assert message == f"{module}/module.yaml:2:10: steps[0] has no key 'ran'; did you mean 'run'?"


def test_a_module_that_uses_itself_is_stopped(planned, module):
    (module / "module.yaml").write_text("name: m\nsteps: [{use: {source: ../greet}}]\n")
    assert any(
        "more than 8 levels deep" in message for message in errors(planned(steps=f"steps:\n  - {use('args: []')}\n"))
    )


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere"])
def test_a_module_that_is_not_there(planned, source):
    (message,) = errors(planned(steps=f"steps:\n  - use: {{source: {source}}}\n"))
    assert "has no module.yaml" in message


def git(folder, *args):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


def test_a_module_from_git_at_a_tag(job, planned, module):
    git(module, "init", "-q")
    git(module, "add", ".")
    git(module, "commit", "-qm", "x")
    git(module, "tag", "v1")
    (module / "module.yaml").write_text("broken")
    line = f"use: {{source: 'file://{module}@v1', args: [{{key: WHO, value: me}}]}}"
    assert len(only(job, line).action.steps) == 3
    (message,) = errors(planned(steps=f"steps:\n  - use: {{source: 'file://{module}@v2'}}\n"))
    assert "cannot be fetched" in message
    assert "v2" in message


def test_sources_of_modules():
    assert split_source("github.com/o/n@v1") == ("https://github.com/o/n", "v1")
    assert split_source("git@h.example:o/n@v1") == ("git@h.example:o/n", "v1")


@pytest.mark.parametrize(
    "source",
    [
        "github.com/o/n",
        "github.com/o/n@",
        "@v1",
        "h.example/x@--upload-pack=y",
        "git@h.example:o/n",
        "https://me@h.example/o/n",
    ],
)
def test_sources_without_a_tag_are_refused(source):
    with pytest.raises(UsageError, match="URL@TAG"):
        split_source(source)


def test_what_a_program_leaves_is_collected_from_a_folder_of_its_own(planned):
    made = planned(
        steps="steps: [{run: {command: x, workDir: work, stdout: 'o.{job}', collect: ['*', {path: a/b, to: c}]}}]"
    )
    action = made.plan.jobs[0].steps[0].action
    assert (action.work_dir, action.stdout) == ("work", "o.0")
    assert [(wanted.path, wanted.to) for wanted in action.collect] == [("*", ""), ("a/b", "c")]
    for folder in ("", "workDir: /app, "):
        refused = planned(steps=f"steps: [{{run: {{command: x, {folder}collect: ['*']}}}}]")
        assert any(
            "needs a workDir of its own below $STORAGE_PATH" in problem.message for problem in refused.diagnostics
        )
