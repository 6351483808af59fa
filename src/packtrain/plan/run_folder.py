"""Who owns every path: the run's folder on the submit side, an attempt's folder on either side.

.packtrain/runs/RUN/
  plan.json  agent.pyz  launch.sh  supervisor.log
  notify.json                       0600: whom to tell of the end, and of which end that was told
  training.png                      loss and metric of its jobs, once it is finished
  htcondor/                         of a run on HTCondor: settings.json, DECISION.sub and .items (what was submitted,
                                    named by its first attempt), event.log, empty/ (what every job starts with),
                                    native/ (inputs that the access point sends)
  indexes/                          of inputs with `mode: stream`
  secrets/NAME                      0700, files 0600; gone when the run ends
  jobs/JOB/
    plan.json                       the plan with this job only: what its agents read
    kept/                           inputs of an attempt that left (exit code 85), for the next one
    output/                         where outputs go when the workflow names no other place
    attempts/DECISION/
      plan.json                     only of an attempt whose data come another way than planned
      claim                         made once, locked while an agent or its guard lives
      journal.jsonl  agent.log      agent.out: what the launcher and the agent printed, in a pool
      logs/STEP.out  logs/STEP.err
      output/                       what an attempt brought home: no other destination, or not reached
      checkpoint/                   where the pool itself carries checkpoints
      sandbox/                      removed when the attempt is over
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKTRAIN_FOLDER = ".packtrain"


@dataclass(frozen=True)
class AttemptFolder:
    root: Path

    @property
    def claim(self) -> Path:
        return self.root / "claim"

    @property
    def plan(self) -> Path:
        """What its agent reads, if that is not what the job's other agents read."""
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
        return self.root / "checkpoint"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def output(self) -> Path:
        """Outputs that have no other destination, or did not get there."""
        return self.root / "output"

    def output_listing(self, emitter: str) -> Path:
        """The names of many outputs, one JSON object a line; fewer are in the agent's last event."""
        return self.output / ".packtrain" / emitter / "outputs.jsonl"

    @property
    def sandbox(self) -> Path:
        return self.root / "sandbox"


@dataclass(frozen=True)
class RunFolder:
    root: Path

    @classmethod
    def for_run(cls, base_dir: Path, run: str) -> RunFolder:
        """The folder of a run that is started in the folder `where`."""
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
        """Where the secrets came from, without their values."""
        return self.root / "secrets.json"

    @property
    def indexes(self) -> Path:
        return self.root / "indexes"

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

    def job_reusable_inputs(self, job: str) -> Path:
        return self.job_folder(job) / "reusable-inputs"

    def attempt_folder(self, job: str, attempt_id: str) -> AttemptFolder:
        return AttemptFolder(self.job_folder(job) / "attempts" / attempt_id)
