"""The HTCondor slot that the agent runs in, read from the ClassAd files that the environment names."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packtrain.condor.classads import ClassAd, get_attribute, parse_old_classad
from packtrain.plan.run_folder import CHECKPOINT_FOLDER

_JOB_AD_VARIABLE, _MACHINE_AD_VARIABLE = "_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD"
_SITE_ATTRIBUTES = ("GLIDEIN_ResourceName", "GLIDEIN_Site", "Machine", "Name")
# The Open Science Pool holds jobs that execute for longer than their category allows.
_DURATION_CATEGORIES_S = {"medium": 20 * 3600.0, "long": 40 * 3600.0}
_GRACE_VACATE_SHARE = 0.4  # of the vacate time: the steps get the grace period, and the upload of outputs gets it again
_MIN_GRACE_S = 1.0


class CondorSlot:
    """The job's and the machine's ClassAd. A missing or unreadable ad counts as empty."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._job_ad = _read_ad(environ.get(_JOB_AD_VARIABLE))
        self._machine_ad = _read_ad(environ.get(_MACHINE_AD_VARIABLE))

    @property
    def site(self) -> str:
        values = (get_attribute(self._machine_ad, name) for name in _SITE_ATTRIBUTES)
        return next((value for value in values if isinstance(value, str) and value), os.uname().nodename)

    def deadline_at(self) -> float | None:
        """Return when the pool ends the job, in seconds since 1970.

        HTCondor counts from the start of the job's program and restarts the count after each checkpoint transfer, so
        the limit counts from now.
        """
        category = str(get_attribute(self._job_ad, "JobDurationCategory") or "").lower()
        limits_s = [
            _DURATION_CATEGORIES_S.get(category),
            _positive_seconds(get_attribute(self._job_ad, "AllowedExecuteDuration")),
        ]
        return min((time.time() + limit_s for limit_s in limits_s if limit_s is not None), default=None)

    @property
    def transfers_checkpoints(self) -> bool:
        """HTCondor moves the folder `checkpoint` to the next execution of the job."""
        names = str(get_attribute(self._job_ad, "TransferCheckpoint") or "").split(",")
        return CHECKPOINT_FOLDER in {name.strip().rstrip("/") for name in names}

    def grace_s(self, requested_s: float) -> float:
        """Return the job's grace period, shortened if the slot allows less time between SIGTERM and SIGKILL."""
        vacate_times_s = [
            _positive_seconds(get_attribute(self._job_ad, "JobMaxVacateTime")),
            _positive_seconds(get_attribute(self._machine_ad, "MachineMaxVacateTime")),
        ]
        vacate_s = min((limit_s for limit_s in vacate_times_s if limit_s is not None), default=math.inf)
        return min(requested_s, max(_MIN_GRACE_S, _GRACE_VACATE_SHARE * vacate_s))


def _read_ad(path: str | None) -> ClassAd:
    try:
        return parse_old_classad(Path(path).read_text(encoding="utf-8", errors="replace")) if path else {}
    except OSError:
        return {}


def _positive_seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value > 0 else None
