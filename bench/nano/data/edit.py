"""Branches that show a file and want it back: renamed in, changed at one place, or as it is."""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.nano.data.document import Answer, Branch, Document, thought
from bench.nano.data.echo import fenced
from bench.nano.data.source import Source
from bench.nano.data.tools import assistant, user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony import load_vocabulary

BANK = banks("edit")
WORDS = banks("words")

MAX_CHARACTERS = 10_000  # about 3,000 tokens; an answer repeats all of them
_PROGRAMS = ("class", "python", "script", "tests", "loose_code", "joined")
_ALL_KINDS = (
    *_PROGRAMS, "ini", "env", "yaml", "csv", "json", "markdown", "html", "css", "sql", "list",
)  # fmt: skip
Template = list[tuple[str, "Template"]]
Known = dict[str, Any]


def draw_file(source: Source, n_lines: int) -> str:
    """Draw a file of any kind, without a final newline and without a code fence in it."""
    if source.chance(0.25):
        return draw_code(source, n_lines)
    return _taken(source, source.choice(_ALL_KINDS), n_lines)


def draw_program(source: Source, n_lines: int) -> str:
    """Draw a file of code in which the same few names occur again and again."""
    return _taken(source, source.choice(_PROGRAMS), n_lines)


def draw_code(source: Source, n_lines: int) -> str:
    """Draw a file of code whose lines have nothing in common."""
    return _finished(source.code(n_lines).split("\n"))


def _taken(source: Source, kind: str, n_lines: int) -> str:
    lines: list[str] = []
    while len(lines) < n_lines:
        made = _OTHERS[kind](source) if kind in _OTHERS else _rendered(source, _FILES[kind], {})
        lines += itertools.islice(made, n_lines - len(lines))
    return _finished(lines)


def _finished(lines: list[str]) -> str:
    """Join lines up to the limit, without what would end a fence around them."""
    length = sum(map(len, lines)) + len(lines)
    while length > MAX_CHARACTERS or not lines[-1].strip():
        length -= len(lines.pop()) + 1
    return "\n".join(lines).replace("```", "~~~")


def _parsed(lines: Sequence[str]) -> Template:
    """A tree of lines by their tabs."""
    stack: list[Template] = [[]]
    for line in lines:
        text = line.lstrip("\t")
        del stack[len(line) - len(text) + 1 :]
        stack[-1].append((text, []))
        stack.append(stack[-1][-1][1])
    return stack[0]


def _rendered(source: Source, template: Template, known: Known) -> Iterator[str]:
    """The lines of a template.

    `*2-8` repeats what is behind it with one more tab, `*names` for each name, `?0.3` has it now
    and then; `=first «pick»` is drawn for later, `=names 2-9` are so many names.
    """
    for text, inner in template:
        if text.startswith("*"):
            for each in known["names"] if text == "*names" else range(_number(source, text[1:])):
                known["name"] = each
                yield from _rendered(source, inner, known)
        elif text.startswith("?"):
            if source.chance(float(text[1:])):
                yield from _rendered(source, inner, known)
        elif text.startswith("=names "):
            known["names"] = _names(source, _number(source, text[7:]))
        elif text.startswith("="):
            name, _, value = text[1:].partition(" ")
            known[name] = _filled(source, value, known)
        else:
            yield _filled(source, text, known)


def _number(source: Source, span: str) -> int:
    low, _, high = span.partition("-")
    return source.rng.randint(int(low), int(high)) if high else int(low)


def _filled(source: Source, text: str, known: Known) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name[1:].isdigit():
            return source.number(int(name[1:]))
        return str(known[name] if name in known else _SLOTS[name](source, known))

    return re.sub("«(\\w+)»", value, text)


def _names(source: Source, n: int) -> list[str]:
    """Draw a few different names, some very common ones; now and then one is made of another."""
    names = [source.code_word() if source.chance(0.3) else source.identifier() for _ in range(n)]
    if source.chance(0.25):
        name, other = source.choice(names), source.code_word()
        longer = (f"{name}_{other}", f"{other}_{name}", f"{name}s", f"{name}{other.capitalize()}")
        names[source.rng.randrange(n)] = source.choice(longer)
    return names


def _remark(source: Source, known: Known) -> str:
    """Words of a comment or a message, with a name of the program among them."""
    name, noun, adjective = source.choice(known["names"]), source.noun(), source.adjective()
    return source.choice(BANK.REMARKS).format(name=name, noun=noun, adj=adjective)


