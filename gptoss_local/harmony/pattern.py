r"""Regular expressions of JSON Schema -> what llguidance matches, which is Rust's syntax.

JSON Schema means JavaScript's (ECMA-262, with the flag `u`, but forgiving about characters that
need no escape). The same text often means something else in Rust: `[a&&b]`, `\s`, `.`, `[[]`. So a
pattern is read here, and written so that there is no doubt. Look-ahead becomes an intersection.

From other languages come `\A`, `\z`, `\Z`, `(?P<name>…)`, and `(?i)` and `(?s)` at the beginning.

Source: ECMA-262, 22.2 (Pattern, CharacterClassEscape, and annex B.1.2 for `{` and `]` alone).
"""

import itertools
import string
from dataclasses import dataclass

from gptoss_local.harmony.regex_algebra import (
    ANY,
    ANYTHING,
    EMPTY,
    LAST,
    NOTHING,
    Alt,
    And,
    Chars,
    Node,
    Ranges,
    Repeat,
    Seq,
    TooComplexError,
    alt,
    both,
    chars,
    check_size,
    inverted,
    is_nullable,
    negated,
    plain,
    repeat,
    seq,
)
from gptoss_local.off_loop import Check

_MAX_DEPTH = 100  # groups within each other
_MAX_LENGTH = 500_000  # characters of the expression that llguidance gets
_MAX_DIGITS = 9  # of a number of repetitions; llguidance takes none with more
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B, "f": 0x0C, "0": 0x00}
_HAS_CASE_BELOW = 0x600  # what `(?i)` covers: Latin, Greek, Cyrillic, Armenian


class PatternError(ValueError):
    """A pattern cannot be enforced; the text continues after "the pattern "."""


@dataclass(frozen=True, slots=True)
class _Edge:
    is_start: bool


@dataclass(frozen=True, slots=True)
class _Look:
    ahead: "_Term"
    is_negative: bool


@dataclass(frozen=True, slots=True)
class _Row:
    terms: "tuple[_Term, ...]"


@dataclass(frozen=True, slots=True)
class _Choice:
    options: "tuple[_Term, ...]"


# What has no edges and no look-ahead in it is a Node. The others are read with what follows them.
_Term = Node | _Edge | _Look | _Row | _Choice


def read_pattern(pattern: str) -> Node:
    """Return all texts that a pattern is found in.

    Raises:
        PatternError: it is not an expression, or has something that cannot be enforced.
    """
    term = _Parser(pattern).read()
    try:
        first, later = _expand(term, ANYTHING, True), _expand(term, ANYTHING, False)
    except TooComplexError as error:
        raise _too_complex() from error
    if isinstance(first, And) and first == later:
        return first  # what look-ahead begins is not looked for further on: too complex
    if first == later:
        return seq(ANYTHING, first)
    return alt(first, seq(ANY, ANYTHING, later))


def literal(text: str) -> Node:
    return seq(*(Chars(((ord(char),) * 2,)) for char in text))


def render(language: Node, check: Check = lambda: None) -> str:
    """Write an expression that matches the texts of a language as a whole.

    Args:
        language: All these texts.
        check: Raises when the expression is no longer wanted; it may take a while.

    Raises:
        PatternError: it would be too complex.
    """
    try:
        text = _render(plain(language, check))
    except TooComplexError as error:
        raise _too_complex() from error
    if len(text) > _MAX_LENGTH:
        raise _too_complex()
    return text


def intersections(language: Node) -> list[tuple[Node, ...]]:
    """Return rows of languages; a text is in `language` if it is in all of some row.

    llguidance intersects them as it goes, where one expression may be too complex.
    """
    options = language.options if isinstance(language, Alt) else (language,)
    if not any(isinstance(option, And) for option in options):
        return [(language,)]
    return [option.parts if isinstance(option, And) else (option,) for option in options]


def _expand(term: _Term, rest: Node, is_first: bool) -> Node:
    """Return all texts that a term begins, and `rest` continues.

    Args:
        term: What to match.
        rest: What comes after it, to the end of the text.
        is_first: Nothing comes before it.
    """
    match term:
        case _Edge(is_start=True):
            return rest if is_first else NOTHING
        case _Edge():
            return EMPTY if is_nullable(rest) else NOTHING
        case _Look(ahead, is_negative):
            found = _expand(ahead, ANYTHING, is_first)
            return both(rest, negated(found) if is_negative else found)
        case _Row(terms):
            firsts = [is_first and all(map(_has_no_width, terms[:i])) for i in range(len(terms))]
            for part, first in zip(reversed(terms), reversed(firsts), strict=True):
                rest = _expand(part, rest, first)
            return rest
        case _Choice(options):
            check_size(rest)
            return alt(*(_expand(option, rest, is_first) for option in options))
        case _:
            return seq(term, rest)


