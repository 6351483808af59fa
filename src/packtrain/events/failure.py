"""Every way to fail, in one table: whose fault it is, whether it passes by itself, what packtrain does first, the
agent's exit code, what it means and what a person can do. Exit codes go by blame:

    10-29 user   30-44 data   45-59 site   60-69 pool   70-79 packtrain

What an engine sees from outside (holds, evictions, signals) and what a program says last is mapped to these kinds
once: `engines.htcondor.holds`, `agent.symptoms`. docs/reference/failures.md is made from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from packtrain.errors import FailedError

USER, DATA, SITE, POOL, PACKTRAIN = "user", "data", "site", "pool", "packtrain"

# What is done first; `supervise.policies` do it.
RETRY_NOW, RETRY, MOVE, SWITCH_TRANSFER = "again", "retry", "move", "redeliver"
MORE_MEMORY, MORE_DISK = "more memory", "more disk"
CONFIRM_ELSEWHERE, STOP_RUN, FAIL_JOB = "confirm", "stop", "end"

ACTIONS: dict[str, str] = {
    RETRY_NOW: "another attempt, at once",
    RETRY: "another attempt after a wait that grows each time; what is not transient only in a pool",
    MOVE: "another attempt; the machine is avoided for a while, and a site where that happens again",
    SWITCH_TRANSFER: "as move; the second time the agent fetches what the pool's plugins did not bring",
    MORE_MEMORY: "another attempt with twice the memory, up to `recovery.maxMemoryFactor`",
    MORE_DISK: "another attempt elsewhere with twice the disk, up to `recovery.maxDiskFactor`",
    CONFIRM_ELSEWHERE: "the job fails; in a pool it is tried once at another site before that; else as stop",
    STOP_RUN: "the job fails; when `recovery.stopAfterIdenticalFailures` jobs failed alike at two sites, those not started are not",
    FAIL_JOB: "the job fails, the others go on",
}


@dataclass(frozen=True)
class FailureKind:
    blame: str
    transient: bool  # another attempt, unchanged, may well succeed
    action: str  # a key of ACTIONS
    exit_code: int
    meaning: str
    remedy: str


FAILURE_KINDS: dict[str, FailureKind] = {
    "step_failed": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        10,
        "a step's command ended with an error",
        "read `packtrain logs`, mend the program",
    ),
    "output_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        11,
        "an expected output does not exist",
        "write it below $PACKTRAIN_OUTPUT, or mend `expect`",
    ),
    "output_empty": FailureKind(
        USER, False, CONFIRM_ELSEWHERE, 12, "an expected output is empty or too small", "look at what the program wrote"
    ),
    "output_invalid": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        13,
        "an expected output failed its check",
        "look at the file and at its `expect` entry",
    ),
    "access_denied": FailureKind(
        USER,
        False,
        STOP_RUN,
        14,
        "a server refused the credentials, or got none (401, 403)",
        "set or renew the token that the workflow names",
    ),
    "secret_missing": FailureKind(
        USER,
        False,
        STOP_RUN,
        15,
        "a secret that the plan names is not in the run's secrets folder",
        "`packtrain resume` fills it again from ${env:…} or ${file:…}",
    ),
    "wall_time": FailureKind(
        USER,
        False,
        FAIL_JOB,
        16,
        "the job reached its own `limits.wallTime`",
        "raise the limit, or checkpoint and resume",
    ),
    "condition_invalid": FailureKind(
        USER, False, STOP_RUN, 17, "an `if` condition is not valid in bash's [[ ]]", "mend the condition"
    ),
    "unsupported": FailureKind(
        USER, False, STOP_RUN, 18, "the plan asks for something this packtrain cannot do yet", "see the message"
    ),
    "transfer_too_large": FailureKind(
        USER,
        False,
        STOP_RUN,
        19,
        "the files that the access point would have to send are larger than it allows",
        "put the data where an address leads to it, or say `transfer: agent`",
    ),
    "submit_rejected": FailureKind(
        USER,
        False,
        STOP_RUN,
        20,
        "the pool does not take the job as it is described",
        "see the message; mend the `htcondor` lines",
    ),
    "module_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        21,
        "a Python module that the program needs is not installed there",
        "install it where the job runs, or put it into the image",
    ),
    "program_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        22,
        "a command of a step is not installed there, such as unzip or wget",
        "put it into the image; archives of `inputs` are unpacked without it",
    ),
    "file_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        23,
        "the program did not find a file, such as its archive of data",
        "compare its path with $PACKTRAIN_INPUT and `packtrain plan`; inputs are unpacked unless `unpack: never`",
    ),
    "gpu_out_of_memory": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        24,
        "the program needs more memory than the GPU has",
        "make the batch smaller, or ask for a larger GPU with `resources.gpu.minMemory`",
    ),
    "run_stopped": FailureKind(
        USER,
        False,
        FAIL_JOB,
        25,
        "the run was stopped before this job was started, since others failed alike",
        "mend what they have in common, then `packtrain resume`",
    ),
    "budget_exceeded": FailureKind(
        USER,
        False,
        FAIL_JOB,
        26,
        "failed attempts have cost as much as the workflow allows",
        "`packtrain why` shows what failed; `packtrain resume` gives a fresh budget",
    ),
    "object_missing": FailureKind(
        DATA,
        False,
        RETRY,
        30,
        "every source says for the whole patience that the object does not exist",
        "check the address; was the object renamed?",
    ),
    "unexpected_content": FailureKind(
        DATA,
        True,
        RETRY,
        31,
        "something else than the data arrived, such as an HTML error page",
        "open the address in a browser; is a login or a token needed?",
    ),
    "truncated": FailureKind(
        DATA,
        True,
        RETRY,
        32,
        "the data ended before its promised size, or the archive before its end",
        "compare the size at the source; upload it again if it is short there too",
    ),
    "digest_mismatch": FailureKind(
        DATA,
        True,
        RETRY,
        33,
        "the bytes differ from the digest",
        "check the digest in the workflow against the source",
    ),
    "archive_unsafe": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        34,
        "an archive member would leave the folder, or is a device",
        "make the archive again with relative names",
    ),
    "archive_too_large": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        35,
        "an archive grows past the disk that was promised",
        "raise `limits.disk`, or look at the archive",
    ),
    "archive_broken": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        36,
        "an archive cannot be read, or has a form that packtrain does not unpack",
        "use `unpack: never`, or make the archive again",
    ),
    "service_unavailable": FailureKind(
        DATA,
        True,
        RETRY,
        37,
        "a server answered 5xx or 429, or dropped connections, for the whole patience",
        "wait, or add a mirror",
    ),
    "upload_failed": FailureKind(
        DATA,
        True,
        RETRY,
        38,
        "the outputs could not be written to their destination",
        "check the destination; the outputs are kept in the attempt's folder",
    ),
    "transfer_stalled": FailureKind(
        DATA,
        True,
        SWITCH_TRANSFER,
        39,
        "the pool's own transfer got no further and was ended",
        "say `transfer: agent`: it resumes, and takes other sources",
    ),
    "transfer_refused": FailureKind(
        DATA,
        True,
        SWITCH_TRANSFER,
        40,
        "a server told the pool's own transfer that the data is not there, or that it cannot give it (404, 5xx)",
        "check the address; if it is right, say `transfer: agent`: it takes other sources",
    ),
    "disk_full": FailureKind(
        SITE,
        True,
        MORE_DISK,
        45,
        "the disk is full, or has less room than the plan needs",
        "state `limits.disk`, or free room",
    ),
    "host_unknown": FailureKind(
        SITE,
        True,
        MOVE,
        46,
        "a host name does not resolve",
        "check the address; if it is right, the site's DNS is not",
    ),
    "network_unreachable": FailureKind(
        SITE, True, MOVE, 47, "no connection to any source", "check the network of the site"
    ),
    "gpu_unusable": FailureKind(
        SITE,
        True,
        MOVE,
        48,
        "the promised GPU is missing, too small or its driver too old",
        "see the probe's figures",
    ),
    "insufficient_memory": FailureKind(
        SITE,
        True,
        MOVE,
        49,
        "the machine has less memory than the plan needs",
        "lower `memPerCpu`, or try elsewhere",
    ),
    "python_missing": FailureKind(
        SITE, True, MOVE, 50, "no Python 3.9 or newer on the worker", "use an image or a site that has one"
    ),
    "container_failed": FailureKind(
        SITE, True, MOVE, 51, "the container could not be started", "try the image by hand with `apptainer exec`"
    ),
    "out_of_memory": FailureKind(
        SITE, True, MORE_MEMORY, 52, "the kernel killed the step for using too much memory", "raise `memPerCpu`"
    ),
    "certificate_invalid": FailureKind(
        SITE,
        True,
        MOVE,
        53,
        "a server's TLS certificate cannot be verified here",
        "set SSL_CERT_FILE to a CA bundle that knows the server; check the machine's clock",
    ),
    "transfer_failed": FailureKind(
        SITE,
        True,
        SWITCH_TRANSFER,
        54,
        "the pool could not bring the job's files there or back",
        "see the message; does every file that the job names exist?",
    ),
    "restart_loop": FailureKind(
        SITE,
        True,
        MOVE,
        55,
        "the pool started the job again and again, and it never got anywhere",
        "see where it ran; try the image by hand; exclude the site with `requirements`",
    ),
    "filesystem_unusable": FailureKind(
        SITE,
        True,
        MOVE,
        56,
        "the file system there cannot do what the program asks of it, or does not answer (errno 38, 5, 116)",
        "nothing: another machine is tried; let the program write below $STORAGE_PATH",
    ),
    "too_slow": FailureKind(
        SITE,
        True,
        MOVE,
        57,
        "the attempt was late, and would end sooner elsewhere",
        "nothing: it goes on elsewhere, from its newest checkpoint",
    ),
    "superseded": FailureKind(
        SITE,
        True,
        RETRY_NOW,
        58,
        "another attempt of the job succeeded first",
        "nothing: the job has succeeded",
    ),
    "target_busy": FailureKind(
        SITE,
        True,
        RETRY,
        59,
        "another process fetches the same file to the same place",
        "wait until that is done, or choose another place",
    ),
    "terminated": FailureKind(
        POOL, True, RETRY_NOW, 60, "the pool or a person ended the attempt (TERM)", "nothing: it is tried again"
    ),
    "agent_lost": FailureKind(
        POOL,
        True,
        RETRY_NOW,
        61,
        "the agent vanished without a word (killed, or the machine is gone)",
        "nothing: it is tried again",
    ),
    "cancelled": FailureKind(POOL, False, FAIL_JOB, 62, "cancelled by a person", "`packtrain resume` starts it again"),
    "evicted": FailureKind(
        POOL, True, RETRY_NOW, 63, "the pool took the machine back, or lost it", "nothing: it is started again"
    ),
    "held": FailureKind(
        POOL,
        False,
        FAIL_JOB,
        64,
        "the pool keeps the job back and says why",
        "mend what it says, then `packtrain resume`",
    ),
    "pool_time_limit": FailureKind(
        POOL,
        True,
        MOVE,
        65,
        "the job ran longer than the pool allows",
        "save checkpoints, ask for a longer duration category, or make the job shorter",
    ),
    "lease_expired": FailureKind(
        POOL,
        True,
        RETRY_NOW,
        66,
        "the pool had no contact with the machine for longer than the job's lease",
        "nothing: it is started again; settings `htcondor.lease` makes the lease longer",
    ),
    "policy_hold": FailureKind(
        POOL,
        True,
        RETRY,
        67,
        "a rule of the pool keeps the job back",
        "see what the rule says; ask those who run the pool",
    ),
    "no_matching_node": FailureKind(
        POOL,
        False,
        FAIL_JOB,
        68,
        "no machine of the pool took the job for as long as `recovery.maxQueueTime` allows",
        "`condor_q -better-analyze` says which of its wishes no machine meets; ask for less, then `packtrain resume`",
    ),
    "internal": FailureKind(
        PACKTRAIN, True, RETRY, 70, "a defect of packtrain", "please report it, with the attempt's journal"
    ),
    "plan_unreadable": FailureKind(
        PACKTRAIN, False, FAIL_JOB, 71, "the agent cannot read its plan", "use one version of packtrain throughout"
    ),
    "already_claimed": FailureKind(
        PACKTRAIN,
        False,
        FAIL_JOB,
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
    def from_kind(cls, kind: str, stage: str, detail: str) -> Failure:
        row = FAILURE_KINDS[kind]
        return cls(kind, stage, row.blame, row.transient, detail)

    @classmethod
    def from_error(cls, error: BaseException, stage: str) -> Failure:
        if isinstance(error, FailedError):
            return cls.from_kind(error.kind, stage, error.detail)
        return cls.from_kind("internal", stage, f"{type(error).__name__}: {error}")

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Failure:
        """From an event; a kind of a newer version is kept with what it says of itself."""
        return cls(*(data.get(name, "") for name in ("kind", "stage", "blame", "transient", "detail")))

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def action(self) -> str:
        """What is done first about it."""
        if self.kind in FAILURE_KINDS:
            return FAILURE_KINDS[self.kind].action
        return RETRY if self.transient else FAIL_JOB

    @property
    def is_site_fault(self) -> bool:
        """Whether the place where it happened is avoided for it: not where the job only asked for too little memory."""
        if self.kind not in FAILURE_KINDS:
            return self.blame == SITE
        return self.action == MOVE or (self.blame == SITE and self.action in (SWITCH_TRANSFER, MORE_DISK))

    @property
    def exit_code(self) -> int:
        return FAILURE_KINDS[self.kind].exit_code if self.kind in FAILURE_KINDS else FAILURE_KINDS["internal"].exit_code
