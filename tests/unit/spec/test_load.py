"""Loading workflow and module files: values, errors and warnings."""

import textwrap

import pytest

from packtrain.spec.load import load_module_text, load_workflow_file, load_workflow_text
from packtrain.spec.models.steps import RENDERED_CHILDREN_MARKER

RESOURCES = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\n"
STEPS = "steps: [{run: {command: 'true'}}]\n"
S3 = "region: r, bucketUrl: 's3://b', path: /p, endpointUrl: 'https://s3.example'"


def load(text, head=RESOURCES, steps=STEPS):
    return load_workflow_text(head + textwrap.dedent(text) + steps, "w.yaml")


def load_workflow(text="", **keys):
    result = load(text, **keys)
    assert [str(p) for p in result.diagnostics if p.is_error] == []
    return result.workflow


def messages(text, **keys):
    result = load(text, **keys)
    return [str(diagnostic) for diagnostic in result.diagnostics]


def step_messages(*lines):
    return messages("", steps="steps:\n" + "".join(f"  - {line}\n" for line in lines))


def test_minimal_workflow():
    workflow = load_workflow()
    assert workflow.resources.cpus_per_task == 1
    assert workflow.steps[0].run.command == "true"


def test_all_errors_with_positions():
    result = load_workflow_text("resources: {tasks: 0, cpusPerTask: x, memPerCpu: 1, gpus: 0}\nstep: []\n", "w.yaml")
    assert result.workflow is None
    assert [str(diagnostic) for diagnostic in result.diagnostics] == [
        "w.yaml:1:1: the file needs the key 'steps'",
        "w.yaml:1:20: resources.tasks should be at least 1, but is 0",
        "w.yaml:1:36: resources.cpusPerTask should be a whole number, but is 'x'",
        "w.yaml:2:1: the file has no key 'step'; did you mean 'steps'?",
    ]


def test_key_at_wrong_level():
    assert step_messages("container: {image: x}\n    run: {command: x}") == [
        "w.yaml:3:5: steps[0] has no key 'container'; it belongs below 'run'"
    ]


def test_missing_file(tmp_path):
    (diagnostic,) = load_workflow_file(tmp_path / "none.yaml").diagnostics
    assert "cannot be read: No such file or directory" in diagnostic.message


@pytest.mark.parametrize("text", ["[]", "3", "null", "text"])
def test_file_is_no_mapping(text):
    result = load_workflow_text(text, "w.yaml")
    assert result.workflow is None
    assert "should be a mapping" in result.diagnostics[0].message


def test_text_values_are_unchanged():
    workflow = load_workflow(
        "env: [{key: A, value: 0.10}, {key: B, value: yes}, {key: C, value: 007}, {key: D, value: true}]\n"
    )
    assert [variable.value for variable in workflow.env] == ["0.10", "yes", "007", "true"]


def test_empty_key_is_ignored():
    assert load_workflow("env:\noutput:\nlimits: {wallTime: }\n").output is None


@pytest.mark.parametrize(("text", "mode"), [("493", 493), ("0755", 493), ("0o755", 493), ("0", 0)])
def test_input_mode(text, mode):
    assert load_workflow(f"inputMode: {text}\n").input_mode == mode


def test_units():
    workflow = load_workflow("limits: {wallTime: 20h, disk: 50GB, grace: 5}\n")
    assert (workflow.limits.wall_time, workflow.limits.disk, workflow.limits.grace) == (72000, 50 * 10**9, 5)


def test_gpu_requirements():
    gpu = "{minMemory: 24GB, minCapability: 8.0, minCuda: 12.10}"
    head = f"resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 4GB, gpus: 1, gpu: {gpu}}}\n"
    workflow = load_workflow(head=head)
    assert workflow.resources.mem_per_cpu == 4000
    assert (
        workflow.resources.gpu.min_memory,
        workflow.resources.gpu.min_capability,
        workflow.resources.gpu.min_cuda,
    ) == (
        24000,
        "8.0",
        "12.10",
    )


