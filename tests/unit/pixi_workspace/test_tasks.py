"""Rendering of tasks: dependencies, arguments, templates, folders."""

import pytest

from packtrain.pixi_workspace.errors import PixiError
from packtrain.pixi_workspace.tasks import TaskRenderer
from packtrain.plan import EnvVar, PixiCommand

TASKS = {
    "plain": "echo plain",
    "prepare": {"cmd": ["python", "prepare data.py"], "cwd": "data"},
    "train": {"cmd": "python train.py", "env": {"LR": "0.1", "OUT": "$PWD/out"}, "depends-on": ["prepare", "plain"]},
    "alias": [{"task": "train"}, "plain"],
    "greet": {"cmd": "echo {{ name }} {{greeting}}", "args": ["name", {"arg": "greeting", "default": "hi"}]},
    "greet-jane": {"depends-on": [{"task": "greet", "args": ["Jane"]}, {"task": "greet", "args": [{"name": "Jo"}]}]},
    "where": "echo {{ pixi.platform }} {{ pixi.environment.name }}",
    "loop": {"depends_on": "loop2"},
    "loop2": {"depends_on": ["loop"]},
    "upper": "echo {{ name | upper }}",
    "condition": "echo {% if pixi.is_linux %}a{% endif %}",
    "version": "echo {{ pixi.version }}",
    "elsewhere": {"depends-on": [{"task": "plain", "environment": "docs"}]},
    "outside": {"cmd": "ls", "cwd": "../other"},
    "background": "server & client",
}


def render(name, *args):
    return TaskRenderer(TASKS, "gpu", "linux-64").render(name, args)


def commands(name, *args):
    return [command.command for command in render(name, *args)]


def test_dependencies_run_first_and_once():
    assert render("train", "--epochs", "a b") == (
        PixiCommand('python "prepare data.py"', work_dir="data"),
        PixiCommand("echo plain"),
        PixiCommand("export OUT=\"$PWD/out\"\npython train.py --epochs 'a b'", (EnvVar("LR", "0.1"),)),
    )
    assert commands("alias")[:2] == ['python "prepare data.py"', "echo plain"]
    assert len(commands("alias")) == 3


def test_declared_arguments():
    assert commands("greet", "you") == ["echo you hi"]
    assert commands("greet", "you", "bye") == ["echo you bye"]
    assert commands("greet-jane") == ["echo Jane hi", "echo Jo hi"]
    assert commands("where") == ["echo linux-64 gpu"]


REFUSALS = {
    ("trian",): "the environment 'gpu' has no task 'trian'; did you mean 'train'?",
    ("greet",): "the task 'greet' needs the argument 'name'; add it to `args`",
    ("greet", "a", "b", "c"): "the task 'greet' takes 2 arguments (name, greeting), not 3",
    ("loop",): "the task 'loop' depends on itself (loop → loop2 → loop); remove one of the dependencies",
    ("upper",): "the task 'upper' uses a template with more than `{{ name }}`, which only Pixi can fill in; "
    "write a `command` for the step instead",
    ("condition",): "the task 'condition' uses a template with more than `{{ name }}`, which only Pixi can fill in; "
    "write a `command` for the step instead",
    ("version",): "the task 'version' uses `{{ pixi.version }}`, which only Pixi can fill in; "
    "write a `command` for the step instead",
    ("elsewhere",): "the task 'elsewhere' depends on a task in the environment 'docs'; "
    "run that task in a workflow of its own",
    ("outside",): "the task 'outside' runs in ../other, outside of the workspace; remove its `cwd`",
    ("background",): "the task 'background' uses `&`, which /bin/sh may read differently; "
    "write a `command` for the step instead",
}


@pytest.mark.parametrize("call", REFUSALS)
def test_refusal(call):
    with pytest.raises(PixiError) as caught:
        render(*call)
    assert str(caught.value) == REFUSALS[call]


def test_all_tasks_for_the_worker():
    """A task that cannot run has a sentence, so that `pixi run NAME` on a worker can say it."""
    tasks = {task.name: task for task in TaskRenderer(TASKS, "gpu", "linux-64").render_all()}
    assert list(tasks) == list(TASKS)
    refused = {call[0] for call in REFUSALS} - {"trian"}
    assert {name for name, task in tasks.items() if task.error} == refused | {"loop2"}
    assert tasks["background"].error == REFUSALS[("background",)]
    assert tasks["plain"].commands == (PixiCommand("echo plain"),)
