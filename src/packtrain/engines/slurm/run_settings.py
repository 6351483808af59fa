"""The Slurm settings of a run, stored in its folder, so that later attempts are submitted in the same way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from packtrain.errors import FormatError
from packtrain.fileutil import atomic_write
from packtrain.plan import Plan

SETTINGS_FILE = "run_settings.json"


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run, written to `RUN/slurm/run_settings.json`.

    Attributes:
        options: sbatch options of the user's settings, then of the workflow; later ones win.
        constraint: Selects nodes whose GPUs meet the workflow's requirements; "" for any node.
        gpu_option: `gpus-per-node`, or `gres` for clusters without select/cons_tres.
        requests_memory: False where the site refuses memory options.
        may_requeue: Slurm may restart jobs.
        scratch: Folder for sandboxes; environment variables are expanded on the node.
        cache: Download cache on a shared disk, "" for none.
        cache_limit_bytes: Maximum size of that cache; 0 for the default.
        disk_mb: Disk space that each job needs on its node; 0 if unknown.
        kill_wait_s: Time between Slurm's SIGTERM and SIGKILL (KillWait); 0 if unknown.
        has_accounting: sacct can answer.
        max_array_tasks: Maximum number of tasks of an array; 0 if unknown.
        avoid_nodes: Nodes that failed in earlier runs, with the reasons.
        query_interval_s: Minimum time between two queries of the queue.
    """

    options: tuple[tuple[str, str], ...] = ()
    constraint: str = ""
    gpu_option: str = "gpus-per-node"
    requests_memory: bool = True
    may_requeue: bool = True
    scratch: str = "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
    cache: str = ""
    cache_limit_bytes: int = 0
    disk_mb: int = 0
    kill_wait_s: int = 0
    has_accounting: bool = False
    max_array_tasks: int = 0
    avoid_nodes: Mapping[str, str] = field(default_factory=dict)
    query_interval_s: float = 10.0

    def write(self, path: Path) -> None:
        """Write the settings as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunSettings:
        """Read settings that `write` wrote. Raises FormatError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            values = {f.name: data[f.name] for f in fields(cls) if f.name in data}
            options = tuple((str(key), str(value)) for key, value in values.get("options", ()))
            return cls(**{**values, "options": options})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise FormatError(f"the run settings {path} cannot be read: {error}") from None

    @classmethod
    def for_plan(cls, plan: Plan) -> RunSettings:
        """Return the settings of a run that only has the options of its workflow."""
        return cls(options=tuple((option.key, str(option.value)) for option in plan.slurm))
