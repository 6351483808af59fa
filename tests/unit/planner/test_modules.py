"""Modules as DeepSquare publishes them: templates, references, folders of a repository, diagnostics."""

import subprocess

import pytest

from packtrain.planner.modules.go_template import TemplateError, render_template

USE = "steps:\n  - use: {source: '%s', args: [%s], steps: [{name: mine, run: {command: x}}]}\n"


def reported(result, severity="error"):
    return [str(one) for one in result.diagnostics if one.severity == severity]


@pytest.fixture
def plan_module(plan_workflow, tmp_path):
    """Plan a step that uses a module with this text, and return the result."""

    def make(text, args=""):
        folder = tmp_path / "module"
        folder.mkdir(exist_ok=True)
        (folder / "module.yaml").write_text(text)
        return plan_workflow(steps=USE % ("./module", args))

    return make


def module_steps(result):
    assert reported(result) == []
    return result.plan.jobs[0].steps[0].action.steps


PUBLISHED = """\
name: cache
minimumResources: {tasks: {{ .Job.Resources.Tasks }}, cpusPerTask: 1, memPerCpu: 10, gpus: 0}
{{- /* a comment
of two lines */}}
inputs:
  - key: WHERE
    default: here
steps:
  - name: first
    run: {command: a}
  {{- .Step.Use.Steps | toYaml | nindent 2 }}
  - name: loop
    for:
      parallel: true
      range: {begin: 1, end: {{ .Job.Resources.CPUsPerTask }}}
      steps:
        - name: in loop
          run:
            {{- $count := 0 }}
            command: echo
              {{- range .Step.Use.Args }}{{ if eq .Key "WHERE" }}{{- $count = add $count 1 -}}{{" "}}{{ .Value }}
              {{- end }}
              {{- end }}{{ if eq $count 0 }} nowhere{{ end }}
"""


@pytest.mark.parametrize(("args", "command"), [("{key: WHERE, value: there}", "echo there"), ("", "echo nowhere")])
def test_template_is_rendered(plan_module, args, command):
    first, child, loop = module_steps(plan_module(PUBLISHED, args))
    assert (first.name, child.name, loop.action.values) == ("first", "mine", ("1", "2"))
    assert loop.action.steps[0].action.command == command


@pytest.mark.parametrize(
    "marker",
    [
        "- {{ .Step.Steps }}",
        "- '{{ .Step.Steps }}'",
        "- {{ .Step.Use.Steps }}",
        "{{- .Step.Run.Steps | toYaml | nindent 2 }}",
        "{{- with .Step.Use.Steps }}{{ toYaml . | nindent 2 }}{{ end }}",
    ],
)
def test_steps_of_the_user(plan_module, marker):
    text = f"name: m\nsteps:\n  - run: {{command: a}}\n  {marker}\n  - run: {{command: b}}\n"
    assert [step.name for step in module_steps(plan_module(text))] == ["run-1", "mine", "run-3"]


def test_lines_are_those_of_the_file(plan_module, tmp_path):
    """A template that renders to more or fewer lines does not shift the lines of messages."""
    text = PUBLISHED + "  - name: last\n    rum: {command: x}\n"
    (message,) = reported(plan_module(text, "{key: WHERE, value: there}"))
    line = text.splitlines().index("    rum: {command: x}") + 1
    assert message == f"{tmp_path}/module/module.yaml:{line}:5: steps[3] has no key 'rum'; did you mean 'run'?"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ .Job.Nothing }}", "there is no 'Nothing'"),
        ("{{ foo 1 }}", "the function 'foo' is not supported"),
        ("{{ if .Job }}", "`{{ if … }}` has no `{{ end }}`"),
        ("{{ .Job.Output.S3.SecretAccessKey }}", "secretAccessKey is a secret, which a module may not read"),
    ],
)
def test_template_errors(plan_workflow, tmp_path, template, reason):
    (tmp_path / "module").mkdir()
    (tmp_path / "module/module.yaml").write_text(f"name: m\n# {template}\nsteps: []\n")
    s3 = "{region: r, bucketUrl: 's3://b', path: /p, endpointUrl: 'https://e', accessKeyId: A, secretAccessKey: B}"
    (message,) = reported(plan_workflow(f"output: {{s3: {s3}}}\n", steps=USE % ("./module", "")))
    assert message.startswith(f"{tmp_path}/module/module.yaml:2:1: ")
    assert reason in message


