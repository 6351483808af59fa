"""The value types of workflow keys and the base class of the models."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from packtrain.spec import units
from packtrain.transfer.http.digest_headers import parse_digest


class SpecModel(BaseModel):
    """Base class: keys are camelCase in the file, unknown keys are errors, field docstrings are descriptions."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_optional_keys(cls, data: Any) -> Any:
        """Treat an optional `key:` without a value as missing."""
        if not isinstance(data, dict):
            return data
        optional = {field.alias for field in cls.model_fields.values() if not field.is_required()}
        return {key: value for key, value in data.items() if value is not None or key not in optional}


def source_text(value: Any) -> Any:
    """Return numbers and booleans as they were written, where text is expected."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return getattr(value, "text", str(value))
    return value


def _source_text_or_empty(value: Any) -> Any:
    return "" if value is None else source_text(value)


def _reject_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"should be a whole number, but is {str(value).lower()}")
    return value


def _quantity_parser(parse: Any) -> Any:
    """Return a validator for a number, or text with a unit that `parse` accepts."""

    def parse_value(value: Any) -> Any:
        text = source_text(_reject_bool(value))
        return parse(text) if isinstance(text, str) else text

    return parse_value


def _parse_file_mode(value: Any) -> Any:
    """Parse a file mode: decimal as in DeepSquare, or octal if written as 0755 or 0o755."""
    text = source_text(_reject_bool(value))
    if isinstance(text, str) and re.fullmatch(r"0o?[0-7]{1,6}", text) and text != "0":
        return int(text.replace("o", ""), 8)
    return value


def _pattern_validator(pattern: str, message: str) -> AfterValidator:
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value[:80]!r} {message}")
        return value

    return AfterValidator(check)


def _check_env_key(value: str) -> str:
    if value in ("PATH", "LD_LIBRARY_PATH"):
        raise ValueError(f"{value} may not be set here; `environment.path` prepends folders to PATH")
    return value


def _check_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or re.search(r"\s", value):
        raise ValueError(f"{value[:200]!r} is not a URL; it should start with https:// or http:// and name a host")
    return value


def check_relative_path(value: str) -> str:
    """Return the path if it is relative and stays below its folder. Raises ValueError."""
    if not value or value.startswith(("/", "~")) or ".." in value.split("/"):
        raise ValueError(f"{value[:80]!r} should be a path below the folder: relative, without `..`")
    return value


# Limits come before the validators, so that the JSON Schema shows them.
Str = Annotated[str, BeforeValidator(source_text)]
StrOrEmpty = Annotated[
    str, BeforeValidator(_source_text_or_empty, json_schema_input_type=str | int | float | bool | None)
]
Int = Annotated[int, BeforeValidator(_reject_bool)]
PositiveInt = Annotated[int, Field(ge=1, le=10**9), BeforeValidator(_reject_bool)]
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9), BeforeValidator(_reject_bool)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_reject_bool)]
Factor = Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False), BeforeValidator(_reject_bool)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_reject_bool)]
Seconds = Annotated[
    float,
    Field(gt=0, le=10**10),
    BeforeValidator(_quantity_parser(units.parse_duration), json_schema_input_type=float | str),
]
Bytes = Annotated[
    int, Field(ge=0, le=10**18), BeforeValidator(_quantity_parser(units.parse_size), json_schema_input_type=int | str)
]
Megabytes = Annotated[
    int,
    Field(ge=1, le=10**12),
    BeforeValidator(_quantity_parser(units.parse_megabytes), json_schema_input_type=int | str),
]
FileMode = Annotated[int, Field(ge=0, lt=512), BeforeValidator(_parse_file_mode, json_schema_input_type=int | str)]
Identifier = Annotated[Str, _pattern_validator(r"[A-Za-z_][A-Za-z0-9_]*", "should be a name of letters, digits and _")]
EnvKey = Annotated[Identifier, AfterValidator(_check_env_key)]
WorkflowName = Annotated[
    Str,
    _pattern_validator(
        r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}", "should be a name of letters, digits, spaces, `.`, `_`, `-`"
    ),
]
FolderName = Annotated[
    Str,
    _pattern_validator(
        r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", "becomes a folder's name: letters, digits, `.`, `_`, `-` only"
    ),
]
SbatchOption = Annotated[
    Str, _pattern_validator(r"[a-z][a-z0-9-]+", "should be a long option of sbatch without its dashes, e.g. partition")
]
SignalName = Annotated[
    Str,
    _pattern_validator(r"(B:)?(TERM|INT|HUP|QUIT|USR1|USR2|CONT|ALRM)", "should be a signal such as USR1 or B:USR1"),
]
VersionNumber = Annotated[Str, _pattern_validator(r"\d+(\.\d+){0,3}", "should be a version such as 8.0 or 525.60")]
Sha256 = Annotated[Str, AfterValidator(partial(parse_digest, "sha256"))]
Md5 = Annotated[Str, AfterValidator(partial(parse_digest, "md5"))]
Crc32c = Annotated[Str, AfterValidator(partial(parse_digest, "crc32c"))]
Url = Annotated[Str, AfterValidator(_check_url)]
LogPath = Annotated[Str, AfterValidator(lambda path: path if path.startswith("/") else check_relative_path(path))]
RelativePath = Annotated[Str, AfterValidator(check_relative_path)]
AbsolutePath = Annotated[Str, _pattern_validator(r"/[^\x00]*", "should be an absolute path")]
NonEmptyPath = Annotated[Str, Field(min_length=1)]
