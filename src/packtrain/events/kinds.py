"""Every kind of event, who emits it and what it carries. The names are part of the format:
a kind is never renamed or given another meaning. docs/formats/events.md is made from this table."""

from __future__ import annotations

# By the supervisor (and the command line, for requests)
RUN_CREATED = "run.created"
RUN_ENDED = "run.ended"
SUPERVISOR_STARTED = "supervisor.started"
SUPERVISOR_ENDED = "supervisor.ended"
USER_REQUESTED = "user.requested"
DECISION_MADE = "decision.made"
ATTEMPT_SUBMITTED = "attempt.submitted"
JOB_ENDED = "job.ended"
# By an engine: what it saw of an attempt from outside
ATTEMPT_GONE = "attempt.gone"
EXECUTION_STARTED = "execution.started"
EXECUTION_INTERRUPTED = "execution.interrupted"
ATTEMPT_HELD = "attempt.held"
ATTEMPT_RELEASED = "attempt.released"
ATTEMPT_TRANSFER = "attempt.transfer"
# By an agent
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
    RUN_CREATED: "a run exists; `name`, `engine`, `folder`, `jobs` (how many), `steps` and `points` for views",
    RUN_ENDED: "every job has its verdict; `succeeded`, `failed`, `cancelled`",
    SUPERVISOR_STARTED: "a supervisor holds the lease; `epoch`, `host`, `pid`",
    SUPERVISOR_ENDED: "it let go; `epoch`, `reason` (finished, interrupted, answered, error)",
    USER_REQUESTED: "a person asked; `action` (cancel), `reason`",
    DECISION_MADE: "a decision, before it is acted upon; `id`, `epoch`, `action` (submit, cancel, reopen, release, give_up, "
    "accept, move), `target`, `reason`, `requests` (those that a reopening makes void), `hold` (the seq of what is "
    "answered), "
    "`amendment` (what a submission gets otherwise than planned: `memory`, `disk`, `avoid_sites`, `avoid_nodes`, "
    "`fetch_with_agent`), `copy_of` (the decision whose attempt is late, of a second copy), `avoid_sites` and "
    "`avoid_nodes` (of a move)",
    ATTEMPT_SUBMITTED: "the engine has it; `id`, `epoch`, `native` (its own name for the attempt), `site`",
    JOB_ENDED: "the verdict; `epoch`, `verdict` (succeeded, failed, cancelled), `emitter`, `failure`, `reason`, "
    "`requests` (those it answers)",
    ATTEMPT_GONE: "the engine no longer has the attempt; `attempt`, `exit_code`, `detail`, `kind` (of failure, "
    "where the engine knows it)",
    EXECUTION_STARTED: "a pool started it; `attempt`, `start` (1, 2, …: pools start again by themselves), `host`, `site`",
    EXECUTION_INTERRUPTED: "a pool ended a start of it and has it in its queue again; `attempt`, `start` (none if it was "
    "still moving files for it), `detail`, `kind`, `emitters` (agents that spoke during that start)",
    ATTEMPT_HELD: "a pool keeps it back; `attempt`, `kind` (of failure), `action` (release, wait, give_up), `code`, "
    "`subcode`, `detail`",
    ATTEMPT_RELEASED: "it is in the queue again; `attempt`",
    ATTEMPT_TRANSFER: "a pool moves its files; `attempt`, `start` (the one that they are for: inputs are moved before "
    "it is placed), `direction` (in, out), `what` (queued, started, finished)",
    AGENT_STARTED: "an agent woke up; `attempt`, `host`, `pid`, `site`, `version`, `python`",
    AGENT_ENDED: "an agent is done; `outcome` (succeeded, failed, continue, cancelled), `exit_code`, `failure`, "
    "`outputs` (the first thousand), `output_files` (how many there are), `freed_bytes`, `seconds`; of `continue` also "
    "`step` (the training's) and `reason`",
    STAGE_STARTED: "`stage` (probe, fetch, unpack, steps, check, sync, clean)",
    STAGE_ENDED: "`stage`, `seconds`, `failure`, and what the stage counted (`bytes`, `files`, `source`, …)",
    STEP_STARTED: "`step` (its path, e.g. `train` or `sweep/2/train`), `command`",
    STEP_ENDED: "`step`, `exit_code`, `seconds`",
    PROGRESS: "`stage`, `done`, `total`, `unit`, `text`; only the newest of a stage matters",
    METRIC: "from the training program; `step`, `epoch`, `loss`, `accuracy`, … any number by name",
    CHECKPOINT_SAVED: "a generation stands complete at the destination; `generation`, `step` (the training's), "
    "`epoch`, `path`, `bytes`, `seconds` (from its notice on), `sha256` (of a single file)",
    CHECKPOINT_RESTORED: "the training goes on from it; `step`, `epoch`, `path`, `bytes`, `seconds` (to find and bring "
    "it), and whose it is: `emitter`, `generation`",
    NOTICE: "something worth knowing that is no failure; `stage`, `text`",
}
