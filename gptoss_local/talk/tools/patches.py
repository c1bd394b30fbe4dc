"""Read patches in the format that gpt-oss was trained on, and apply them to the bytes of files.

Context must be there exactly and once. All errors are UsageErrors from which the model can correct
its patch; files are not touched here.
"""

import codecs
import difflib
import re
from typing import Literal, NamedTuple

from gptoss_local.base.errors import UsageError

FORMAT = """\
*** Begin Patch
*** Update File: src/a.py
@@ def greet(name):
     # three lines of context, exactly as in the file
-    print("hi")
+    print("hi", name)
*** Add File: src/b.py
+print("new")
*** Delete File: src/c.py
*** End Patch"""
_WHOLE = re.compile(
    r"\s*(?:apply_patch\s*)?(?:<<-?\s*['\"]?\w+['\"]?\s*\n|```\w*\s*\n)?"  # as for a shell
    r"\*\*\* Begin Patch[ \t\r]*\n(.*?)^\*\*\* End Patch\s*(?:```|\w+)?\s*",
    re.DOTALL | re.MULTILINE,
)
_SECTION = re.compile(r"\*\*\* (Add|Update|Delete) File: *(.*\S)\s*")
_MOVE = re.compile(r"\*\*\* Move to: *(.*\S)\s*")
_NUMBERS = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)?(?: @@.*)?")  # of a unified diff: guesses
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK = ""  # the sign of a blank line: context, or before the next part of the patch
_N_NAMED, _N_QUOTED = 5, 200

Line = tuple[str, str]  # a line of a file, and its end


class Hunk(NamedTuple):
    """Lines to find, keep and add, each with its sign; `headers` are lines that come before."""

    headers: list[str]
    lines: list[tuple[str, str]]
    is_at_end: bool = False


class FilePatch(NamedTuple):
    kind: Literal["Add", "Update", "Delete"]
    path: str
    move_to: str
    hunks: list[Hunk]


def parse_patch(text: str) -> list[FilePatch]:
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise UsageError(
            f"a patch begins with `*** Begin Patch` and ends with `*** End Patch`:\n{FORMAT}"
        )
    files: list[FilePatch] = []
    for n, ended in enumerate(whole[1].split("\n")[:-1], 2):
        line = ended.removesuffix("\r")
        if found := _SECTION.fullmatch(line):
            kind: Literal["Add", "Update", "Delete"] = found[1]  # type: ignore[assignment]
            files.append(FilePatch(kind, found[2], "", []))
        elif files and not files[-1].hunks and (found := _MOVE.fullmatch(line)):
            files[-1] = files[-1]._replace(move_to=found[1])
        elif line and not (files and _add_line(files[-1], line)):
            raise UsageError(f"line {n} of the patch, `{line}`, is not of this format:\n{FORMAT}")
        elif not line and files and files[-1].hunks:
            files[-1].hunks[-1].lines.append((_BLANK, ""))
    for file in files:
        _check(file)
    if not files:
        raise UsageError("the patch changes nothing")
    return files


def _add_line(file: FilePatch, line: str) -> bool:
    hunks, sign = file.hunks, line[0]
    if file.kind == "Delete" or (file.kind == "Add" and sign != "+"):
        return False
    if line.startswith("@@"):
        header = line[2:].strip().removesuffix("@@").strip()
        if not hunks or hunks[-1].lines:
            hunks.append(Hunk([], []))
        if header and not _NUMBERS.match(header):
            hunks[-1].headers.append(header)
    elif line.rstrip() == "*** End of File" and hunks:
        hunks[-1] = hunks[-1]._replace(is_at_end=True)
    elif sign in " +-":
        if not hunks:
            hunks.append(Hunk([], []))
        hunks[-1].lines.append((sign, line[1:]))
    else:
        return line.startswith("\\ No newline")
    return True


def _check(file: FilePatch) -> None:
    for n, hunk in enumerate(file.hunks, 1):
        while hunk.lines and hunk.lines[-1][0] == _BLANK:
            hunk.lines.pop()
        if not hunk.lines:
            raise UsageError(f"{file.path}, hunk {n} has no lines")
        if file.kind == "Add" and any(sign == _BLANK for sign, _ in hunk.lines):
            raise UsageError(
                f"{file.path}: each line of a new file begins with +, also a blank one"
            )
    if file.kind != "Update" and file.move_to:
        raise UsageError(f"{file.path}: only a file that is updated can move")
    if file.kind == "Update" and not file.hunks and not file.move_to:
        raise UsageError(f"{file.path}: the patch has no lines for it")


