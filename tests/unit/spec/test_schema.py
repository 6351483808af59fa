"""The JSON Schema and the reference page describe every key of a workflow."""

import typing

import pytest

from packtrain.spec.load import load_workflow_text
from packtrain.spec.models.field_types import SpecModel
from packtrain.spec.models.workflow import Workflow, WorkflowModule, workflow_json_schema
from tests.support.paths import PROJECT_ROOT

REFERENCE = PROJECT_ROOT / "docs" / "reference" / "workflow.md"


def collect_models(annotation, models):
    """Add all models that an annotation refers to."""
    if typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, SpecModel):
        if annotation not in models:
            models.add(annotation)
            for field in annotation.model_fields.values():
                collect_models(field.annotation, models)
        return models
    for part in typing.get_args(annotation):
        collect_models(part, models)
    return models


MODELS = sorted(
    collect_models(Workflow, set()) | collect_models(WorkflowModule, set()), key=lambda model: model.__name__
)
FIELDS = [(model, field.alias) for model in MODELS for field in model.model_fields.values()]


def test_collect_models():
    assert {"Workflow", "Step", "S3Location", "HttpFile", "ExpectedOutput", "WireguardPeer", "WorkflowModule"} <= {
        m.__name__ for m in MODELS
    }


@pytest.mark.parametrize(("model", "key"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_reference_mentions_key(model, key):
    assert f"`{key}`" in REFERENCE.read_text()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_keys_have_descriptions(model):
    assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_schema_keys():
    schema = workflow_json_schema()
    assert {"continuousOutputSync", "steps", "resources", "matrix"} <= set(schema["properties"])
    assert {"if", "for", "finally", "dependsOn"} <= set(schema["$defs"]["Step"]["properties"])
    assert "readOnlyRootFS" in schema["$defs"]["Container"]["properties"]
    assert schema["required"] == ["resources", "steps"]


def test_schema_description_and_minimum():
    tasks = workflow_json_schema()["$defs"]["Resources"]["properties"]["tasks"]
    assert tasks["minimum"] == 1
    assert tasks["description"] == "Number of tasks."


def test_schema_short_forms_and_units():
    defs = workflow_json_schema()["$defs"]
    assert {part.get("type") for part in workflow_json_schema()["properties"]["expect"]["items"]["anyOf"]} == {
        "string",
        None,
    }
    memory = defs["Resources"]["properties"]["memPerCpu"]["anyOf"]
    assert {part["type"] for part in memory} == {"integer", "string"}


def yaml_examples():
    return [block.partition("```")[0] for block in REFERENCE.read_text().split("```yaml\n")[1:]]


def test_reference_examples_load():
    head = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 0}\n"
    steps = "steps: []\n"
    examples = yaml_examples()
    assert len(examples) >= 4
    for example in examples:
        is_complete = "resources:" in example
        text = example if is_complete else head + example + ("" if "steps:\n" in example else steps)
        assert [str(diagnostic) for diagnostic in load_workflow_text(text, "example.yaml").diagnostics] == []