def _has_no_width(term: _Term) -> bool:
    match term:
        case _Row(terms) | _Choice(terms):
            return all(map(_has_no_width, terms))
        case _:
            return isinstance(term, _Edge | _Look) or term == EMPTY


def _render(node: Node) -> str:
    match node:
        case Chars():
            return _render_chars(node)
        case Seq(parts):
            return "".join(
                f"(?:{_render(part)})" if isinstance(part, Alt) else _render(part) for part in parts
            )
        case Alt(()):
            return _render_chars(Chars(()))
        case Alt(options):
            return "|".join(map(_render, options))
        case Repeat(part, least, most):
            body = _render(part) if isinstance(part, Chars) else f"(?:{_render(part)})"
            return body + _QUANTIFIERS.get((least, most), f"{{{least},{_bound(most)}}}")
        case _:
            raise TypeError(f"not a plain node: {node}")


_QUANTIFIERS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _bound(most: int | None) -> str:
    return "" if most is None else str(most)


def _render_chars(node: Chars) -> str:
    if node == ANY:
        return "(?s:.)"
    ranges = [pair for low, high in node.ranges for pair in _without_surrogates(low, high)]
    if not node.properties and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _render_char(ranges[0][0])
    body = "".join(f"{_render_char(low)}-{_render_char(high)}" for low, high in ranges)
    body += "".join(f"\\{name}" for name in node.properties)
    if not body:
        return rf"[^\x{{0}}-\x{{{LAST:X}}}]"
    return f"[{'^' * node.is_negated}{body}]"


