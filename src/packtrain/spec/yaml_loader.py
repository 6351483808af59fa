"""YAML text to plain values, with the place of each. Never raises: what is wrong is reported.

Scalars follow YAML 1.2's core schema, so `on` and `yes` are words and `1e-3` is a number. Numbers
remember how they were written, because `0.10` in a command or a path must stay `0.10`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from packtrain.spec.diagnostics import ERROR, Origin, Path, Place, Problem, Report, shown

MAX_BYTES = 1_000_000
MAX_DEPTH = 60
MAX_NODES = 100_000  # with aliases expanded

_UNPRINTABLE = yaml.reader.Reader.NON_PRINTABLE
_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))


class WrittenInt(int):
    """An integer that remembers its text."""

    text: str


class WrittenFloat(float):
    """A float that remembers its text."""

    text: str


@dataclass(frozen=True)
class Document:
    """`value` is None when the text is no YAML at all; the problems say why."""

    value: Any
    origin: Origin
    problems: tuple[Problem, ...]


class _UnreadableError(Exception):
    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


class _Composer(yaml.BaseLoader):
    """Builds nodes only; BaseLoader resolves no tags, so a tag that we see was written."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.depth >= MAX_DEPTH:
            place = _place(self.peek_event())  # type: ignore[no-untyped-call]
            raise _UnreadableError(place, f"the file nests deeper than {MAX_DEPTH} levels")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def read(data: bytes | str, name: str) -> Document:
    """Parse a document of at most MAX_BYTES."""
    try:
        node = _compose(_text(data))
    except _UnreadableError as error:
        return Document(None, Origin(name), (Problem(name, error.place.line, error.place.column, ERROR, str(error)),))
    walker = _Walker(name)
    value = walker.document(node)
    return Document(value, walker.origin, walker.report.problems)


def _text(data: bytes | str) -> str:
    if len(data) > MAX_BYTES:
        raise _UnreadableError(Place(), f"the file has {len(data)} bytes, a workflow at most {MAX_BYTES}")
    text = data if isinstance(data, str) else _decoded(data)
    found = _UNPRINTABLE.search(text)
    if found:
        raise _UnreadableError(
            _place_at(text, found.start()), f"the character {found.group()!r} is not allowed in YAML"
        )
    return text


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _UnreadableError(_place_at(before, len(before)), message) from None


def _place_at(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - before.rfind("\n"))


def _compose(text: str) -> yaml.Node | None:
    composer = _Composer(text)
    try:
        node: yaml.Node | None = composer.get_single_node()
        return node
    except yaml.MarkedYAMLError as error:
        raise _UnreadableError(_marked(error), _sentence(error)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _UnreadableError(Place(), f"the file is not valid YAML: {error}") from None
    finally:
        composer.dispose()


def _marked(error: yaml.MarkedYAMLError) -> Place:
    mark = error.problem_mark or error.context_mark
    return Place(mark.line + 1, mark.column + 1) if mark else Place()


def _sentence(error: yaml.MarkedYAMLError) -> str:
    context = f" {error.context}" if error.context else ""
    return f"not valid YAML{context}: {error.problem}"


def _place(node: Any) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


class _Walker:
    """Nodes to values. Aliases are expanded, within MAX_NODES."""

    def __init__(self, name: str) -> None:
        self._values: dict[Path, Place] = {}
        self._keys: dict[Path, Place] = {}
        self._open: set[int] = set()  # nodes that we are inside of
        self._seen = 0
        self.origin = Origin(name, self._values, self._keys)
        self.report = Report(self.origin)

    def document(self, node: yaml.Node | None) -> Any:
        if node is None:
            self.report.error((), "the file is empty")
            return None
        try:
            return self.value(node, ())
        except _UnreadableError as error:
            self.report.add(error.place, ERROR, str(error))
            return None

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count(node)
        self._values[path] = _place(node)
        if node.tag not in _TAGS:
            self.report.error(path, f"the tag {node.tag!r} means nothing here", "remove it")
        self._open.add(id(node))
        try:
            return self._content(node, path)
        finally:
            self._open.discard(id(node))

    def _count(self, node: yaml.Node) -> None:
        self._seen += 1
        if self._seen > MAX_NODES:
            raise _UnreadableError(_place(node), f"the file has more than {MAX_NODES} values, aliases (*) expanded")
        if id(node) in self._open:
            raise _UnreadableError(_place(node), "an alias (*) refers to something that contains it")

    def _content(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if _is_broken(text):
            self.report.error(path, "the text holds an escape that is no character", "remove the escape")
            return ""
        return plain_value(text) if node.style is None else text

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node, own in self._pairs(node, True):
            key = self._key(key_node, path)
            if key is None or (key in made and not own):
                continue
            here = (*path, key)
            if key in made:
                message = f"the key {key!r} stands here twice, first in line {self._keys[here].line}"
                self.report.add(_place(key_node), ERROR, message)
                continue
            self._keys[here] = _place(key_node)
            made[key] = self.value(value_node, here)
        return made

    def _pairs(self, node: yaml.MappingNode, own: bool) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """Keys and values of a mapping, then those that it merges with `<<`."""
        yield from ((key, value, own) for key, value in node.value if not _is_merge(key))
        for merged in (value for key, value in node.value if _is_merge(key)):
            for source in merged.value if isinstance(merged, yaml.SequenceNode) else [merged]:
                self._count(source)
                if not isinstance(source, yaml.MappingNode):
                    self.report.add(_place(source), ERROR, "`<<` takes a mapping or a list of mappings")
                    continue
                self._open.add(id(source))
                yield from self._pairs(source, False)
                self._open.discard(id(source))

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        if isinstance(node, yaml.ScalarNode) and not _is_broken(node.value):
            return str(node.value)
        self.report.add(_place(node), ERROR, f"a key of {shown(path)} is no plain text", "should it be quoted?")
        return None


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.style is None


def _is_broken(text: str) -> bool:
    """Escapes such as \\ud800 and \\0 make what no file or process can take."""
    return any("\ud800" <= character <= "\udfff" or character == "\0" for character in text)


def _int(text: str, base: int) -> Any:
    made = WrittenInt(int(text, base))
    made.text = text
    return made


def _float(text: str) -> Any:
    made = WrittenFloat(text)
    made.text = text
    return made if math.isfinite(made) else text


# What plain text means, first match. Longer numbers, and those with leading zeros, stay text.
_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?(0|[1-9][0-9]{0,17})"), lambda text: _int(text, 10)),
    (re.compile(r"0x[0-9a-fA-F]{1,15}"), lambda text: _int(text, 16)),
    (re.compile(r"0o[0-7]{1,20}"), lambda text: _int(text, 8)),
    (re.compile(r"[-+]?(\.[0-9]{1,30}|(0|[1-9][0-9]{0,30})(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,4})?"), _float),
)


def plain_value(text: str) -> Any:
    """The value of an unquoted scalar."""
    if not any(character.isdigit() for character in text) and text not in _WORDS:
        return text
    return next((make(text) for pattern, make in _CORE if pattern.fullmatch(text)), text)


_WORDS = frozenset(("", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"))
