"""Makes the reference pages from the code: `make docs`. A test proves that they are up to date."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from packtrain import plan
from packtrain.agent.steps import error_patterns
from packtrain.cli.main import COMMANDS, cli
from packtrain.condor import hold_codes
from packtrain.events import FAILURE_KINDS, failure, kinds
from packtrain.plan import model
from packtrain.report import history
from packtrain.report.analysis import by_site, distribution, statistics
from packtrain.report.export import ELSEWHERE

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
import study  # noqa: E402 (it stands beside this file)

MADE = "<!-- made by docs/make.py: do not edit -->\n"


def cli_page() -> str:
    parts = [
        MADE,
        "# The command line\n",
        "Every command takes `--json`; those that act take `--dry-run`.\n",
        EXIT_CODES,
    ]
    context = click.Context(cli, info_name="packtrain", terminal_width=80, **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=80)
        parts.append(f"## packtrain {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    return "\n".join(parts)


EXIT_CODES = """| exit code | meaning |
| --- | --- |
| 0 | done; of `run` and `resume`: every job succeeded and its outputs passed their checks |
| 1 | a defect of packtrain, or `doctor` found something to mend |
| 2 | the call or the workflow file is wrong |
| 3 | refused for now: the run already has a supervisor |
| 4 | no such run, job or recipe |
| 5 | a file of packtrain's own that cannot be read |
| 10–79 | the kind of the (first) failure of `run`, `resume`, `get`, `put`, `checksums`: [failures](failures.md) |
| 130 | interrupted or cancelled |
"""


def failures_page() -> str:
    head = [
        MADE,
        "# Every way to fail\n",
        FAILURES,
        "| kind | exit code | blame | transient | first | meaning | what to do |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = [f"| `{kind}` | {_cells(row)} |" for kind, row in FAILURE_KINDS.items()]
    return "\n".join([*head, *rows, *_actions(), *_signs(), ""])


def _cells(row: failure.FailureKind) -> str:
    cells = (row.exit_code, row.blame, _yes(row.transient), row.action, row.meaning, row.remedy)
    return " | ".join(map(str, cells))


def _actions() -> list[str]:
    rows = [f"| {action} | {meaning} |" for action, meaning in failure.ACTIONS.items()]
    return ["\n## What is done first\n", "| first | what packtrain does |", "| --- | --- |", *rows]


def _signs() -> list[str]:
    """What is seen from outside, and the kind that it means."""
    words = [f"| `{pattern.replace('|', chr(92) + '|')}` | `{kind}` |" for pattern, kind in error_patterns.SYMPTOMS]
    codes = [f"| {code} | `{row.kind}` | {row.action} |" for code, row in sorted(hold_codes.MEANINGS.items())]
    ends = [f"| {seen} | `{kind}` |" for seen, kind in hold_codes.ENDINGS]
    return [WORDS, *words, HOLDS.format(unknown=hold_codes.UNKNOWN.kind), *codes, ENDS, *ends]


FAILURES = """The agent's exit code tells the kind of failure; codes go by blame. 0 means that every `expect` held and
the outputs arrived; 85 and 86 mean “checkpointed, go on here” and “checkpointed, go on elsewhere”. What packtrain does
first is explained [below](#what-is-done-first); all of it within `limits.attempts` and the other
[budgets](workflow.md#recovery).
"""

WORDS = """
## What a program says last

A step that fails is a `step_failed`, unless the last line of its stderr tells more; the first row that matches counts.
A command that is not found (exit code 127) is a `program_missing`. Before all rows, a training that streams names the
kind itself: “the samples do not come (`network_unreachable`): …”.

| the last line has (a regular expression) | kind |
| --- | --- |"""

HOLDS = """
## Holds of HTCondor

By HoldReasonCode. `release`: it is let go after 10 s, 1 min and 6 min, then given up; `wait`: somebody held it on
purpose, and has a day; `give_up`: it is removed, and what is done first for its kind follows. Any other code:
`{unknown}`. A reason can tell more: a file that is missing on the access point is a `submit_refused`, a transfer
(12, 13) that stalled or timed out a `delivery_stalled`, one that a server refused (404, 5xx) a `delivery_refused`, disk
(34) a `disk_full`.

| code | kind | answer |
| --- | --- | --- |"""

ENDS = """
## Other ends of an attempt

| seen | kind |
| --- | --- |"""


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def events_table() -> str:
    rows = [f"| `{kind}` | {text} |" for kind, text in kinds.KINDS.items()]
    return "\n".join(["| kind | meaning and fields |", "| --- | --- |", *rows])


def plan_tables() -> str:
    """Every dataclass of the plan with its fields; comments of the source are the explanations."""
    source = Path(model.__file__).read_text(encoding="utf-8").splitlines()
    parts = []
    for name in sorted(plan.__all__):
        kind = getattr(model, name, None)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            parts.append(_dataclass_table(name, kind, source))
    return "\n\n".join(parts)


def _dataclass_table(name: str, kind: type, source: list[str], as_json: bool = False) -> str:
    fields = [field for field in dataclasses.fields(kind) if not (as_json and field.name in ELSEWHERE)]  # type: ignore[arg-type]
    start = next(n for n, line in enumerate(source) if line.startswith(f"class {name}:"))
    rows = [f"| `{f.name}` | {_type(f, as_json)} | {_comment(source, start, f.name)} |" for f in fields]
    said = (kind.__doc__ or "").strip()
    about = "" if said.startswith(f"{name}(") else f"{said}\n\n"
    return f"### {name}\n\n{about}| key | type | meaning |\n| --- | --- | --- |\n" + "\n".join(rows)


def _type(field: dataclasses.Field[object], as_json: bool) -> str:
    return _json_type(str(field.type)) if as_json else f"`{field.type}`"


def _comment(source: list[str], start: int, field: str) -> str:
    line = next(line for line in source[start:] if line.strip().startswith(f"{field}:"))
    return line.partition("  # ")[2].replace("|", "\\|")


def between(page: Path, marker: str, text: str, old: str = "") -> str:
    """The page with what stands between <!-- marker --> and <!-- end --> made anew."""
    old = old or page.read_text(encoding="utf-8")
    head, _, rest = old.partition(f"<!-- {marker} -->\n")
    return f"{head}<!-- {marker} -->\n{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"


def study_page(page: Path) -> str:
    week, trials = study.week(), study.trials()
    made = {
        "study-table": study.table(),
        "study-shares": study.shares(),
        "study-findings": study.findings(week),
        "study-terminal": f"```text\n{study.terminal(week)}\n```",
        "trials-table": study.trial_table(),
        "trials-findings": study.findings(trials),
    }
    text = ""
    for marker, part in made.items():
        text = between(page, marker, part, text)
    return text


def report_tables() -> str:
    """Every dataclass of the report's figures, as JSON has it, and the words that are its values."""
    kinds = (
        statistics.Figures,
        statistics.JobFigures,
        by_site.SiteFigures,
        by_site.SpeedFigures,
        statistics.FailureFigures,
    )
    tables = [
        _dataclass_table(kind.__name__, kind, _source(kind), as_json=True) for kind in (*kinds, distribution.Spread)
    ]
    words = [f"* `{kind.__name__}`: {_values(kind)}." for kind in (history.Outcome, history.Category)]
    return "\n\n".join([*tables, "### Words\n\n" + "\n".join(words)])


def _values(kind: type[history.Outcome] | type[history.Category]) -> str:
    return ", ".join(f"`{word.value}`" if word.value else "an empty string" for word in kind)


def _json_type(text: str) -> str:
    """`tuple[float, ...] | None` → list of number, or null"""
    if text.endswith(" | None"):
        return f"{_json_type(text.removesuffix(' | None'))}, or null"
    if text.startswith("tuple["):
        return f"list of {_json_type(text[6:].partition(',')[0])}"
    names = {"str": "string", "int": "number", "float": "number", "bool": "true or false"}
    return "object" if text.startswith("Mapping") else names.get(text, text)


def _source(kind: type) -> list[str]:
    return Path(sys.modules[kind.__module__].__file__ or "").read_text(encoding="utf-8").splitlines()


def pages() -> dict[Path, str]:
    events, plans = DOCS / "formats" / "events.md", DOCS / "formats" / "plan.md"
    report = DOCS / "formats" / "report.md"
    return {
        DOCS / "study.md": study_page(DOCS / "study.md"),
        report: between(report, "tables", report_tables()),
        DOCS / "reference" / "cli.md": cli_page(),
        DOCS / "reference" / "failures.md": failures_page(),
        events: between(events, "kinds", events_table()),
        plans: between(plans, "tables", plan_tables()),
    }


def main() -> None:
    """Write them; with --check, only name those that are not as they would be written."""
    for path, text in pages().items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(DOCS.parent)}\n")
        elif path.read_text(encoding="utf-8") != text:
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