def test_short_forms():
    workflow = load_workflow(
        """\
        input: {http: {files: ['https://a.example/x', {url: 'https://a.example/y', name: z}]}}
        expect: [model.pt, {path: '*.json', minSize: 1kB}]
        environment: {path: /opt/bin}
        """
    )
    assert [file.name for file in workflow.input.http.files] == [None, "z"]
    assert [(entry.path, entry.min_size) for entry in workflow.expect] == [("model.pt", 1), ("*.json", 1000)]
    assert workflow.environment.path == ("/opt/bin",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputMode: 512\n", "w.yaml:2:12: inputMode should be less than 512, but is 512"),
        ("env: [{key: PATH, value: x}]\n", "PATH may not be set here"),
        ("env: [{key: 1A, value: x}]\n", "env[0].key is invalid: '1A' should be a name of letters"),
        ("env: {A: b}\n", "env should be a list, but is a mapping"),
        ("expect: [/etc/passwd]\n", "expect[0].path is invalid: '/etc/passwd' should be a path below the folder"),
        ("expect: [a/../../b]\n", "should be a path below the folder: relative, without `..`"),
        ("expect: [{path: a, minCount: 3, maxCount: 2}]\n", "minCount 3 is greater than maxCount 2"),
        ("expect: [{path: a, json: {acc: {min: 0.5, max: 0.10}}}]\n", "w.yaml:2:38: min 0.5 is greater than max 0.10"),
        ("expect: [{path: a, json: {acc: {least: 1}}}]\n", "expect[0].json.acc has no key 'least'"),
        ("expect: [{path: a, json: {acc: {min: .nan}}}]\n", "expect[0].json.acc.min"),
        ("expect: [{path: a, torch: maybe}]\n", "expect[0].torch should be true or false"),
        ("input: {}\n", "w.yaml:2:1: input needs one of http, s3, osdf, file"),
        ("input: {file: {path: a}, osdf: {path: /b}}\n", "input has both 'osdf' and 'file'; give only one of them"),
        ("input: {http: {url: 'ftp://a'}}\n", "should start with https:// or http://"),
        ("input: {http: {url: 'https://a', urls: ['https://b']}}\n", "input.http has both 'url' and 'urls'"),
        ("input: {http: {files: ['https://a/x'], sha256: " + "a" * 64 + "}}\n", "sha256 is the digest of one file"),
        ("input: {http: {url: 'https://a', sha256: abc}}\n", "'abc' is not a valid SHA-256 digest"),
        (
            "input: {http: {url: 'https://a', md5: abc}}\n",
            "'abc' is not a valid MD5 digest: write 32 hexadecimal digits, or base64",
        ),
        (
            "input: {osdf: {path: /a, crc32c: 1e9}}\n",
            "'1e9' is not a valid CRC-32C digest: write 8 hexadecimal digits, or base64",
        ),
        (
            "input: {http: {url: 'https://a', md5: " + "a" * 32 + ", crc32c: e3069283}}\n",
            "input.http has both 'md5' and 'crc32c'; give only one of them",
        ),
        (
            "input: {http: {files: [{url: 'https://a/x', sha256: " + "a" * 64 + ", md5: " + "a" * 32 + "}]}}\n",
            "input.http.files[0] has both 'sha256' and 'md5'; give only one of them",
        ),
        ("input: {http: {files: ['https://a/x'], crc32c: e3069283}}\n", "crc32c is the digest of one file"),
        ("input: {http: {files: ['https://a/x'], checksums: 'https://a/y'}}\n", "checksums belongs to one file"),
        ("input: {http: {urls: []}}\n", "input.http.urls should not be empty"),
        ("input: {file: {path: a}, unpack: always}\n", "input.unpack should be one of auto, never, but is 'always'"),
        ("inputs: {../x: {file: {path: a}}}\n", "becomes a folder's name"),
        ("input: {s3: {" + S3 + ", accessKeyId: A}}\n", "needs both of accessKeyId and secretAccessKey, or neither"),
        ("input: {s3: {" + S3.replace("s3://b", "s3://b/") + "}}\n", "without a slash at the end"),
        ("input: {s3: {" + S3.replace("/p", "p") + "}}\n", "should start with / and have no `..`"),
        ("input: {osdf: {url: 'https://x'}}\n", "should start with osdf:/// or pelican://"),
        ("matrix: {}\n", "the matrix has no values"),
        ("matrix: {job: [1]}\n", "'job' cannot name matrix values"),
        ("matrix: {a-b: [1]}\n", "'a-b' cannot name matrix values"),
        ("matrix: {a: [1, 1]}\n", "w.yaml:2:17: matrix.a has this value twice"),
        ("matrix: {a: 1}\n", "matrix.a should be a list, but is 1"),
        ("matrix: {a: []}\n", "matrix.a should not be empty"),
        ("matrix: {a: [[1]]}\n", "matrix.a[0] should be text, but is a list"),
        ("matrix: {lr: [1], exclude: [{lrr: 1}]}\n", "no 'lrr' to exclude; did you mean 'lr'?"),
        ("matrix: {a: [1], exclude: [{a: 1}]}\n", "the matrix excludes every combination"),
        ("count: 100001\n", "count and matrix give more than 100000 jobs; split the run"),
        ("count: 0\n", "count should be at least 1"),
        ("limits: {wallTime: soon}\n", "'soon' is not a duration; write for example"),
        ("limits: {maxAttempts: true}\n", "limits.maxAttempts should be a whole number, but is true"),
        ("name: ../x\n", "'../x' should be a name of letters"),
        (
            "virtualNetworks: [{name: n, gatewayAddress: 10.0.0.1/24}]\n",
            "w.yaml:2:1: virtualNetworks is not supported: packtrain does not create networks between steps",
        ),
        ("output: {file: {path: '${env:HOME}/x'}}\n", "output.file.path cannot hold a secret"),
    ],
)
def test_bad_workflows(text, expected):
    result = load(text)
    assert result.workflow is None
    assert any(expected in str(diagnostic) for diagnostic in result.diagnostics), [str(p) for p in result.diagnostics]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["name: x"], "steps[0] needs one of run, steps, for, launch, use"),
        (["{run: {command: x}, steps: []}"], "steps[0] has both 'run' and 'steps'"),
        (
            ["run: {command: x, workDir: ../here}"],
            "'../here' should be a path below the folder: relative, without `..`",
        ),
        (["run: {command: x, shell: zsh}"], "should be one of /bin/sh, /bin/bash, /bin/ash, ENTRYPOINT, but is 'zsh'"),
        (["for: {parallel: true, steps: []}"], "steps[0].for needs one of items, range"),
        (["for: {parallel: true, steps: [], items: [a], range: {begin: 1, end: 2}}"], "has both 'items' and 'range'"),
        (["for: {parallel: true, steps: [], range: {begin: 1, end: 2, increment: 0}}"], "increment should not be 0"),
        (["for: {parallel: true, steps: [], range: {begin: 1, end: 20000}}"], "20000 iterations are too many"),
        (["{run: {command: x}, dependsOn: [a]}"], "no step of this level launches 'a'"),
        (["{run: {command: x}, dependsOn: [bgg]}", "launch: {handleName: bg, steps: []}"], "did you mean 'bg'?"),
        (["launch: {handleName: a, steps: []}\n    dependsOn: [a]"], "'a' is launched by this or a later step"),
        (
            [
                "launch: {handleName: a, steps: []}\n    dependsOn: [b]",
                "launch: {handleName: b, steps: []}\n    dependsOn: [a]",
            ],
            "'b' is launched by this or a later step; put the launch first",
        ),
        (
            ["launch: {handleName: a, steps: []}", "launch: {handleName: a, steps: []}"],
            "the handle 'a' is used twice in steps",
        ),
        (
            ["launch: {handleName: a, steps: []}", "steps: [{run: {command: x}, dependsOn: [a]}]"],
            "no step of this level launches 'a'",
        ),
        (["launch: {signalOnParentStepExit: 99, steps: []}"], "should be at most 64"),
        (["run: {command: x, mpi: pmix_v4}"], "mpi is not supported"),
        (
            ["run: {command: x, customNetworkInterfaces: [{bore: {targetPort: 1}}]}"],
            "customNetworkInterfaces is not supported",
        ),
        (["'{{ .Step.Steps }}'"], "is only valid in a module.yaml"),
        (["{run: {command: x}, catch: [{name: y}]}"], "steps[0].catch[0] needs one of"),
        (["{run: {command: x}, finally: [{run: {comand: y}}]}"], "did you mean 'command'?"),
    ],
)
def test_bad_steps(lines, expected):
    reported = step_messages(*lines)
    assert any(expected in message and "warning" not in message for message in reported), reported


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run: {command: x, network: pasta}", "network is not supported: the command uses the node's network"),
        ("run: {command: x, dns: [1.1.1.1]}", "dns is not supported"),
        ("run: {command: x, mapUid: 0}", "mapUid is not supported"),
        ("run: {command: x, mapGid: 0}", "mapGid is not supported"),
        ("run: {command: x, container: {image: a, x11: true}}", "x11 is not supported"),
        ("run: {command: x, container: {image: a, apptainer: false}}", "apptainer is not supported"),
        ("{steps: [], resources: {tasks: 2}}", "resources of a step without `run` have no effect"),
    ],
)
def test_unsupported_keys_are_warnings(line, expected):
    (message,) = step_messages(line)
    assert "warning: " in message
    assert expected in message