def test_unknown_keys_are_warnings(plan_module, tmp_path):
    result = plan_module("name: m\nresources: {tasks: 1}\nsteps: [{run: {command: x, colour: red}}]\n")
    assert len(module_steps(result)) == 2
    assert [text.partition("module.yaml:")[2] for text in reported(result, "warning")] == [
        "2:1: warning: the file has no key 'resources', which is ignored; did you mean 'minimumResources'?",
        "3:28: warning: steps[0].run has no key 'colour', which is ignored",
    ]


def test_minimum_resources(plan_module):
    (message,) = reported(plan_module("name: m\nminimumResources: {cpusPerTask: 8}\nsteps: []\n"))
    assert "the module ./module needs `cpusPerTask: 8`, but the job has 2; see `resources` at the top" in message


# Repositories


def git(folder, *args):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """A repository of two modules in several versions, which is found as github.com/o/modules."""
    folder = tmp_path / "o" / "modules"
    (folder / "greet").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commits = []
    for version in ("one", "two", "three"):
        (folder / "greet/module.yaml").write_text(f"name: m\nsteps: [{{name: {version}, run: {{command: x}}}}]\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", version)
        commits.append(git(folder, "rev-parse", "HEAD"))
    git(folder, "tag", "greet/v1", commits[0])
    git(folder, "tag", "v2", commits[1])
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    return commits


@pytest.mark.parametrize(
    ("reference", "step"), [("@v1", "one"), ("@v2", "two"), ("@main", "three"), ("", "three"), ("@COMMIT", "two")]
)
def test_references_of_a_repository(plan_workflow, commits, reference, step):
    source = "github.com/o/modules/greet" + reference.replace("COMMIT", commits[1][:7])
    result = plan_workflow(steps=USE % (source, ""))
    assert module_steps(result)[0].name == step
    warnings = [text for text in reported(result, "warning") if "names no version" in text]
    assert [commits[2] in text for text in warnings] == ([] if reference else [True])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("github.com/o/modules/nothing@v2", "has no module.yaml"),
        ("github.com/o/modules/greet@v9", "cannot be fetched: "),
        ("github.com/o/modules/../../x@v2", "has no module.yaml"),
        ("github.com/o/modules/greet@0000000", "cannot be fetched: "),
    ],
)
def test_missing_modules(plan_workflow, commits, source, reason):
    (message,) = reported(plan_workflow(steps=USE % (source, "")))
    assert f"the module {source} {reason}" in message


def test_error_names_the_address(plan_workflow, commits, tmp_path):
    folder = tmp_path / "o/modules"
    (folder / "greet/module.yaml").write_text("name: m\nsteps:\n  - run: {command: [1]}\n")
    git(folder, "commit", "-qam", "broken")
    (message,) = reported(plan_workflow(steps=USE % ("github.com/o/modules/greet@main", "")))
    assert message.startswith("github.com/o/modules/greet@main/module.yaml:3:20: steps[0].run.command should be text")


# The template language


def render(template, **values):
    return render_template(template, values, getattr, {}).text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a {{- 1 -}} b", "a1b"),
        ("a\n  {{- /* no */ -}}\nb", "ab"),
        ("{{ .a }} {{ $.a }} {{ .m.k }}", "1 1 v"),
        ("{{ if .none }}x{{ else if eq .a 1 }}y{{ else }}z{{ end }}", "y"),
        ("{{ range $i, $v := .l }}{{ $i }}={{ $v }},{{ else }}none{{ end }}", "0=x,1=y,"),
        ("{{ range .none }}x{{ else }}none{{ end }}", "none"),
        ("{{ with .m }}{{ .k }}{{ end }}", "v"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = add $x 2 }}{{ end }}{{ $x }}", "3"),
        ('{{ .none | default "d}}" | quote }}', '"d}}"'),
        ("{{ mul 2 (add .a 2) }} {{ and .a .none }} {{ or .none .a }} {{ not .a }}", "6 <nil> 1 false"),
        ('{{ `raw` | upper }}{{ "a\\nb" | indent 2 }}', "RAW  a\n  b"),
        ('{{ index .l 1 }} {{ len .l }} {{ join "," .l }} {{ .l }}', "y 2 x,y [x y]"),
        ("{ not } {a}", "{ not } {a}"),
    ],
)
def test_template_language(template, text):
    assert render(template, a=1, none=None, l=["x", "y"], m={"k": "v"}) == text


@pytest.mark.parametrize(
    "template", ["{{ end }}", '{{ template "x" }}', "{{ .a .b }}", "{{ ( }}", "{{ $no }}", "{{ }}"]
)
def test_invalid_templates(template):
    with pytest.raises(TemplateError) as caught:
        render("\n" + template, a=1, b=2)
    assert caught.value.line == 2
