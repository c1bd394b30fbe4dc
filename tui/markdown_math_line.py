r"""Write LaTeX formulas on one line: `\frac{a+b}{2}` as `(a + b)/2`, `e^{i\pi}` as `e^(iπ)`.

The names of symbols, and the raised and lowered letters, are TeXicode's.
"""

import re
import unicodedata
from typing import NamedTuple

from texicode.arts import font_normal, unicode_scripts
from texicode.symbols_art import symbols

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_RELATION = re.compile("[=<>∈-∋∝∣-∦∴∵∼-⊋⊏-⊒⊢-⊫←-⇿⟂⟰-⟿⪯⪰]")
_BINARY = set("+-±∓×÷·⋅∗*∪∩∧∨⊕⊖⊗⊘⊙∘⧵⊎⊓⊔")
_BIG = set("∑∏∐∫∬∭∮⋃⋂⨁⨂⋁⋀")
_MORE = {
    "bigcup": "⋃", "bigcap": "⋂", "implies": "⇒", "iff": "⇔", "bmod": "mod",
    "lVert": "‖", "rVert": "‖", "lvert": "|", "rvert": "|",
    "|": "‖", "cdot": "·", "degree": "°", "subsetneq": "⊊",
    "varnothing": "∅", "blacksquare": "■", "leqslant": "≤", "geqslant": "≥", "colon": ":",
    "iint": "∬", "iiint": "∭", "triangleq": "≜", "square": "□", "checkmark": "✓", "nexists": "∄",
    "rhd": "▷", "lfloor": "⌊", "rightleftharpoons": "⇌", "nmid": "∤", "Theta": "Θ", "beth": "ℶ",
    "Longleftarrow": "⟸", "Longrightarrow": "⟹", "Longleftrightarrow": "⟺", "impliedby": "⇐",
    "lt": "<", "gt": ">", "nsubseteq": "⊈", "supsetneq": "⊋", "nparallel": "∦", "vDash": "⊨",
    "bigoplus": "⨁", "bigotimes": "⨂", "bigvee": "⋁", "bigwedge": "⋀", "ltimes": "⋉",
    "rtimes": "⋊", "measuredangle": "∡", "dotsc": "…", "dotsb": "⋯", "dag": "†", "ddag": "‡",
    "pounds": "£", "euro": "€", "yen": "¥", "twoheadrightarrow": "↠",
    "argmax": "argmax", "argmin": "argmin", "sgn": "sgn", "tr": "tr", "rank": "rank",
}  # fmt: skip
_ACCENTS = {
    "hat": "\u0302", "widehat": "\u0302", "bar": "\u0304", "overline": "\u0304", "vec": "\u20d7",
    "tilde": "\u0303", "dot": "\u0307", "ddot": "\u0308", "widetilde": "\u0303",
    "underline": "\u0332", "overrightarrow": "\u20d7", "cancel": "\u0338", "not": "\u0338",
}  # fmt: skip
_LONG = {"overline", "underline", "overrightarrow", "vec", "bar", "cancel", "not"}
"""Accents that several letters may have, each its own."""
_BRACES = {"underbrace": ("⏟", "_"), "overbrace": ("⏞", "^")}
_LONG_ARROWS = {"xrightarrow": ("─{}→", "→"), "xleftarrow": ("←{}─", "←"),
                "xrightleftharpoons": ("⇌{}", "⇌")}  # fmt: skip
_FONTS = {name: letters for name, letters in font_normal.items() if name != "text"}
_TEXTS = {"text", "textrm", "textbf", "textit", "mbox"}
_UPRIGHT = {"mathrm": "o", "operatorname": "f", "operatorname*": "f"}
_NOTHING = {"left", "right", "big", "Big", "bigl", "bigr", "Bigl", "Bigr", "middle", "limits",
            "nolimits", "displaystyle", "textstyle", "!"}  # fmt: skip
_SPACES = {",", ";", ":", " ", "quad", "qquad", "thinspace"}
_ROOTS = {"": "√", "3": "∛", "4": "∜"}
_GROUP = "\0"  # stands for a group in brackets
_TERM = re.compile(f"[A-Zfgh]?{_GROUP}[¹²³⁰-ⁿ]*")
_PAIR = re.compile(r"[d∂Δ]\S|\w!")
_LAST_SCRIPT = "\u3000"  # fonts lack the raised letters beyond


class NotOnOneLineError(ValueError):
    pass


class _Atom(NamedTuple):
    """A part of a formula.

    Attributes:
        kind: `o` an operand, `b` a binary operator, `r` a relation, `,` punctuation, `(` and `)`
            brackets, `f` a function or a large operator, `/` a fraction, `√` a root, ` ` a space,
            `?` a space that was typed, which counts between operands.
    """

    text: str
    kind: str


