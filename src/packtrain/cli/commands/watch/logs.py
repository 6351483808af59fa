"""packtrain logs"""

from __future__ import annotations

import json
import time
from collections import defaultdict

import click

from packtrain import services
from packtrain.cli.ui.output import json_option
from packtrain.formatting import replace_control_chars
from packtrain.runs.logs import JobLogReader, select_job
from packtrain.views.terminal import ColorFilter


@click.command(name="logs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the job ends.")
@click.option("--execution", "execution_number", type=int, help="Number of the execution (default: the newest).")
@click.option("--agent", "agent_logs", is_flag=True, help="Show the agent's log instead of the steps' output.")
@json_option
def command(target: str, follow: bool, execution_number: int | None, agent_logs: bool, as_json: bool) -> None:
    """Show the output of a job's steps. In a run with several jobs, name one as RUN.JOB."""
    store = services.open_store()
    run_info, job_id = services.find_job(store, target)
    job = select_job(services.refresh_state(store, run_info), job_id)
    reader = JobLogReader(run_info.folder, agent_logs, execution_number)
    filters: defaultdict[str, ColorFilter] = defaultdict(ColorFilter)  # by log file
    while True:
        ended = job.result is not None or services.live_supervisor_lease(store, run_info.run) is None
        for name, line in reader.read_new_lines(job, final=ended or not follow):
            if as_json:
                click.echo(json.dumps({"job": job.id, "log": name, "line": line}))
            else:
                click.echo(_format_line(name, filters[name].feed(f"{line}\n")), nl=False)
        if ended or not follow:
            click.echo("".join(color_filter.finish() for color_filter in filters.values()), nl=False)
            return
        time.sleep(0.2)
        job = services.load_state(store, run_info.run).jobs[job.id]


def _format_line(name: str, line: str) -> str:
    """Return a line of standard output unchanged; other lines get their file name as a prefix."""
    return line if name.endswith(".out") else f"{click.style(replace_control_chars(name), dim=True)}  {line}"