def _value(source: Source, _: Known) -> str:
    kind = source.rng.randrange(6)
    if kind <= 2:
        draws = (lambda: source.number(10000), lambda: source.choice(("true", "false")))
        return (*draws, source.code_word)[kind]()
    text = source.tokens(source.rng.randint(1, 4)) if kind <= 4 else source.noun()
    return '"' + text.replace('"', "").replace("\\", "") + '"'


def _in_code(source: Source, known: Known, *, joined: bool) -> str:
    text = "" if joined else source.tokens(2).replace('"', "")
    line = source.choice(BANK.JOINED if joined else WORDS.CODE_LINES)
    names = {key: known[key] for key in "abc"}
    return line.format(**names, n=source.rng.randrange(100 if joined else 1000), text=text)


def _said(source: Source, known: Known) -> str:
    said = source.tokens(3) if source.chance(0.5) else _remark(source, known)
    return said.replace('"', "")


_SLOTS: dict[str, Callable[[Source, Known], str]] = {
    "ident": lambda s, _: s.identifier(), "invented": lambda s, _: s.invented(),
    "command": lambda s, _: s.command(), "noun": lambda s, _: s.noun(),
    "line": lambda s, _: s.line(), "tokens": lambda s, _: s.tokens(2),
    "person": lambda s, _: s.person().replace("'", ""), "value": _value, "remark": _remark,
    "said": _said, "code_line": lambda s, k: _in_code(s, k, joined=False),
    "joined": lambda s, k: _in_code(s, k, joined=True), "upper": lambda _, k: k["name"].upper(),
    "columns": lambda _, k: ", ".join(k["names"]), "pick": lambda s, k: s.choice(k["names"]),
    "some_verb": lambda s, _: s.choice(("get", "load", "count", "find", "make")),
    "letter": lambda s, _: s.choice("ijkxy"), "adj": lambda s, _: s.adjective().capitalize(),
    "first_or_third": lambda s, k: s.choice((k["first"], k["third"])),
    "first_or_second": lambda s, k: s.choice((k["first"], k["second"])),
    "prose": lambda s, _: s.sentence() if s.chance(0.7) else s.line(),
    "bullet": lambda s, _: "" if s.chance(0.3) else "- ",
    "cell": lambda s, _: s.noun() if s.chance(0.5) else s.tokens(2),
}  # fmt: skip


def _csv(source: Source) -> Iterator[str]:
    kinds = [source.rng.randrange(4) for _ in range(source.rng.randint(2, 6))]
    draws = (source.person, source.city, lambda: source.number(1000), source.token_word)
    yield ",".join(_names(source, len(kinds)))
    for _ in range(60):
        yield ",".join(draws[kind]() for kind in kinds)


def _json(source: Source) -> Iterator[str]:
    keys = _names(source, source.rng.randint(2, 4))
    records = [
        {key: source.choice((source.tokens(2), source.rng.randrange(100), True)) for key in keys}
        for _ in range(source.rng.randint(2, 12))
    ]
    data = records if source.chance(0.6) else {source.identifier(): record for record in records}
    yield from json.dumps(data, indent=source.choice((2, 4)), ensure_ascii=False).split("\n")


def _css(source: Source) -> Iterator[str]:
    for _ in range(source.rng.randint(2, 8)):
        yield f".{source.invented()} {{"
        for name in source.some(("color", "margin", "padding", "width", "height", "gap"), 1, 4):
            yield f"  {name}: {source.rng.randrange(20)}px;"
        yield "}"
        yield ""


_FILES = {kind: _parsed(lines) for kind, lines in BANK.FILES.items()}
_OTHERS = {"csv": _csv, "json": _json, "css": _css}