def math_line(tex: str) -> str:
    """Return a formula as text, or raise NotOnOneLineError."""
    return _joined(_Writer(tex).row())


class _Writer:
    def __init__(self, tex: str) -> None:
        self._tokens = _TOKEN.findall(tex.strip())[::-1]

    def _next(self) -> str:
        if not self._tokens:
            raise NotOnOneLineError
        return str(self._tokens.pop())

    def row(self, end: str = "") -> list[_Atom]:
        atoms: list[_Atom] = []
        before = ""
        while self._tokens:
            token = self._next()
            if token == end:
                return atoms
            if token in ("^", "_", "'"):
                self._add_script(atoms, token)
            elif not token.isspace():
                atoms += self._atoms(token)
            elif not before.startswith("\\") or len(before) == 2:  # the end of a name is no space
                atoms.append(_Atom(" ", "?"))
            before = token
        if end:
            raise NotOnOneLineError
        return atoms

    def _argument(self) -> list[_Atom]:
        """Read the argument of a command or a script: a group, or one sign."""
        token = self._next()
        while token.isspace():
            token = self._next()
        if token == "{":
            return self.row("}")
        if token[0].isdigit():
            self._tokens += list(token[:0:-1])
            token = token[0]
        return self._atoms(token)

    def _verbatim(self) -> str:
        if self._next() != "{":
            raise NotOnOneLineError
        text = ""
        while (token := self._next()) != "}":
            if token in ("{", "$"):
                raise NotOnOneLineError
            text += token.removeprefix("\\") if len(token) == 2 else token
        return text

    def _atoms(self, token: str) -> list[_Atom]:
        if token == "{":
            inner = self.row("}") or [_Atom("", "o")]
            return [inner[0]._replace(kind="o")] if len(inner) == 1 else inner
        if token.startswith("\\"):
            return self._command(token[1:])
        if token in "}&~$^_":
            if token == "~":
                return [_Atom(" ", " ")]
            raise NotOnOneLineError
        return [_Atom(token, _kind(token))]

    def _command(self, name: str) -> list[_Atom]:
        if name in _NOTHING:
            if name in ("left", "right") and self._tokens and self._tokens[-1] == ".":
                self._tokens.pop()
            return []
        if name in _SPACES:
            return [_Atom(" ", " ")]
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            over, under = self._argument(), self._argument()
            return [_Atom(f"{_grouped(over)}/{_grouped(under, is_under=True)}", "/")]
        if name in ("binom", "dbinom", "tbinom"):
            return [_Atom(f"C({_joined(self._argument())}, {_joined(self._argument())})", "o")]
        if name == "sqrt":
            return [_Atom(self._root(), "√")]
        if name in ("boxed", "mathop", "mathbin", "mathrel"):
            return self._argument()
        if name == "pmod":
            return [_Atom(" ", " "), _Atom(f"(mod {_joined(self._argument())})", "o")]
        if name in _TEXTS:
            return [_Atom(self._verbatim(), "o")]
        if name in _UPRIGHT:
            inner = self._argument()
            is_word = (text := _joined(inner)).isalnum() or name != "mathrm"
            return [_Atom(text, _UPRIGHT[name])] if is_word else inner
        if name in ("overset", "underset", "stackrel"):
            mark, above, base = (
                "_" if name == "underset" else "^",
                self._argument(),
                self._argument(),
            )
            self._add_script(base, mark, above)
            return [_Atom(_joined(base), "r")]
        if name in _BRACES:
            return self._braced(*_BRACES[name])
        if name in _LONG_ARROWS:
            long, short = _LONG_ARROWS[name]
            below = self._in_brackets()
            words = [_joined(each) for each in (self._argument(), below) if each]
            return [_Atom(long.format(", ".join(words)) if any(words) else short, "r")]
        if name in _FONTS:
            letters = dict(zip(font_normal["mathrm"], _FONTS[name], strict=True))
            return [_Atom("".join(letters.get(c, c) for c in _compact(self._argument())), "o")]
        if name in _ACCENTS:
            base = self._argument()
            signs = _joined(base)
            if len(signs) != 1 and name not in _LONG:
                raise NotOnOneLineError
            mark = _ACCENTS[name]
            if len(signs) > 1:
                mark = mark.replace("\u0304", "\u0305")  # of which neighbours touch
            marked = "".join(unicodedata.normalize("NFC", each + mark) for each in signs)
            return [_Atom(marked, base[0].kind if len(base) == 1 else "o")]
        text = _MORE.get(name) or "".join(symbols.get(name, ())).strip()
        if not text:
            raise NotOnOneLineError
        if name == "bmod":
            return [_Atom(text, "b")]
        if name in ("lVert", "rVert", "lvert", "rvert"):
            return [_Atom(text, "(" if name[0] == "l" else ")")]
        is_function = text in _BIG or (text.isalpha() and len(text) > 1)
        return [_Atom(text, "f" if is_function else _kind(text))]

    def _in_brackets(self) -> list[_Atom]:
        if self._tokens and self._tokens[-1] == "[":
            self._next()
            return self.row("]")
        return []

    def _braced(self, brace: str, mark: str) -> list[_Atom]:
        """Write a group under or over a brace, and what the brace says in brackets after it."""
        text, label = f"({_joined(self._argument())}){brace}", ""
        if self._tokens and self._tokens[-1] == mark:
            self._next()
            label = f"({_joined(self._argument())})"
        return [_Atom(text + label, "o")]

    def _root(self) -> str:
        degree = _compact(self._in_brackets())
        sign = _ROOTS.get(degree) or f"{_raised(degree, 0) or f'({degree})'}√"
        return sign + _grouped(self._argument(), is_under=True)

    def _add_script(self, atoms: list[_Atom], mark: str, given: list[_Atom] | None = None) -> None:
        while atoms and atoms[-1].kind == "?":
            atoms.pop()
        base = atoms.pop() if atoms and atoms[-1].kind != " " else _Atom("", "o")
        if mark == "'":
            script = "′"
        else:
            inner = self._argument() if given is None else given
            script = _compact(inner)
            is_short = len(script) == 1 or (
                len(inner) == 1 and script.isascii() and script.isalnum()
            )
            if mark == "^" and script in ("∘", "°"):
                script = "°"
            elif not (mark == "^" and script and set(script) <= set("′*∗†")):
                plain = f"{mark}{script}" if is_short else f"{mark}({script})"
                script = _raised(script, "^_".index(mark)) or plain
        kind = "o" if base.kind in "b,r?" else base.kind
        if kind in "/√":
            base, kind = _Atom(f"({base.text})", "o"), "o"
        atoms.append(_Atom(base.text + script, kind))


