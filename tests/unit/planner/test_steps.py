"""Steps and modules of a plan, and the options --no-gpu and --no-container."""

import subprocess

import pytest

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.planner.containers import resolve_image
from packtrain.planner.modules.module_resolver import GitSource, list_git_sources


def errors(result):
    return [str(diagnostic) for diagnostic in result.diagnostics if diagnostic.is_error]


def plan_step(plan_job, step_yaml, **options):
    (step,) = plan_job(steps=f"steps:\n  - {step_yaml}\n", **options).steps
    return step


def test_default_step_resources(plan_job):
    step = plan_step(plan_job, "run: {command: x}")
    assert step == plan.Step("run-1", plan.RunAction("x", resources=plan.StepResources(1, 2, 100, 0)))


def test_resources_of_run_take_precedence(plan_job):
    step = plan_step(
        plan_job, "{resources: {gpusPerTask: 1, cpusPerTask: 2}, run: {command: x, resources: {cpusPerTask: 1}}}"
    )
    assert step.action.resources == plan.StepResources(1, 1, 100, 1)


def test_step_exceeds_job_resources(plan_workflow):
    result = plan_workflow(steps="steps:\n  - run: {command: x, resources: {tasks: 3, gpusPerTask: 1}}\n")
    assert errors(result) == [
        "w.yaml:3:34: steps[0].run requests 3 GPUs, but the job has 1; see `resources` at the top",
        "w.yaml:3:34: steps[0].run requests 6 CPUs, but the job has 2; see `resources` at the top",
    ]


@pytest.mark.parametrize(
    ("step_yaml", "values"),
    [
        ("range: {begin: 1, end: 3}", ("1", "2", "3")),
        ("range: {begin: 3, end: 1, increment: -2}", ("3", "1")),
        ("range: {begin: 0, end: 5, increment: 2}", ("0", "2", "4")),
        ("range: {begin: 2, end: 1}", ()),
    ],
)
def test_ranges(plan_job, step_yaml, values):
    loop = plan_step(plan_job, f"for: {{parallel: false, {step_yaml}, steps: []}}").action
    assert (loop.variable, loop.values) == ("index", values)


def test_items(plan_job):
    loop = plan_step(plan_job, "for: {parallel: true, items: [a, 0.10], steps: [{run: {command: x}}]}").action
    assert (loop.variable, loop.values, loop.parallel, loop.steps[0].name) == ("item", ("a", "0.10"), True, "run-1")


@pytest.mark.parametrize(
    ("option", "signal"), [("", 15), ("signalOnParentStepExit: 0,", 0), ("signalOnParentStepExit: 2,", 2)]
)
def test_launch_signal(plan_job, option, signal):
    launch = plan_step(plan_job, f"launch: {{handleName: h, {option} steps: []}}").action
    assert launch == plan.LaunchAction("h", signal, ())


def test_condition_catch_and_finally(plan_job):
    step = plan_step(
        plan_job, "{name: n, if: '-e x', steps: [], catch: [{run: {command: c}}], finally: [{run: {command: f}}]}"
    )
    assert (step.name, step.condition, step.action) == ("n", "-e x", plan.GroupAction(()))
    assert (step.catch[0].action.command, step.finally_[0].action.command) == ("c", "f")


@pytest.mark.parametrize(
    ("image", "registry", "result"),
    [
        ("/images/a.sif", "r", "/images/a.sif"),
        ("oras://r.example/a", "r", "oras://r.example/a"),
        ("owner/a:1", "ghcr.io", "docker://ghcr.io/owner/a:1"),
        ("owner/a", "registry-1.docker.io", "docker://registry-1.docker.io/owner/a"),
        ("ubuntu:24.04", "registry-1.docker.io", "docker://registry-1.docker.io/library/ubuntu:24.04"),
    ],
)
def test_resolve_image(tmp_path, image, registry, result):
    assert resolve_image(image, registry, tmp_path) == result


def test_image_file(tmp_path):
    assert resolve_image("images/a.sif", "r", tmp_path) == str(tmp_path / "images" / "a.sif")


def test_container(plan_job):
    container = (
        "{image: o/a, registry: ghcr.io, username: me, password: '${env:P}', mountHome: true, readOnlyRootFS: true, "
        "mounts: [{hostDir: /a, containerDir: /b, options: ro}]}"
    )
    result = plan_step(plan_job, f"run: {{command: x, container: {container}}}").action.container
    assert result == plan.Container(
        "docker://ghcr.io/o/a", "me", plan.Secret("P"), True, True, (plan.Mount("/a", "/b", "ro"),)
    )


