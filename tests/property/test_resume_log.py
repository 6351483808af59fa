"""However often and wherever a download breaks off, the file is right in the end."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.fetch import fetch
from testbed.http_server import HttpServer, ResponseFault

DATA = bytes(i * 7919 % 251 for i in range(40_000))

faults = st.one_of(
    st.builds(
        ResponseFault, close_after_bytes=st.integers(0, len(DATA)), chunked=st.booleans(), ignore_range=st.booleans()
    ),
    st.builds(ResponseFault, status=st.sampled_from([404, 500, 503])),
    st.builds(ResponseFault, ignore_range=st.just(True)),
)


@settings(max_examples=60, deadline=None)
@given(processes=st.lists(st.lists(faults, max_size=1), max_size=4), digest=st.booleans(), mirrors=st.integers(1, 2))
def test_resume_after_any_break(processes, digest, mirrors):
    expected = Digest("sha256", hashlib.sha256(DATA).hexdigest()) if digest else None
    with tempfile.TemporaryDirectory() as folder, HttpServer(Path(folder)) as server:
        Path(folder, "served").write_bytes(DATA)
        target = Path(folder, "target")
        remote_file = RemoteFile("data", (Location(f"{server.url}/served"),) * mirrors, digest=expected)
        for process_faults in [*processes, []]:
            server.faults[:] = process_faults
            try:
                fetch(
                    remote_file,
                    target,
                    str,
                    retry_timeout_s=0,
                    check_cancelled=lambda: None,
                    on_progress=lambda done, total: None,
                )
                break
            except FailedError:
                assert not target.exists()
        assert target.read_bytes() == DATA
        assert sorted(p.name for p in Path(folder).iterdir()) == ["served", "target"]
