"""Checks that /bin/sh runs a task's command as Pixi's own shell does.

Pixi runs tasks with deno_task_shell, whose language is close to that of /bin/sh. What both read in the same way is
accepted: quotes, `$NAME`, `$(…)`, `&&`, `||`, `;`, `|`, redirections. Everything else is refused.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\?")
_BRACED_NAME = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_BLANKS = re.compile(r"[ \t]+")
_OPERATOR = re.compile(r"&&|\|\||[|;]")
_REDIRECTION = re.compile(r">>|>&[0-9](?=[\s;|&)]|$)|[<>]")
_NUMBERED_REDIRECTION = re.compile(r"\d+[<>]")
_REFUSED = re.compile(r"&>|\|&|;;|<<|<\(|>\(|>\||&(?!&)|[()`]")
_WORD_END = " \t\n|&;<>()"
_LINE_BREAK = re.compile(r"\s*\n\s*")
_KEYWORDS = frozenset(
    ("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "function")
) | {"{", "}", "[[", "]]", "time"}


class UnsupportedSyntaxError(ValueError):
    """The command has something that the two shells read differently."""


def translate_command(command: str) -> str:
    """Return the command for /bin/sh. Raises UnsupportedSyntaxError, whose text completes `the command …`."""
    reader = _Reader(command.strip())
    reader.read_list(closing="")
    return "".join(reader.output)


class _Reader:
    """Reads a command once, from left to right, and collects what /bin/sh gets."""

    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0
        self.output: list[str] = []

    def _at(self, start: str) -> bool:
        return self._text.startswith(start, self._position)

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Copy what the pattern matches here; "" if it does not."""
        match = pattern.match(self._text, self._position)
        if not match:
            return ""
        self._position = match.end()
        self.output.append(match.group())
        return match.group()

    def _copy(self, count: int = 1) -> None:
        self.output.append(self._text[self._position : self._position + count])
        self._position += count

    def read_list(self, closing: str) -> None:
        """Read commands up to `closing`, which stays unread; "" means the end of the text."""
        operator, starts_command = "", True  # the one before this command; whether the command has no word yet
        while self._position < len(self._text) and not (closing and self._at(closing)):
            if match := _LINE_BREAK.match(self._text, self._position):
                self._join_lines(match, starts_command)
            elif self._take(_BLANKS):
                pass
            elif match := _REFUSED.match(self._text, self._position):
                raise UnsupportedSyntaxError(f"uses `{match.group()}`")
            elif found := self._take(_OPERATOR):
                self._require_word(starts_command, found)
                operator, starts_command = found, True
            elif found := self._take(_REDIRECTION):
                self._take(_BLANKS)
                self._require_word(not found[-1].isdigit() and not self._is_at_file(), found)
                starts_command = False
            else:
                word = self._read_word(starts_command)
                is_negation = starts_command and word == "!"
                self._require_word(is_negation and operator in ("!", "|"), word)
                operator, starts_command = ("!", True) if is_negation else (operator, False)
        self._require_word(starts_command and operator not in ("", ";"), operator)
        if closing and self._position >= len(self._text):
            raise UnsupportedSyntaxError("has a `$(` without `)`")

    @staticmethod
    def _require_word(is_missing: bool, operator: str) -> None:
        if is_missing:
            raise UnsupportedSyntaxError(f"has `{operator}` without a command or file beside it")

    def _is_at_file(self) -> bool:
        """Return whether the target of a redirection follows."""
        return not self._is_at_end_of_word() and not _NUMBERED_REDIRECTION.match(self._text, self._position)

    def _is_at_end_of_word(self) -> bool:
        return self._position >= len(self._text) or self._text[self._position] in _WORD_END

    def _join_lines(self, line_break: re.Match[str], starts_command: bool) -> None:
        """Replace a line break beside an operator by a blank."""
        self._position = line_break.end()
        if not starts_command and not _OPERATOR.match(self._text, self._position):
            raise UnsupportedSyntaxError("has several lines without `&&` or `;` between them")
        self.output.append(" ")

    def _read_word(self, starts_command: bool) -> str:
        start = self._position
        if self._at("#"):
            raise UnsupportedSyntaxError("uses `#`")
        while not self._is_at_end_of_word():
            self._read_piece()
        word = self._text[start : self._position]
        if starts_command and word in _KEYWORDS:
            raise UnsupportedSyntaxError(f"uses `{word}`")
        return word

    def _read_piece(self) -> None:
        """Read one character of a word, a quoted text or an expansion."""
        if self._at("'"):
            end = self._text.find("'", self._position + 1)
            if end < 0:
                raise UnsupportedSyntaxError("has a quote without its end")
            self._copy(end + 1 - self._position)
        elif self._at('"'):
            self._copy()
            self._read_double_quoted()
        elif self._at("\\\n"):
            self._position += 2
        elif self._at("\\"):
            self._copy(2)
        elif self._at("$"):
            self._read_expansion()
        elif self._at("`"):
            raise UnsupportedSyntaxError("uses ```")
        else:
            self._copy()

    def _read_double_quoted(self) -> None:
        while not self._at('"'):
            if self._position >= len(self._text):
                raise UnsupportedSyntaxError("has a quote without its end")
            if self._at("`"):
                raise UnsupportedSyntaxError("uses ```")
            if self._at("\\"):
                self._copy(2)
            elif self._at("$"):
                self._read_expansion()
            else:
                self._copy()
        self._copy()

    def _read_expansion(self) -> None:
        """Read `$NAME`, `${NAME}`, `$(…)`, or a lone `$`."""
        if self._at("$(("):
            raise UnsupportedSyntaxError("uses `$((`")
        self._copy()
        if self._at("("):
            self._copy()
            self.read_list(closing=")")
            self._copy()
        elif self._at("{"):
            if not self._take(_BRACED_NAME):
                raise UnsupportedSyntaxError("uses `${` with more than a name")
        elif not self._take(_NAME) and re.match(r"[0-9@*#$!-]", self._text[self._position :]):
            raise UnsupportedSyntaxError(f"uses `${self._text[self._position]}`")