@pytest.mark.parametrize("name", ["bg", "BG"])
def test_depends_on_earlier_launch(name):
    assert step_messages("launch: {handleName: Bg, steps: []}", f"{{run: {{command: x}}, dependsOn: [{name}]}}") == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [("", "there is no output"), ("output: {http: {url: 'https://a/x'}}\n", "an http output is uploaded at the end")],
)
def test_continuous_sync_without_effect(output, reason):
    (message,) = messages("continuousOutputSync: true\n" + output)
    assert message.startswith(f"w.yaml:2:1: warning: continuousOutputSync has no effect: {reason}; ")


def test_gpus_per_task_of_a_job():
    head = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0, gpusPerTask: 1}\n"
    assert messages("", head=head) == [
        "w.yaml:1:64: resources has no key 'gpusPerTask'; it belongs to the `resources` of a step; a job has `gpus`, "
        "the number for all tasks"
    ]


def test_workflow_below_job():
    """Requests to DeepSquare's API, which its repositories contain as examples, wrap the workflow."""
    text = "job:\n" + textwrap.indent(RESOURCES + STEPS, "  ")
    result = load_workflow_text(text, "w.yaml", {"count": 2})
    assert [str(one) for one in result.diagnostics] == ["w.yaml:1:1: warning: the workflow is read from below `job`"]
    assert (result.workflow.count, result.workflow.source_map.position(("resources", "tasks")).line) == (2, 2)
    result = load_workflow_text("apiKey: x\n" + text.replace("tasks: 1", "tasks: 0"), "w.yaml")
    assert [str(one) for one in result.diagnostics] == [
        "w.yaml:2:1: warning: the workflow is read from below `job`; these keys beside it are ignored: apiKey",
        "w.yaml:3:22: resources.tasks should be at least 1, but is 0",
    ]


