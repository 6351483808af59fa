"""Parse YAML to plain values and their positions. Invalid YAML becomes diagnostics, never exceptions.

Scalars follow the core schema of YAML 1.2: `on` and `yes` are text, `1e-3` is a number. Numbers keep their source text,
because `0.10` in a command or a path must stay `0.10`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from packtrain.spec.diagnostics import (
    ERROR,
    Diagnostic,
    DiagnosticReport,
    KeyPath,
    Position,
    SourceMap,
    format_key_path,
)

MAX_FILE_BYTES = 1_000_000
MAX_DEPTH = 60
MAX_NODES = 100_000  # with aliases expanded

_NON_PRINTABLE_PATTERN = yaml.reader.Reader.NON_PRINTABLE
_TAG_PREFIX = "tag:yaml.org,2002:"
_CORE_TAGS = frozenset(_TAG_PREFIX + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))


class IntWithText(int):
    """An integer that keeps its source text."""

    text: str


class FloatWithText(float):
    """A float that keeps its source text."""

    text: str


@dataclass(frozen=True)
class YamlDocument:
    """A parsed document. `value` is None if the text is not valid YAML; `diagnostics` say why."""

    value: Any
    source_map: SourceMap
    diagnostics: tuple[Diagnostic, ...]


class _InvalidYamlError(Exception):
    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position


class _Composer(yaml.BaseLoader):
    """Composes nodes. BaseLoader resolves no tags, so every tag was written in the file."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.depth >= MAX_DEPTH:
            position = _node_position(self.peek_event())  # type: ignore[no-untyped-call]
            raise _InvalidYamlError(position, f"the file nests deeper than {MAX_DEPTH} levels")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def parse_yaml(data: bytes | str, filename: str) -> YamlDocument:
    """Parse a document of at most MAX_FILE_BYTES."""
    try:
        node = _compose_root_node(_decode_text(data))
    except _InvalidYamlError as error:
        return YamlDocument(
            None,
            SourceMap(filename),
            (Diagnostic(filename, error.position.line, error.position.column, ERROR, str(error)),),
        )
    converter = _NodeConverter(filename)
    value = converter.convert_document(node)
    return YamlDocument(value, converter.source_map, converter.report.diagnostics)


def _decode_text(data: bytes | str) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise _InvalidYamlError(
            Position(), f"the file has {len(data)} bytes; a workflow may have at most {MAX_FILE_BYTES}"
        )
    text = data if isinstance(data, str) else _decode_utf8(data)
    match = _NON_PRINTABLE_PATTERN.search(text)
    if match:
        raise _InvalidYamlError(
            _position_at(text, match.start()), f"the character {match.group()!r} is not allowed in YAML"
        )
    return text


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _InvalidYamlError(_position_at(before, len(before)), message) from None


def _position_at(text: str, offset: int) -> Position:
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - before.rfind("\n"))


