"""The HTCondor settings of a run, stored in its folder, so that later attempts are submitted in the same way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from packtrain.errors import FormatError
from packtrain.fileutil import atomic_write
from packtrain.state.site_history import SiteHistory, SiteStats

_MAX_NAMED_SITES = 20  # in a submit description
_WARM_CACHE_RANK = 10  # percent, for a site whose cache already has the data


@dataclass(frozen=True)
class SitePreferences:
    """What earlier runs learned about sites."""

    avoid_sites: Mapping[str, str] = field(default_factory=dict)  # reason by site
    avoid_nodes: Mapping[str, str] = field(default_factory=dict)  # reason by node
    ranks: Mapping[str, int] = field(default_factory=dict)  # percent better (or worse) than the average, by site

    @classmethod
    def from_history(cls, history: SiteHistory, dataset: str) -> SitePreferences:
        """Choose the preferences for a new run that uses `dataset`."""
        ranks = {
            name: _site_rank(stats, history.has_warm_cache(name, dataset)) for name, stats in history.sites.items()
        }
        by_importance = sorted((name for name in ranks if ranks[name]), key=lambda name: (-abs(ranks[name]), name))
        return cls(
            avoid_sites=dict(list(history.avoided_sites.items())[:_MAX_NAMED_SITES]),
            avoid_nodes=dict(list(history.avoided_nodes.items())[:_MAX_NAMED_SITES]),
            ranks={name: ranks[name] for name in sorted(by_importance[:_MAX_NAMED_SITES])},
        )


def _site_rank(stats: SiteStats, is_warm: bool) -> int:
    return round(100 * (stats.score - 1)) + (_WARM_CACHE_RANK if is_warm else 0)


_NO_PREFERENCES = SitePreferences()


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run, written to `RUN/htcondor/run_settings.json`."""

    project: str = ""  # OSPool project
    duration_category: str = ""  # of the OSPool: Medium, Long; "" chooses by the wall time
    lease_s: int = 6 * 3600
    max_jobs: int = 5000  # in the queue at once
    max_idle: int = 1000  # idle in the queue at once
    max_executions: int = 10  # of one attempt, before HTCondor holds it
    disk_mb: int = 4096
    submit_lines: tuple[tuple[str, str], ...] = ()  # of the user's config file, then of the workflow
    site_preferences: SitePreferences = _NO_PREFERENCES

    def get_submit_line(self, key: str) -> str:
        """Return the user's value of a submit command: the last one, or "" if there is none."""
        return next((value.strip() for name, value in reversed(self.submit_lines) if name.strip().lower() == key), "")

    def write(self, path: Path) -> None:
        """Write the settings as JSON."""
        atomic_write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunSettings:
        """Read settings that `write` wrote. Raises FormatError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            values = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            lines = tuple((str(key), str(value)) for key, value in values.get("submit_lines", ()))
            preferences = SitePreferences(**values.get("site_preferences", {}))
            return cls(**{**values, "submit_lines": lines, "site_preferences": preferences})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FormatError(f"the run settings {path} cannot be read: {error}") from None
