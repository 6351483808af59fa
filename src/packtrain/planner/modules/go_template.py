"""Render the Go templates (text/template with some functions of sprig) that modules of DeepSquare are written in.

`render_template` returns the text and, for each of its lines, the line of the template that it came from, so that
errors name lines that users can find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ACTION = re.compile(r"\{\{(-(?=\s))?\s*(/\*.*?\*/|(?:`[^`]*`|\"(?:\\.|[^\"\\])*\"|.)*?)\s*((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\.|[^"\\])*")|(?P<raw>`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)"""
    r"""|(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>\.(?:\w+(?:\.\w+)*)?)|(?P<name>\w+)|(?P<mark>:=|=|\||\(|\)|,))"""
)
_MAX_OUTPUT_CHARS = 1_000_000


class TemplateError(Exception):
    """A template that cannot be rendered.

    Args:
        line: The line of the template.
        message: What is wrong.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class RenderedTemplate:
    """The text of a template, and the line of the template for each line of the text."""

    text: str
    lines: tuple[int, ...]


@dataclass
class _Node:
    """Text, or an action with the nodes that it contains: `if`, `range` and `with` have branches."""

    line: int
    text: str = ""
    keyword: str = ""  # "": text; "print": a pipeline
    branches: list[tuple[str, list[_Node]]] = field(default_factory=list)  # (condition, body); "" for else


GetField = Callable[[Any, str], Any]
"""Returns the field of a value. Raises LookupError."""


def render_template(
    template: str, values: Mapping[str, Any], get_field: GetField, functions: Mapping[str, Callable[..., Any]]
) -> RenderedTemplate:
    """Render a template.

    Args:
        template: The text.
        values: What `.` means at the top.
        get_field: Returns the fields of values that are not mappings.
        functions: Functions besides the built-in ones.

    Raises:
        TemplateError: The template is malformed, or uses what is not supported.
    """
    nodes = _parse(template)
    return _Renderer(values, get_field, {**_FUNCTIONS, **functions}).render(nodes)


def _parse(template: str) -> list[_Node]:
    top: list[_Node] = []
    stack: list[tuple[_Node, list[_Node]]] = []
    body, position, trim_next = top, 0, False
    for match in _ACTION.finditer(template):
        line = template.count("\n", 0, match.start()) + 1
        _add_text(body, template, position, match.start(), trim_next, bool(match.group(1)))
        position, trim_next = match.end(), bool(match.group(3))
        code = match.group(2).strip()
        keyword, _, rest = code.partition(" ")
        if code.startswith("/*"):
            continue
        if keyword in ("if", "range", "with"):
            node = _Node(line, keyword=keyword, branches=[(rest.strip(), [])])
            body.append(node)
            stack.append((node, body))
            body = node.branches[0][1]
        elif keyword == "else" and stack:
            node = stack[-1][0]
            node.branches.append((rest.strip().removeprefix("if ").strip(), []))
            body = node.branches[-1][1]
        elif keyword == "end" and stack:
            body = stack.pop()[1]
        elif keyword in ("else", "end", "define", "template", "block", "break", "continue"):
            raise TemplateError(line, f"`{{{{ {code} }}}}` is not supported here")
        else:
            body.append(_Node(line, text=code, keyword="print"))
    if stack:
        raise TemplateError(stack[-1][0].line, f"`{{{{ {stack[-1][0].keyword} … }}}}` has no `{{{{ end }}}}`")
    _add_text(body, template, position, len(template), trim_next, False)
    return top


def _add_text(body: list[_Node], template: str, start: int, end: int, trim_left: bool, trim_right: bool) -> None:
    text = template[start:end]
    if trim_left:
        start += len(text) - len(text.lstrip())
        text = text.lstrip()
    if text:
        body.append(_Node(template.count("\n", 0, start) + 1, text.rstrip() if trim_right else text))


class _Renderer:
    def __init__(self, top: Any, get_field: GetField, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._top, self._get_field, self._functions = top, get_field, functions
        self._parts: list[str] = []
        self._lines: list[int] = [1]
        self._size = 0

    def render(self, nodes: Sequence[_Node]) -> RenderedTemplate:
        self._run(nodes, self._top, [{"$": self._top}])
        return RenderedTemplate("".join(self._parts), tuple(self._lines))

    def _run(self, nodes: Sequence[_Node], dot: Any, scopes: list[dict[str, Any]]) -> None:
        for node in nodes:
            if not node.keyword:
                self._write(node.text, node.line, is_source=True)
                continue
            try:
                self._act(node, dot, scopes)
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                reason = error.args[0] if error.args else type(error).__name__
                raise TemplateError(node.line, f"the template cannot be rendered: {reason}") from error

    def _act(self, node: _Node, dot: Any, scopes: list[dict[str, Any]]) -> None:
        if node.keyword == "print":
            value, is_assignment = self._evaluate(node.text, dot, scopes)
            if not is_assignment:
                self._write(to_text(value), node.line)
            return
        if node.keyword == "range":
            self._range(node, dot, scopes)
            return
        for condition, body in node.branches:
            inner = [*scopes, {}]
            value = self._evaluate(condition, dot, inner)[0] if condition else True
            if is_true(value):
                self._run(body, value if node.keyword == "with" and condition else dot, inner)
                return

    def _range(self, node: _Node, dot: Any, scopes: list[dict[str, Any]]) -> None:
        header, body = node.branches[0]
        names, mark, pipeline = header.partition(":=")
        value = self._evaluate(pipeline if mark else header, dot, scopes)[0]
        variables = [name.strip() for name in names.split(",")] if mark else []
        pairs = _iter_pairs(value)
        if not pairs:
            for _, otherwise in node.branches[1:]:
                self._run(otherwise, dot, [*scopes, {}])
        for key, item in pairs:
            assigned = (key, item) if len(variables) == 2 else (item,)
            self._run(body, item, [*scopes, dict(zip(variables, assigned, strict=False))])

    def _write(self, text: str, line: int, is_source: bool = False) -> None:
        self._size += len(text)
        if self._size > _MAX_OUTPUT_CHARS:
            raise TemplateError(line, f"the template renders to more than {_MAX_OUTPUT_CHARS} characters")
        self._parts.append(text)
        for number in range(text.count("\n")):
            self._lines.append(line + number + 1 if is_source else line)

    def _evaluate(self, code: str, dot: Any, scopes: list[dict[str, Any]]) -> tuple[Any, bool]:
        """Return the value of a pipeline, and whether it only sets a variable."""
        tokens = _tokenize(code)
        if len(tokens) > 1 and tokens[0][0] == "variable" and tokens[1][1] in (":=", "="):
            name = tokens[0][1]
            value = self._pipeline(tokens[2:], dot, scopes)
            target = scopes[-1]
            if tokens[1][1] == "=":
                target = next((scope for scope in reversed(scopes) if name in scope), target)
            target[name] = value
            return value, True
        return self._pipeline(tokens, dot, scopes), False

    def _pipeline(self, tokens: list[tuple[str, str]], dot: Any, scopes: list[dict[str, Any]]) -> Any:
        value, is_first = None, True
        for command in _split_at_pipes(tokens):
            value = self._command(command, dot, scopes, () if is_first else (value,))
            is_first = False
        return value

    def _command(
        self, tokens: list[tuple[str, str]], dot: Any, scopes: list[dict[str, Any]], piped: tuple[Any, ...]
    ) -> Any:
        if not tokens:
            raise ValueError("a value is missing")
        if tokens[0][0] == "name" and tokens[0][1] not in _CONSTANTS:
            name = tokens[0][1]
            if name not in self._functions:
                raise LookupError(f"the function {name!r} is not supported")
            return self._functions[name](*self._operands(tokens[1:], dot, scopes), *piped)
        operands = self._operands(tokens, dot, scopes)
        if len(operands) != 1 or piped:
            raise ValueError(f"{tokens[0][1]} is not a function")
        return operands[0]

    def _operands(self, tokens: list[tuple[str, str]], dot: Any, scopes: list[dict[str, Any]]) -> list[Any]:
        values: list[Any] = []
        position = 0
        while position < len(tokens):
            kind, text = tokens[position]
            if text == "(" and kind == "mark":
                end = _find_close(tokens, position)
                values.append(self._pipeline(tokens[position + 1 : end], dot, scopes))
                position = end
            else:
                values.append(self._operand(kind, text, dot, scopes))
            position += 1
        return values

    def _operand(self, kind: str, text: str, dot: Any, scopes: list[dict[str, Any]]) -> Any:
        if kind == "string":
            return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), text[1:-1])
        if kind == "raw":
            return text[1:-1]
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind == "field":
            return self._fields(dot, text[1:])
        if kind == "variable":
            name, _, path = text.partition(".")
            scope = next((scope for scope in reversed(scopes) if name in scope), None)
            if scope is None:
                raise LookupError(f"the variable {name} is not set")
            return self._fields(scope[name], path)
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if kind == "name" and text in self._functions:
            return self._functions[text]()
        raise LookupError(f"{text!r} is not supported")

    def _fields(self, value: Any, path: str) -> Any:
        for name in filter(None, path.split(".")):
            if isinstance(value, Mapping):
                if name not in value:
                    raise LookupError(f"there is no {name!r}")
                value = value[name]
            else:
                value = self._get_field(value, name)
        return value


def _tokenize(code: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while code[position:].strip():
        match = _TOKEN.match(code, position)
        if match is None:
            raise ValueError(f"`{code[position:].strip()[:40]}` is not understood")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        position = match.end()
    return tokens


def _split_at_pipes(tokens: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    command: list[tuple[str, str]] = []
    depth = 0
    for token in tokens:
        depth += {("mark", "("): 1, ("mark", ")"): -1}.get(token, 0)
        if token == ("mark", "|") and not depth:
            yield command
            command = []
        else:
            command.append(token)
    yield command


def _find_close(tokens: list[tuple[str, str]], start: int) -> int:
    depth = 0
    for position in range(start, len(tokens)):
        depth += {("mark", "("): 1, ("mark", ")"): -1}.get(tokens[position], 0)
        if not depth:
            return position
    raise ValueError("a parenthesis is not closed")


def _iter_pairs(value: Any) -> list[tuple[Any, Any]]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        return sorted(value.items())
    if isinstance(value, int):
        return [(number, number) for number in range(min(value, _MAX_OUTPUT_CHARS))]
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    raise TypeError("`range` needs a list")


def is_true(value: Any) -> bool:
    """Return whether Go's templates take a value as true: it is not zero and not empty."""
    return bool(value)


