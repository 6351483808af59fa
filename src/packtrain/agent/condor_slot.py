"""What HTCondor tells a job of the slot that it runs in: two ads, in files that the environment names."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packtrain.agent.sandbox import CARRIED
from packtrain.condor.classads import Ad, find, read_old

_JOB_AD, _MACHINE_AD = "_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD"
_SITES = ("GLIDEIN_ResourceName", "GLIDEIN_Site", "Machine", "Name")
# Of the Open Science Pool: what is executing for longer is held.
_CATEGORIES = {"medium": 20 * 3600.0, "long": 40 * 3600.0}
_GRACE_SHARE = 0.4  # of the time to vacate: the steps have the grace period, and all copying has it once more
_SHORTEST_GRACE_S = 1.0


class Slot:
    """Ads that are not there, or cannot be read, say nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._job, self._machine = _read(environ.get(_JOB_AD)), _read(environ.get(_MACHINE_AD))

    @property
    def site(self) -> str:
        found = (find(self._machine, name) for name in _SITES)
        return next((name for name in found if isinstance(name, str) and name), os.uname().nodename)

    def deadline(self) -> float | None:
        """When the pool ends the job, in seconds since 1970. HTCondor counts from the start of the job's program, and
        anew after each checkpoint that it carried away: from now."""
        category = str(find(self._job, "JobDurationCategory") or "").lower()
        allowed = [_CATEGORIES.get(category), _seconds(find(self._job, "AllowedExecuteDuration"))]
        return min((time.time() + limit for limit in allowed if limit is not None), default=None)

    @property
    def carries_checkpoints(self) -> bool:
        """Whether it brings the folder `checkpoint` to where the job is started next."""
        named = str(find(self._job, "TransferCheckpoint") or "").split(",")
        return CARRIED in {name.strip().rstrip("/") for name in named}

    def grace_s(self, wanted: float) -> float:
        """The job's own grace period, or what the slot's time between TERM and KILL leaves of it."""
        vacate = [_seconds(find(self._job, "JobMaxVacateTime")), _seconds(find(self._machine, "MachineMaxVacateTime"))]
        given = min((limit for limit in vacate if limit is not None), default=math.inf)
        return min(wanted, max(_SHORTEST_GRACE_S, _GRACE_SHARE * given))


def _read(path: str | None) -> Ad:
    try:
        return read_old(Path(path).read_text(encoding="utf-8", errors="replace")) if path else {}
    except OSError:
        return {}


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value > 0 else None
