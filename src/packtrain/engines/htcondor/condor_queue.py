"""What only the queue knows: submissions that the log has not told of yet, how far running jobs are, and jobs that
left without a word in the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packtrain.engines.api import Sighting
from packtrain.engines.htcondor.condor_client import Client, UnreachableError
from packtrain.engines.htcondor.job_tracker import Known
from packtrain.errors import RefusedError

_RUNNING = 2
_IDS = ("ClusterId", "ProcId", "PacktrainDecision")
_WORDS = {
    "stage": "PacktrainStage",
    "done": "PacktrainDone",
    "total": "PacktrainTotal",
    "epoch": "PacktrainEpoch",
    "step": "PacktrainStep",
    "loss": "PacktrainLoss",
    "metric": "PacktrainMetric",
    "tail": "PacktrainTail",
    "seen": "PacktrainSeen",
}
_JSON = ("metric", "tail")
_ENDED = "ended"  # no stage, but what an agent says of itself before the pool has brought its outputs home
_DELAYED = "Chirp"  # the prefix of attributes where a pool allows delayed updates only
_LEAST_S, _JOBS_PER_S = 2.0, 100.0
_VANISHED_S = 30.0
End = tuple[str, int | None, str]  # detail, exit code, kind


class Queue:
    def __init__(self, run: str, jobs: int, client: Client) -> None:
        self._run, self._client = run, client
        self._mine = f'PacktrainRun == "{run}" && PacktrainDecision =!= undefined'
        self._every_s = max(_LEAST_S, jobs / _JOBS_PER_S)
        self._next_glimpse = self._next_count = 0.0
        self._glimpsed: dict[str, Mapping[str, Any]] = {}
        self._missing: set[str] = set()

    def clusters(self) -> list[tuple[int, str]]:
        """Each cluster with the decision of its first item. Raises UnreachableError."""
        ads = self._client.query(self._mine, _IDS, clusters=True)
        first = {(ad["ClusterId"]): ad["PacktrainDecision"] for ad in ads if ad.get("ProcId", -1) in (-1, 0)}
        return sorted(first.items())

    def glimpses(self, alive: Sequence[Known]) -> list[Sighting]:
        """One question for the whole run, every few seconds; only what is new."""
        now = time.monotonic()
        running = {one.decision: one for one in alive if one.running}
        if not running or now < self._next_glimpse:
            return []
        self._next_glimpse = now + self._every_s
        names = [name for word in _WORDS.values() for name in (word, _DELAYED + word)]
        ads = self._query(f"{self._mine} && JobStatus == {_RUNNING}", [*_IDS, *names])
        return list(self._new_words(ads, running))

    def _new_words(self, ads: Sequence[Mapping[str, Any]], running: Mapping[str, Known]) -> Iterator[Sighting]:
        for ad in ads:
            one = running.get(str(ad.get("PacktrainDecision")))
            words = _words(ad)
            if one and words and self._glimpsed.get(one.decision) != words:
                self._glimpsed[one.decision] = words
                glimpse = {"decision": one.decision, **words}
                yield Sighting(one.decision, one.job, "running", one.name, one.site, glimpse=glimpse)

    def vanished(self, alive: Sequence[Known]) -> list[tuple[Known, End]]:
        """Those that are not in the queue twice in a row, though the log says nothing of their end."""
        now = time.monotonic()
        made = [one for one in alive if one.materialized]
        if not made or now < self._next_count:
            return []
        self._next_count = now + max(_VANISHED_S, self._every_s)
        try:
            there = {str(ad.get("PacktrainDecision")) for ad in self._client.query(self._mine, _IDS)}
        except RefusedError:
            return []
        missing = {one.decision for one in made} - there
        lost = [one for one in made if one.decision in missing & self._missing]
        self._missing = missing
        return [(one, self._last_words(one)) for one in lost]

    def _last_words(self, one: Known) -> End:
        cluster, proc = one.native
        found = self._history(f"ClusterId == {cluster} && ProcId == {proc}")
        if not found:
            return "it vanished from the queue without a word in its log", None, ""
        code, reason = found[0].get("ExitCode"), found[0].get("RemoveReason")
        kind = "cancelled" if found[0].get("JobStatus") == 3 else ""
        return str(reason or f"the agent ended with exit code {code}"), code, kind

    def _history(self, constraint: str) -> list[dict[str, Any]]:
        try:
            return self._client.history(constraint, ("ExitCode", "RemoveReason", "JobStatus"), 1)
        except RefusedError:
            return []

    def _query(self, constraint: str, projection: Sequence[str]) -> list[dict[str, Any]]:
        """How far jobs are is nice to know, no more."""
        try:
            return self._client.query(constraint, projection)
        except UnreachableError:
            return []


def _words(ad: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, attribute in _WORDS.items():
        value = ad.get(attribute, ad.get(_DELAYED + attribute))
        if name in _JSON and isinstance(value, str):
            value = _from_json(value)
        if value is not None:
            found[name] = value
    if found.get("stage") == _ENDED:
        del found["stage"]
    return found


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