def to_text(value: Any) -> str:
    """Return a value as Go's templates print it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(to_text, value))}]"
    return str(value)


def _indent(count: int, text: Any) -> str:
    return "\n".join(" " * count + line for line in to_text(text).split("\n"))


def _equal(first: Any, *others: Any) -> bool:
    return any(first == other for other in others)


def _all_of(*values: Any) -> Any:
    return next((value for value in values if not is_true(value)), values[-1])


def _any_of(*values: Any) -> Any:
    return next((value for value in values if is_true(value)), values[-1])


def _product(*values: Any) -> int:
    result = 1
    for value in values:
        result *= int(value)
    return result


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        value = value[key]
    return value


def _default(default: Any, value: Any = None) -> Any:
    return value if is_true(value) else default


def _required(message: str, value: Any = None) -> Any:
    if not is_true(value):
        raise ValueError(message)
    return value


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "nil": None}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": _all_of,
    "or": _any_of,
    "not": lambda value: not is_true(value),
    "eq": _equal,
    "ne": lambda first, second: first != second,
    "lt": lambda first, second: first < second,
    "le": lambda first, second: first <= second,
    "gt": lambda first, second: first > second,
    "ge": lambda first, second: first >= second,
    "len": len,
    "index": _index,
    "print": lambda *values: "".join(map(to_text, values)),
    "printf": lambda pattern, *values: pattern.replace("%v", "%s") % tuple(values),
    "add": lambda *values: sum(map(int, values)),
    "add1": lambda value: int(value) + 1,
    "sub": lambda first, second: int(first) - int(second),
    "mul": _product,
    "div": lambda first, second: int(int(first) / int(second)),
    "mod": lambda first, second: int(first) % int(second),
    "max": lambda *values: max(map(int, values)),
    "min": lambda *values: min(map(int, values)),
    "int": lambda value: int(value or 0),
    "default": _default,
    "coalesce": lambda *values: next((value for value in values if is_true(value)), None),
    "ternary": lambda yes, no, condition: yes if condition else no,
    "empty": lambda value: not is_true(value),
    "required": _required,
    "quote": lambda *values: " ".join('"' + to_text(v).replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values),
    "squote": lambda *values: " ".join(f"'{to_text(value)}'" for value in values),
    "indent": _indent,
    "nindent": lambda count, text: "\n" + _indent(count, text),
    "trim": lambda text: to_text(text).strip(),
    "upper": lambda text: to_text(text).upper(),
    "lower": lambda text: to_text(text).lower(),
    "toString": to_text,
    "replace": lambda old, new, text: text.replace(old, new),
    "contains": lambda part, text: part in text,
    "hasPrefix": lambda prefix, text: text.startswith(prefix),
    "hasSuffix": lambda suffix, text: text.endswith(suffix),
    "trimPrefix": lambda prefix, text: text.removeprefix(prefix),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "join": lambda separator, values: separator.join(map(to_text, values)),
    "list": lambda *values: list(values),
    "until": lambda count: list(range(min(int(count), _MAX_OUTPUT_CHARS))),
}