def _compose_root_node(text: str) -> yaml.Node | None:
    composer = _Composer(text)
    try:
        node: yaml.Node | None = composer.get_single_node()
        return node
    except yaml.MarkedYAMLError as error:
        raise _InvalidYamlError(_error_position(error), _error_message(error)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _InvalidYamlError(Position(), f"the file is not valid YAML: {error}") from None
    finally:
        composer.dispose()


def _error_position(error: yaml.MarkedYAMLError) -> Position:
    mark = error.problem_mark or error.context_mark
    return Position(mark.line + 1, mark.column + 1) if mark else Position()


def _error_message(error: yaml.MarkedYAMLError) -> str:
    context = f" {error.context}" if error.context else ""
    return f"not valid YAML{context}: {error.problem}"


def _node_position(node: Any) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


class _NodeConverter:
    """Converts nodes to values and expands aliases, up to MAX_NODES."""

    def __init__(self, filename: str) -> None:
        self._value_positions: dict[KeyPath, Position] = {}
        self._key_positions: dict[KeyPath, Position] = {}
        self._open_node_ids: set[int] = set()  # nodes that are being converted
        self._n_nodes = 0
        self.source_map = SourceMap(filename, self._value_positions, self._key_positions)
        self.report = DiagnosticReport(self.source_map)

    def convert_document(self, node: yaml.Node | None) -> Any:
        if node is None:
            self.report.error((), "the file is empty")
            return None
        try:
            return self.convert_node(node, ())
        except _InvalidYamlError as error:
            self.report.add(error.position, ERROR, str(error))
            return None

    def convert_node(self, node: yaml.Node, path: KeyPath) -> Any:
        self._check_node(node)
        self._value_positions[path] = _node_position(node)
        if node.tag not in _CORE_TAGS:
            self.report.error(path, f"the tag {node.tag!r} is not supported", "remove it")
        self._open_node_ids.add(id(node))
        try:
            return self._convert_content(node, path)
        finally:
            self._open_node_ids.discard(id(node))

    def _check_node(self, node: yaml.Node) -> None:
        self._n_nodes += 1
        if self._n_nodes > MAX_NODES:
            raise _InvalidYamlError(
                _node_position(node), f"the file has more than {MAX_NODES} values, aliases (*) expanded"
            )
        if id(node) in self._open_node_ids:
            raise _InvalidYamlError(_node_position(node), "an alias (*) refers to something that contains it")

    def _convert_content(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.convert_node(item, (*path, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._convert_scalar(node, path)

    def _convert_scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text = str(node.value)
        if _has_invalid_characters(text):
            self.report.error(path, "the text contains an escape that is not a character", "remove the escape")
            return ""
        return parse_plain_scalar(text) if node.style is None else text

    def _convert_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node, own in self._iter_pairs(node, True):
            key = self._convert_key(key_node, path)
            if key is None or (key in mapping and not own):
                continue
            key_path = (*path, key)
            if key in mapping:
                message = f"duplicate key {key!r}, first used in line {self._key_positions[key_path].line}"
                self.report.add(_node_position(key_node), ERROR, message)
                continue
            self._key_positions[key_path] = _node_position(key_node)
            mapping[key] = self.convert_node(value_node, key_path)
        return mapping

    def _iter_pairs(self, node: yaml.MappingNode, is_own: bool) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """Yield the keys and values of a mapping, then those merged with `<<`."""
        yield from ((key, value, is_own) for key, value in node.value if not _is_merge_key(key))
        for merged in (value for key, value in node.value if _is_merge_key(key)):
            for source in merged.value if isinstance(merged, yaml.SequenceNode) else [merged]:
                self._check_node(source)
                if not isinstance(source, yaml.MappingNode):
                    self.report.add(_node_position(source), ERROR, "`<<` takes a mapping or a list of mappings")
                    continue
                self._open_node_ids.add(id(source))
                yield from self._iter_pairs(source, False)
                self._open_node_ids.discard(id(source))

    def _convert_key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if isinstance(node, yaml.ScalarNode) and not _has_invalid_characters(node.value):
            return str(node.value)
        self.report.add(
            _node_position(node), ERROR, f"a key of {format_key_path(path)} is not plain text", "should it be quoted?"
        )
        return None


def _is_merge_key(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.style is None


def _has_invalid_characters(text: str) -> bool:
    """Return whether the text has characters (\\ud800, \\0) that files and processes do not accept."""
    return any("\ud800" <= character <= "\udfff" or character == "\0" for character in text)


def _parse_int(text: str, base: int) -> Any:
    number = IntWithText(int(text, base))
    number.text = text
    return number


def _parse_float(text: str) -> Any:
    number = FloatWithText(text)
    number.text = text
    return number if math.isfinite(number) else text


# The first matching pattern decides. Longer numbers and those with leading zeros stay text.
_CORE_SCHEMA: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?(0|[1-9][0-9]{0,17})"), lambda text: _parse_int(text, 10)),
    (re.compile(r"0x[0-9a-fA-F]{1,15}"), lambda text: _parse_int(text, 16)),
    (re.compile(r"0o[0-7]{1,20}"), lambda text: _parse_int(text, 8)),
    (re.compile(r"[-+]?(\.[0-9]{1,30}|(0|[1-9][0-9]{0,30})(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,4})?"), _parse_float),
)


def parse_plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if not any(character.isdigit() for character in text) and text not in _CORE_KEYWORDS:
        return text
    return next((convert(text) for pattern, convert in _CORE_SCHEMA if pattern.fullmatch(text)), text)


_CORE_KEYWORDS = frozenset(("", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"))
