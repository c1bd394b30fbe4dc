r"""Tell stars, underscores and backslashes that are markup from those to show as written.

The page has the same rules in server/web/signs.js. Models write `SUM(*)`, `10**6`, `a_b` and `\d`
in prose, where CommonMark would drop the signs.
"""

import re
import unicodedata

from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter

_QUOTED = re.compile(r"""(["'])\*[^*"'\n]+\*\1""")
_POWER = re.compile(r"[=(\[{_]|[-+~]\w")  # 2**(n + 1), 10**-6
_STOP = re.compile(r"[.,;:!?…%](?!\w)")  # test_*.py has none
_ESCAPE = re.compile(
    r"\\(?:[*_`\[\]|](?!\\[a-zA-Z0-9])|\$(?=\d)|!(?=\[)|<(?=[a-zA-Z/!])|&(?=#?\w+;)|~(?=\\?~))"
)
_ESCAPE_AT_START = re.compile(r"\\[#>+=~.)-]")
_PATH = re.compile(  # or a regex
    r"(?:^|[^\\])\\[a-zA-Z0-9]|^\W*(?:[a-zA-Z]:|%\w+%)(?:$|\\)|^\\\\|^\^"
)
_WORD = re.compile(
    r"\*\*(?:[^\W\d_]+\*\*(?=-?[^\W\d_])|/[^\s*]*[^\s*/]\*\*(?![\w*/]))"
    r"|\*(?:[^\W\d_]|\([^*()]+\))\*(?=-[^\W\d_]{2}|(?:th|st|[nr]d)\b|[²³¹\u2070-\u209c])"
)
"""The first letters of `**H**yper **T**ext`, a path, and a variable: `*n*th`, `*p*-value`."""


def stars(state: StateInline, silent: bool) -> bool:
    """Parse `*` as emphasis only where both ends look like it, and each `_` as text."""
    sign = state.src[state.pos]
    if sign not in "*_" or silent:
        return False
    start = end = state.pos
    while end < state.posMax and state.src[end] == sign:
        end += 1
    n = end - start
    opens, closes = (False, False) if sign == "_" else _ends(state.src, start, end)
    state.pos = end
    if not opens and not closes:
        state.pending += sign * n
        return True
    for _ in range(n):
        state.push("text", "", 0).content = sign
        last = len(state.tokens) - 1
        state.delimiters.append(Delimiter(ord(sign), n, last, -1, open=opens, close=closes))
    return True


def _ends(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether a run of stars may open emphasis, and whether it may close it."""
    before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
    left, right = _kind(before), _kind(after)
    if left == right == "quote":  # '*' is a star
        return False, False
    if end - start > 1:  # bold: `f(**a)`, `2**3`, `**/*.py` and `x **= 2` have no such end
        is_inner = right != "space" and after not in ")]},;=/^|"
        opens = is_inner and left != "word" and before not in ")]}\\^_"
        is_inner = left != "space" and before not in "([{=/^|"
        is_power = (left in ("word", "close") or before == "_") and _POWER.match(
            text, end
        ) is not None
        closes = is_inner and right != "word" and not is_power
        opens |= _word(text, start) > 0
        return opens, closes or _word(text, text.rfind("**", 0, start)) == end
    inner = {"word", "foreign", "quote", "symbol"}
    opens = right in inner | {"open"} and left in ("space", "open", "dash", "cjk")
    is_end = right in ("space", "close", "dash", "cjk") or _STOP.match(text, end) is not None
    closes = left in inner | {"close", "stop"} and is_end
    closes |= _word(text, text.rfind("*", 0, start)) == end
    if left == "quote":
        quoted = _QUOTED.match(text, start - 1)
        opens = quoted is not None and right in inner
    if right == "quote":
        first = text.rfind("*", 0, start)
        quoted = _QUOTED.match(text, first - 1) if first > 0 else None
        is_whole = quoted is not None and quoted.end() == end + 1
        closes = is_whole or text.startswith("'s", end)
    return opens, closes


def _word(text: str, at: int) -> int:
    """Return the end of the emphasis that begins there before more letters, else -1."""
    is_start = at >= 0 and _kind(text[at - 1 : at] or " ") in ("space", "open")
    found = _WORD.match(text, at) if is_start else None
    return found.end() if found else -1


def _kind(sign: str) -> str:
    code, category = ord(sign), unicodedata.category(sign)
    if sign.isspace():
        return "space"
    if category[0] in "LNM":  # scripts without spaces: emphasis begins and ends within their words
        return "word" if code < 0x0E00 or 0x1E00 <= code < 0x2000 else "foreign"
    if category in ("Ps", "Pi"):
        return "open"
    if category in ("Pe", "Pf"):
        return "close"
    if 0x3000 <= code < 0x3040 or 0xFF00 <= code < 0xFFF0:
        return "cjk"
    if sign in "\"'":
        return "quote"
    if _STOP.match(sign):
        return "stop"
    if category == "Pd" and sign != "-":
        return "dash"
    return "symbol" if category in ("So", "Sc") or sign in "`" else "other"


def backslash(state: StateInline, silent: bool) -> bool:
    r"""Parse a backslash that protects nothing as text: in `\.`, `\\server` and `C:\*.txt`."""
    text, at = state.src, state.pos
    if text[at] != "\\" or at + 1 >= state.posMax or text[at + 1] == "\n":
        return False
    word = re.split(r"\s", text[:at])[-1]
    is_escape = _ESCAPE.match(text, at) is not None and not _PATH.search(word)
    line = text[text.rfind("\n", 0, at) + 1 : at].strip()
    if is_escape or (_ESCAPE_AT_START.match(text, at) and (not line or line.isdigit())):
        return False
    n = 2 if text.startswith("\\\\", at) else 1
    if not silent:
        state.pending += text[at : at + n]
    state.pos += n
    return True
