"""The engine of an HTCondor pool. What was submitted is known by three things that outlive this process: the saved
submit descriptions, the run's user log, and the queue itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain.engines.api import Amendment, Capabilities, Sighting, Ticket
from packtrain.engines.htcondor import output_retrieval, shell_runner
from packtrain.engines.htcondor.condor_client import Client, UnreachableError
from packtrain.engines.htcondor.condor_queue import Queue
from packtrain.engines.htcondor.input_transfer import for_worker, parcels, transfer_list
from packtrain.engines.htcondor.job_tracker import REMOVED, Items, Known, Tracker, waiting
from packtrain.engines.htcondor.log_reader import LogReader
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.submit_description import Batch, carries_checkpoints, items_text, render
from packtrain.errors import FailedError
from packtrain.plan import Plan, RunFolder, write_plan

CAPABILITIES = Capabilities(
    name="htcondor",
    containers=True,
    cpus=1 << 20,
    memory_mb=1 << 40,
    gpus=1 << 20,
    shares_folder=False,
    pause_s=1.0,
    many_sites=True,
)
_LOOK_S = 0.1  # how often the log's size is looked at while waiting
_LEAST_WAIT_S = 0.25  # news of a thousand jobs come all the time; they are read together
_TRY_AGAIN_S = 5.0

Act = Callable[[Sequence[str], str], None]


class HtcondorEngine:
    def __init__(self, plan: Plan, folder: RunFolder, client: Client | None = None) -> None:
        self.capabilities = CAPABILITIES
        self._plan, self._folder = plan, folder
        self._jobs = {job.id: job for job in plan.jobs}
        self._client = client or Client()
        self._reader = LogReader(folder.htcondor / "user.log")
        self._tracker = Tracker(self._items, self._is_home)
        self._queue = Queue(plan.run, len(plan.jobs), self._client)
        self._followed: set[str] = set()
        self._unsent: dict[str, Ticket] = {}
        self._errands: list[tuple[Act, Sequence[str], str]] = []
        self._try_again = 0.0
        self._put_off: dict[str, str] = {}  # why what was asked for is not in the queue yet, as it was told
        self._unwanted: set[str] = set()  # items of clusters, removed when they appear
        self._news: list[Sighting] = []

    # What the supervisor asks for

    def submit(self, tickets: Sequence[Ticket]) -> Mapping[str, str]:
        self._news += self._read()
        self._unsent.update({t.decision: t for t in tickets if t.decision not in self._tracker.by_decision})
        self._followed.update(t.decision for t in tickets if not self._is_over(t.decision))
        self._send()
        known = self._tracker.by_decision
        return {t.decision: known[t.decision].name for t in tickets if t.decision in known}

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        self._news += self._read()
        if any(ticket.decision not in self._tracker.by_decision for ticket in tickets):
            self._find_in_queue()
        known = [self._tracker.by_decision[t.decision] for t in tickets if t.decision in self._tracker.by_decision]
        told = {one.decision for one in known}
        self._news = [sighting for sighting in self._news if sighting.decision not in told]
        self._followed.update(one.decision for one in known if not one.gone)
        self._unwanted |= {one.decision for one in self._tracker.by_decision.values() if not (one.gone or one.starts)}
        return [sighting for one in known for sighting in _story(one)]

    def cancel(self, decisions: Sequence[str]) -> None:
        for decision in decisions:
            ticket = self._unsent.pop(decision, None)
            if ticket:
                self._unwanted.add(decision)  # the schedd may have taken it though its answer was lost
                self._news.append(
                    Sighting(decision, ticket.job.id, "gone", detail="it was cancelled before it started")
                )
        known = [self._tracker.by_decision[d] for d in decisions if d in self._tracker.by_decision]
        self._remove([one for one in known if not one.gone])

    def release(self, decisions: Sequence[str]) -> None:
        known = [self._tracker.by_decision[d] for d in decisions if d in self._tracker.by_decision]
        self._send_out(self._client.release, [one.name for one in known if one.held], "packtrain lets it try again")

    def accept(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            output_retrieval.bring_home(ticket.job, self._folder.attempt(ticket.job.id, ticket.decision))

    def poll(self) -> Sequence[Sighting]:
        self._send()
        self._run_errands()
        seen = [*self._news, *self._read(), *self._from_queue()]
        self._news = []
        told = [sighting for sighting in seen if sighting.decision in self._followed]
        self._followed -= {sighting.decision for sighting in told if sighting.status == "gone"}
        self._drop_unwanted()
        self._drop_surplus()
        return told

    def wait(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        time.sleep(min(timeout, _LEAST_WAIT_S))
        while time.monotonic() < end and not self._reader.grown:
            time.sleep(_LOOK_S)

    # Submitting

    def _send(self) -> None:
        """Everything that was asked for and is not known yet, as one cluster for each way in which attempts are
        amended. If the schedd gives no answer it may still have taken it: the queue, and the log for what has left it
        since, are asked before it is tried again."""
        if not self._unsent or time.monotonic() < self._try_again:
            return
        try:
            self._find_sent()
            for alike in _alike(self._unsent.values()):
                self._send_cluster(alike)
        except UnreachableError as error:
            self._try_again = time.monotonic() + _TRY_AGAIN_S
            self._tell_put_off(str(error))

    def _find_sent(self) -> None:
        self._find_in_queue()
        self._news += self._read()
        self._note_sent(decision for decision in list(self._unsent) if decision in self._tracker.by_decision)

    def _send_cluster(self, tickets: Sequence[Ticket]) -> None:
        try:
            self._submit_cluster(tickets)
        except FailedError as error:
            self._find_sent()
            refused = [ticket for ticket in tickets if ticket.decision in self._unsent]
            self._news += [
                Sighting(t.decision, t.job.id, "gone", kind=error.kind, detail=error.detail) for t in refused
            ]
        self._note_sent(ticket.decision for ticket in tickets)

    def _note_sent(self, decisions: Iterable[str]) -> None:
        """They wait for the schedd no longer; whoever was told so hears that."""
        for decision in decisions:
            ticket = self._unsent.pop(decision, None)
            if ticket and self._put_off.pop(decision, ""):
                self._news.append(_waits(ticket, ""))

    def _tell_put_off(self, reason: str) -> None:
        fresh = [ticket for decision, ticket in self._unsent.items() if self._put_off.get(decision) != reason]
        self._put_off.update({ticket.decision: reason for ticket in fresh})
        self._news += [_waits(ticket, reason) for ticket in fresh]

    def _submit_cluster(self, tickets: Sequence[Ticket]) -> None:
        batch = self._batch(tickets)
        sent = parcels(self._plan)
        for ticket in tickets:
            attempt = self._folder.attempt(ticket.job.id, ticket.decision)
            attempt.root.mkdir(parents=True, exist_ok=True)
            if carries_checkpoints(ticket.job):
                attempt.checkpoint.mkdir(exist_ok=True)
            if ticket.amendment.agent_brings:
                alone = replace(self._plan, jobs=(for_worker(ticket.job, sent),), htcondor=(), slurm=())
                write_plan(alone, attempt.plan)
        first = tickets[0].decision
        description, items = self._path(f"{first}.sub"), self._path(f"{first}.items")
        items.write_text(items_text(batch), encoding="utf-8")
        settings = RunSettings.read(self._path("settings.json"))
        settings = replace(settings, disk_mb=math.ceil(settings.disk_mb * tickets[0].amendment.disk))
        description.write_text(render(batch, self._folder, items, settings), encoding="utf-8")
        cluster = self._client.submit(description.read_text(encoding="utf-8"))
        self._tracker.add_cluster(cluster, [(t.job.id, t.decision) for t in tickets], materialized=len(tickets) == 1)

    def _batch(self, tickets: Sequence[Ticket]) -> Batch:
        sent, native = parcels(self._plan), self._path("native")
        inputs = {
            t.decision: (
                *transfer_list(t.job, sent, native),
                *output_retrieval.earlier_checkpoint(t, self._folder),
                *shell_runner.scripts(self._folder, t.job.id),
            )
            for t in tickets
        }
        has_secrets = self._folder.secrets.is_dir() and any(self._folder.secrets.iterdir())
        attempts = [(ticket.job, ticket.decision) for ticket in tickets]
        return Batch(self._plan.run, len(self._plan.jobs), attempts, inputs, has_secrets, tickets[0].amendment)

    def _path(self, name: str) -> Path:
        return self._folder.htcondor / name

    def _items(self, first: str) -> Items:
        """What a saved submission was about. Its name comes from a log that others could write."""
        try:
            text = self._path(f"{Path(first).name}.items").read_text(encoding="utf-8")
        except OSError:
            return ()
        return [(words[0], words[1]) for line in text.splitlines() if len(words := line.split(maxsplit=2)) >= 2]

    def _find_in_queue(self) -> None:
        for cluster, decision in self._queue.clusters():
            self._tracker.add_cluster(cluster, self._items(decision))

    # Following

    def _read(self) -> list[Sighting]:
        return [sighting for record in self._reader.read() for sighting in self._tracker.take(record)]

    def _is_home(self, job: str, decision: str) -> bool:
        planned = self._jobs.get(job)
        return planned is not None and output_retrieval.is_home(planned, self._folder.attempt(job, decision))

    def _drop_surplus(self) -> None:
        names, self._tracker.surplus = self._tracker.surplus, []
        self._send_out(self._client.remove, names, REMOVED)

    def _drop_unwanted(self) -> None:
        """An item of a cluster cannot be taken out of it: one that nobody wants is removed when it appears, or with its
        cluster when no other is left. Only the one who follows the others may do so: views look, but never poll."""
        self._unwanted -= self._followed
        known = [one for d in sorted(self._unwanted) if (one := self._tracker.by_decision.get(d))]
        whole = self._wholly(known)
        ready = [one for one in known if one.materialized or one.native[0] in whole]
        self._unwanted -= {one.decision for one in ready}
        names = {str(one.native[0]) if one.native[0] in whole else one.name: None for one in ready}
        self._send_out(self._client.remove, list(names), REMOVED)

    def _from_queue(self) -> list[Sighting]:
        alive = [self._tracker.by_decision[d] for d in self._followed if d in self._tracker.by_decision]
        seen = self._queue.glimpses(alive)
        return seen + [self._tracker.end(one, *end) for one, end in self._queue.vanished(alive)]

    def _is_over(self, decision: str) -> bool:
        known = self._tracker.by_decision.get(decision)
        return known is not None and known.gone

    def _remove(self, known: Sequence[Known]) -> None:
        """Whole clusters where nobody else is left in them, so that their other items never appear."""
        for one in known:
            self._rescue(one)
        whole = self._wholly(known)
        names = [str(cluster) for cluster in sorted(whole)]
        for one in known:
            if one.native[0] not in whole and one.materialized:
                names.append(one.name)
            elif one.native[0] not in whole:
                self._news.append(self._tracker.end(one, "it was cancelled before it started"))
                self._unwanted.add(one.decision)
        self._send_out(self._client.remove, names, REMOVED)

    def _rescue(self, one: Known) -> None:
        job = self._jobs.get(one.job)
        if job and carries_checkpoints(job) and one.starts:
            place = output_retrieval.spooled(self._client.param("SPOOL"), *one.native)
            output_retrieval.rescue_checkpoint(job, self._folder.attempt(one.job, one.decision), place)

    def _wholly(self, unwanted: Sequence[Known]) -> set[int]:
        """The clusters in which nobody else is left."""
        names = {one.decision for one in unwanted}
        return {cluster for cluster in {one.native[0] for one in unwanted} if self._tracker.living(cluster) <= names}

    def _send_out(self, act: Act, names: Sequence[str], reason: str) -> None:
        """Acts on jobs; if the schedd gives no answer, until it does. All of them can be repeated."""
        if names:
            self._errands.append((act, names, reason))
            self._run_errands()

    def _run_errands(self) -> None:
        """One that fails goes to the end of the line: it may be the one thing that the schedd never does."""
        while self._errands and time.monotonic() >= self._try_again:
            act, names, reason = errand = self._errands.pop(0)
            try:
                act(names, reason)
            except UnreachableError:
                self._errands.append(errand)
                self._try_again = time.monotonic() + _TRY_AGAIN_S
                return


def _alike(tickets: Iterable[Ticket]) -> Iterable[list[Ticket]]:
    """Those whose attempts get the same: they can share a description."""
    found: dict[Amendment, list[Ticket]] = {}
    for ticket in tickets:
        found.setdefault(ticket.amendment, []).append(ticket)
    return found.values()


def _waits(ticket: Ticket, reason: str) -> Sighting:
    glimpse = waiting(ticket.decision, f"{reason}; this is tried again" if reason else "")
    return Sighting(ticket.decision, ticket.job.id, "queued", glimpse=glimpse)


def _story(one: Known) -> list[Sighting]:
    """All that happened to it, and how it stands."""
    if one.gone:
        return list(one.history)
    return [*one.history, Sighting(one.decision, one.job, one.status, one.name, one.site)]
