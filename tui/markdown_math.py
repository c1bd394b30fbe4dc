r"""Draw LaTeX formulas in Unicode with TeXicode, or return None where the drawing would be wrong.

That is so if TeXicode fails or marks a command with `?`, if a letter, digit or sign is missing from
the drawing, or if the formula looks like prose, as in `$5 or 6$`.
"""

import re
import unicodedata
from collections import Counter
from contextlib import suppress

from rich.cells import cell_len

_NAMES = "arccos|arcsin|arctan|arg|cosh?|cot|csc|det|dim|exp|gcd|ln|log|max|min|sec|sinh?|tanh?"
_FUNCTION = rf"\\(?:{_NAMES})(?![A-Za-z])"
_REWRITES = [  # commands that TeXicode does not know, and spaces that it does not leave
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
        (r"\\operatorname\*?(?![A-Za-z])", r"\\text"),
        (r"\\(?:display|text)style(?![A-Za-z])", " "),
        (r"\\implies(?![A-Za-z])", r"\\Rightarrow "),
        (r"\\iff(?![A-Za-z])", r"\\Leftrightarrow "),
        (r"\\bmod(?![A-Za-z])", r"\\,\\text{mod}\\,"),
        (r"\\pmod\s*\{([^{}]*)\}", r"\\,(\\text{mod}\\,\1)"),
        (rf"(?<=[\w)\]}}])\s*({_FUNCTION})", r"\\,\1"),
        (rf"({_FUNCTION})\s*(?=[A-Za-z0-9\\])(?!\\left)", r"\1\\,"),
    )
]
_LONGEST = 1000  # PERF: of 4,000 characters that are not a formula, TeXicode needs 0.3 s
_BOXED = re.compile(r"\s*\\boxed\s*\{(.*)\}\s*\.?\s*", re.DOTALL)
_ROOT = re.compile(r"\\sqrt\s*\[([^\]]*)\]")
_NOT_SHOWN = re.compile(
    r"\\(?:begin|end)\s*\{[^}]*\}"
    r"|\\(?:left|right|middle)\s*(?:\\?[^A-Za-z\s]|\\[A-Za-z]+)"
    r"|\\[A-Za-z]+\*?|\\.|[{}^_&~$]"
)
_PROSE = re.compile(r"(?:^|\s)(?:[A-Za-z]{3,}|an|as|at|if|in|is|it|of|on|or|to)(?=[\s,.;:]|$)")
"""Words outside `\\text`, which would lose the spaces between them."""
_SAME = str.maketrans({"−": "-", "∗": "*", "′": "'", "∣": "|", "∛": "3", "∜": "4"})


def formula(tex: str) -> str | None:
    if len(tex) > _LONGEST or _PROSE.search(tex):
        return None
    from tui.markdown_math_line import NotOnOneLineError, math_line  # PERF: it loads TeXicode

    with suppress(NotOnOneLineError):
        return line if _is_whole(tex, line := math_line(tex)) and line else None
    rows = _drawn(tex)
    return rows[0] if rows is not None and len(rows) == 1 else None


def formula_rows(tex: str, width: int) -> list[str] | None:
    rows = None
    if (boxed := _BOXED.fullmatch(tex)) and (inner := _drawn(boxed[1])):
        n = max(map(cell_len, inner))
        filled = [f"│ {row}{' ' * (n - cell_len(row))} │" for row in inner]
        rows = [f"┌{'─' * (n + 2)}┐", *filled, f"└{'─' * (n + 2)}┘"]
    rows = rows or _drawn(tex)
    if rows and len(rows) == 1:
        rows = [formula(tex) or rows[0]]
    return rows if rows and max(map(cell_len, rows)) <= width else None


def _drawn(tex: str) -> list[str] | None:
    if len(tex) > _LONGEST or _PROSE.search(tex):
        return None
    from texicode.pipeline import render_tex  # PERF: 18 ms, and most answers have no formula

    source = tex
    for pattern, replacement in _REWRITES:
        source = pattern.sub(replacement, source)
    try:
        drawn = render_tex(source.strip(), False, False, "raw", {"fonts": "normal"})
    except Exception:  # any of them means that it cannot draw this
        return None
    if drawn.startswith("TeXicode: "):  # how it says that it cannot
        return None
    drawn = unicodedata.normalize("NFC", drawn)
    rows = [row.rstrip() for row in drawn.split("\n") if row.strip()]
    if len(rows) > 1 and any(unicodedata.east_asian_width(sign) in "WF" for sign in drawn):
        return None  # it takes each sign to be one cell wide
    n_indent = min((len(row) - len(row.lstrip()) for row in rows), default=0)
    rows = [row[n_indent:] for row in rows]
    return rows if rows and _is_whole(tex, "".join(rows)) else None


def _is_whole(tex: str, drawn: str) -> bool:
    typed = _NOT_SHOWN.sub(" ", _ROOT.sub(r" \1 ", tex))
    return _signs(typed) <= _signs(drawn) and ("?" in typed or "?" not in drawn)


def _signs(text: str) -> Counter[str]:
    """Count characters, whether they are raised, bold or have an accent."""
    plain = unicodedata.normalize("NFKD", text).translate(_SAME)
    return Counter(c for c in plain if not c.isspace() and not unicodedata.combining(c))
