"""What HTCondor tells a job of the slot that it runs in: two ads, in files that the environment names."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packtrain.agent.sandbox import TRANSFERRED_CHECKPOINT
from packtrain.condor.classads import ClassAd, get_attribute, parse_old_classad

_JOB_AD_VARIABLE, _MACHINE_AD_VARIABLE = "_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD"
_SITE_ATTRIBUTES = ("GLIDEIN_ResourceName", "GLIDEIN_Site", "Machine", "Name")
# Of the Open Science Pool: what is executing for longer is held.
_DURATION_CATEGORIES_S = {"medium": 20 * 3600.0, "long": 40 * 3600.0}
_GRACE_VACATE_SHARE = 0.4  # of the time to vacate: the steps have the grace period, and all copying has it once more
_MIN_GRACE_S = 1.0


class CondorSlot:
    """Ads that are not there, or cannot be read, say nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._job_ad, self._machine_ad = (
            _read_ad(environ.get(_JOB_AD_VARIABLE)),
            _read_ad(environ.get(_MACHINE_AD_VARIABLE)),
        )

    @property
    def site(self) -> str:
        found = (get_attribute(self._machine_ad, name) for name in _SITE_ATTRIBUTES)
        return next((name for name in found if isinstance(name, str) and name), os.uname().nodename)

    def deadline_at(self) -> float | None:
        """When the pool ends the job, in seconds since 1970. HTCondor counts from the start of the job's program, and
        anew after each checkpoint that it carried away: from now."""
        category = str(get_attribute(self._job_ad, "JobDurationCategory") or "").lower()
        allowed = [
            _DURATION_CATEGORIES_S.get(category),
            _positive_seconds(get_attribute(self._job_ad, "AllowedExecuteDuration")),
        ]
        return min((time.time() + limit for limit in allowed if limit is not None), default=None)

    @property
    def transfers_checkpoints(self) -> bool:
        """Whether it brings the folder `checkpoint` to where the job is started next."""
        named = str(get_attribute(self._job_ad, "TransferCheckpoint") or "").split(",")
        return TRANSFERRED_CHECKPOINT in {name.strip().rstrip("/") for name in named}

    def grace_s(self, requested_s: float) -> float:
        """The job's own grace period, or what the slot's time between TERM and KILL leaves of it."""
        vacate = [
            _positive_seconds(get_attribute(self._job_ad, "JobMaxVacateTime")),
            _positive_seconds(get_attribute(self._machine_ad, "MachineMaxVacateTime")),
        ]
        given = min((limit for limit in vacate if limit is not None), default=math.inf)
        return min(requested_s, max(_MIN_GRACE_S, _GRACE_VACATE_SHARE * given))


def _read_ad(path: str | None) -> ClassAd:
    try:
        return parse_old_classad(Path(path).read_text(encoding="utf-8", errors="replace")) if path else {}
    except OSError:
        return {}


def _positive_seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value > 0 else None
