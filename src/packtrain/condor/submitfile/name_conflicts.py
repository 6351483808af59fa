"""Files of one job that would have the same name. Every job is looked at: names may be made of what differs."""

from __future__ import annotations

from collections.abc import Sequence


class TargetNames:
    """Names that are taken: by all jobs alike, or by single ones."""

    def __init__(self) -> None:
        self._in_all_jobs: dict[str, str] = {}
        self._in_one_job: dict[tuple[int, str], str] = {}
        self._in_some_jobs: dict[str, str] = {}

    def add(self, file: str, names: Sequence[str]) -> str | None:
        """The earlier file whose name this one has, in at least one job. `names`: one for each job."""
        if len(set(names)) == 1:
            before = self._in_all_jobs.get(names[0]) or self._in_some_jobs.get(names[0])
            self._in_all_jobs.setdefault(names[0], file)
            return before
        places = list(enumerate(names))
        found = (self._in_one_job.get(place) or self._in_all_jobs.get(place[1]) for place in places)
        before = next((one for one in found if one), None)
        self._in_one_job.update(dict.fromkeys(places, file))
        self._in_some_jobs.update(dict.fromkeys(names, file))
        return before