def test_harmless_values_of_unsupported_keys():
    line = "run: {command: x, mpi: none, network: host, dns: [], container: {image: a, x11: false, apptainer: true}}"
    assert step_messages(line) == []


def test_checkpoint_with_http_output():
    assert messages("checkpoint: {path: ckpt.pt, minInterval: 10m}\n") == []
    (message,) = messages("checkpoint: {path: ckpt.pt}\noutput: {http: {url: 'https://h/x'}}\n")
    assert message.startswith("w.yaml:2:1: warning: an http output stores only one checkpoint")


def test_exclude_without_effect():
    (message,) = messages("matrix: {lr: [0.1, 1], exclude: [{lr: 0.10}]}\n")
    assert message == "w.yaml:2:39: warning: matrix.lr has no value '0.10', so this excludes nothing"


def test_plain_text_secrets():
    """The warnings do not repeat the secrets."""
    reported = messages(
        "input: {http: {url: 'https://a', token: hunter2, headers: {X-Api-Key: hunter2, Accept: text}}}\n"
    )
    assert len(reported) == 2
    assert all("is a secret in plain text" in message and "hunter2" not in message for message in reported)


def test_secret_references():
    text = "input: {http: {url: 'https://a', token: '${env:T}', headers: {Authorization: 'Basic ${file:~/t}'}}}\n"
    assert messages(text + "env: [{key: A, value: '${env:A}'}]\n") == []


def test_bash_expansion_in_command():
    assert step_messages("run: {command: 'echo ${env:offset}'}") == []


def test_jobs_with_same_output():
    reported = messages("count: 2\noutput: {file: {path: out}}\n")
    assert reported == ["w.yaml:3:23: jobs 0 and 1 would both write to out; use {job} or a key of the matrix in it"]


@pytest.mark.parametrize("path", ["out/{job}", "{lr}"])
def test_outputs_per_job(path):
    assert messages(f"matrix: {{lr: [1, 2]}}\noutput: {{file: {{path: '{path}'}}}}\n") == []


def test_output_with_ambiguous_matrix_key():
    text = "matrix: {lr: [1, 2], seed: [1, 2]}\noutput: {s3: {" + S3.replace("/p", "'/{lr}'") + "}}\n"
    assert "jobs 0 and 1 would both write to s3://b/1" in messages(text)[0]


MODULE = "name: m\nsteps:\n"


def test_module_placeholder():
    text = f"{MODULE}  - {RENDERED_CHILDREN_MARKER}\n  - '{RENDERED_CHILDREN_MARKER}'\n"
    result = load_module_text(text, "module.yaml")
    assert result.diagnostics == ()
    assert [step.name for step in result.module.steps] == ["{{ .Step.Steps }}"] * 2


def test_module_error_names_file():
    (diagnostic,) = load_module_text(MODULE + "  - rum: {command: x}\n", "m/module.yaml", (1, 2, 7)).diagnostics
    assert str(diagnostic) == "m/module.yaml:7:5: steps[0] has no key 'rum'; did you mean 'run'?"


def test_headers_are_no_mapping():
    result = load_workflow_text("input: {http: {url: 'http://x/y', headers: ''}}\n", "w.yaml")
    assert result.workflow is None
    assert result.diagnostics