def test_no_container(plan_workflow):
    text = "environment: {container: {image: o/a}}\n"
    steps = "steps:\n  - run: {command: x, workDir: /app, container: {image: o/b, password: hidden}}\n"
    result = plan_workflow(text, steps=steps, no_container=True)
    assert result.plan.jobs[0].environment.container is None
    assert result.plan.jobs[0].steps[0].action.container is None
    assert result.secrets == {}
    assert "steps[0].run.workDir /app may not exist" in str(result.diagnostics[0])


def test_image_on_deepsquares_machines(plan_workflow):
    steps = "steps:\n  - run: {command: x, container: {image: %s, deepsquareHosted: true}}\n"
    (message,) = errors(plan_workflow(steps=steps % "a/b"))
    assert message.startswith("w.yaml:3:65: the image a/b exists only on DeepSquare's own machines; name an image")
    assert errors(plan_workflow(steps=steps % "a/b", no_container=True)) == []
    assert errors(plan_workflow(steps=steps % "/images/b.sif")) == []


def test_handles_ignore_case(plan_job):
    steps = "steps:\n  - launch: {handleName: Bg, steps: []}\n  - {run: {command: x}, dependsOn: [BG]}\n"
    launch, waiting = plan_job(steps=steps).steps
    assert (launch.action.handle,) == waiting.depends_on


@pytest.mark.parametrize("step_yaml", ["run: {command: ''}", "run: {command: x, shell: ENTRYPOINT}"])
def test_entrypoint_needs_container(plan_workflow, plan_job, step_yaml):
    steps = f"steps:\n  - {step_yaml}\n"
    assert "uses the image's entrypoint" in errors(plan_workflow(steps=steps))[0]
    assert plan_job("environment: {container: {image: o/a}}\n", steps=steps).environment.container is not None
    assert (
        "uses the image's entrypoint"
        in errors(plan_workflow("environment: {container: {image: o/a}}\n", steps=steps, no_container=True))[0]
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
def test_unused_gpus_warning(plan_workflow, steps, warned):
    messages = [str(diagnostic) for diagnostic in plan_workflow(steps=f"steps: {steps}\n").diagnostics]
    assert [("no step requests any" in text and text.startswith("w.yaml:1:")) for text in messages] == [True] * warned
    assert plan_workflow(steps=f"steps: {steps}\n", no_gpu=True).diagnostics == ()
    assert plan_workflow(steps=f"steps: {steps}\n", no_container=True).diagnostics == ()


def test_no_gpu(plan_workflow):
    resources = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 2, gpu: {minMemory: 24GB}}\n"
    steps = "steps:\n  - run: {command: x, resources: {gpusPerTask: 2}}\n"
    result = plan_workflow(resources=resources, steps=steps, no_gpu=True)
    assert result.diagnostics == ()
    assert result.plan.jobs[0].resources.gpus == 0
    assert result.plan.jobs[0].resources.gpu == plan.GpuRequirements()
    assert result.plan.jobs[0].steps[0].action.resources.gpus_per_task == 0


def test_command_placeholders(plan_workflow):
    steps = "steps:\n  - run: {command: 'train --lr {lr} --seed {job} ${lr} {x}'}\n"
    result = plan_workflow("matrix: {lr: [0.10]}\n", steps=steps)
    assert result.plan.jobs[0].steps[0].action.command == "train --lr 0.10 --seed 0 ${lr} {x}"


def test_single_job_has_no_placeholders(plan_job):
    assert (
        plan_step(plan_job, """run: {command: 'python -c "print(f\\"{name}\\")"'}""").action.command.count("{name}")
        == 1
    )


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


def use_step(options):
    return f"{{name: u, use: {{source: ./greet, {options}}}}}"


def test_module_arguments_and_steps(plan_job, module):
    result = plan_step(
        plan_job, use_step("args: [{key: WHO, value: me}], exportEnvAs: G, steps: [{name: mine, run: {command: x}}]")
    ).action
    assert result.args == (plan.EnvVar("WHO", "me"), plan.EnvVar("HOW", "hello"))
    assert (result.export_prefix, result.outputs) == ("G", ("SAID",))
    assert [step.name for step in result.steps] == ["run-1", "steps-2", "run-3"]
    assert [step.name for step in result.steps[1].action.steps] == ["mine"]