def _render_char(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else rf"\x{{{code:X}}}"


def _without_surrogates(low: int, high: int) -> Ranges:
    """Split a range around half characters, which no text has."""
    parts = ((low, min(high, 0xD7FF)), (max(low, 0xE000), high))
    return tuple((first, last) for first, last in parts if first <= last)


class _Parser:
    """Reads one pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._ignores_case = False
        self._dot = inverted(_LINE_ENDS)

    def read(self) -> _Term:
        while self._take("(?i)", "(?s)", "(?is)", "(?si)"):
            flags = self._text[: self._at].rpartition("(")[2]
            self._ignores_case |= "i" in flags
            self._dot = ((0, LAST),) if "s" in flags else self._dot
        term = self._choice(0)
        if self._at < len(self._text):
            raise _syntax("')' without '('")
        return term

    def _choice(self, depth: int) -> _Term:
        if depth > _MAX_DEPTH:
            raise PatternError(f"has groups that nest more than {_MAX_DEPTH} deep")
        options = [self._row(depth)]
        while self._take("|"):
            options.append(self._row(depth))
        nodes = [option for option in options if isinstance(option, Node)]
        return alt(*nodes) if len(nodes) == len(options) else _Choice(tuple(options))

    def _row(self, depth: int) -> _Term:
        terms: list[_Term] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            terms.append(self._quantified(self._atom(depth)))
        nodes = [term for term in terms if isinstance(term, Node)]
        return seq(*nodes) if len(nodes) == len(terms) else _Row(tuple(terms))

    def _quantified(self, term: _Term) -> _Term:
        bounds = self._quantifier()
        if bounds is None:
            return term
        self._take("?")  # lazy: what is matched as a whole is the same
        least, most = bounds
        if most is not None and most < least:
            raise _syntax("numbers out of order in {}")
        if isinstance(term, Node):
            return repeat(term, least, most)
        if isinstance(term, _Edge | _Look):
            raise _syntax("nothing to repeat")
        if (least, most) == (1, 1):
            return term
        if (least, most) == (0, 1):
            return _Choice((term, EMPTY))
        raise PatternError("repeats a group with look-ahead, '^' or '$', which cannot be enforced")

    def _quantifier(self) -> tuple[int, int | None] | None:
        if sign := self._take("*", "+", "?"):
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None  # braces are themselves
        if max(len(least), len(most)) > _MAX_DIGITS:
            raise _too_complex()
        self._at = end + 1
        return int(least), int(most) if most else None if comma else int(least)

    def _atom(self, depth: int) -> _Term:
        char = self._next()
        match char:
            case "^" | "$":
                return _Edge(is_start=char == "^")
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case ".":
                return chars(self._dot)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise _syntax("nothing to repeat")
        return self._single(ord(char))

    def _group(self, depth: int) -> _Term:
        kind = self._take("?:", "?=", "?!", "?<=", "?<!", "?P<", "?<")
        if kind in ("?<=", "?<!"):
            raise PatternError("has look-behind, which cannot be enforced")
        if kind in ("?<", "?P<"):
            end = self._text.find(">", self._at)
            self._at = end + 1 if end >= 0 else len(self._text)
        elif not kind and self._text.startswith("?", self._at):
            raise _syntax(f"unknown group '({self._text[self._at : self._at + 2]}'")
        term = self._choice(depth + 1)
        if not self._take(")"):
            raise _syntax("'(' without ')'")
        return _Look(term, kind == "?!") if kind in ("?=", "?!") else term

    def _class(self) -> Chars:
        is_negated = bool(self._take("^"))
        ranges: list[tuple[int, int]] = []
        properties: list[str] = []
        while not self._take("]"):
            first = self._class_member()
            if self._text.startswith("-", self._at) and self._text[self._at + 1 :][:1] != "]":
                self._at += 1
                first = self._range(first, self._class_member())
            ranges.extend(first.ranges)
            properties.extend(first.properties)
        found = self._folded(chars(ranges).ranges)
        if properties:
            return Chars(found, tuple(properties), is_negated)
        return Chars(inverted(found) if is_negated else found)

    def _class_member(self) -> Chars:
        if self._at == len(self._text):
            raise _syntax("'[' without ']'")
        if not self._take("\\"):
            code = ord(self._next())
            return Chars(((code, code),))
        if self._take("b"):
            return Chars(((0x08, 0x08),))
        member = self._escape()
        if not isinstance(member, Chars):
            raise _syntax("an anchor within []")
        return member

    def _range(self, first: Chars, last: Chars) -> Chars:
        ends = [*first.ranges, *last.ranges]
        if len(ends) != 2 or any(low != high for low, high in ends):  # such as [\d-x]
            return chars([*ends, (0x2D, 0x2D)])
        if ends[0] > ends[1]:
            raise _syntax("characters out of order in []")
        return Chars(((ends[0][0], ends[1][0]),))

    def _escape(self) -> _Term:
        char = self._next("'\\' at the end")
        if char in "dwsDWS":
            ranges = _CLASSES[char.lower()]
            return Chars(ranges if char.islower() else inverted(ranges))
        if char in "pP":
            return self._property(char)
        if char in "AzZ":
            return _Edge(is_start=char == "A")
        if char in "bB":
            raise PatternError(f"has a word boundary ('\\{char}'), which cannot be enforced")
        if char in "123456789k":
            raise PatternError("refers back to a group, which cannot be enforced")
        if char in _CONTROLS:
            return Chars(((_CONTROLS[char],) * 2,))
        if char == "c":
            letter = self._next("'\\c' at the end")
            return Chars(((ord(letter) % 32,) * 2,))
        if char in "xu":
            return self._single(self._hex(char))
        if char.isascii() and char.isalnum():
            raise _syntax(f"unknown escape '\\{char}'")
        return self._single(ord(char))

    def _property(self, char: str) -> Chars:
        name = self._braced()
        if not name.replace("_", "").replace("=", "").isalnum():
            raise _syntax("unknown kind of character")
        return Chars((), (f"{char}{{{name}}}",))

    def _braced(self) -> str:
        end = self._text.find("}", self._at)
        if not self._take("{") or end < 0:
            raise _syntax("'{' or '}' is missing after an escape")
        name, self._at = self._text[self._at : end], end + 1
        return name

    def _hex(self, kind: str) -> int:
        code = self._code(kind)
        if 0xD800 <= code < 0xDC00 and self._take("\\u"):  # half of a character
            low = self._code("u")
            if not 0xDC00 <= low < 0xE000:
                raise _syntax("an escape of half a character")
            return 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00
        return code

    def _code(self, kind: str) -> int:
        if self._text.startswith("{", self._at):
            digits = self._braced()
        else:
            size = 2 if kind == "x" else 4
            digits = self._text[self._at : self._at + size]
            self._at += size
            if len(digits) < size:
                raise _syntax("an escape is too short")
        if not digits or not set(string.hexdigits).issuperset(digits):
            raise _syntax("an escape that is not hexadecimal")
        code = int(digits, 16)
        if code > LAST:
            raise _syntax("an escape beyond Unicode")
        return code

    def _single(self, code: int) -> Chars:
        return Chars(self._folded(((code, code),)))

    def _folded(self, ranges: Ranges) -> Ranges:
        """Add the other case of letters if it does not matter."""
        if not self._ignores_case:
            return ranges
        cased = (range(low, min(high + 1, _HAS_CASE_BELOW)) for low, high in ranges)
        others = {
            ord(other)
            for code in itertools.chain(*cased)
            for other in (chr(code).lower(), chr(code).upper())
            if len(other) == 1
        }
        return chars([*ranges, *((code, code) for code in others)]).ranges

    def _next(self, missing: str = "it ends too early") -> str:
        if self._at == len(self._text):
            raise _syntax(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, *signs: str) -> str:
        """Read one of these, the first one that is there; empty if none is."""
        for sign in signs:
            if self._text.startswith(sign, self._at):
                self._at += len(sign)
                return sign
        return ""


def _too_complex() -> PatternError:
    return PatternError("is too complex to enforce")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _syntax(problem: str) -> PatternError:
    return PatternError(f"is not a regular expression: {problem}")
