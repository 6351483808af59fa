"""What a run on a pool was started with; kept in the run's folder, so that later attempts are submitted alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from packtrain.errors import FormatError
from packtrain.state.site_history import Knowledge, Standing

_MOST = 20  # places that a submit description names
_WARM = 10  # percent: a site whose cache has the data already


@dataclass(frozen=True)
class Hints:
    """Sites and machines with the reasons why they are avoided, and sites with what is better (or worse) there than
    usual, in percent."""

    avoid_sites: Mapping[str, str] = field(default_factory=dict)
    avoid_machines: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Knowledge, dataset: str) -> Hints:
        """From the beginning of a run on."""
        ranks = {name: _rank(place, known.is_warm(name, dataset)) for name, place in known.sites.items()}
        told = sorted((name for name in ranks if ranks[name]), key=lambda name: (-abs(ranks[name]), name))[:_MOST]
        sites, machines = list(known.avoided_sites.items()), list(known.avoided_machines.items())
        return cls(dict(sites[:_MOST]), dict(machines[:_MOST]), {name: ranks[name] for name in sorted(told)})


def _rank(place: Standing, warm: bool) -> int:
    return round(100 * (place.score - 1)) + (_WARM if warm else 0)


_NO_HINTS = Hints()


@dataclass(frozen=True)
class RunSettings:
    project: str = ""
    duration: str = ""  # a category
    lease_s: int = 6 * 3600
    max_jobs: int = 5000
    max_idle: int = 1000
    starts: int = 10
    disk_mb: int = 4096
    lines: tuple[tuple[str, str], ...] = ()  # of the person's settings, then of the workflow
    hints: Hints = _NO_HINTS  # what earlier runs learned of places

    def line(self, key: str) -> str:
        """What a person says of it; the last one counts, "" is nothing."""
        return next((value.strip() for name, value in reversed(self.lines) if name.strip().lower() == key), "")

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> RunSettings:
        """Raises FormatError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
            lines = tuple((str(key), str(value)) for key, value in known.get("lines", ()))
            return cls(**{**known, "lines": lines, "hints": Hints(**known.get("hints", {}))})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FormatError(f"the settings {path} of the run cannot be read: {error}") from None
