"""Every kind of event, who emits it and its data. docs/formats/events.md is generated from this table.

The names are part of the format: a kind is never renamed and never changes its meaning.
"""

from __future__ import annotations

# Emitted by the supervisor (user.requested: by the command line)
RUN_CREATED = "run.created"
RUN_ENDED = "run.ended"
SUPERVISOR_STARTED = "supervisor.started"
SUPERVISOR_ENDED = "supervisor.ended"
USER_REQUESTED = "user.requested"
DECISION_MADE = "decision.made"
ATTEMPT_SUBMITTED = "attempt.submitted"
JOB_ENDED = "job.ended"
# Emitted by the collector for an engine: what the engine observed of an attempt
ATTEMPT_GONE = "attempt.gone"
EXECUTION_STARTED = "execution.started"
EXECUTION_INTERRUPTED = "execution.interrupted"
ATTEMPT_HELD = "attempt.held"
ATTEMPT_RELEASED = "attempt.released"
ATTEMPT_TRANSFER = "attempt.transfer"
# Emitted by an agent
AGENT_STARTED = "agent.started"
AGENT_ENDED = "agent.ended"
STAGE_STARTED = "stage.started"
STAGE_ENDED = "stage.ended"
STEP_STARTED = "step.started"
STEP_ENDED = "step.ended"
PROGRESS = "progress"
METRIC = "metric"
CHECKPOINT_SAVED = "checkpoint.saved"
CHECKPOINT_RESTORED = "checkpoint.restored"
NOTICE = "notice"

EVENT_KINDS: dict[str, str] = {
    RUN_CREATED: "the run exists; `name`, `engine`, `folder`, `jobs` (how many), and for views `steps` and `points`",
    RUN_ENDED: "every job has its result; `succeeded`, `failed`, `cancelled` (numbers of jobs)",
    SUPERVISOR_STARTED: "a supervisor holds the lease; `epoch`, `host`, `pid`",
    SUPERVISOR_ENDED: "the supervisor released the lease; `epoch`, `reason` (finished, interrupted, requests_handled, "
    "handed_over, error)",
    USER_REQUESTED: "a user made a request; `action` (cancel), `reason`",
    DECISION_MADE: "a decision, stored before it is carried out; `attempt`, `epoch`, `action` (submit, cancel, reopen, "
    "release, give_up, accept, move), `reason`, `requests` (those that a reopening cancels), `hold` (the seq of the "
    "hold that is answered), `overrides` (resources and sites that differ from the plan: `memory_factor`, "
    "`disk_factor`, `avoid_sites`, `avoid_nodes`, `fetch_with_agent`), `copy_of` (the straggling attempt that this one "
    "copies), `avoid_sites` and `avoid_nodes` (of a move), `emitter` (the agent whose outputs are accepted)",
    ATTEMPT_SUBMITTED: "the engine accepted the attempt; `attempt`, `epoch`, `native_id` (the engine's own job id), "
    "`site`",
    JOB_ENDED: "the result of the job; `epoch`, `result` (succeeded, failed, cancelled), `emitter`, `failure`, "
    "`reason`, `requests` (those that it answers), `published` (where an http server has the outputs: `url`, `bytes`, "
    "`answer`)",
    ATTEMPT_GONE: "the engine no longer has the attempt; `attempt`, `exit_code`, `detail`, `kind` (of failure, "
    "if the engine knows it)",
    EXECUTION_STARTED: "the pool started an execution; `attempt`, `execution` (1, 2, …: pools restart jobs on their "
    "own), "
    "`host`, `site`",
    EXECUTION_INTERRUPTED: "the pool ended an execution and queued the attempt again; `attempt`, `execution` (missing "
    "if "
    "the pool was still transferring its inputs), `detail`, `kind` (of failure), `emitters` (agents that reported "
    "during the execution)",
    ATTEMPT_HELD: "the pool holds the attempt; `attempt`, `kind` (of failure), `action` (release, wait, give_up), "
    "`code`, "
    "`subcode`, `detail`",
    ATTEMPT_RELEASED: "the attempt is in the queue again; `attempt`",
    ATTEMPT_TRANSFER: "the pool transfers files of the attempt; `attempt`, `execution` (inputs are transferred before "
    "it starts), `direction` (in, out), `phase` (queued, started, finished)",
    AGENT_STARTED: "an agent started; `attempt`, `host`, `pid`, `site`, `version`, `python`",
    AGENT_ENDED: "an agent ended; `outcome` (succeeded, failed, requeued, cancelled), `exit_code`, `failure`, "
    "`outputs` (the first thousand), `n_outputs` (how many there are), `freed_bytes`, `seconds`; if requeued also "
    "`step` (the training step) and `reason`",
    STAGE_STARTED: "a stage started; `stage` (probe, fetch, unpack, install, steps, check, sync, clean)",
    STAGE_ENDED: "a stage ended; `stage`, `seconds`, `failure`, and what the stage counted (`bytes`, `files`, "
    "`source`, …)",
    STEP_STARTED: "a step started; `step` (its path, e.g. `train` or `sweep/2/train`), `command`",
    STEP_ENDED: "a step ended; `step`, `exit_code`, `seconds`",
    PROGRESS: "progress of a stage; `stage`, `done`, `total`, `unit`, `text`; only the newest of a stage matters",
    METRIC: "metrics logged by the training program; `step`, `epoch`, `loss`, `accuracy`, … any number by name",
    CHECKPOINT_SAVED: "a checkpoint generation is complete at its destination; `generation`, `step` (the training "
    "step), "
    "`epoch`, `path`, `bytes`, `seconds` (since it was detected), `sha256` (of a single file)",
    CHECKPOINT_RESTORED: "the training resumes from a checkpoint; `step`, `epoch`, `path`, `bytes`, `seconds` (to find "
    "and download it), `emitter` and `generation` (who saved it)",
    NOTICE: "information that is not a failure; `stage`, `text`",
}
