r"""Translates JSON Schema's regular expressions (ECMA-262) into llguidance's, which are Rust's.

`.`, `\s` and the characters in `[]` differ. Look-ahead at the beginning becomes an expression of
its own; llguidance refuses other look-around, word boundaries and references to a group.
"""

import itertools
import re

LENGTH_MAX = 20_000
"""Limit of a text's required characters. PERF: where only one text can follow, its tokens take time
with the square of the length, 0.2 s for so many, and all other answers wait."""

_TOKEN = re.compile(
    r"\\[pPux]\{[^}]*\}|\\.|\[(?:\\.|[^\\\]])*\]|\{\d+(?:,\d*)?\}|\(\?(?:[:=!]|\w+\)|P?<\w+>)|.",
    re.DOTALL,
)
_IN_CLASS = re.compile(r"\\.|\[|&&|--|~~|/", re.DOTALL)
_SPACE = r"\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
_RUST = {
    ".": r"[^\n\r\x{2028}\x{2029}]", "{": r"\{", "/": r"\/", "\n": r"\n", "[]": r"[^\s\S]",
    "[^]": r"[\s\S]", r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]", r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]", r"\0": r"\x00",
    r"\<": "<", r"\>": ">",
}  # fmt: skip
_RUST_IN_CLASS = _RUST | {"[": r"\[", "&&": r"&\&", "--": r"-\-", "~~": r"~\~", r"\b": r"\x08"}
_INVERSE = {r"\d": r"\D", r"\w": r"\W", r"\s": r"\S", r"\D": r"\d", r"\W": r"\w", r"\S": r"\s"}


def read_pattern(pattern: str) -> list[str]:
    """Return expressions that all match where `pattern` does. ValueError says why it has none."""
    tokens = _TOKEN.findall(pattern)
    found = []
    while tokens[:2] in (["^", "(?="], ["^", "(?!"]):
        depths = list(itertools.accumulate(map(_opens, tokens)))
        if 0 not in depths[1:]:
            raise ValueError("is not a regular expression: '(' without ')'")
        if ("|", 0) in zip(tokens, depths, strict=True):
            raise ValueError("has look-ahead next to '|', which cannot be enforced")
        end = depths.index(0, 1)
        ahead = tokens[2:end]
        found += _negated(ahead) if tokens[1] == "(?!" else [f"^(?:{''.join(ahead)})"]
        tokens = ["^", *tokens[end + 1 :]]
    dots = {".": "."} if re.match(r"\(\?\w*s\w*\)", pattern) else {}
    return [_translated(_TOKEN.findall(part), dots) for part in (*found, "".join(tokens))]


def literal(text: str) -> str:
    return "".join(f"\\x{{{ord(char):X}}}" for char in text)


def _negated(ahead: list[str]) -> list[str]:
    """Return expressions for all texts that a simple negative look-ahead lets pass.

    Simple: some characters, two alike ones (e-mail addresses), or an end after some (decimals).
    """
    if "|" in ahead:
        i = ahead.index("|")
        return _negated(ahead[:i]) + _negated(ahead[i + 1 :])
    match [token for token in ahead if token != "^"]:
        case [chars, "*", "$"] if inverse := _inverse(chars):
            return [inverse]
        case [".", "*", char, other] if char == other and (inverse := _inverse(char)):
            return [f"^{char}?(?:{inverse}+{char}?)*$"]
        case [*tokens]:
            n = len(tokens) - (tokens[-1:] == ["$"])
            inverses = [_inverse(token) for token in tokens[:n]]
            if n and all(inverses):
                heads = ["".join(tokens[:i]) for i in range(n)]
                options = [f"{head}$" for head in heads]
                options += map(str.__add__, heads, inverses)
                options += ["".join(tokens[:n]) + "[^]"] * (n < len(tokens))
                return [f"^(?:{'|'.join(options)})"]
    raise ValueError("has negative look-ahead, which cannot be enforced")


def _inverse(token: str) -> str:
    if token[0] == "[" and len(token) > 2:
        return f"[{token[2:]}" if token[1] == "^" else f"[^{token[1:]}"
    is_char = token not in tuple(".^$*+?(){}|[") and re.fullmatch(r"\\\W|[^\\]", token)
    return _INVERSE.get(token, f"[^{token}]" if is_char else "")


def _opens(token: str) -> int:
    return (token[0] == "(" and token[-1] != ")") - (token == ")")


def _translated(tokens: list[str], also: dict[str, str]) -> str:
    if _least_length(tokens) > LENGTH_MAX:
        raise ValueError(f"needs more than {LENGTH_MAX} characters")
    rust = _RUST | also
    return "".join(
        f"[{_IN_CLASS.sub(lambda m: _RUST_IN_CLASS.get(m[0], m[0]), token[1:-1])}]"
        if token[0] == "[" != token and token not in rust
        else rust.get(token, token)
        for token in tokens
    )


def _least_length(tokens: list[str]) -> int:
    groups = [[0]]  # lengths of the options of each group that is open
    last = 0  # of the expression that a quantifier repeats
    is_repeated = False
    for token in tokens:
        is_quantifier = token in ("*", "+", "?") or (token[0] == "{" and len(token) > 1)
        if is_quantifier:
            if token != "?" or not is_repeated:  # otherwise it is lazy
                least = int(re.findall(r"\d+|$", token)[0] or token == "+")
                groups[-1][-1] += last * (least - 1)
                last *= least
        elif token == "|":
            groups[-1].append(0)
        elif _opens(token) > 0:
            groups.append([0])
        else:
            has_width = token not in ("^", "$", ")") and token[0] != "("
            last = min(groups.pop()) if token == ")" and len(groups) > 1 else int(has_width)
            groups[-1][-1] += last
        is_repeated = is_quantifier
    return min(groups[0])
