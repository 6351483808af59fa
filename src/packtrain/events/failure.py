"""Every way to fail, in one table: whose fault it is, whether it passes by itself, the agent's
exit code, what it means and what to do. Exit codes go by blame:

    10-29 user   30-44 data   45-59 site   60-69 pool   70-79 packtrain

docs/reference/failures.md is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from packtrain.errors import FailedError

USER, DATA, SITE, POOL, PACKTRAIN = "user", "data", "site", "pool", "packtrain"


@dataclass(frozen=True)
class FailureKind:
    blame: str
    transient: bool  # another attempt, unchanged, may well succeed
    exit_code: int
    meaning: str
    remedy: str


KINDS: dict[str, FailureKind] = {
    "step_failed": FailureKind(
        USER, False, 10, "a step's command ended with an error", "read `packtrain logs`, mend the program"
    ),
    "output_missing": FailureKind(
        USER,
        False,
        11,
        "an expected output does not exist",
        "write it below $PACKTRAIN_OUTPUT, or mend `expect`",
    ),
    "output_empty": FailureKind(
        USER, False, 12, "an expected output is empty or too small", "look at what the program wrote"
    ),
    "output_wrong": FailureKind(
        USER, False, 13, "an expected output failed its check", "look at the file and at its `expect` entry"
    ),
    "token_refused": FailureKind(
        USER,
        False,
        14,
        "a server refused the credentials, or got none (401, 403)",
        "set or renew the token that the workflow names",
    ),
    "secret_missing": FailureKind(
        USER,
        False,
        15,
        "a secret that the plan names is not in the run's secrets folder",
        "`packtrain resume` fills it again from ${env:…} or ${file:…}",
    ),
    "wall_time": FailureKind(
        USER,
        False,
        16,
        "the job reached its own `limits.wallTime`",
        "raise the limit, or checkpoint and resume",
    ),
    "condition_invalid": FailureKind(
        USER, False, 17, "an `if` condition is not valid in bash's [[ ]]", "mend the condition"
    ),
    "unsupported": FailureKind(
        USER, False, 18, "the plan asks for something this packtrain cannot do yet", "see the message"
    ),
    "delivery_too_large": FailureKind(
        USER,
        False,
        19,
        "the files that the access point would have to send are larger than it allows",
        "put the data where an address leads to it, or say `delivery: agent`",
    ),
    "submit_refused": FailureKind(
        USER,
        False,
        20,
        "the pool does not take the job as it is described",
        "see the message; mend the `htcondor` lines",
    ),
    "object_missing": FailureKind(
        DATA,
        False,
        30,
        "every source says for the whole patience that the object does not exist",
        "check the address; was the object renamed?",
    ),
    "not_the_data": FailureKind(
        DATA,
        True,
        31,
        "something else than the data arrived, such as an HTML error page",
        "open the address in a browser; is a login or a token needed?",
    ),
    "truncated": FailureKind(
        DATA,
        True,
        32,
        "the data ended before its promised size, or the archive before its end",
        "compare the size at the source; upload it again if it is short there too",
    ),
    "digest_mismatch": FailureKind(
        DATA,
        True,
        33,
        "the bytes differ from the digest",
        "check the digest in the workflow against the source",
    ),
    "archive_unsafe": FailureKind(
        DATA,
        False,
        34,
        "an archive member would leave the folder, or is a device",
        "make the archive again with relative names",
    ),
    "archive_too_large": FailureKind(
        DATA,
        False,
        35,
        "an archive grows past the disk that was promised",
        "raise `limits.disk`, or look at the archive",
    ),
    "archive_broken": FailureKind(
        DATA,
        False,
        36,
        "an archive cannot be read, or has a form that packtrain does not unpack",
        "use `unpack: never`, or make the archive again",
    ),
    "service_unavailable": FailureKind(
        DATA,
        True,
        37,
        "a server answered 5xx or 429, or dropped connections, for the whole patience",
        "wait, or add a mirror",
    ),
    "sink_failed": FailureKind(
        DATA,
        True,
        38,
        "the outputs could not be written to their destination",
        "check the destination; the outputs are kept in the attempt's folder",
    ),
    "disk_full": FailureKind(
        SITE,
        True,
        45,
        "the disk is full, or has less room than the plan needs",
        "state `limits.disk`, or free room",
    ),
    "host_unknown": FailureKind(
        SITE,
        True,
        46,
        "a host name does not resolve",
        "check the address; if it is right, the site's DNS is not",
    ),
    "network_unreachable": FailureKind(SITE, True, 47, "no connection to any source", "check the network of the site"),
    "gpu_unusable": FailureKind(
        SITE,
        True,
        48,
        "the promised GPU is missing, too small or its driver too old",
        "see the probe's figures",
    ),
    "memory_short": FailureKind(
        SITE,
        True,
        49,
        "the machine has less memory than the plan needs",
        "lower `memPerCpu`, or try elsewhere",
    ),
    "python_missing": FailureKind(
        SITE, True, 50, "no Python 3.9 or newer on the worker", "use an image or a site that has one"
    ),
    "container_failed": FailureKind(
        SITE, True, 51, "the container could not be started", "try the image by hand with `apptainer exec`"
    ),
    "out_of_memory": FailureKind(
        SITE, True, 52, "the kernel killed the step for using too much memory", "raise `memPerCpu`"
    ),
    "certificate_refused": FailureKind(
        SITE,
        True,
        53,
        "a server's TLS certificate cannot be verified here",
        "set SSL_CERT_FILE to a CA bundle that knows the server; check the machine's clock",
    ),
    "delivery_failed": FailureKind(
        SITE,
        True,
        54,
        "the pool could not bring the job's files there or back",
        "see the message; does every file that the job names exist?",
    ),
    "never_starts": FailureKind(
        SITE,
        True,
        55,
        "the pool started the job again and again, and it never got anywhere",
        "see where it ran; try the image by hand; exclude the site with `requirements`",
    ),
    "terminated": FailureKind(
        POOL, True, 60, "the pool or a person ended the attempt (TERM)", "nothing: it is tried again"
    ),
    "agent_lost": FailureKind(
        POOL,
        True,
        61,
        "the agent vanished without a word (killed, or the machine is gone)",
        "nothing: it is tried again",
    ),
    "cancelled": FailureKind(POOL, False, 62, "cancelled by a person", "`packtrain resume` starts it again"),
    "evicted": FailureKind(
        POOL, True, 63, "the pool took the machine back, or lost it", "nothing: it is started again"
    ),
    "held": FailureKind(
        POOL, False, 64, "the pool keeps the job back and says why", "mend what it says, then `packtrain resume`"
    ),
    "time_limit": FailureKind(
        POOL,
        True,
        65,
        "the job ran longer than the pool allows",
        "save checkpoints, ask for a longer duration category, or make the job shorter",
    ),
    "internal": FailureKind(
        PACKTRAIN, True, 70, "a defect of packtrain", "please report it, with the attempt's journal"
    ),
    "plan_unreadable": FailureKind(
        PACKTRAIN, False, 71, "the agent cannot read its plan", "use one version of packtrain throughout"
    ),
    "already_claimed": FailureKind(
        PACKTRAIN,
        False,
        72,
        "this attempt was already started by another process",
        "nothing: the other one counts",
    ),
}


@dataclass(frozen=True)
class Failure:
    """What is recorded, and what policies read."""

    kind: str
    stage: str
    blame: str
    transient: bool
    detail: str

    @classmethod
    def of(cls, kind: str, stage: str, detail: str) -> Failure:
        row = KINDS[kind]
        return cls(kind, stage, row.blame, row.transient, detail)

    @classmethod
    def from_error(cls, error: BaseException, stage: str) -> Failure:
        if isinstance(error, FailedError):
            return cls.of(error.kind, stage, error.detail)
        return cls.of("internal", stage, f"{type(error).__name__}: {error}")

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Failure:
        """From an event; a kind of a newer version is kept with what it says of itself."""
        return cls(*(data.get(name, "") for name in ("kind", "stage", "blame", "transient", "detail")))

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def exit_code(self) -> int:
        return KINDS[self.kind].exit_code if self.kind in KINDS else KINDS["internal"].exit_code
