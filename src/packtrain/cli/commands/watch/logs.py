"""packtrain logs"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes

import click

from packtrain import services
from packtrain.cli.ui.output import json_option
from packtrain.errors import NotFoundError
from packtrain.plan import AttemptFolder, RunFolder
from packtrain.state import JobState, RunState


@dataclass
class Tail:
    """The log files of one attempt, read on from where the last look ended, whole lines only."""

    attempt: AttemptFolder
    agent: bool = False
    _offsets: dict[Path, int] = field(default_factory=dict)

    def catch(self, tail: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(file, line) of the newest bytes of a log, as a pool tells them while the file itself is far away."""
        name, text = PurePosixPath(str(tail.get("file", ""))).name, unquote_to_bytes(str(tail.get("text", "")))
        path, end = self.attempt.logs / name, tail.get("end")
        if not name or not isinstance(end, int) or self.agent:
            return
        first, known = end - len(text), self._offsets.get(path, 0)
        fresh = text[max(0, known - first) :]
        whole = fresh[: fresh.rfind(b"\n") + 1]
        if first > known:
            yield name, "…"
        self._offsets[path] = max(known, end - len(fresh) + len(whole))
        for line in whole.decode("utf-8", "replace").splitlines():
            yield name, line

    def read(self, final: bool = False) -> Iterator[tuple[str, str]]:
        """(file, line); `final` also gives an unfinished last line."""
        for path in self._files():
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data if final else data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                yield path.name, line

    def _files(self) -> list[Path]:
        if self.agent:
            return [path for path in (self.attempt.agent_log, self.attempt.agent_out) if path.exists()]
        found = self.attempt.logs.glob("*") if self.attempt.logs.exists() else ()
        return sorted((p for p in found if p.is_file()), key=lambda p: (p.stat().st_ctime, p.name))


@click.command(name="logs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--attempt", "number", type=int, help="Which attempt; the newest if not said.")
@click.option("--agent", is_flag=True, help="The agent's own log instead of the steps'.")
@json_option
def command(target: str, follow: bool, number: int | None, agent: bool, as_json: bool) -> None:
    """Show what the steps of a job wrote; with several jobs, name one as RUN.JOB."""
    store = services.open_store()
    row, wanted = services.find_job(store, target)
    state = services.refresh(store, row)
    job = _choose(state, wanted)
    tails: dict[str, Tail] = {}
    while True:
        ended = job.verdict is not None or services.supervisor_lease(store, row.run) is None
        tail = _tail(tails, RunFolder(row.folder), job, number, agent)
        for name, line in _news(tail, job, final=ended or not follow) if tail else ():
            click.echo(json.dumps({"job": job.id, "log": name, "line": line}) if as_json else _plain(name, line))
        if ended or not follow:
            return
        time.sleep(0.2)
        job = services.load_state(store, row.run).jobs[job.id]


def _news(tail: Tail, job: JobState, final: bool) -> Iterator[tuple[str, str]]:
    """From the files where they are here, else from what the pool last told of them."""
    if not tail.attempt.logs.exists() and job.latest and job.latest.live and job.tail:
        yield from tail.catch(job.tail)
    yield from tail.read(final)


def _choose(state: RunState, wanted: str | None) -> JobState:
    if wanted is not None:
        return state.jobs[wanted]
    jobs = list(state.jobs.values())
    if len(jobs) > 1:
        some = ", ".join(f"{state.run}.{job.id}" for job in jobs[:3])
        raise NotFoundError(f"the run {state.run} has {len(jobs)} jobs; name one: {some} …")
    return jobs[0]


def _tail(tails: dict[str, Tail], folder: RunFolder, job: JobState, number: int | None, agent: bool) -> Tail | None:
    found = [a for a in job.attempts if number in (None, a.number)]
    if not found:
        if number is not None:
            raise NotFoundError(f"job {job.id} has no attempt {number}, only {len(job.attempts)}")
        return None
    decision = found[-1].decision
    return tails.setdefault(decision, Tail(folder.attempt(job.id, decision), agent))


def _plain(name: str, line: str) -> str:
    """Standard output as it is; the rest says where it comes from."""
    return line if name.endswith(".out") else f"{click.style(name, dim=True)}  {line}"
