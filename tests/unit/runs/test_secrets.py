"""Secrets that commands read after a run has ended."""

from types import SimpleNamespace

import pytest

from packtrain.errors import UsageError
from packtrain.plan import RunFolder, Secret
from packtrain.planner.credentials.secret_sources import SecretRegistry, write_secret_sources
from packtrain.runs.secrets import make_secret_resolver
from packtrain.spec.diagnostics import SourceMap

KEYS = {"input": ("input", "s3", "secretAccessKey"), "output": ("output", "s3", "secretAccessKey")}


@pytest.fixture
def make_resolver(tmp_path):
    """Register secrets by key, and return the resolver of an ended run and their names."""

    def make(**texts):
        registry = SecretRegistry()
        secrets = [registry.register(texts[name], SourceMap("w.yaml"), key) for name, key in KEYS.items()]
        folder = RunFolder(tmp_path)
        write_secret_sources(folder.secret_sources, registry.sources, tmp_path)
        return make_secret_resolver(SimpleNamespace(run="r1", folder=tmp_path)), *secrets

    return make


def test_literal_is_named_by_the_key_that_needs_it(make_resolver):
    """The same literal in `input` and `output`: `outputs` does not ask for the key of the input."""
    resolve_secret, _, output = make_resolver(input="hunter2", output="hunter2")
    with pytest.raises(UsageError, match=r"the secret output\.s3\.secretAccessKey of the run r1 was written"):
        resolve_secret(output)


def test_only_the_requested_secret_is_read(make_resolver, monkeypatch):
    monkeypatch.setenv("OUT_KEY", "value")
    resolve_secret, _, output = make_resolver(input="${file:nowhere}", output="${env:OUT_KEY}")
    assert (output, resolve_secret(output)) == (Secret("OUT_KEY"), "value")
    monkeypatch.delenv("OUT_KEY")
    with pytest.raises(UsageError, match=r"output\.s3\.secretAccessKey needs the environment variable OUT_KEY"):
        resolve_secret(output)
