"""Draw formulas of LaTeX in one row or in several, whole or not at all.

TeXicode draws rows. What it does not know is rewritten before, or stands on one line.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from rich.cells import cell_len

_NAMES = "arccos|arcsin|arctan|arg|cosh?|cot|csc|det|dim|exp|gcd|ln|log|max|min|sec|sinh?|tanh?"
_FUNCTION = rf"\\(?:{_NAMES})(?![A-Za-z])"
_REWRITES = (  # commands that TeXicode does not know, and spaces that it does not leave
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
_LONGEST = 1000  # PERF: of 4,000 characters that are not a formula, TeXicode needs 0.3 s
_BOXED = re.compile(r"\s*\\boxed\s*\{(.*)\}\s*\.?\s*", re.DOTALL)
_ROOT = re.compile(r"\\(?:sqrt|x\w+arrow)\s*\[([^\]]*)\]")
_NOT_SHOWN = re.compile(
    r"\\(?:begin|end)\s*\{[^}]*\}"
    r"|\\(?:left|right|middle)\s*(?:\\[A-Za-z]+|\\?[^A-Za-z\s])"
    r"|\\[A-Za-z]+\*?|\\.|[{}^_&~$]"
)
_PROSE = re.compile(
    r"(?:^|(?<![-+=*/<>,])\s)(?:[A-Za-z][a-z]{2,}|an|as|at|if|in|is|it|of|on|or|to)(?=[\s,.;:]|$)"
)
"""Words outside `\\text`, which would lose the spaces between them; `+ at` is a product."""
_REGEX = re.compile(r"\.[*+?]|\\[dDsSwW](?![A-Za-z])|\(\?|\[\^(?!\\c)|(?:^|\[)\w*(?:a-z|A-Z|0-9)")
_TEXT = re.compile(r"\\(?:text\w*|mbox|tag|label|ce|operatorname\*?)\s*\{[^{}]*\}")
_ARRAY = re.compile(
    r"(?:\\left\s*(\\?[\[({|])\s*)?\\begin\{(?:array\}\s*\{([^{}]*)|aligned|gathered)\}(.*?)"
    r"\\end\{(?:array|aligned|gathered)\}(?(1)\s*\\right\s*(?:\\?[\])}|.]))",
    re.DOTALL,
)
_MATRICES = {"": "matrix", "[": "bmatrix", "(": "pmatrix", "|": "vmatrix", "\\{": "cases"}
_ARROW = r"(?P<arrow><=>|<-->|<->|->|<-)(?:\[(?P<over>[^\[\]]*)\])?"
_CHEMISTRY = re.compile(
    rf"{_ARROW}|(?<=[A-Za-z)\]])(?P<n>\d+)|\^(?P<up>\{{[^{{}}]*\}}|\d*[+-]?)"
    r"|(?<=[\w)\]}])(?P<charge>[+-])(?=\s|$)|(?P<dot>(?<=[A-Za-z)]\d|[A-Za-z)][A-Za-z)])[*.])"
)
_ARROWS = {"<=>": "rightleftharpoons", "->": "rightarrow", "<-": "leftarrow",
           "<->": "leftrightarrow", "<-->": "leftrightarrow"}  # fmt: skip
_SAME = str.maketrans({"−": "-", "∗": "*", "′": "'", "∣": "|", "∛": "3", "∜": "4"})


def formula(tex: str) -> str | None:
    if not (tex := _plainer(tex)):
        return None
    from tui.markdown_math_line import NotOnOneLineError, math_line  # PERF: it loads TeXicode

    with suppress(NotOnOneLineError):
        return line if _is_whole(tex, line := math_line(tex)) and line else None
    rows = _drawn(tex)
    return rows[0] if rows is not None and len(rows) == 1 else None


def formula_rows(tex: str, width: int) -> list[str] | None:
    rows = None
    if (boxed := _BOXED.fullmatch(tex)) and (inner := formula_rows(boxed[1], width - 4)):
        n = max(map(cell_len, inner))
        filled = [f"│ {row}{' ' * (n - cell_len(row))} │" for row in inner]
        rows = [f"┌{'─' * (n + 2)}┐", *filled, f"└{'─' * (n + 2)}┘"]
    rows = rows or _drawn(tex)
    if rows is None or len(rows) == 1 or max(map(cell_len, rows)) > width:
        rows = [line] if (line := formula(tex)) else rows
    return rows if rows and max(map(cell_len, rows)) <= width else None


def _drawn(tex: str) -> list[str] | None:
    if not (tex := _plainer(tex)):
        return None
    from texicode.pipeline import render_tex  # PERF: 18 ms, and most answers have no formula

    source = _rewritten(tex, _REWRITES).strip()
    try:
        drawn = render_tex(source, False, False, "raw", {"fonts": "normal"})
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


def _plainer(tex: str) -> str:
    r"""Write chemistry, arrays in brackets and numbers of equations with commands that are drawn.

    What only places or colours the formula is dropped. Empty for what is not a formula.
    """
    if len(tex) > _LONGEST or _PROSE.search(_TEXT.sub("", tex)) or _REGEX.search(tex):
        return ""
    tex = re.sub(r"\\ce\s*\{((?:[^{}]|\{[^{}]*\})*)\}", lambda m: _chemistry(m[1]), tex)
    tex = _ARRAY.sub(lambda m: _matrix(m[1] or "", m[2] or "", m[3]) or m[0], tex)
    return _rewritten(tex, _PLAINER).strip()


_PLAINER = (
    (r"\\tag\*?\s*\{([^{}]*)\}", r"\\quad(\1)"),
    (r"\\label\s*\{[^{}]*\}|\\nonumber|\\notag(?![A-Za-z])", ""),
    (r"\\color\s*\{\w+\}|\\textcolor\s*\{\w+\}", ""),
    (r"\{\\(rm|bf|it)\s+([^{}]*)\}", r"\\math\1{\2}"),
    (r"\\(?:boldsymbol|bm|pmb)(?![A-Za-z])", r"\\mathbf"),
    (r"\\not\s*=", r"\\neq "),
    (r"\\not\s*\\in(?![A-Za-z])", r"\\notin "),
    (r"\\ket\s*\{([^{}]*)\}", r"|\1\\rangle "),
    (r"\\bra\s*\{([^{}]*)\}", r"\\langle \1|"),
    (r"\\braket\s*\{([^{}]*)\}", r"\\langle \1\\rangle "),
)


def _rewritten(tex: str, rules: Sequence[tuple[str, str]]) -> str:
    for pattern, replacement in rules:
        tex = re.sub(pattern, replacement, tex)
    return tex


def _chemistry(text: str) -> str:
    """Return the TeX of a formula of mhchem's, of which numbers after an element are indices."""

    def written(found: re.Match[str]) -> str:
        if arrow := found["arrow"]:
            if arrow == "->" and found["over"]:
                return rf"\xrightarrow{{{_chemistry(found['over'])}}} "
            return rf"\{_ARROWS[arrow]} "
        if found["n"] or found["charge"]:
            return f"_{{{found['n']}}}" if found["n"] else f"^{{{found['charge']}}}"
        if found["dot"]:
            return r"\cdot "
        return f"^{{{found['up'].strip('{}')}}}" if found["up"] else r"\uparrow "

    return _CHEMISTRY.sub(written, text)


