"""The paths of a run: its folder on the submit side, and an attempt's folder on either side.

.packtrain/runs/RUN/
  plan.json  agent.pyz  launch.sh  supervisor.log
  notify.json                       0600: whom to notify when the run ends, and which end was notified
  secret-sources.json               where the secrets come from, without their values
  training.png                      loss and metrics of the jobs, written when the run has finished
  htcondor/                         runs on HTCondor only: run_settings.json, ATTEMPT.sub and .items (what was
                                    submitted, named by its first attempt), event.log, skeleton/ (empty copies of all
                                    outputs), inputs/ (inputs that the access point sends)
  slurm/                            runs on Slurm only: run_settings.json, NAME.sh and NAME.json (what was submitted,
                                    by job name), status.jsonl (what Slurm reported)
  indexes/                          indexes of inputs with `mode: stream`
  environments/                     workspace.tar.gz: the files of the Pixi workspace
    pixi-NAME/                      environment.json: the locked packages; local wheels
  snapshots/N/NAME                  copies of inputs with `snapshot: true`
  secrets/NAME                      0700, files 0600; removed when the run ends
  jobs/JOB/
    plan.json                       the plan with this job only, for its agents
    reusable-inputs/                inputs of an execution that exited with code 85, for the next one
    output/                         the outputs, if the workflow names no other destination
    published.json                  what was published, written once that is complete
    shown-outputs.jsonl             names that showed intermediate outputs at the destination
    attempts/ATTEMPT/
      plan.json                     only for an attempt with overrides
      claim                         created once, locked while an agent or its guard is alive
      journal.jsonl  agent.log      agent.out: what the launcher and the agent printed, in a pool
      logs/STEP.out  logs/STEP.err
      output/                       outputs without another destination, or that did not reach it
      checkpoint/                   checkpoints that the pool itself transfers
      sandbox/                      removed when the execution ends
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKTRAIN_FOLDER = ".packtrain"
CHECKPOINT_FOLDER = "checkpoint"  # HTCondor moves it from one execution of an attempt to the next
ENVIRONMENT_FILE = "environment.json"  # in the folder of a Pixi environment


@dataclass(frozen=True)
class AttemptFolder:
    """The paths of one attempt."""

    root: Path

    @property
    def claim(self) -> Path:
        return self.root / "claim"

    def execution_claim(self, execution: int) -> Path:
        """The claim of one execution, for engines that restart attempts in the same folder."""
        return self.claim if execution == 1 else self.root / f"claim-{execution}"

    @property
    def plan(self) -> Path:
        """The plan of an attempt with overrides."""
        return self.root / "plan.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def agent_log(self) -> Path:
        return self.root / "agent.log"

    @property
    def agent_out(self) -> Path:
        return self.root / "agent.out"

    @property
    def checkpoint(self) -> Path:
        """Checkpoints of a job without a checkpoint store, if the engine transfers the folder."""
        return self.root / CHECKPOINT_FOLDER

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def output(self) -> Path:
        """Outputs that have no other destination, or did not reach it."""
        return self.root / "output"

    def output_listing(self, emitter: str) -> Path:
        """The full list of outputs as JSON lines; short lists are in the agent's last event."""
        return self.output / ".packtrain" / emitter / "outputs.jsonl"

    @property
    def sandbox(self) -> Path:
        return self.root / "sandbox"


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    root: Path

    @classmethod
    def for_run(cls, base_dir: Path, run: str) -> RunFolder:
        """Return the folder of a run that is started in `base_dir`."""
        return cls(base_dir / PACKTRAIN_FOLDER / "runs" / run)

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def agent(self) -> Path:
        return self.root / "agent.pyz"

    @property
    def launcher(self) -> Path:
        return self.root / "launch.sh"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def secret_sources(self) -> Path:
        """Where the secrets come from, without their values."""
        return self.root / "secret-sources.json"

    @property
    def indexes(self) -> Path:
        return self.root / "indexes"

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    @property
    def workspace_archive(self) -> Path:
        return self.environments / "workspace.tar.gz"

    def pixi_environment(self, name: str) -> Path:
        """The folder of a Pixi environment, which is sent to workers under the same name."""
        return self.environments / f"pixi-{name}"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def notify(self) -> Path:
        return self.root / "notify.json"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def htcondor(self) -> Path:
        return self.root / "htcondor"

    @property
    def slurm(self) -> Path:
        return self.root / "slurm"

    @property
    def training_chart(self) -> Path:
        return self.root / "training.png"

    @property
    def report(self) -> Path:
        return self.root / "report"

    def job_folder(self, job: str) -> Path:
        return self.root / "jobs" / job

    def job_plan(self, job: str) -> Path:
        return self.job_folder(job) / "plan.json"

    def job_output(self, job: str) -> Path:
        return self.job_folder(job) / "output"

    def publication(self, job: str) -> Path:
        """What was published, once that is complete."""
        return self.job_folder(job) / "published.json"

    def shown_outputs(self, job: str) -> Path:
        """Names at the destination that showed intermediate outputs, as JSON lines."""
        return self.job_folder(job) / "shown-outputs.jsonl"

    def job_reusable_inputs(self, job: str) -> Path:
        return self.job_folder(job) / "reusable-inputs"

    def attempt_folder(self, job: str, attempt_id: str) -> AttemptFolder:
        return AttemptFolder(self.job_folder(job) / "attempts" / attempt_id)