def _kind(text: str) -> str:
    if text in _BINARY:
        return "b"
    if _RELATION.fullmatch(text):
        return "r"
    kinds = {"(": "([{⟨⌊⌈", ")": ")]}⟩⌋⌉", ",": ",;:"}
    return next((kind for kind, signs in kinds.items() if text in signs), "o")


def _joined(atoms: list[_Atom]) -> str:
    text, before, is_apart = "", "(", False
    for n, (part, kind) in enumerate(atoms):
        if kind in " ?":
            after = next((atom.kind for atom in atoms[n + 1 :] if atom.kind not in " ?"), "")
            is_apart |= kind == " " or (
                before in "o)/√"
                and after in ("o", "f", "/", "√")
                and not text.endswith(("∂", "∂²"))
            )
            continue
        if kind == "b" and before not in "o)/√":
            kind = "("  # a sign
        has_space = (
            kind in "br"
            or before in "br,"
            or (before in "o)" and kind in "f/")
            or (before in "/f√" and kind in "of/√")
        )
        if text and before != "(" and kind not in "),":
            is_blank = text.endswith(" ") or part.startswith(" ")
            text += " " * ((has_space or is_apart) and not is_blank)
        text += part
        before, is_apart = kind, False
    return text.strip()


def _compact(atoms: list[_Atom]) -> str:
    return "".join(atom.text for atom in atoms if atom.kind != "?").strip()


def _grouped(atoms: list[_Atom], *, is_under: bool = False) -> str:
    """Join atoms, in brackets where they would not hold together next to `/` or below a root."""
    text = bare = _joined(atoms)
    while (shorter := re.sub(r"\([^()]*\)", _GROUP, bare)) != bare:
        bare = shorter
    parts = [part for part, kind in atoms if kind not in "? "]
    if is_under and len(parts) == 1:
        holds = "/" not in bare
    elif is_under:
        holds = bool(_TERM.fullmatch(bare)) or (len(parts) == 2 and bool(_PAIR.match(bare)))
    else:
        holds = not set(bare) & set(" /")
    return text if holds else f"({text})"


def _raised(text: str, row: int) -> str:
    small = [unicode_scripts.get(c, "  ")[row] for c in text]
    are_there = all(
        s < _LAST_SCRIPT and unicodedata.normalize("NFKD", s).replace("−", "-") == c
        for s, c in zip(small, text, strict=True)
    )
    return "".join(small) if are_there else ""
