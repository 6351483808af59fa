"""Hold reasons of real logs, and of HTCondor's source code, with the cause first."""

from __future__ import annotations

import pytest

from packtrain.condor.reasons import put_cause_first
from packtrain.report.readers.files import read_history
from tests.support.paths import TESTS_DIR

LOGS = TESTS_DIR / "data" / "condor-logs"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("08-hold-input-size-32", "TransferInputSizeMB (3) is greater than MAX_TRANSFER_INPUT_MB (1)"),
        ("10-hold-transfer-https-404", "The requested URL returned error: 404 ( URL file = https://localhost:8443/"),
        ("16-hold-output-missing", "reading from file /home/alice/pool/execute/site_c/dir_668/scratch/nope.out:"),
        ("22-osdf-404", "[Errno 2] No such file or directory: '/home/alice/origin/ospool/data/missing.txt'"),
        ("06-hold-duration-47", "The job exceeded allowed execute duration of 00:03"),
    ],
)  # fmt: skip
def test_real_logs(log, cause):
    (job,) = read_history([str(LOGS / f"{log}.log")]).jobs
    assert job.reason.startswith(cause)


@pytest.mark.parametrize(
    ("reason", "rewritten"),
    [
        (
            "Transfer input files failure at execution point slot1@x using protocol https. "
            "Details: Failed to connect to h port 443: Connection refused ( URL file = https://h/x )|",
            "Failed to connect to h port 443: Connection refused ( URL file = https://h/x ) "
            "(Transfer input files failure at execution point slot1@x using protocol https)",
        ),
        (
            "Transfer output files failure at execution point slot1@x while sending files to access point a. "
            "Details: 1 total failures: first failure: reading from file /s/out: (errno 2) No such file or directory",
            "reading from file /s/out: (errno 2) No such file or directory (Transfer output files failure at execution "
            "point slot1@x while sending files to access point a)",
        ),
        (
            "Error from slot1_1@w: Failed to execute '/opt/python': (errno=2: 'No such file or directory')",
            "Failed to execute '/opt/python': (errno=2: 'No such file or directory') (Error from slot1_1@w)",
        ),
        (
            "Error from slot1@w: STARTER at 10.0.0.1 failed to receive file(s) from <10.0.0.2:9618>; "
            "SHADOW at 10.0.0.2 failed to read /d.tar: (errno 2) No such file or directory",
            "SHADOW at 10.0.0.2 failed to read /d.tar: (errno 2) No such file or directory; "
            "STARTER at 10.0.0.1 failed to receive file(s) from <10.0.0.2:9618> (Error from slot1@w)",
        ),
        (
            "STARTER at 10.0.0.1 failed to send file(s) to <10.0.0.2:9618>: |Error: 1 total failures: first failure: "
            "writing to file /big: (errno 28) No space left on device",
            "writing to file /big: (errno 28) No space left on device "
            "(STARTER at 10.0.0.1 failed to send file(s) to <10.0.0.2:9618>)",
        ),
        ("via condor_hold (by user alice)", "via condor_hold (by user alice)"),
        ("", ""),
    ],
)
def test_put_cause_first(reason, rewritten):
    assert put_cause_first(reason) == rewritten
    assert put_cause_first(rewritten) == rewritten
