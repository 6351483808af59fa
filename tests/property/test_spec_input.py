"""Loading any bytes, text or values gives a workflow or diagnostics, never an exception."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.spec.load import LoadResult, load_workflow_text

KEY_NAMES = """
resources tasks cpusPerTask memPerCpu gpus gpu minMemory steps run command container image for items range begin
end increment parallel launch handleName dependsOn use source args catch finally if env key value input inputs http
url urls files headers token sha256 s3 bucketUrl path osdf file unpack mode output matrix include exclude count expect
limits wallTime disk attempts checkpoint environment virtualNetworks name mpi network resource step
"""
KEYS = st.sampled_from(KEY_NAMES.split())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["1h", "5GB", "${env:X}", "{job}", "/", "s3://b", "https://h/x", "0755", "auto", "{{ .Step.Steps }}", "\ud800"]
    ),
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), children, max_size=6),
    max_leaves=30,
)
VALID_WORKFLOW = {
    "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 1, "gpus": 0},
    "steps": [{"run": {"command": "x"}}],
}
YAML_TOKENS = [
    *"a: \n-[]{}!|>'\"\\#%?\t0~\x85\ufeffé",
    "  ",
    "- ",
    "&a ",
    "*a",
    "!!x ",
    "<<: ",
    "-1",
    "1e9",
    "---",
    "...",
]
FRAGMENTS = st.sampled_from([*YAML_TOKENS, "steps:", "run:", "resources:", "%YAML 1.9", "\\x", "\\U0011ffff"])


def check(result: LoadResult) -> None:
    assert (result.workflow is None) == any(diagnostic.is_error for diagnostic in result.diagnostics)
    for diagnostic in result.diagnostics:
        assert diagnostic.line >= 1
        assert diagnostic.column >= 1
        assert diagnostic.message
        assert str(diagnostic).startswith("w.yaml:")


@given(st.binary(max_size=300))
def test_any_bytes(data):
    check(load_workflow_text(data, "w.yaml"))


@given(st.text(max_size=200))
def test_any_text(text):
    check(load_workflow_text(text, "w.yaml"))


@given(st.lists(FRAGMENTS, max_size=60).map("".join))
@settings(max_examples=400)
def test_yaml_fragments(text):
    check(load_workflow_text(text, "w.yaml"))


@given(DOCUMENTS)
@settings(max_examples=300)
def test_any_document(value):
    check(load_workflow_text(yaml.safe_dump(value), "w.yaml"))


@given(st.dictionaries(KEYS, DOCUMENTS, max_size=4))
@settings(max_examples=300)
def test_almost_valid_document(extra):
    check(load_workflow_text(yaml.safe_dump({**VALID_WORKFLOW, **extra}), "w.yaml"))


@given(DOCUMENTS)
@settings(max_examples=200)
def test_any_step(value):
    check(
        load_workflow_text(
            yaml.safe_dump({**VALID_WORKFLOW, "steps": [value, {"run": value}, {"use": value}]}), "w.yaml"
        )
    )