def _matrix(bracket: str, columns: str, body: str) -> str:
    """Return an array as a matrix; a line between columns is one of bars."""
    if bracket not in _MATRICES or "hline" in body or set(columns) - set("lcr| "):
        return ""
    if bracket == "\\{":
        body = re.sub(r"&\s*=", "=", body)
    elif not columns:
        return ""
    n_before = len(columns.partition("|")[0].replace(" ", "")) if "|" in columns else 0
    if n_before:
        rows = [row.split("&") for row in re.split(r"\\\\", body) if row.strip()]
        rows = [[*row[:n_before], r"\vert ", *row[n_before:]] for row in rows]
        body = r" \\ ".join("&".join(row) for row in rows)
    name = _MATRICES[bracket]
    return rf"\begin{{{name}}}{body}\end{{{name}}}"


def _is_whole(tex: str, drawn: str) -> bool:
    typed = _NOT_SHOWN.sub(" ", _ROOT.sub(r" \1 ", tex))
    return _signs(typed) <= _signs(drawn) and ("?" in typed or "?" not in drawn)


def _signs(text: str) -> Counter[str]:
    """Count characters, whether they are raised, bold or have an accent."""
    plain = unicodedata.normalize("NFKD", text).translate(_SAME)
    return Counter(c for c in plain if not c.isspace() and not unicodedata.combining(c))
