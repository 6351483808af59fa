"""Keys of Pixi environments and tasks."""

import pytest

from packtrain.spec.load import load_workflow_text
from packtrain.spec.models.pixi import PixiConfig

RESOURCES = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\n"


def load(environment, run="{command: ls}"):
    return load_workflow_text(f"{RESOURCES}environment: {environment}\nsteps: [{{run: {run}}}]\n", "w.yaml")


def test_defaults():
    assert load("{pixi: {}}").workflow.environment.pixi == PixiConfig()
    assert (PixiConfig().manifest, PixiConfig().environment, PixiConfig().use) == ("pixi.toml", "default", "install")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("https://m.org/x", "http"), ("osdf:///x", "osdf"), ("pelican://f.org/x", "osdf"), ("/shared/x", "file")],
)
def test_servers_as_text(text, kind):
    pixi = load(f'{{pixi: {{mirrors: {{"https://c.org": "{text}"}}, store: {{file: {{path: x}}}}}}}}').workflow
    (mirror,) = pixi.environment.pixi.mirrors.values()
    assert mirror.model_fields_set == {kind}


@pytest.mark.parametrize(
    ("environment", "run", "message"),
    [
        (
            "{pixi: {}, container: {image: a}}",
            "{command: ls}",
            "environment has both 'container' and 'pixi'; give only one of them",
        ),
        (
            "{pixi: {manifest: pixi}}",
            "{command: ls}",
            "environment.pixi.manifest is invalid: 'pixi' should be a pixi.toml",
        ),
        (
            "{pixi: {environment: a/b}}",
            "{command: ls}",
            "environment.pixi.environment is invalid: 'a/b' becomes a folder's",
        ),
        (
            "{pixi: {files: [../x]}}",
            "{command: ls}",
            "environment.pixi.files[0] is invalid: '../x' should be a path below",
        ),
        ("{pixi: {mirrors: {c: /x}}}", "{command: ls}", "environment.pixi.mirrors.c is invalid: 'c' is not a URL"),
        ("{pixi: {store: {}}}", "{command: ls}", "environment.pixi.store needs one of http, s3, osdf, file"),
        ("{pixi: {}}", "{}", "steps[0].run needs the key 'command'"),
        ("{pixi: {}}", "{command: a, task: b}", "steps[0].run has both 'command' and 'task'; give only one of them"),
        (
            "{pixi: {}}",
            "{task: b, shell: /bin/bash}",
            "a Pixi task runs in its environment, with /bin/sh; remove `shell`",
        ),
        ("{pixi: {}}", "{task: b, container: {image: a}}", "a Pixi task runs in its environment, with /bin/sh; remove"),
        ("{pixi: {}}", "{command: a, args: [b]}", "`args` are arguments of a task; add them to the command"),
    ],
)
def test_invalid(environment, run, message):
    result = load(environment, run)
    assert result.workflow is None
    assert [message in str(diagnostic) for diagnostic in result.diagnostics] == [True]