def test_module_without_placeholder(plan_job, module):
    """The user's steps run last if the module has no placeholder for them."""
    (module / "module.yaml").write_text("name: m\nsteps: [{name: own, run: {command: x}}]\n")
    result = plan_step(plan_job, use_step("steps: [{name: mine, run: {command: x}}]")).action
    assert [step.name for step in result.steps] == ["own", "mine"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("args: []", "warning: the module 'greet' gets an empty WHO (whom to greet): it has no default; set it"),
        ("args: [{key: WHO, value: x}, {key: WOH, value: x}]", "has no input 'WOH'; did you mean 'WHO'?"),
    ],
)
def test_bad_module_arguments(plan_workflow, module, options, expected):
    result = plan_workflow(steps=f"steps:\n  - {use_step(options)}\n")
    assert any(expected in str(diagnostic) for diagnostic in result.diagnostics)


def test_module_error_names_file(plan_workflow, module):
    (module / "module.yaml").write_text("name: m\nsteps: [{ran: {command: x}}]\n")
    (message,) = errors(plan_workflow(steps=f"steps:\n  - {use_step('args: []')}\n"))
    assert message == f"{module}/module.yaml:2:10: steps[0] has no key 'ran'; did you mean 'run'?"


def test_recursive_module(plan_workflow, module):
    (module / "module.yaml").write_text("name: m\nsteps: [{use: {source: ../greet}}]\n")
    assert any(
        "more than 8 levels deep" in message
        for message in errors(plan_workflow(steps=f"steps:\n  - {use_step('args: []')}\n"))
    )


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere"])
def test_missing_module(plan_workflow, source):
    (message,) = errors(plan_workflow(steps=f"steps:\n  - use: {{source: {source}}}\n"))
    assert "has no module.yaml" in message


def git(folder, *args):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


def test_module_from_git(plan_job, plan_workflow, module):
    git(module, "init", "-q")
    git(module, "add", ".")
    git(module, "commit", "-qm", "x")
    git(module, "tag", "v1")
    (module / "module.yaml").write_text("broken")
    step_yaml = f"use: {{source: 'file://{module}@v1', args: [{{key: WHO, value: me}}]}}"
    assert len(plan_step(plan_job, step_yaml).action.steps) == 3
    (message,) = errors(plan_workflow(steps=f"steps:\n  - use: {{source: 'file://{module}@v2'}}\n"))
    assert "cannot be fetched" in message
    assert "v2" in message


@pytest.mark.parametrize(
    ("source", "candidates"),
    [
        ("github.com/o/n@v1", [("https://github.com/o/n", "", "v1")]),
        ("github.com/o/n", [("https://github.com/o/n", "", "")]),
        ("git@h.example:o/n@v1", [("git@h.example:o/n", "", "v1")]),
        ("git@h.example:o/n", [("git@h.example:o/n", "", "")]),
        ("https://me@h.example/o/n", [("https://me@h.example/o/n", "", "")]),
        (
            "github.com/o/n/a/b@v1",
            [
                ("https://github.com/o/n", "a/b", "a/b/v1"),
                ("https://github.com/o/n", "a/b", "v1"),
                ("https://github.com/o/n/a/b", "", "v1"),
            ],
        ),
        ("file:///x/y/n.git/a@5ca6163", [("file:///x/y/n.git", "a", "5ca6163")]),
    ],
)
def test_list_git_sources(source, candidates):
    assert list_git_sources(source) == [GitSource(*candidate) for candidate in candidates]


@pytest.mark.parametrize("source", ["github.com/o/n@", "@v1", "name", "h.example/x@--upload-pack=y"])
def test_invalid_source(source):
    with pytest.raises(UsageError, match="URL/FOLDER@TAG"):
        list_git_sources(source)


def test_collect_needs_work_dir(plan_workflow):
    result = plan_workflow(
        steps="steps: [{run: {command: x, workDir: work, stdout: 'o.{job}', collect: ['*', {path: a/b, to: c}]}}]"
    )
    action = result.plan.jobs[0].steps[0].action
    assert (action.work_dir, action.stdout) == ("work", "o.0")
    assert [(entry.path, entry.to) for entry in action.collect] == [("*", ""), ("a/b", "c")]
    shared = plan_workflow(
        steps="steps: [{run: {command: x, workDir: /home/me, stdout: '/home/me/o.${A}', collect: [a]}}]"
    )
    assert shared.plan.jobs[0].steps[0].action.stdout == "/home/me/o.${A}"
    for run in ("", "workDir: /app, container: {image: a.sif}, "):
        result = plan_workflow(steps=f"steps: [{{run: {{command: x, {run}collect: ['*']}}}}]")
        assert any(
            "needs a workDir of its own that exists outside of the container" in diagnostic.message
            for diagnostic in result.diagnostics
        )