_SETTING = re.compile(r'(\s*"?([A-Za-z_][\w.-]*)"?(?: = |=|: ))("[^"`]*"|[\w.+-]+)([,;]?)')


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `start` to `end` of a file become `new`; `kind` is how to tell it in words."""

    kind: str
    start: int
    end: int
    new: tuple[str, ...]

    def apply(self, lines: list[str]) -> list[str]:
        return [*lines[: self.start], *self.new, *lines[self.end :]]


def draw_change(source: Source, lines: list[str]) -> Change | None:
    """Draw a change; none if no line of the file is found that occurs once."""
    if source.chance(0.2) and (change := _draw_setting(source, lines)):
        return change
    text = "\n".join(lines)
    drawn = source.some(range(len(lines)), 30, 30)
    at = next((i for i in drawn if lines[i].strip() and text.count(lines[i].strip()) == 1), -1)
    if at < 0:
        return None
    old = lines[at]
    kind = source.choice(("replace", "replace", "after", "before", "delete"))
    if old.rstrip().endswith((":", "{", "(", "[")) and kind == "after":
        kind = "before"
    indentation = old[: len(old) - len(old.lstrip())]
    new = indentation + _draw_line(source, old.strip())
    if kind == "replace":
        return Change(kind, at, at + 1, (new,))
    if kind == "delete":
        return Change(kind, at, at + 1, ())
    start = at + 1 if kind == "after" else at
    return Change(kind, start, start, (new,))


def _draw_line(source: Source, old: str) -> str:
    parts = re.findall(r"[A-Za-z_]\w*|\d+", old)
    if parts and source.chance(0.6):
        part = source.choice(parts)
        other = source.number(1000) if part.isdigit() else source.identifier()
        new = old.replace(part, other)
    else:
        new = source.line()
    new = " ".join(new.replace("```", "``").split())
    return new if new != old else f"{new} {source.invented()}"


def _draw_setting(source: Source, lines: list[str]) -> Change | None:
    matches = [(i, match) for i, line in enumerate(lines) if (match := _SETTING.fullmatch(line))]
    text = "\n".join(lines)
    matches = [(i, match) for i, match in matches if text.count(match[2]) == 1]
    if not matches:
        return None
    at, match = source.choice(matches)
    if match[3].startswith('"'):
        value = '"' + source.line().translate(dict.fromkeys(map(ord, '"`\\'))).strip() + '"'
    else:
        value = source.choice((source.number(100000), source.token_word()))
    return Change("set", at, at + 1, (match[1] + value + match[4],))


def describe(source: Source, change: Change, lines: list[str], path: str) -> str:
    """Ask for a change in one of the ways that people and agents do."""
    if change.kind == "set":
        return _describe_setting(source, change, lines)
    form = source.rng.random()
    if form < 0.2:
        bank = source.choice(BANK.PATCH)
        patch = _search_replace(source, change, lines)
        return phrase(source, bank, ask=False, patch=patch)
    if form < 0.4:
        patch = _unified_diff(source, change, lines, path)
        patch = fenced(patch, "diff") if source.chance(0.6) else patch
        return phrase(source, source.choice(BANK.PATCH), ask=False, patch=patch)
    old = lines[change.start - 1 if change.kind == "after" else change.start]
    new = change.new[0] if change.new else ""
    if change.kind == "replace" and source.chance(0.25):
        return phrase(source, source.choice(BANK.OLD_NEW), old=fenced(old), new=fenced(new))
    slots = {"old": _marked(source, old.strip()), "new": _marked(source, new.strip())}
    return phrase(source, source.choice(getattr(BANK, change.kind.upper())), ask=False, **slots)


def _marked(source: Source, text: str) -> str:
    marks = [mark for mark in ("`", "`", "`", '"', "'") if mark not in text]
    mark = source.choice(marks) if marks else ""
    return mark + text + mark if mark else f"<line>{text}</line>"


def _describe_setting(source: Source, change: Change, lines: list[str]) -> str:
    match = _SETTING.fullmatch(lines[change.start])
    new = _SETTING.fullmatch(change.new[0])
    if not match or not new:
        raise ValueError(f"no setting: {lines[change.start]!r} -> {change.new[0]!r}")
    return phrase(
        source, source.choice(BANK.SET), ask=False, old=f"`{match[2]}`", new=f"`{new[3]}`"
    )


def _with_neighbours(change: Change, lines: list[str], n_context: int) -> tuple[int, int]:
    return max(0, change.start - n_context), min(len(lines), change.end + n_context)


def _search_replace(source: Source, change: Change, lines: list[str]) -> str:
    start, end = _with_neighbours(change, lines, source.choice((1, 1, 2)))
    if change.kind in ("after", "before") and source.chance(0.5):
        start = change.start - (change.kind == "after")
        end = change.end + (change.kind == "before")
    elif change.kind == "replace" and source.chance(0.6):
        start, end = change.start, change.end
    old = lines[start:end]
    new = [*lines[start : change.start], *change.new, *lines[change.end : end]]
    return "\n".join(["<<<<<<< SEARCH", *old, "=======", *new, ">>>>>>> REPLACE"])


def _unified_diff(source: Source, change: Change, lines: list[str], path: str) -> str:
    start, end = _with_neighbours(change, lines, source.choice((1, 2, 3, 3)))
    n_old = end - start
    n_new = n_old + len(change.new) - (change.end - change.start)
    body = [f" {line}" for line in lines[start : change.start]]
    body += [f"-{line}" for line in lines[change.start : change.end]]
    body += [f"+{line}" for line in change.new]
    body += [f" {line}" for line in lines[change.end : end]]
    head = [f"--- a/{path}", f"+++ b/{path}"] if source.chance(0.8) else []
    return "\n".join([*head, f"@@ -{start + 1},{n_old} +{start + 1},{n_new} @@", *body])


_IDENTIFIER = re.compile(r"(?<!\w)[A-Za-z_]\w+(?!\w)")
_KEYWORDS = frozenset(BANK.KEYWORDS)
_LANGUAGES = ("", "", "", "python", "js", "text", "py", "ts", "rust", "yaml", "ini")

_TAGGED = ('<file path="{path}">\n{text}\n</file>', "<file>\n{text}\n</file>")
_READY = assistant("Ok, I have the file. What should I change?")


def _n_lines(source: Source, low: int, high: int) -> int:
    return round(math.exp(source.rng.uniform(math.log(low), math.log(high))))


def _any_file(source: Source) -> str:
    n_lines = _n_lines(source, 100, 300) if source.chance(0.12) else _n_lines(source, 3, 80)
    return draw_file(source, n_lines)


def _renamable(text: str) -> tuple[list[str], list[str]]:
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

    def pieces(before: str) -> list[bytes]:
        vocabulary = load_vocabulary()
        first, *rest = (vocabulary.token_bytes[t] for t in vocabulary.encode(before + name))
        return [first[1:], *rest]

    signs = set(re.findall(rf"([^\w\s])(?={name}(?!\w))", text))
    return any(found[0] and found != pieces(" ") for found in map(pieces, signs))


def _rename_ask(source: Source, effort: Effort, text: str) -> tuple[str, Answer] | None:
    whole, parts = _renamable(text)
    if not whole and not parts:
        return None
    is_part = bool(parts) and (not whole or source.chance(0.3))
    names = parts if is_part else whole
    if source.chance(0.5):  # for training, more that are hard to see
        names = [name for name in names if _is_cut_otherwise(text, name)] or names
    old = source.choice(names)
    new = source.identifier()
    while new in text or old in new:
        new = source.identifier()
    analysis = thought(effort, BANK.THOUGHTS["rename_ask"], old=old, new=new)
    bank = source.choice(BANK.RENAME_NAME if is_part else BANK.RENAME)
    ask = phrase(source, bank, ask=False, old=old, new=new)
    renamed = re.sub(rf"(?<!\w){old}(?!\w)", new, text)
    return ask, Answer(fenced(renamed), analysis)


def _change_ask(source: Source, effort: Effort, text: str, path: str) -> tuple[str, Answer] | None:
    lines = text.split("\n")
    change = draw_change(source, lines)
    if change is None:
        return None
    does = {
        "replace": "replace one line", "after": "insert one line", "before": "insert one line",
        "delete": "leave out one line", "set": "change one value",
    }[change.kind]  # fmt: skip
    analysis = thought(effort, BANK.THOUGHTS["change_ask"], does=does)
    answer = Answer(fenced("\n".join(change.apply(lines))), analysis)
    return describe(source, change, lines, path), answer


def _copy_ask(source: Source, effort: Effort, text: str) -> tuple[str, Answer]:
    analysis = thought(effort, BANK.THOUGHTS["copy_ask"])
    return phrase(source, source.choice(BANK.COPY)), Answer(fenced(text), analysis)


def _shown(source: Source, text: str, path: str) -> str:
    if source.chance(0.12):
        return source.choice(_TAGGED).format(path=path, text=text)
    return fenced(text, source.choice(_LANGUAGES))


def _one_message(source: Source, skill: str, text: str, path: str, ask: str, a: Answer) -> Branch:
    layout = source.choice(BANK.ONE_MESSAGE)
    content = layout.format(ask=ask, file=_shown(source, text, path), path=path)
    return Branch(skill, (user(content),), a)


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
        branches[ask] = Branch(kind, (user(ask),), answer)
    shown = source.choice(BANK.SHOW).format(path=path, file=_shown(source, text, path))
    context = (user(shown), _READY)
    return Document(effort, tuple(branches.values()), context=context)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {
    "rename": _rename,
    "change": _change,
    "copy_file": _copy_file,
}
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = {"edit": _edit}
