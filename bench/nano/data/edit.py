"""Branches that show a file and want it back: renamed in, changed at one place, or as it is.

The answer is always the whole file in a fence. `file_texts` draws the files, `edit_changes` the
changes.
"""

import math
import re
from collections import Counter
from collections.abc import Callable

from bench.nano.data.document import Answer, Branch, Document
from bench.nano.data.echo import fenced
from bench.nano.data.edit_changes import describe, draw_change
from bench.nano.data.file_texts import draw_code, draw_file, draw_program
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("edit")

_IDENTIFIER = re.compile(r"(?<!\w)[A-Za-z_]\w+(?!\w)")
_KEYWORDS = frozenset(BANK.KEYWORDS)
_LANGUAGES = ("", "", "", "python", "js", "text", "py", "ts", "rust", "yaml", "ini")

_TAGGED = ('<file path="{path}">\n{text}\n</file>', "<file>\n{text}\n</file>")
_READY = Message(role="assistant", content="Ok, I have the file. What should I change?")


def _n_lines(source: Source, low: int, high: int) -> int:
    """Draw a length so that each order of magnitude is as likely."""
    return round(math.exp(source.rng.uniform(math.log(low), math.log(high))))


def _any_file(source: Source) -> str:
    n_lines = _n_lines(source, 100, 300) if source.chance(0.12) else _n_lines(source, 3, 80)
    return draw_file(source, n_lines)


def _renamable(text: str) -> tuple[list[str], list[str]]:
    """Names that occur twice or more: always as whole words, and also as parts of other names."""
    counts = Counter(_IDENTIFIER.findall(text))
    whole: list[str] = []
    parts: list[str] = []
    for name, count in counts.items():
        if count >= 2 and name not in _KEYWORDS and name.isascii():
            if text.count(name) == count:
                whole.append(name)
            elif len(name) > 3:  # shorter ones are parts of everything
                parts.append(name)
    return whole, parts


def _is_cut_otherwise(text: str, name: str) -> bool:
    """Somewhere a token joins a sign and a name, and cuts it otherwise than behind a space."""

    def pieces(before: str) -> list[bytes]:
        vocabulary = load_vocabulary()
        first, *rest = (vocabulary.token_bytes[t] for t in vocabulary.encode(before + name))
        return [first[1:], *rest]

    signs = set(re.findall(rf"([^\w\s])(?={name}(?!\w))", text))
    return any(found[0] and found != pieces(" ") for found in map(pieces, signs))


def _rename_ask(source: Source, effort: Effort, text: str) -> tuple[str, Answer] | None:
    """Ask for another name in a file and answer; none if no name can be changed."""
    whole, parts = _renamable(text)
    if not whole and not parts:
        return None
    is_part = bool(parts) and (not whole or source.chance(0.3))
    names = parts if is_part else whole
    if not source.held_out and source.chance(0.5):  # for training, more that are hard to see
        names = [name for name in names if _is_cut_otherwise(text, name)] or names
    old = source.choice(names)
    new = source.identifier()
    while new in text or old in new:
        new = source.identifier()
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": f"I rename {old} to {new} and copy the rest.",
        "high": f"The user wants another name. The old name is {old} and the new name is {new}. "
        f"I copy the file line by line and write {new} wherever it says {old}. All else stays.",
    }
    ask = phrase(
        source,
        source.choice(BANK.RENAME_NAME if is_part else BANK.RENAME),
        ask=False,
        old=old,
        new=new,
    )
    renamed = re.sub(rf"(?<!\w){old}(?!\w)", new, text)
    return ask, Answer(fenced(renamed), analysis[effort])


def _change_ask(source: Source, effort: Effort, text: str, path: str) -> tuple[str, Answer] | None:
    lines = text.split("\n")
    change = draw_change(source, lines)
    if change is None:
        return None
    does = {
        "replace": "replace one line", "after": "insert one line", "before": "insert one line",
        "delete": "leave out one line", "set": "change one value",
    }[change.kind]  # fmt: skip
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": f"I {does} and copy the rest.",
        "high": f"The user wants a change of the file. I {does}, where the request says so. I copy "
        "every other line exactly, with its indentation. The answer is the whole new file.",
    }
    answer = Answer(fenced("\n".join(change.apply(lines))), analysis[effort])
    return describe(source, change, lines, path), answer


def _copy_ask(source: Source, effort: Effort, text: str) -> tuple[str, Answer]:
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": "I print the file unchanged.",
        "high": "The user wants the file as it is. There is nothing to change. I copy it line by "
        "line, with all indentation and empty lines, from the first line to the last.",
    }
    return phrase(source, source.choice(BANK.COPY)), Answer(fenced(text), analysis[effort])


def _shown(source: Source, text: str, path: str) -> str:
    if source.chance(0.12):
        return source.choice(_TAGGED).format(path=path, text=text)
    return fenced(text, source.choice(_LANGUAGES))


def _one_message(source: Source, skill: str, text: str, path: str, ask: str, a: Answer) -> Branch:
    layout = source.choice(BANK.ONE_MESSAGE)
    content = layout.format(ask=ask, file=_shown(source, text, path), path=path)
    return Branch(skill, (Message(role="user", content=content),), a)


def _rename(source: Source, effort: Effort) -> Branch:
    while True:
        n_lines = _n_lines(source, 3, 80)
        draw = draw_program if source.chance(0.8) else draw_code
        text = draw(source, n_lines)
        if asked := _rename_ask(source, effort, text):
            return _one_message(source, "rename", text, source.path(), *asked)


def _change(source: Source, effort: Effort) -> Branch:
    while True:
        text, path = _any_file(source), source.path()
        if asked := _change_ask(source, effort, text, path):
            return _one_message(source, "change", text, path, *asked)


def _copy_file(source: Source, effort: Effort) -> Branch:
    text = draw_file(source, _n_lines(source, 20, 300))
    return _one_message(source, "copy_file", text, source.path(), *_copy_ask(source, effort, text))


def _edit(source: Source, effort: Effort) -> Document:
    path = source.path()
    if source.chance(0.4):  # one program, several names of it
        text = draw_program(source, _n_lines(source, 20, 300))
        kinds = ["rename"] * source.rng.randint(2, 4)
    else:
        text = _any_file(source)
        kinds = source.some(("change",) * 5 + ("rename", "copy_file"), 2, 4)
    branches: dict[str, Branch] = {}  # by what they ask
    for kind in kinds:
        asked: tuple[str, Answer] | None = None
        if kind == "change":
            asked = _change_ask(source, effort, text, path)
        elif kind == "rename":
            asked = _rename_ask(source, effort, text)
        if asked is None:
            if any(branch.skill == "copy_file" for branch in branches.values()):
                continue
            kind, asked = "copy_file", _copy_ask(source, effort, text)
        ask, answer = asked
        branches[ask] = Branch(kind, (Message(role="user", content=ask),), answer)
    shown = source.choice(BANK.SHOW).format(path=path, file=_shown(source, text, path))
    context = (Message(role="user", content=shown), _READY)
    return Document(effort, tuple(branches.values()), context=context)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {
    "rename": _rename,
    "change": _change,
    "copy_file": _copy_file,
}
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = {"edit": _edit}
