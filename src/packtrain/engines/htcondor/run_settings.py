"""What a run on a pool was started with; kept in the run's folder, so that later attempts are submitted alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from packtrain.errors import FormatError
from packtrain.state.site_history import SiteHistory, SiteStats

_MAX_NAMED_SITES = 20  # places that a submit description names
_WARM_CACHE_RANK = 10  # percent: a site whose cache has the data already


@dataclass(frozen=True)
class SitePreferences:
    """Sites and machines with the reasons why they are avoided, and sites with what is better (or worse) there than
    usual, in percent."""

    avoid_sites: Mapping[str, str] = field(default_factory=dict)
    avoid_nodes: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_history(cls, history: SiteHistory, dataset: str) -> SitePreferences:
        """From the beginning of a run on."""
        ranks = {
            name: _site_rank(place, history.has_warm_cache(name, dataset)) for name, place in history.sites.items()
        }
        told = sorted((name for name in ranks if ranks[name]), key=lambda name: (-abs(ranks[name]), name))[
            :_MAX_NAMED_SITES
        ]
        sites, machines = list(history.avoided_sites.items()), list(history.avoided_nodes.items())
        return cls(
            dict(sites[:_MAX_NAMED_SITES]),
            dict(machines[:_MAX_NAMED_SITES]),
            {name: ranks[name] for name in sorted(told)},
        )


def _site_rank(stats: SiteStats, is_warm: bool) -> int:
    return round(100 * (stats.score - 1)) + (_WARM_CACHE_RANK if is_warm else 0)


_NO_PREFERENCES = SitePreferences()


@dataclass(frozen=True)
class RunSettings:
    project: str = ""
    duration_category: str = ""  # a category
    lease_s: int = 6 * 3600
    max_jobs: int = 5000
    max_idle: int = 1000
    max_executions: int = 10
    disk_mb: int = 4096
    submit_lines: tuple[tuple[str, str], ...] = ()  # of the person's settings, then of the workflow
    site_preferences: SitePreferences = _NO_PREFERENCES  # what earlier runs learned of places

    def get_submit_line(self, key: str) -> str:
        """What a person says of it; the last one counts, "" is nothing."""
        return next((value.strip() for name, value in reversed(self.submit_lines) if name.strip().lower() == key), "")

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> RunSettings:
        """Raises FormatError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
            lines = tuple((str(key), str(value)) for key, value in known.get("lines", ()))
            return cls(
                **{**known, "submit_lines": lines, "site_preferences": SitePreferences(**known.get("hints", {}))}
            )
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FormatError(f"the settings {path} of the run cannot be read: {error}") from None
