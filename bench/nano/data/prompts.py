"""Instructions like those of coding agents, and what they put around the user's words.

All of it is a distraction: nothing here changes the right answer to a request.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("prompts")
WORDS = banks("words")

Pattern = tuple["str | Slot | tuple[Pattern, ...]", ...]
_WORDS: dict[str, Sequence[str]] = {
    "noun": WORDS.NOUNS, "adj": WORDS.ADJECTIVES, "verb": WORDS.VERBS, "prep": WORDS.PREPOSITIONS,
    "lang": BANK.LANGUAGES, "d": "123456789",
}  # fmt: skip
SMALL, HEADLESS = 60, 200  # below so many tokens: a sentence or two; no heading


class Slot(str):
    """The kind of value that stands in a place of a pattern."""


def _compile(text: str) -> Pattern:
    pieces: list[str | Slot | tuple[Pattern, ...]] = []
    for piece in re.split(r"(\{\w+\}|\[[^\]\[]*\|[^\]\[]*\])", text):
        if piece.startswith("{") and piece.endswith("}"):
            pieces.append(Slot(piece[1:-1]))
        elif piece.startswith("[") and "|" in piece:
            pieces.append(tuple(_compile(option) for option in piece[1:-1].split("|")))
        elif piece:
            pieces.append(piece)
    return tuple(pieces)


def _patterns(texts: Iterable[str]) -> tuple[Pattern, ...]:
    return tuple(map(_compile, texts))


_RULES, _SMALL, _LOGS = map(_patterns, (BANK.RULES, BANK.SMALL, BANK.LOGS))
_QUESTIONS, _REPLIES = _patterns(BANK.QUESTIONS), _patterns(BANK.REPLIES)
_HEADINGS, _ABOUT_TOOLS = _patterns(BANK.HEADINGS), _patterns(BANK.TOOL_PROSE)
_IDENTITIES, _SHAPES = _patterns(BANK.IDENTITIES), _patterns(BANK.SHAPES)
_PROSE = _patterns(
    re.sub(r"\{(adj|noun)\d\}", r"{\1}", s).replace("{name}", "{person}") for s in WORDS.SENTENCES
)
_CODE = _patterns(
    re.sub(r"\{[abc]\}", "{ident}", s).replace("{text}", "{word} {noun}")
    for s in WORDS.CODE_LINES
    if not {"{{", "}}", "["} & {s[i : i + n] for i in range(len(s)) for n in (1, 2)}
)


class Filler:
    """Fills patterns; draws the values of a prompt when they are first needed."""

    def __init__(self, source: Source, n_values: int, text: str = "") -> None:
        self.source, self.random, self.text = source, source.rng.random, text
        self._n_values = n_values
        self._values: dict[str, Sequence[str]] = {}

    def fill(self, pattern: Pattern) -> str:
        """Choose variants and values."""
        parts: list[str] = []
        self._append(parts, pattern)
        return "".join(parts)

    def one(self, patterns: tuple[Pattern, ...]) -> str:
        """Fill any of some patterns."""
        return self.fill(patterns[int(self.random() * len(patterns))])

    def many(self, patterns: tuple[Pattern, ...], n: int, joint: str) -> str:
        return joint.join(self.one(patterns) for _ in range(n))

    def value(self, kind: str) -> str:
        """A value of a kind."""
        values = self._values.get(kind)
        if values is None:
            values = self._values[kind] = _WORDS.get(kind) or [
                _DRAWS[kind](self.source) for _ in range(self._n_values)
            ]
        return values[int(self.random() * len(values))]

    def choice(self, *options: str) -> str:
        return self.source.choice(options)

    def _append(self, parts: list[str], pattern: Pattern) -> None:
        for piece in pattern:
            if type(piece) is str:
                parts.append(piece)
            elif type(piece) is Slot:
                made = _MADE.get(piece)
                parts.append(made(self) if made else self.value(piece))
            else:
                self._append(parts, piece[int(self.random() * len(piece))])  # type: ignore[arg-type]


def _folder(source: Source) -> str:
    folders = [
        source.choice(WORDS.FOLDERS) if source.chance(0.6) else source.invented()
        for _ in range(source.rng.randint(1, 3))
    ]
    return source.choice(("/", "/", "", "./", "~/", "/home/")) + "/".join(folders)


def _word(source: Source) -> str:
    return source.fresh(source.invented if source.chance(0.5) else source.token_word)


def _product(source: Source) -> str:
    name = source.fresh(lambda: source.invented().capitalize())
    return name + source.choice(("", "", "", "Code", " AI", "Hub", "Desk", " CLI", "ly"))


_DRAWS: dict[str, Callable[[Source], str]] = {
    "path": Source.path, "ident": Source.identifier, "cmd": Source.command,
    "person": Source.person, "city": Source.city, "dir": _folder, "word": _word,
    "product": _product,
    "tool": lambda s: s.choice(BANK.TOOL_WORDS) if s.chance(0.6) else s.identifier(),
    "n": lambda s: str(s.rng.randrange(1, 10 ** s.rng.randint(1, 4))),
}  # fmt: skip


# --- the machine around the agent


def _date(f: Filler) -> str:
    rng = f.source.rng
    year, month, day = rng.randrange(2023, 2031), rng.randrange(1, 13), rng.randrange(1, 29)
    return rng.choice((f"{year}-{month:02d}-{day:02d}", f"{month}/{day}/{year}",
                       f"{rng.choice(BANK.DAYS)}, {day:02d}.{month:02d}.{year}"))  # fmt: skip


def _clock(f: Filler) -> str:
    rng = f.source.rng
    time = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    return f"{_date(f)}, {time}{rng.choice(('', ':00', ' (UTC)', ' (Europe/Paris, UTC+1:00)'))}"


def _facts(f: Filler, n: int) -> list[tuple[str, str]]:
    """Names and values such as an environment block lists, at most `n`."""
    value, number = f.value, f.value("n")
    options = [
        ("Working directory", value("dir")), ("Platform", f.choice(*BANK.SYSTEMS)),
        ("Shell", f.choice(*BANK.SHELLS)), ("Date", _date(f)), ("User", value("word")),
        ("Home directory", f"/home/{value('word')}"),
        ("Is git repository", f.choice("Yes", "No", "true", "false")),
        ("Timezone", f.choice(*BANK.ZONES)), ("Branch", value("word")),
        ("Editor", value("product")), ("Mode", f.choice(*BANK.MODES)),
        ("Version", f"{value('d')}.{value('d')}.{number}"), ("Language", value("lang")),
        ("Context used", f"{number} tokens ({value('d')}%)"), ("Model", value("word")),
        ("Current time", _clock(f)), ("Terminal", f"{value('d')} running"),
        ("Sandbox", f.choice("read-only", "workspace-write", "off")),
    ]  # fmt: skip
    return f.source.some(options, min(n, 2), n)


def _listing(f: Filler, n: int) -> str:
    """File names below each other: as a tree, as `ls -la`, or just names."""
    rng = f.source.rng
    style = rng.randrange(4)
    if style == 0:
        return "\n".join(sorted({f.value("path") for _ in range(n)}))

    def name() -> str:
        stem = f.value("word" if f.random() < 0.5 else "ident")
        return f"{stem}.{f.source.choice(WORDS.EXTENSIONS)}"

    def long_line() -> str:
        size, user, day = f.value("n"), f.value("word"), f.value("d")
        return f"-rw-r--r-- 1 {user} {user} {size:>6} May {day:>2} 12:0{day} {name()}"

    if style == 1:
        return "\n".join(long_line() for _ in range(n))
    marks = ("├── ", "│   ├── ", "│   └── ", "└── ") if style == 2 else ("- ", "  - ", "    - ", "")
    folders = [f"{marks[0]}{rng.choice(WORDS.FOLDERS)}/"]
    for _ in range(n):
        if (deep := rng.random()) < 0.15:
            folders.append(f"{marks[0]}{rng.choice(WORDS.FOLDERS)}/")
        else:
            folders.append(marks[1 if deep < 0.7 else 2 if deep < 0.85 else 3] + name())
    return "\n".join(folders)


def _git_status(f: Filler, n: int) -> str:
    changed = [f"{f.choice(*BANK.STATES)} {f.value('path')}" for _ in range(n)]
    commits = [
        f"{f.source.rng.randrange(16**7):07x} {f.value('verb').capitalize()} the "
        f"{f.value('adj')} {f.value('noun')}"
        for _ in range(n)
    ]
    parts = [f"Current branch: {f.value('word')}", "Status:", *changed, "", "Recent commits:"]
    return "\n".join([*parts, *commits])


def _code(f: Filler, n: int) -> str:
    lines, depth = list[str](), 0
    for _ in range(n):
        line = f.one(_CODE)
        lines.append("    " * depth + line)
        if line.endswith(":"):
            depth = min(depth + 1, 4)
        elif f.random() < 0.25:
            depth = max(depth - 1, 0)
    return "\n".join(lines)


# --- blocks of a long prompt, of about so many tokens


def _count(f: Filler, n_tokens: int, tokens_each: int, most: int) -> int:
    """How many lines of a length fit, at least one."""
    fitting = max(1, min(most, n_tokens // tokens_each))
    return f.source.rng.randint((fitting + 1) // 2, fitting)


def _rules(f: Filler, n_tokens: int) -> str:
    n, mark = _count(f, n_tokens, 18, 16), f.choice("- ", "- ", "* ", "• ", "+ ")
    is_numbered = f.random() < 0.3
    lines: list[str] = []
    for i in range(1, n + 1):
        is_inner = bool(lines) and not is_numbered and f.random() < 0.1
        lines.append(f"{'  ' * is_inner}{f'{i}. ' if is_numbered else mark}{f.one(_RULES)}")
    return "\n".join(lines)


def _tools(f: Filler, n_tokens: int) -> str:
    n, style = _count(f, n_tokens, 90, 6), f.source.rng.randrange(4)

    def tool() -> str:
        name, about = f.value("tool"), f.one(_ABOUT_TOOLS)
        if style == 3:
            return f"- `{name}`: {about} {f.one(_RULES)}"
        arguments = [
            f"- {f.value('word')}: ({f.choice('required', 'optional')}) "
            f"The {f.value('adj')} {f.value('noun')}"
            for _ in range(f.source.rng.randint(1, 4))
        ]
        head = f"## {name}\nDescription: {about}" if style else f"**{name}** - {about}"
        text = "\n".join([head, "Parameters:", *arguments])
        if style == 2:
            shown = {f.value("word"): f.value("path"), f.value("word"): 1}
            text += f"\n\nExample:\n```json\n{_json(shown)}\n```"
        return text

    return ("\n" if style == 3 else "\n\n").join(tool() for _ in range(n))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _examples(f: Filler, n_tokens: int) -> str:
    n, (user, assistant) = _count(f, n_tokens, 45, 6), f.source.choice(BANK.SPEAKERS)
    tag = f.choice("example", "example", "sample_dialog", "")
    dialogs: list[str] = []
    for i in range(1, n + 1):
        text = f"{user}: {f.one(_QUESTIONS)}\n{assistant}: {f.one(_REPLIES)}"
        dialogs.append(f"<{tag}>\n{text}\n</{tag}>" if tag else f"Example {i}:\n{text}")
    return "\n\n".join(dialogs)


def _fenced(f: Filler, n_tokens: int) -> str:
    n, kind = _count(f, n_tokens, 12, 30), f.source.rng.randrange(5)
    if kind <= 1:
        body = _code(f, n)
    elif kind == 2:
        body = "\n".join(f.value("cmd") for _ in range(min(n, 8)))
    elif kind == 3:
        body = f.many(_LOGS, n, "\n")
    else:
        body = _json({f.value("ident"): f.value("word") for _ in range(n)})
    caption = f.one(_RULES) + "\n\n" if f.random() < 0.5 else ""
    return f"{caption}```{f.source.choice(BANK.FENCES)}\n{body}\n```"


def _table(f: Filler, n_tokens: int) -> str:
    kinds = f.source.some(("ident", "word", "n", "noun", "path", "person", "lang", "cmd"), 2, 4)
    rows = [[f.value(kind) for kind in kinds] for _ in range(_count(f, n_tokens, 18, 14))]
    lines = [[f.value("noun") for _ in kinds], ["---"] * len(kinds), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _surroundings(f: Filler, n_tokens: int) -> str:
    kind, n = f.source.rng.randrange(3), _count(f, n_tokens, 10, 60)
    if kind == 0:
        return "\n".join(f"{name}: {value}" for name, value in _facts(f, min(n, 12)))
    return f"```\n{_listing(f, n)}\n```" if kind == 1 else _git_status(f, min(n, 12))


def _sections(f: Filler, n_tokens: int) -> str:
    n, mark = _count(f, n_tokens, 45, 6), f.choice("### ", "#### ", "**")
    end = "**" if mark == "**" else ""
    return "\n\n".join(f"{mark}{f.one(_HEADINGS)}{end}\n{_paragraph(f, 40)}" for _ in range(n))


def _paragraph(f: Filler, n_tokens: int) -> str:
    return f.many(_RULES, _count(f, n_tokens, 18, 7), " ")


def _settings(f: Filler, n_tokens: int) -> str:
    joint, lines = f.choice(": ", " = ", "="), list[str]()
    for _ in range(_count(f, n_tokens, 9, 20)):
        kind = f.choice("word", "n", "path", "person", "city", "product")
        lines.append(f"{f.value('ident')}{joint}{f.value(kind)}")
    return "\n".join(lines)


_BLOCKS: dict[Callable[[Filler, int], str], int] = {
    _rules: 30, _paragraph: 14, lambda f, n: f.many(_PROSE, _count(f, n, 13, 12), " "): 8,
    lambda f, n: f.source.tokens(min(n, f.source.rng.randint(4, 250))): 6, _tools: 9, _examples: 9,
    _fenced: 12, _table: 4, _surroundings: 7, _sections: 6,
    lambda f, n: f.many(_LOGS, _count(f, n, 22, 10), "\n"): 2, _settings: 4,
}  # fmt: skip
_KINDS, _CUMULATIVE = tuple(_BLOCKS), tuple(itertools.accumulate(_BLOCKS.values()))


def instructions(source: Source, n_tokens: int) -> str:
    """Write a developer's prompt of about so many tokens, 0 to 24,000."""
    if n_tokens <= 0:
        return ""
    f = Filler(source, 6 + min(n_tokens, 12_000) // 80)
    is_small = n_tokens < SMALL
    first = f.one(_SMALL if is_small else _IDENTITIES)
    if not is_small and f.random() < 0.5:
        first += f" {f.one(_RULES)}"
    if not is_small and not (n_tokens < HEADLESS and source.chance(0.6)):
        return _long(f, n_tokens, first)
    while _tokens(first) + 18 < n_tokens:
        first += f.choice(" ", " ", "\n") + f.one(_RULES)
    return first


def _long(f: Filler, n_tokens: int, first: str) -> str:
    """Sections of one or a few blocks each, their headings mostly in one style."""
    source, style, parts = f.source, f.source.choice(BANK.HEADS), [first]
    left = n_tokens - _tokens(first)
    while left > 12:
        section: list[str] = []
        for _ in range(source.rng.choice((1, 1, 1, 2, 3))):
            section.append(source.rng.choices(_KINDS, cum_weights=_CUMULATIVE)[0](f, left))
            left -= _tokens(section[-1]) + 1
            if left < 12:
                break
        body = "\n\n".join(section)
        shape = source.choice(BANK.HEADS) if source.chance(0.12) else style
        parts.append(_section(f, shape, body) if source.chance(0.85) else body)
        left -= 4
    return "\n\n".join(parts)


def _section(f: Filler, shape: str, body: str) -> str:
    named = f.one(_HEADINGS)
    if "{tag}" in shape:
        tag = "_".join(word for word in named.lower().split() if word.isalnum()) or "section"
        return f"<{tag}>\n{body}\n</{tag}>"
    return shape.format(named.upper() if f.random() < 0.1 else named, body)


def _tokens(text: str) -> int:
    return len(text) * 10 // 36 + 1  # a guess


# --- what stands around the user's words


def wrap(source: Source, text: str) -> str:
    """Put the user's words among what an agent adds to them, or leave them alone."""
    if source.chance(0.55):
        return text
    shape = source.choice(_SHAPES)
    return Filler(source, source.choice((5, 10, 30)), text).fill(shape)


def _details(f: Filler) -> str:
    """An environment of 20 to 1,500 tokens."""
    n = f.source.choice((2, 3, 5, 8, 12, 20, 40, 90))
    draws: tuple[Callable[[], str], ...] = (
        lambda: _marked_facts(f, min(n, 10)),
        lambda: f"# {f.source.choice(BANK.LISTINGS)}\n{_listing(f, n)}",
        lambda: f"# Current Time\n{_clock(f)}",
        lambda: f"gitStatus: {_git_status(f, min(n, 10))}",
        lambda: f"# Context Window Usage\n{f.value('n')} / 128K tokens used\n\n"
                f"# Current Mode\n{f.value('word').upper()} MODE",
        lambda: _open_file(f, n),
    )  # fmt: skip
    return "\n\n".join(draws[kind]() for kind in f.source.some(range(6), 1, 3))


def _marked_facts(f: Filler, n: int) -> str:
    joint, mark = f.source.choice(((": ", ""), (": ", "- "), (" = ", ""), (": ", "  ")))
    return "\n".join(f"{mark}{name}{joint}{v}" for name, v in _facts(f, n))


def _open_file(f: Filler, n: int) -> str:
    path, body, style = f.value("path"), _code(f, min(n, 60)), f.source.rng.randrange(4)
    if style == 0:
        return f'<file path="{path}">\n{body}\n</file>'
    if style == 1:
        return f"Current file: {path}\n```\n{body}\n```"
    if style == 2:
        numbered = (f"{i:>6}\t{line}" for i, line in enumerate(body.split("\n"), 1))
        return f"{path}\n\n" + "\n".join(numbered)
    return f"The user has {path} open, cursor in line {f.value('n')}.\n\n```\n{body}\n```"


def _xml_context(f: Filler) -> str:
    cwd, shell, sandbox = f.value("dir"), f.choice("bash", "zsh"), ""
    if f.source.chance(0.6):
        mode = f.choice("read-only", "workspace-write")
        sandbox = BANK.SANDBOX[0].format(mode=mode)
    return BANK.SANDBOX[1].format(cwd=cwd, sandbox=sandbox, shell=shell)


def _agents_md(f: Filler) -> str:
    rules = "\n".join(f"- {f.one(_RULES)}" for _ in range(f.source.rng.randint(2, 12)))
    head = f"# AGENTS.md instructions for {f.value('dir')}\n\n<INSTRUCTIONS>\n{rules}"
    return f"{head}\n</INSTRUCTIONS>"


def _reminder(f: Filler) -> str:
    tag, n = f.choice(*BANK.REMINDERS), f.source.rng.randint(1, 4)
    return f"<{tag}>\n{f.many(_RULES, n, f.choice(' ', chr(10)))}\n</{tag}>"


def _tagged(f: Filler, tags: Sequence[str], body: Callable[[Filler], str], gap: str = "\n") -> str:
    tag = f.source.choice(tags)
    return f"<{tag}>{gap}{body(f)}{gap}</{tag}>"


_MADE: dict[str, Callable[[Filler], str]] = {
    "t": lambda f: f.text,
    "rule": lambda f: f.one(_RULES),
    "details": _details,
    "block": lambda f: _tagged(f, BANK.DETAILS, _details),
    "tagged": lambda f: _tagged(f, BANK.OUTER, lambda f: f.text),
    "inline": lambda f: _tagged(f, BANK.OUTER, lambda f: f.text, ""),
    "reminder": _reminder,
    "xml_context": _xml_context,
    "agents_md": _agents_md,
    "title": lambda f: f.source.choice(BANK.TITLES).replace("{product}", f.value("product")),
    "before": lambda f: f.source.choice(BANK.BEFORE),
    "dated": lambda f: f.source.choice(BANK.DATED).format(_date(f)),
    "open_file": lambda f: _open_file(f, f.source.choice((3, 10, 30))),
    "in_chat": lambda f: f.source.choice(BANK.IN_CHAT),
    "files": lambda f: _listing(f, f.source.choice((3, 8, 25))),
}
"""Slots that are made anew wherever they stand."""
