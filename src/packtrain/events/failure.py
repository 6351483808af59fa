"""The failure table: for every kind of failure who is to blame, whether it is transient, what packtrain does first,
the agent's exit code, its meaning and a remedy for users. Exit codes are grouped by blame:

    10-29 user   30-42 data   43-59 site   60-69 pool   70-79 packtrain

`condor.hold_codes` maps what HTCondor reports to these kinds, `agent.steps.error_patterns` what programs print.
docs/reference/failures.md is generated from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from packtrain.errors import FailedError

USER, DATA, SITE, POOL, PACKTRAIN = "user", "data", "site", "pool", "packtrain"

# What packtrain does first; `supervise.policies` carry it out.
RETRY_NOW, RETRY, MOVE, SWITCH_TRANSFER = "retry now", "retry", "move", "switch transfer"
MORE_MEMORY, MORE_DISK = "more memory", "more disk"
CONFIRM_ELSEWHERE, STOP_RUN, FAIL_JOB = "confirm elsewhere", "stop run", "fail job"

ACTIONS: dict[str, str] = {
    RETRY_NOW: "submit another attempt at once",
    RETRY: "submit another attempt after a growing delay (failures that are not transient: only in a pool)",
    MOVE: "submit another attempt; avoid the node for a while, and the site if it happens there again",
    SWITCH_TRANSFER: "as move; after the second failure the agent fetches the inputs instead of the pool's plugins",
    MORE_MEMORY: "submit another attempt with twice the memory, up to `recovery.maxMemoryFactor`",
    MORE_DISK: "submit another attempt elsewhere with twice the disk, up to `recovery.maxDiskFactor`",
    CONFIRM_ELSEWHERE: "fail the job; in a pool, try it once at another site first; otherwise as stop run",
    STOP_RUN: "fail the job; once `recovery.stopAfterIdenticalFailures` jobs failed in the same way at two sites, "
    "start no further jobs",
    FAIL_JOB: "fail the job; the other jobs continue",
}


@dataclass(frozen=True)
class FailureKind:
    """One row of the failure table."""

    blame: str  # USER, DATA, SITE, POOL or PACKTRAIN
    transient: bool  # an unchanged attempt may succeed later
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
        "read `packtrain logs` and fix the program",
    ),
    "output_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        11,
        "an expected output does not exist",
        "write it below $PACKTRAIN_OUTPUT, or correct `expect`",
    ),
    "output_empty": FailureKind(
        USER, False, CONFIRM_ELSEWHERE, 12, "an expected output is empty or too small", "check what the program writes"
    ),
    "output_invalid": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        13,
        "an expected output failed its check",
        "compare the file with its `expect` entry",
    ),
    "access_denied": FailureKind(
        USER,
        False,
        STOP_RUN,
        14,
        "a server rejected the credentials, or received none (401, 403)",
        "set or renew the token that the workflow names",
    ),
    "secret_missing": FailureKind(
        USER,
        False,
        STOP_RUN,
        15,
        "a secret of the plan is missing in the run's secrets folder",
        "`packtrain resume` reads it again from ${env:…} or ${file:…}",
    ),
    "wall_time": FailureKind(
        USER,
        False,
        FAIL_JOB,
        16,
        "the job reached its own `limits.wallTime`",
        "raise the limit, or save checkpoints and resume",
    ),
    "condition_invalid": FailureKind(
        USER, False, STOP_RUN, 17, "an `if` condition is not valid in bash's [[ ]]", "correct the condition"
    ),
    "unsupported": FailureKind(
        USER, False, STOP_RUN, 18, "the plan needs a feature that this version of packtrain lacks", "see the message"
    ),
    "transfer_too_large": FailureKind(
        USER,
        False,
        STOP_RUN,
        19,
        "the access point does not allow transfers as large as the job's files",
        "store the data on a server and use its URL, or set `transfer: agent`",
    ),
    "submit_rejected": FailureKind(
        USER,
        False,
        STOP_RUN,
        20,
        "the pool rejected the job description",
        "see the message; correct the `htcondor` submit commands or `slurm` options",
    ),
    "module_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        21,
        "a Python module that the program needs is not installed on the node",
        "install it where the job runs, or add it to the image",
    ),
    "program_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        22,
        "a command that a step needs, such as unzip or wget, is not installed on the node",
        "add it to the image; packtrain unpacks the archives of `inputs` itself",
    ),
    "file_missing": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        23,
        "the program did not find a file, such as its data archive",
        "compare its path with $PACKTRAIN_INPUT and `packtrain plan`; archives are unpacked unless `unpack: never` is "
        "set",
    ),
    "gpu_out_of_memory": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        24,
        "the program needs more memory than the GPU has",
        "reduce the batch size, or request a larger GPU with `resources.gpu.minMemory`",
    ),
    "run_stopped": FailureKind(
        USER,
        False,
        FAIL_JOB,
        25,
        "the run was stopped before this job started, because other jobs failed in the same way",
        "fix their common cause, then `packtrain resume`",
    ),
    "budget_exceeded": FailureKind(
        USER,
        False,
        FAIL_JOB,
        26,
        "failed attempts used up the time that the workflow allows for them",
        "`packtrain why` shows what failed; `packtrain resume` starts a new budget",
    ),
    "activation_failed": FailureKind(
        USER,
        False,
        CONFIRM_ELSEWHERE,
        27,
        "a script that activates the Pixi environment ended the shell, or did not end",
        "run `pixi shell-hook` by hand; correct the `activation` of the manifest, or the package that has the script",
    ),
    "object_missing": FailureKind(
        DATA,
        False,
        RETRY,
        30,
        "every source returned 404 until the retry timeout expired",
        "check the URL; was the object renamed?",
    ),
    "unexpected_content": FailureKind(
        DATA,
        True,
        RETRY,
        31,
        "a source returned something else than the data, such as an HTML error page",
        "open the URL in a browser; does it need a login or a token?",
    ),
    "truncated": FailureKind(
        DATA,
        True,
        RETRY,
        32,
        "the data is shorter than its declared size, or the archive is incomplete",
        "compare the size at the source; upload it again if it is truncated there too",
    ),
    "digest_mismatch": FailureKind(
        DATA,
        True,
        RETRY,
        33,
        "the data does not match its digest",
        "check the digest in the workflow against the source",
    ),
    "archive_unsafe": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        34,
        "an archive member would be written outside the folder, or is a device",
        "create the archive again with relative names",
    ),
    "archive_too_large": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        35,
        "an archive, or a file whose size the server does not announce, needs more disk space than there is",
        "raise `limits.disk`, or check the archive or file",
    ),
    "archive_broken": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        36,
        "an archive cannot be read, or has a format that packtrain does not unpack",
        "set `unpack: never`, or create the archive again",
    ),
    "service_unavailable": FailureKind(
        DATA,
        True,
        RETRY,
        37,
        "a server returned 5xx or 429, or dropped connections, until the retry timeout expired",
        "try again later, or add a mirror",
    ),
    "upload_failed": FailureKind(
        DATA,
        True,
        RETRY,
        38,
        "the outputs could not be written to their destination",
        "check the destination; the outputs are kept, and the message says where",
    ),
    "upload_refused": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        41,
        "the server of the destination does not accept the outputs (404 and other 4xx)",
        "correct the output's address; the outputs are still in the attempt's folder",
    ),
    "package_broken": FailureKind(
        DATA,
        False,
        FAIL_JOB,
        42,
        "a package of the Pixi environment is damaged or unsafe, or two packages contradict each other",
        "lock another version or build of the package, and submit again",
    ),
    "environment_unsupported": FailureKind(
        SITE,
        True,
        MOVE,
        43,
        "the node cannot run the Pixi environment: its glibc or kernel is too old, libzstd is missing, or paths are "
        "too long",
        "see the message; sites that cannot run it can run an image of it",
    ),
    "transfer_stalled": FailureKind(
        DATA,
        True,
        SWITCH_TRANSFER,
        39,
        "the pool's own transfer stalled and was aborted",
        "set `transfer: agent`: the agent resumes transfers and uses other sources",
    ),
    "transfer_refused": FailureKind(
        DATA,
        True,
        SWITCH_TRANSFER,
        40,
        "a server returned an error (404, 5xx) to the pool's own transfer",
        "check the URL; if it is right, set `transfer: agent`: the agent uses other sources",
    ),
    "disk_full": FailureKind(
        SITE,
        True,
        MORE_DISK,
        45,
        "the disk is full, or has less free space than the plan needs",
        "set `limits.disk`, or free disk space",
    ),
    "host_unknown": FailureKind(
        SITE,
        True,
        MOVE,
        46,
        "a host name does not resolve",
        "check the URL; if it is right, the DNS of the site is at fault",
    ),
    "network_unreachable": FailureKind(
        SITE, True, MOVE, 47, "no connection to any source", "check the network of the site"
    ),
    "gpu_unusable": FailureKind(
        SITE,
        True,
        MOVE,
        48,
        "the requested GPU is missing, too small, or its driver is too old",
        "see the results of the probe",
    ),
    "insufficient_memory": FailureKind(
        SITE,
        True,
        MOVE,
        49,
        "the node has less memory than the plan needs",
        "lower `memPerCpu`, or run elsewhere",
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
        "the node cannot verify a server's TLS certificate",
        "set SSL_CERT_FILE to a CA bundle that includes the server; check the node's clock",
    ),
    "transfer_failed": FailureKind(
        SITE,
        True,
        SWITCH_TRANSFER,
        54,
        "the pool could not transfer the job's files",
        "see the message; do all files of the job exist?",
    ),
    "restart_loop": FailureKind(
        SITE,
        True,
        MOVE,
        55,
        "the pool restarted the job too often without progress",
        "check where it ran; try the image by hand; exclude the site with `requirements`",
    ),
    "filesystem_unusable": FailureKind(
        SITE,
        True,
        MOVE,
        56,
        "the node's file system lacks a feature that the program needs, or does not respond (errno 38, 5, 116)",
        "none needed: packtrain tries another node; let the program write below $STORAGE_PATH",
    ),
    "too_slow": FailureKind(
        SITE,
        True,
        MOVE,
        57,
        "the attempt was a straggler and is expected to finish sooner elsewhere",
        "none needed: it resumes elsewhere from its newest checkpoint",
    ),
    "superseded": FailureKind(
        SITE,
        True,
        RETRY_NOW,
        58,
        "another attempt of the job succeeded first",
        "none needed: the job has succeeded",
    ),
    "target_busy": FailureKind(
        SITE,
        True,
        RETRY,
        59,
        "another process is downloading the same file to the same path",
        "wait for it, or choose another path",
    ),
    "terminated": FailureKind(
        POOL,
        True,
        RETRY_NOW,
        60,
        "the pool or a user terminated the attempt (SIGTERM)",
        "none needed: packtrain retries",
    ),
    "agent_lost": FailureKind(
        POOL,
        True,
        RETRY_NOW,
        61,
        "the agent disappeared without a report (killed, or the node failed)",
        "none needed: packtrain retries",
    ),
    "cancelled": FailureKind(
        POOL, False, FAIL_JOB, 62, "a user cancelled the job", "`packtrain resume` starts it again"
    ),
    "evicted": FailureKind(
        POOL, True, RETRY_NOW, 63, "the pool preempted the job or lost the node", "none needed: it is restarted"
    ),
    "held": FailureKind(
        POOL,
        False,
        FAIL_JOB,
        64,
        "the pool holds the job and states a reason",
        "fix the stated reason, then `packtrain resume`",
    ),
    "pool_time_limit": FailureKind(
        POOL,
        True,
        MOVE,
        65,
        "the job ran longer than the pool allows",
        "save checkpoints, request a longer duration category, or shorten the job",
    ),
    "lease_expired": FailureKind(
        POOL,
        True,
        RETRY_NOW,
        66,
        "the pool lost contact with the node for longer than the job lease",
        "none needed: it is restarted; `htcondor.jobLeaseDuration` in config.yaml makes the lease longer",
    ),
    "policy_hold": FailureKind(
        POOL,
        True,
        RETRY,
        67,
        "a policy of the pool holds the job",
        "read the hold reason; ask the pool's administrators",
    ),
    "no_matching_node": FailureKind(
        POOL,
        False,
        FAIL_JOB,
        68,
        "no node of the pool accepted the job within `recovery.maxQueueTime`",
        "`packtrain why` and `condor_q -better-analyze` show which requirement no node meets; request less, then "
        "`packtrain resume`",
    ),
    "internal": FailureKind(
        PACKTRAIN, True, RETRY, 70, "a bug in packtrain", "please report it together with the attempt's journal"
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
        "none needed: the other process continues",
    ),
}


@dataclass(frozen=True)
class Failure:
    """A failure as events record it and policies read it."""

    kind: str
    stage: str
    blame: str
    transient: bool
    detail: str

    @classmethod
    def from_kind(cls, kind: str, stage: str, detail: str) -> Failure:
        """Return a failure of a kind in the table."""
        row = FAILURE_KINDS[kind]
        return cls(kind, stage, row.blame, row.transient, detail)

    @classmethod
    def from_error(cls, error: BaseException, stage: str) -> Failure:
        """Return the failure for an exception; unknown exceptions are of kind `internal`."""
        if isinstance(error, FailedError):
            return cls.from_kind(error.kind, stage, error.detail)
        return cls.from_kind("internal", stage, f"{type(error).__name__}: {error}")

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Failure:
        """Return the failure recorded in an event; kinds of newer versions keep their recorded attributes."""
        return cls(*(data.get(name, "") for name in ("kind", "stage", "blame", "transient", "detail")))

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def action(self) -> str:
        """The key of ACTIONS that packtrain applies first."""
        if self.kind in FAILURE_KINDS:
            return FAILURE_KINDS[self.kind].action
        return RETRY if self.transient else FAIL_JOB

    @property
    def is_site_fault(self) -> bool:
        """Whether packtrain avoids the site for it; not if the job only requested too little memory."""
        if self.kind not in FAILURE_KINDS:
            return self.blame == SITE
        return self.action == MOVE or (self.blame == SITE and self.action in (SWITCH_TRANSFER, MORE_DISK))

    @property
    def exit_code(self) -> int:
        return FAILURE_KINDS[self.kind].exit_code if self.kind in FAILURE_KINDS else FAILURE_KINDS["internal"].exit_code
