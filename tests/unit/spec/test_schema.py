"""The JSON Schema for editors, and the reference for people: both know every key."""

import typing

import pytest

from packtrain.spec.load import load_workflow_text
from packtrain.spec.models.field_types import SpecModel
from packtrain.spec.models.workflow import Workflow, WorkflowModule, workflow_json_schema
from tests.support.paths import PROJECT_ROOT

REFERENCE = PROJECT_ROOT / "docs" / "reference" / "workflow.md"


def models_below(annotation, found):
    """Every model that an annotation leads to."""
    if typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, SpecModel):
        if annotation not in found:
            found.add(annotation)
            for field in annotation.model_fields.values():
                models_below(field.annotation, found)
        return found
    for part in typing.get_args(annotation):
        models_below(part, found)
    return found


MODELS = sorted(models_below(Workflow, set()) | models_below(WorkflowModule, set()), key=lambda model: model.__name__)
FIELDS = [(model, field.alias) for model in MODELS for field in model.model_fields.values()]


def test_the_walk_finds_the_models():
    assert {"Workflow", "Step", "S3Location", "HttpFile", "ExpectedOutput", "WireguardPeer", "WorkflowModule"} <= {
        m.__name__ for m in MODELS
    }


@pytest.mark.parametrize(("model", "key"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_the_reference_mentions_every_key(model, key):
    assert f"`{key}`" in REFERENCE.read_text()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_has_a_description(model):
    assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_the_schema_uses_the_keys_of_the_file():
    made = workflow_json_schema()
    assert {"continuousOutputSync", "steps", "resources", "matrix"} <= set(made["properties"])
    assert {"if", "for", "finally", "dependsOn"} <= set(made["$defs"]["Step"]["properties"])
    assert "readOnlyRootFS" in made["$defs"]["Container"]["properties"]
    assert made["required"] == ["resources", "steps"]


def test_the_schema_describes_and_limits():
    tasks = workflow_json_schema()["$defs"]["Resources"]["properties"]["tasks"]
    assert tasks["minimum"] == 1
    assert tasks["description"] == "Number of tasks."


def test_the_schema_takes_short_forms_and_units():
    defs = workflow_json_schema()["$defs"]
    assert {part.get("type") for part in workflow_json_schema()["properties"]["expect"]["items"]["anyOf"]} == {
        "string",
        None,
    }
    memory = defs["Resources"]["properties"]["memPerCpu"]["anyOf"]
    assert {part["type"] for part in memory} == {"integer", "string"}


def yaml_examples():
    return [block.partition("```")[0] for block in REFERENCE.read_text().split("```yaml\n")[1:]]


def test_the_examples_of_the_reference_are_valid():
    head = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 0}\n"
    steps = "steps: []\n"
    examples = yaml_examples()
    assert len(examples) >= 4
    for example in examples:
        whole = "resources:" in example
        text = example if whole else head + example + ("" if "steps:\n" in example else steps)
        assert [str(problem) for problem in load_workflow_text(text, "example.yaml").diagnostics] == []
