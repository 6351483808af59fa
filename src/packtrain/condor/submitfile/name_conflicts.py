"""Files of one job that would have the same name. Every job is looked at: names may be made of what differs."""

from __future__ import annotations

from collections.abc import Sequence


class Landings:
    """Names that are taken: by all jobs alike, or by single ones."""

    def __init__(self) -> None:
        self._of_all: dict[str, str] = {}
        self._of_one: dict[tuple[int, str], str] = {}
        self._of_some: dict[str, str] = {}

    def take(self, file: str, names: Sequence[str]) -> str | None:
        """The earlier file whose name this one has, in at least one job. `names`: one for each job."""
        if len(set(names)) == 1:
            before = self._of_all.get(names[0]) or self._of_some.get(names[0])
            self._of_all.setdefault(names[0], file)
            return before
        places = list(enumerate(names))
        found = (self._of_one.get(place) or self._of_all.get(place[1]) for place in places)
        before = next((one for one in found if one), None)
        self._of_one.update(dict.fromkeys(places, file))
        self._of_some.update(dict.fromkeys(names, file))
        return before
