"""`packtrain init` in the folder of a Pixi workspace."""

from __future__ import annotations

import json

from tests.support.pixi_locks import lock_text, write_files


def test_workspace(tmp_path, run_packtrain):
    """Without a recipe a workflow file is written for the workspace; with one the recipe is copied as elsewhere."""
    write_files(tmp_path, "", lock_text({"linux-64": []}))
    code, out, _ = run_packtrain("init", "--dry-run")
    assert (code, out.splitlines()[0]) == (0, "would write workflow.yaml for pixi.toml")
    assert not (tmp_path / "workflow.yaml").exists()
    _, out, _ = run_packtrain("init", "--json")
    assert json.loads(out)["files"] == ["workflow.yaml", ".packtrain/workflow.schema.json"]
    assert run_packtrain("check", "workflow.yaml")[0] == 0
    code, _, err = run_packtrain("init")
    assert code == 2 and "already has workflow.yaml" in err
    assert run_packtrain("init", "minimal")[0] == 0
    assert (tmp_path / "minimal/workflow.yaml").is_file()


def test_no_workspace(tmp_path, run_packtrain):
    assert run_packtrain("init")[0] == 0
    assert (tmp_path / "minimal/workflow.yaml").is_file()


def test_option_with_an_invalid_environment(tmp_path, run_packtrain):
    write_files(tmp_path, "", lock_text({"linux-64": []}))
    run_packtrain("init")
    code, _, err = run_packtrain("check", "workflow.yaml", "--pixi", "pixi:a/b")
    assert (code, err.strip()) == (
        2,
        "packtrain: --pixi pixi:a/b is not a manifest with an environment, such as pixi.toml:gpu",
    )
