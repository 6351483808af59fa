"""Listing of the output folder: by pattern, for messages, and with digests."""

import hashlib

from packtrain.agent.outputs.inventory import format_contents, list_outputs, with_prefix
from packtrain.agent.watched_files import match_files


def test_match_files_in_folder_with_glob_characters(tmp_path):
    odd = tmp_path / "out[1]*"
    odd.mkdir()
    (odd / "file").write_text("x")
    assert match_files("file", odd) == [odd / "file"]


def test_format_contents(tmp_path):
    assert format_contents(tmp_path) == "nothing"
    for n in range(12):
        (tmp_path / f"{n:02}").touch()
    assert format_contents(tmp_path) == "00, 01, 02, 03, 04, 05, 06, 07, 08, 09 and 2 more"


def test_list_outputs(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "model.pt").write_bytes(b"x" * 100)
    (tmp_path / "sub" / "b.log").write_text("bb")
    digest = hashlib.sha256(b"x" * 100).hexdigest()
    assert list_outputs(tmp_path, with_digest=True)[0] == {"path": "model.pt", "bytes": 100, "sha256": digest}
    assert with_prefix("p/", list_outputs(tmp_path, with_digest=False))[-1] == {"path": "p/sub/b.log", "bytes": 2}


def test_digests_of_first_thousand_outputs(tmp_path):
    for n in range(1001):
        (tmp_path / str(n)).touch()
    assert sum("sha256" in entry for entry in list_outputs(tmp_path, with_digest=True)) == 1000
    assert len(list_outputs(tmp_path, with_digest=False)) == 1001
