"""Makes the reference render_pages from the code: `make docs`. A test proves that they are up to date."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from packtrain import plan
from packtrain.agent.processes import error_patterns
from packtrain.cli.main import GROUP_BY_COMMAND, cli
from packtrain.condor import hold_codes
from packtrain.events import FAILURE_KINDS, failure, kinds
from packtrain.plan import model
from packtrain.report import history
from packtrain.report.analysis import by_site, distribution, statistics
from packtrain.report.export import _EXCLUDED_FIELDS

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
import study  # noqa: E402 (it stands beside this file)

GENERATED_NOTICE = "<!-- made by docs/make.py: do not edit -->\n"


def render_cli_page() -> str:
    parts = [
        GENERATED_NOTICE,
        "# The command line\n",
        "Every command takes `--json`; those that act take `--dry-run`.\n",
        EXIT_CODES_TABLE,
    ]
    context = click.Context(cli, info_name="packtrain", terminal_width=80, **cli.context_settings)
    for name in GROUP_BY_COMMAND:
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=80)
        parts.append(f"## packtrain {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    return "\n".join(parts)


EXIT_CODES_TABLE = """| exit code | meaning |
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


def render_failures_page() -> str:
    head = [
        GENERATED_NOTICE,
        "# Every way to fail\n",
        FAILURES_INTRO,
        "| kind | exit code | blame | transient | first | meaning | what to do |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = [f"| `{kind}` | {_failure_cells(row)} |" for kind, row in FAILURE_KINDS.items()]
    return "\n".join([*head, *rows, *_actions_table(), *_symptom_tables(), ""])


def _failure_cells(row: failure.FailureKind) -> str:
    cells = (row.exit_code, row.blame, _format_bool(row.transient), row.action, row.meaning, row.remedy)
    return " | ".join(map(str, cells))


def _actions_table() -> list[str]:
    rows = [f"| {action} | {meaning} |" for action, meaning in failure.ACTIONS.items()]
    return ["\n## What is done first\n", "| first | what packtrain does |", "| --- | --- |", *rows]


def _symptom_tables() -> list[str]:
    """What is seen from outside, and the kind that it means."""
    words = [
        f"| `{pattern.replace('|', chr(92) + '|')}` | `{kind}` |" for pattern, kind in error_patterns.ERROR_PATTERNS
    ]
    codes = [f"| {code} | `{row.failure_kind}` | {row.action} |" for code, row in sorted(hold_codes.HOLD_CODES.items())]
    ends = [f"| {seen} | `{kind}` |" for seen, kind in hold_codes.NON_HOLD_ENDS]
    return [
        SYMPTOMS_INTRO,
        *words,
        HOLDS_INTRO.format(unknown=hold_codes.UNKNOWN_HOLD.failure_kind),
        *codes,
        ENDINGS_INTRO,
        *ends,
    ]


FAILURES_INTRO = """The agent's exit code tells the kind of failure; codes go by blame. 0 means that every `expect` held and
the outputs arrived; 85 and 86 mean “checkpointed, go on here” and “checkpointed, go on elsewhere”. What packtrain does
first is explained [below](#what-is-done-first); all of it within `limits.maxAttempts` and the other
[budgets](workflow.md#recovery).
"""

SYMPTOMS_INTRO = """
## What a program says last

A step that fails is a `step_failed`, unless the last line of its stderr tells more; the first row that matches counts.
A command that is not found (exit code 127) is a `program_missing`. Before all rows, a training that streams names the
kind itself: “samples cannot be read (`network_unreachable`): …”.

| the last line has (a regular expression) | kind |
| --- | --- |"""

HOLDS_INTRO = """
## Holds of HTCondor

By HoldReasonCode. `release`: it is let go after 10 s, 1 min and 6 min, then given up; `wait`: somebody held it on
purpose, and has a day; `give_up`: it is removed, and what is done first for its kind follows. Any other code:
`{unknown}`. A reason can tell more: a file that is missing on the access point is a `submit_rejected`, a transfer
(12, 13) that stalled or timed out a `transfer_stalled`, one that a server refused (404, 5xx) a `transfer_refused`, disk
(34) a `disk_full`.

| code | kind | answer |
| --- | --- | --- |"""

ENDINGS_INTRO = """
## Other ends of an attempt

| seen | kind |
| --- | --- |"""


def _format_bool(value: bool) -> str:
    return "yes" if value else "no"


def render_events_table() -> str:
    rows = [f"| `{kind}` | {text} |" for kind, text in kinds.EVENT_KINDS.items()]
    return "\n".join(["| kind | meaning and fields |", "| --- | --- |", *rows])


def render_plan_tables() -> str:
    """Every dataclass of the plan with its fields; comments of the source are the explanations."""
    source = Path(model.__file__).read_text(encoding="utf-8").splitlines()
    parts = []
    for name in sorted(plan.__all__):
        kind = getattr(model, name, None)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            parts.append(_dataclass_table(name, kind, source))
    return "\n\n".join(parts)


def _dataclass_table(name: str, kind: type, source: list[str], as_json: bool = False) -> str:
    fields = [field for field in dataclasses.fields(kind) if not (as_json and field.name in _EXCLUDED_FIELDS)]  # type: ignore[arg-type]
    start = next(n for n, line in enumerate(source) if line.startswith(f"class {name}:"))
    rows = [f"| `{f.name}` | {_format_type(f, as_json)} | {_field_comment(source, start, f.name)} |" for f in fields]
    said = (kind.__doc__ or "").strip()
    about = "" if said.startswith(f"{name}(") else f"{said}\n\n"
    return f"### {name}\n\n{about}| key | type | meaning |\n| --- | --- | --- |\n" + "\n".join(rows)


def _format_type(field: dataclasses.Field[object], as_json: bool) -> str:
    return _json_type(str(field.type)) if as_json else f"`{field.type}`"


def _field_comment(source: list[str], start: int, field: str) -> str:
    line = next(line for line in source[start:] if line.strip().startswith(f"{field}:"))
    return line.partition("  # ")[2].replace("|", "\\|")


def replace_section(page: Path, marker: str, text: str, old: str = "") -> str:
    """The page with what stands replace_section <!-- marker --> and <!-- end --> made anew."""
    old = old or page.read_text(encoding="utf-8")
    head, _, rest = old.partition(f"<!-- {marker} -->\n")
    return f"{head}<!-- {marker} -->\n{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"


def render_study_page(page: Path) -> str:
    week, trials = study.load_week_report(), study.load_trials_report()
    sections = {
        "study-table": study.render_comparison_table(),
        "study-shares": study.render_time_use_table(),
        "study-findings": study.render_findings(week),
        "study-terminal": f"```text\n{study.render_terminal_output(week)}\n```",
        "trials-table": study.render_trials_table(),
        "trials-findings": study.render_findings(trials),
    }
    text = ""
    for marker, part in sections.items():
        text = replace_section(page, marker, part, text)
    return text


def render_report_tables() -> str:
    """Every dataclass of the report's figures, as JSON has it, and the words that are its values."""
    kinds = (
        statistics.ReportStats,
        statistics.JobSummary,
        by_site.SiteSummary,
        by_site.TransferSummary,
        statistics.FailureSummary,
    )
    tables = [
        _dataclass_table(kind.__name__, kind, _read_source_lines(kind), as_json=True)
        for kind in (*kinds, distribution.Distribution)
    ]
    words = [f"* `{kind.__name__}`: {_enum_values(kind)}." for kind in (history.Outcome, history.FailureCategory)]
    return "\n\n".join([*tables, "### Words\n\n" + "\n".join(words)])


def _enum_values(kind: type[history.Outcome] | type[history.FailureCategory]) -> str:
    return ", ".join(f"`{word.value}`" if word.value else "an empty string" for word in kind)


def _json_type(text: str) -> str:
    """`tuple[float, ...] | None` → list of number, or null"""
    if text.endswith(" | None"):
        return f"{_json_type(text.removesuffix(' | None'))}, or null"
    if text.startswith("tuple["):
        return f"list of {_json_type(text[6:].partition(',')[0])}"
    names = {"str": "string", "int": "number", "float": "number", "bool": "true or false"}
    return "object" if text.startswith("Mapping") else names.get(text, text)


def _read_source_lines(kind: type) -> list[str]:
    return Path(sys.modules[kind.__module__].__file__ or "").read_text(encoding="utf-8").splitlines()


def render_pages() -> dict[Path, str]:
    events, plans = DOCS / "formats" / "events.md", DOCS / "formats" / "plan.md"
    report = DOCS / "formats" / "report.md"
    return {
        DOCS / "study.md": render_study_page(DOCS / "study.md"),
        report: replace_section(report, "tables", render_report_tables()),
        DOCS / "reference" / "cli.md": render_cli_page(),
        DOCS / "reference" / "failures.md": render_failures_page(),
        events: replace_section(events, "kinds", render_events_table()),
        plans: replace_section(plans, "tables", render_plan_tables()),
    }


def main() -> None:
    """Write them; with --check, only name those that are not as they would be written."""
    for path, text in render_pages().items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(DOCS.parent)}\n")
        elif path.read_text(encoding="utf-8") != text:
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
