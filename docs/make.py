"""Makes the reference pages from the code: `make docs`. A test proves that they are up to date."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from packtrain import plan
from packtrain.cli.main import COMMANDS, cli
from packtrain.events import FAILURE_KINDS, kinds
from packtrain.plan import model

DOCS = Path(__file__).parent
MADE = "<!-- made by docs/make.py: do not edit -->\n"


def cli_page() -> str:
    parts = [
        MADE,
        "# The command line\n",
        "Every command takes `--json`; those that act take `--dry-run`.\n",
        EXIT_CODES,
    ]
    context = click.Context(cli, info_name="packtrain", terminal_width=80)
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
        "The agent's exit code tells the kind of failure; codes go by blame. A transient failure is tried again,",
        "within `limits.attempts`. 0 means that every `expect` held and the outputs arrived; 85 and 86 mean",
        "“checkpointed, go on here” and “checkpointed, go on elsewhere”.\n",
        "| kind | exit code | blame | transient | meaning | what to do |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = [
        f"| `{kind}` | {row.exit_code} | {row.blame} | {_yes(row.transient)} | {row.meaning} | {row.remedy} |"
        for kind, row in FAILURE_KINDS.items()
    ]
    return "\n".join([*head, *rows, ""])


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


def _dataclass_table(name: str, kind: type, source: list[str]) -> str:
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    start = next(n for n, line in enumerate(source) if line.startswith(f"class {name}:"))
    rows = [f"| `{f.name}` | `{f.type}` | {_comment(source, start, f.name)} |" for f in fields]
    said = (kind.__doc__ or "").strip()
    about = "" if said.startswith(f"{name}(") else f"{said}\n\n"
    return f"### {name}\n\n{about}| key | type | meaning |\n| --- | --- | --- |\n" + "\n".join(rows)


def _comment(source: list[str], start: int, field: str) -> str:
    line = next(line for line in source[start:] if line.strip().startswith(f"{field}:"))
    return line.partition("  # ")[2].replace("|", "\\|")


def between(page: Path, marker: str, text: str) -> str:
    """The page with what stands between <!-- marker --> and <!-- end --> made anew."""
    old = page.read_text(encoding="utf-8")
    head, _, rest = old.partition(f"<!-- {marker} -->\n")
    return f"{head}<!-- {marker} -->\n{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"


def pages() -> dict[Path, str]:
    events, plans = DOCS / "formats" / "events.md", DOCS / "formats" / "plan.md"
    return {
        DOCS / "reference" / "cli.md": cli_page(),
        DOCS / "reference" / "failures.md": failures_page(),
        events: between(events, "kinds", events_table()),
        plans: between(plans, "tables", plan_tables()),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(DOCS.parent)}\n")
