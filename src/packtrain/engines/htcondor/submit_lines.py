"""The user's own lines of a submit description, and how they are merged with ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

SubmitLine = tuple[str, str]

RESERVED_COMMANDS = frozenset(
    (
        *("universe", "executable", "arguments", "initialdir", "dagman_log", "output", "error", "queue"),
        *("should_transfer_files", "when_to_transfer_output", "transfer_executable", "transfer_output_files"),
        *("transfer_output_remaps", "transfer_checkpoint_files", "checkpoint_exit_code"),
        *("submit_event_user_notes", "stream_output", "stream_error"),
    )
)
_JOINED_EXPRESSIONS = {
    "requirements": " && ",
    "require_gpus": " && ",
    "periodic_hold": " || ",
    "periodic_remove": " || ",
}
_HOLD_DEFAULTS = {"periodic_hold_reason": "undefined", "periodic_hold_subcode": "0"}
_LIST_COMMANDS = ("transfer_input_files", "ulog_execute_attrs", "job_machine_attrs")
_SITE_REFERENCE = re.compile(r"\bglidein_|\bmachine\b", re.IGNORECASE)


def merge_lines(generated: list[SubmitLine], user_lines: Sequence[SubmitLine]) -> list[SubmitLine]:
    """Merge the user's lines into ours: join conditions, extend lists, and replace or add all others."""
    merged = {normalize_key(key): (key, value) for key, value in generated}
    values = {name: value for name, (_, value) in merged.items()}
    for key, value in _with_user_hold_reasons(values, user_lines):
        name = normalize_key(key)
        previous = merged[name][1] if name in merged else ""
        if previous and name in _JOINED_EXPRESSIONS:
            value = f"({previous}){_JOINED_EXPRESSIONS[name]}({value})"
        elif previous and name in _LIST_COMMANDS:
            value = f"{previous}, {value}"
        merged[name] = (merged[name][0] if name in merged else key, value)
    return list(merged.values())


def _with_user_hold_reasons(generated: Mapping[str, str], user_lines: Sequence[SubmitLine]) -> Sequence[SubmitLine]:
    """Make the reason and subcode of a hold depend on whose condition holds the job: the user's or ours."""
    user_values = {normalize_key(key): value for key, value in user_lines}
    our_condition = generated.get("periodic_hold")
    if our_condition is None or not user_values.keys() & {"periodic_hold", *_HOLD_DEFAULTS}:
        return user_lines
    hold_lines = [
        (name, f"ifThenElse({our_condition}, {generated[name]}, {user_values.get(name, default)})")
        for name, default in _HOLD_DEFAULTS.items()
    ]
    return [line for line in user_lines if normalize_key(line[0]) not in _HOLD_DEFAULTS] + hold_lines


def normalize_key(key: str) -> str:
    """Return a key in lower case, with `+Attr` written as `my.attr`."""
    name = key.strip().lower()
    return "my." + name[1:] if name.startswith("+") else name


def rejected_lines(submit_lines: Sequence[SubmitLine]) -> Iterator[tuple[str, str]]:
    """Yield the user's keys that only packtrain may set, each with a message."""
    for key, _ in submit_lines:
        if normalize_key(key) in RESERVED_COMMANDS:
            yield key, f"packtrain sets {key} itself; use the keys of the workflow instead"
        elif normalize_key(key).startswith("my.packtrain"):
            yield key, "attributes whose names begin with Packtrain are reserved"


def has_site_requirements(submit_lines: Iterable[SubmitLine]) -> bool:
    """Return whether the user's requirements name sites or nodes."""
    return any(normalize_key(key) == "requirements" and _SITE_REFERENCE.search(value) for key, value in submit_lines)
