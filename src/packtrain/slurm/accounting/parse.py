"""Detects the format of the output of `sacct` and parses it."""

from __future__ import annotations

from packtrain.slurm.accounting.json_format import is_accounting_json, parse_json
from packtrain.slurm.accounting.record import AccountingTable
from packtrain.slurm.accounting.text_format import is_accounting_header, parse_text


def is_accounting(head: str) -> bool:
    """Return whether a file that begins with `head` is the output of `sacct -P` or `sacct --json`."""
    return is_accounting_json(head) or is_accounting_header(head.lstrip().partition("\n")[0])


def parse_accounting(text: str, path: str) -> AccountingTable:
    """Parse the output of `sacct -P` or `sacct --json`. Raises UsageError with the path and the line."""
    return parse_json(text, path) if is_accounting_json(text) else parse_text(text, path)
