"""Agents as jobs of the pool, submitted without the engine."""

from __future__ import annotations

import json

from packtrain.engines.bundle import build_agent, write_launcher
from packtrain.events import Event, JournalReader
from packtrain.plan import AttemptFolder, Plan, write_plan

SUBMIT_FILE = """executable = launch.sh
arguments = plan.json --attempt-id 0-1 --attempt-folder . --site auto {options}
transfer_input_files = agent.pyz, plan.json, empty/
transfer_output_files = journal.jsonl, logs, output
when_to_transfer_output = {when}
output = agent.out
error = agent.err
request_memory = 100
+WantIOProxy = {proxy}
{more}
queue
"""


class AgentJob:
    """One agent that runs as an HTCondor job."""

    def __init__(
        self, workspace, job, options="", submit_lines="", when_to_transfer_output="ON_EXIT", want_io_proxy="true"
    ):
        self.workspace, self.attempt_folder = workspace, AttemptFolder(workspace.folder)
        build_agent(workspace.folder / "agent.pyz")
        write_launcher(workspace.folder / "launch.sh")
        for name in ("logs", "output", "checkpoint"):
            (workspace.folder / "empty" / name).mkdir(parents=True)
        write_plan(Plan("run-1", "test", "htcondor", (job,)), workspace.folder / "plan.json")
        self.constraint = workspace.condor_submit(
            SUBMIT_FILE.format(options=options, more=submit_lines, when=when_to_transfer_output, proxy=want_io_proxy)
        )

    def job_attribute(self, name):
        """Return an attribute of the job in the queue, None if there is no such job or attribute."""
        matches = self.workspace.pool.queue(self.constraint, name)
        return matches[0].get(name) if matches else None

    def user_log_events(self):
        """Return the events that the agent wrote to the user log."""
        lines = [
            line
            for line in self.workspace.read_user_log().splitlines()
            if line.startswith("008 ") and " packtrain {" in line
        ]
        return [Event.from_json(line.partition(" packtrain ")[2]) for line in lines]

    def wait_for_user_log_event(self, kind, **data):
        def find_events():
            return [e for e in self.user_log_events() if e.kind == kind and data.items() <= e.data.items()]

        return self.workspace.wait_for(find_events)

    def events(self, kind=None):
        return [e for e in JournalReader(self.attempt_folder.journal).read() if kind is None or e.kind == kind]

    def log_tail(self):
        text = self.job_attribute("PacktrainLogTail")
        return json.loads(text) if text else {}

    def wait_for_stderr(self):
        """Wait for the end of the job and return what the agent printed to stderr."""
        self.workspace.wait_for_end()
        return (self.workspace.folder / "agent.err").read_text()