def lines_of(name: str, data: bytes) -> list[Line]:
    """Return the lines of a text; bytes that are not text in its encoding become surrogates."""
    bom, encoding = _encoding_of(data)
    try:
        text = data[len(bom) :].decode(encoding, "surrogateescape")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{name} is not a text file")
    return [_split(line) for line in _LINE.findall(text)]


def patched(name: str, data: bytes, hunks: list[Hunk], *, is_shown: bool = True) -> bytes:
    """Return a file after its hunks, with its line ends, byte order mark and encoding.

    An error quotes the file only if it `is_shown` to the model anyway.
    """
    old = lines_of(name, data)
    texts, new, at = [text for text, _ in old], list[Line](), 0
    for n, hunk in enumerate(hunks, 1):
        start = _place(f"{name}, hunk {n}", texts, hunk, at, is_shown=is_shown)
        new += old[at:start]
        at = start
        for sign, text in hunk.lines:
            if sign == "+":
                new.append((text, old[max(0, at - 1)][1] if old else "\n"))
                continue
            if sign != "-":
                new.append(old[at])
            at += 1
    new += old[at:]
    usual = next((end for _, end in old if end), "\n")
    ends = [end or usual for _, end in new]
    if ends and old and not old[-1][1]:
        ends[-1] = ""
    text = "".join(line + end for (line, _), end in zip(new, ends, strict=True))
    return _encoded(name, data, text, "".join(t for h in hunks for s, t in h.lines if s == "+"))


def _place(what: str, texts: list[str], hunk: Hunk, at: int, *, is_shown: bool) -> int:
    """Return the only line where a hunk may be, at or after line `at`."""
    begins, after = [at], f" after line {at}" if at else ""
    for depth, header in enumerate(hunk.headers):
        places = [n for n in range(at, len(texts)) if texts[n].strip() == header]
        if depth:
            first = (next((n for n in places if n > begin), None) for begin in begins)
            places = [n for n in first if n is not None]
        if not places:
            raise UsageError(f"{what}: there is no line `{header}`{after}")
        begins = places
    old = [text for sign, text in hunk.lines if sign != "+"]
    if not old:
        found = [begin + 1 for begin in begins] if hunk.headers else [at] if not texts else []
        found = [len(texts)] if hunk.is_at_end else found
        if not found:
            raise UsageError(f"{what} has no context: add lines of the file before and after it")
    else:
        fits = [n for n in range(at, len(texts) - len(old) + 1) if texts[n : n + len(old)] == old]
        if hunk.is_at_end:
            fits = [n for n in fits if n + len(old) == len(texts)]
        first = (next((n for n in fits if n >= begin), None) for begin in begins)
        found = [n for n in first if n is not None] if hunk.headers else fits
        if not found:
            if any(texts[n : n + len(old)] == old for n in range(at)) and is_shown:
                raise UsageError(
                    f"{what} is before the hunk above it: put them in the file's order"
                )
            near = _near(texts, old) if is_shown else ""
            end = " at the end of the file" if hunk.is_at_end else ""
            raise UsageError(f"{what}: its lines are not in the file{end}{after}{near}")
    if len(set(found)) > 1:
        named = ", ".join(str(n + 1) for n in sorted(set(found))[:_N_NAMED])
        raise UsageError(
            f"{what} fits {len(set(found))} times, at lines {named}: "
            "add context, or before it a line `@@ ` with the line of its function or class"
        )
    return found[0]


def _near(texts: list[str], old: list[str]) -> str:
    """Return the line of a file that is most like the first one that it does not have."""
    wanted = next((line for line in old if line not in texts), None)
    if wanted is None:
        return ": each of them is, but not one after the other"
    wanted = wanted[:_N_QUOTED]
    close = difflib.get_close_matches(wanted, texts, n=1)
    nearest = f"; the nearest is line {texts.index(close[0]) + 1}, `{close[0]}`" if close else ""
    return f": it has no line `{wanted}`{nearest}"


def _encoding_of(data: bytes) -> tuple[bytes, str]:
    return next((pair for pair in _BOMS if data.startswith(pair[0])), (b"", "utf-8"))


def _encoded(name: str, data: bytes, text: str, added: str) -> bytes:
    bom, encoding = _encoding_of(data)
    is_clean = not any("\udc80" <= char <= "\udcff" for char in text)
    if not (is_clean or added.isascii()):
        raise UsageError(f"{name} is not UTF-8: only ASCII can be added to it")
    return bom + text.encode(encoding, "surrogateescape")


def _split(line: str) -> Line:
    for end in ("\r\n", "\n"):
        if line.endswith(end):
            return line.removesuffix(end), end
    return line, ""
