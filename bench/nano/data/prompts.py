"""Instructions like those of coding agents, and what they put around the user's words.

All of it is a distraction: nothing here changes the right answer to a request.
"""

import itertools
import json
import re
from collections.abc import Callable, Sequence

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("prompts")
WORDS = banks("words")

Pattern = tuple["str | Slot | tuple[Pattern, ...]", ...]
_WORDS: dict[str, Sequence[str]] = {
    "noun": WORDS.NOUNS, "adj": WORDS.ADJECTIVES, "verb": WORDS.VERBS, "prep": WORDS.PREPOSITIONS,
    "lang": BANK.LANGUAGES, "d": "123456789",
}  # fmt: skip
_TOOLS = BANK.TOOL_WORDS


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


RULE_PATTERNS = tuple(map(_compile, BANK.RULES))
SMALL_PATTERNS = tuple(map(_compile, BANK.SMALL))
IDENTITY_PATTERNS = tuple(map(_compile, BANK.IDENTITIES))
HEADING_PATTERNS = tuple(map(_compile, BANK.HEADINGS))
TOOL_PATTERNS = tuple(map(_compile, BANK.TOOL_PROSE))
QUESTION_PATTERNS = tuple(map(_compile, BANK.QUESTIONS))
REPLY_PATTERNS = tuple(map(_compile, BANK.REPLIES))
LOG_PATTERNS = tuple(map(_compile, BANK.LOGS))
PROSE_PATTERNS = tuple(
    _compile(re.sub(r"\{(adj|noun)\d\}", r"{\1}", s).replace("{name}", "{person}"))
    for s in WORDS.SENTENCES
)
CODE_PATTERNS = tuple(
    _compile(re.sub(r"\{[abc]\}", "{ident}", s).replace("{text}", "{word} {noun}"))
    for s in WORDS.CODE_LINES
    if "{{" not in s and "}}" not in s and "[" not in s
)


class Filler:
    """Fills patterns; draws the values of a prompt when they are first needed.

    Args:
        n_values: How many different values of a kind there are.
    """

    def __init__(self, source: Source, n_values: int) -> None:
        self.source = source
        self.random = source.rng.random
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

    def value(self, kind: str) -> str:
        """A value of a kind."""
        values = self._values.get(kind)
        if values is None:
            values = self._values[kind] = _WORDS.get(kind) or self._draw(kind)
        return values[int(self.random() * len(values))]

    def _append(self, parts: list[str], pattern: Pattern) -> None:
        for piece in pattern:
            if type(piece) is str:
                parts.append(piece)
            elif type(piece) is Slot:
                parts.append(self.value(piece))
            else:
                self._append(parts, piece[int(self.random() * len(piece))])  # type: ignore[arg-type]

    def _draw(self, kind: str) -> list[str]:
        source = self.source
        draws: dict[str, Callable[[], str]] = {
            "path": source.path, "ident": source.identifier, "cmd": source.command,
            "person": source.person, "city": source.city, "tool": self._tool, "dir": self._folder,
            "word": self._word, "n": self._number, "product": self._product,
        }  # fmt: skip
        draw = draws[kind]
        return [draw() for _ in range(self._n_values)]

    def _tool(self) -> str:
        return self.source.choice(_TOOLS) if self.random() < 0.6 else self.source.identifier()

    def _folder(self) -> str:
        n = self.source.rng.randint(1, 3)
        folders = [
            self.source.choice(WORDS.FOLDERS) if self.random() < 0.6 else self.source.invented()
            for _ in range(n)
        ]
        return self.source.choice(("/", "/", "", "./", "~/", "/home/")) + "/".join(folders)

    def _word(self) -> str:
        draw = self.source.invented if self.random() < 0.5 else self.source.token_word
        return self.source.fresh(draw)

    def _number(self) -> str:
        return str(self.source.rng.randrange(1, 10 ** self.source.rng.randint(1, 4)))

    def _product(self) -> str:
        name = self.source.fresh(lambda: self.source.invented().capitalize())
        return name + self.source.choice(("", "", "", "Code", " AI", "Hub", "Desk", " CLI", "ly"))


_SHELLS = ("bash", "zsh", "/bin/bash", "/bin/zsh", "fish", "powershell.exe", "sh", "/usr/bin/fish")
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC+2:00", "GMT")
_STATES = ("M", "A", "D", "??", "R", "MM", " M", "AM")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MODES = ("act", "ACT MODE", "PLAN MODE", "agent", "code", "default", "auto", "workspace-write")


def date(filler: Filler) -> str:
    """A day, in one of a few spellings."""
    rng = filler.source.rng
    year, month, day = rng.randrange(2023, 2031), rng.randrange(1, 13), rng.randrange(1, 29)
    return rng.choice((f"{year}-{month:02d}-{day:02d}", f"{month}/{day}/{year}",
                       f"{rng.choice(_DAYS)}, {day:02d}.{month:02d}.{year}"))  # fmt: skip


def clock(filler: Filler) -> str:
    """A day and a time."""
    rng = filler.source.rng
    time = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    return f"{date(filler)}, {time}{rng.choice(('', ':00', ' (UTC)', ' (Europe/Paris, UTC+1:00)'))}"


def facts(filler: Filler, n: int) -> list[tuple[str, str]]:
    """Names and values such as an environment block lists, at most `n`."""
    source, value = filler.source, filler.value
    number = value("n")
    options = [
        ("Working directory", value("dir")), ("Platform", source.choice(BANK.SYSTEMS)),
        ("Shell", source.choice(_SHELLS)), ("Date", date(filler)), ("User", value("word")),
        ("Home directory", f"/home/{value('word')}"), ("Is git repository", source.choice(
            ("Yes", "No", "true", "false"))), ("Timezone", source.choice(_ZONES)),
        ("Branch", value("word")), ("Editor", value("product")), ("Mode", source.choice(_MODES)),
        ("Version", f"{value('d')}.{value('d')}.{number}"), ("Language", value("lang")),
        ("Context used", f"{number} tokens ({value('d')}%)"), ("Model", value("word")),
        ("Current time", clock(filler)), ("Terminal", f"{value('d')} running"),
        ("Sandbox", source.choice(("read-only", "workspace-write", "off"))),
    ]  # fmt: skip
    return source.some(options, min(n, 2), n)


def files(filler: Filler, n: int) -> list[str]:
    """Some paths, sorted as a listing has them."""
    return sorted({filler.value("path") for _ in range(n)})


def listing(filler: Filler, n: int) -> str:
    """File names below each other: as a tree, as `ls -la`, or just names."""
    rng = filler.source.rng
    style = rng.randrange(4)
    if style == 0:
        return "\n".join(files(filler, n))
    if style == 1:
        return "\n".join(_long_line(filler) for _ in range(n))
    marks = ("├── ", "│   ├── ", "│   └── ", "└── ") if style == 2 else ("- ", "  - ", "    - ", "")
    folders = [f"{marks[0]}{rng.choice(WORDS.FOLDERS)}/"]
    for _ in range(n):
        deep = rng.random()
        if deep < 0.15:
            folders.append(f"{marks[0]}{rng.choice(WORDS.FOLDERS)}/")
        else:
            folders.append(f"{marks[1 if deep < 0.7 else 2 if deep < 0.85 else 3]}{_name(filler)}")
    return "\n".join(folders)


def _name(filler: Filler) -> str:
    stem = filler.value("word" if filler.random() < 0.5 else "ident")
    return f"{stem}.{filler.source.choice(WORDS.EXTENSIONS)}"


def _long_line(filler: Filler) -> str:
    size, user, day = filler.value("n"), filler.value("word"), filler.value("d")
    return f"-rw-r--r-- 1 {user} {user} {size:>6} May {day:>2} 12:0{day} {_name(filler)}"


def git_status(filler: Filler, n: int) -> str:
    """A branch, changed files, commits."""
    source = filler.source
    changed = [f"{source.choice(_STATES)} {filler.value('path')}" for _ in range(n)]
    commits = [
        f"{source.rng.randrange(16**7):07x} {filler.value('verb').capitalize()} the "
        f"{filler.value('adj')} {filler.value('noun')}"
        for _ in range(n)
    ]
    parts = [f"Current branch: {filler.value('word')}", "Status:", *changed, "", "Recent commits:"]
    return "\n".join([*parts, *commits])


def code(filler: Filler, n: int) -> str:
    """Lines of code with plausible indentation."""
    lines: list[str] = []
    depth = 0
    for _ in range(n):
        line = filler.one(CODE_PATTERNS)
        lines.append("    " * depth + line)
        if line.endswith(":"):
            depth = min(depth + 1, 4)
        elif filler.random() < 0.25:
            depth = max(depth - 1, 0)
    return "\n".join(lines)


def environment_log(filler: Filler, n: int) -> str:
    """Lines that programs print."""
    return "\n".join(filler.one(LOG_PATTERNS) for _ in range(n))


def numbered(text: str, first: int) -> str:
    """Text with line numbers, as tools show files."""
    return "\n".join(f"{i:>6}\t{line}" for i, line in enumerate(text.split("\n"), first))


_MARKS = ("- ", "- ", "* ", "• ", "+ ")
_FENCES = ("python", "bash", "json", "ts", "", "", "rust", "go", "yaml", "text", "sh", "diff")


def rules(filler: Filler, n_tokens: int) -> str:
    """A list of sentences."""
    n = _count(filler, n_tokens, 18, 16)
    mark = filler.source.choice(_MARKS)
    is_numbered = filler.random() < 0.3
    lines: list[str] = []
    for i in range(1, n + 1):
        if lines and not is_numbered and filler.random() < 0.1:
            lines.append(f"  {mark}{filler.one(RULE_PATTERNS)}")
        else:
            lines.append(f"{f'{i}. ' if is_numbered else mark}{filler.one(RULE_PATTERNS)}")
    return "\n".join(lines)


def paragraph(filler: Filler, n_tokens: int) -> str:
    """Sentences in a row."""
    n = _count(filler, n_tokens, 18, 7)
    return " ".join(filler.one(RULE_PATTERNS) for _ in range(n))


def prose(filler: Filler, n_tokens: int) -> str:
    """Sentences about nothing in particular."""
    n = _count(filler, n_tokens, 13, 12)
    return " ".join(filler.one(PROSE_PATTERNS) for _ in range(n))


def any_tokens(filler: Filler, n_tokens: int) -> str:
    """Text of the whole vocabulary."""
    return filler.source.tokens(min(n_tokens, filler.source.rng.randint(4, 250)))


def tools(filler: Filler, n_tokens: int) -> str:
    """Tools described in prose, with a call as an example."""
    n = _count(filler, n_tokens, 90, 6)
    style = filler.source.rng.randrange(4)
    return ("\n" if style == 3 else "\n\n").join(_tool(filler, style) for _ in range(n))


def _tool(filler: Filler, style: int) -> str:
    name, about = filler.value("tool"), filler.one(TOOL_PATTERNS)
    if style == 3:
        return f"- `{name}`: {about} {filler.one(RULE_PATTERNS)}"
    arguments = [
        f"- {filler.value('word')}: ({filler.source.choice(('required', 'optional'))}) "
        f"The {filler.value('adj')} {filler.value('noun')}"
        for _ in range(filler.source.rng.randint(1, 4))
    ]
    head = f"## {name}\nDescription: {about}" if style else f"**{name}** - {about}"
    text = "\n".join([head, "Parameters:", *arguments])
    if style == 2:
        example = {filler.value("word"): filler.value("path"), filler.value("word"): 1}
        text += f"\n\nExample:\n```json\n{json.dumps(example, ensure_ascii=False, indent=2)}\n```"
    return text


def examples(filler: Filler, n_tokens: int) -> str:
    """Short dialogs between others."""
    n = _count(filler, n_tokens, 45, 6)
    user, assistant = filler.source.choice(BANK.SPEAKERS)
    tag = filler.source.choice(("example", "example", "sample_dialog", ""))
    dialogs: list[str] = []
    for i in range(1, n + 1):
        text = f"{user}: {filler.one(QUESTION_PATTERNS)}\n{assistant}: {filler.one(REPLY_PATTERNS)}"
        dialogs.append(f"<{tag}>\n{text}\n</{tag}>" if tag else f"Example {i}:\n{text}")
    return "\n\n".join(dialogs)


def fenced(filler: Filler, n_tokens: int) -> str:
    """A code fence: code, commands, output, a listing, JSON."""
    n = _count(filler, n_tokens, 12, 30)
    kind = filler.source.rng.randrange(5)
    if kind <= 1:
        body = code(filler, n)
    elif kind == 2:
        body = "\n".join(filler.value("cmd") for _ in range(min(n, 8)))
    elif kind == 3:
        body = environment_log(filler, n)
    else:
        pairs = {filler.value("ident"): filler.value("word") for _ in range(n)}
        body = json.dumps(pairs, ensure_ascii=False, indent=2)
    caption = filler.one(RULE_PATTERNS) + "\n\n" if filler.random() < 0.5 else ""
    return f"{caption}```{filler.source.choice(_FENCES)}\n{body}\n```"


def table(filler: Filler, n_tokens: int) -> str:
    """A Markdown table."""
    kinds = filler.source.some(
        ("ident", "word", "n", "noun", "path", "person", "lang", "cmd"), 2, 4
    )
    rows = [[filler.value(kind) for kind in kinds] for _ in range(_count(filler, n_tokens, 18, 14))]
    head = [filler.value("noun") for _ in kinds]
    lines = [head, ["---"] * len(kinds), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def surroundings(filler: Filler, n_tokens: int) -> str:
    """The machine, the files, the state of git."""
    kind = filler.source.rng.randrange(3)
    n = _count(filler, n_tokens, 10, 60)
    if kind == 0:
        return "\n".join(f"{name}: {value}" for name, value in facts(filler, min(n, 12)))
    if kind == 1:
        return f"```\n{listing(filler, n)}\n```"
    return git_status(filler, min(n, 12))


def questions(filler: Filler, n_tokens: int) -> str:
    """Short subsections with their own headings."""
    n = _count(filler, n_tokens, 45, 6)
    mark = filler.source.choice(("### ", "#### ", "**"))
    end = "**" if mark == "**" else ""
    return "\n\n".join(
        f"{mark}{filler.one(HEADING_PATTERNS)}{end}\n{paragraph(filler, 40)}" for _ in range(n)
    )


def blocks_log(filler: Filler, n_tokens: int) -> str:
    """What happened lately."""
    lines = [filler.one(LOG_PATTERNS) for _ in range(_count(filler, n_tokens, 22, 10))]
    return "\n".join(lines)


def settings(filler: Filler, n_tokens: int) -> str:
    """Names and values in YAML's manner, or as variables."""
    joint = filler.source.choice((": ", " = ", "="))
    lines: list[str] = []
    for _ in range(_count(filler, n_tokens, 9, 20)):
        kind = filler.source.choice(("word", "n", "path", "person", "city", "product"))
        lines.append(f"{filler.value('ident')}{joint}{filler.value(kind)}")
    return "\n".join(lines)


def identity(filler: Filler) -> str:
    """The beginning of a prompt: who the assistant is."""
    first = filler.one(IDENTITY_PATTERNS)
    return f"{first} {filler.one(RULE_PATTERNS)}" if filler.random() < 0.5 else first


def heading(filler: Filler) -> str:
    """A section's title."""
    return filler.one(HEADING_PATTERNS)


def _count(filler: Filler, n_tokens: int, tokens_each: int, most: int) -> int:
    fitting = max(1, min(most, n_tokens // tokens_each))
    return filler.source.rng.randint((fitting + 1) // 2, fitting)


Block = Callable[[Filler, int], str]
BLOCKS: tuple[tuple[Block, int], ...] = (
    (rules, 30), (paragraph, 14), (prose, 8), (any_tokens, 6), (tools, 9), (examples, 9),
    (fenced, 12), (table, 4), (surroundings, 7), (questions, 6), (blocks_log, 2), (settings, 4),
)  # fmt: skip


SMALL = 60  # below so many tokens there is only a sentence or two
HEADLESS = 200  # and below so many no heading
_KINDS, _WEIGHTS = zip(*BLOCKS, strict=True)
_CUMULATIVE = tuple(itertools.accumulate(_WEIGHTS))


def instructions(source: Source, n_tokens: int) -> str:
    """Write a developer's prompt of about so many tokens, 0 to 24,000."""
    if n_tokens <= 0:
        return ""
    filler = Filler(source, 6 + min(n_tokens, 12_000) // 80)
    if n_tokens < SMALL:
        return _sentences(filler, n_tokens, filler.one(SMALL_PATTERNS))
    first = identity(filler)
    if n_tokens < HEADLESS and source.chance(0.6):
        return _sentences(filler, n_tokens, first)
    return _long(filler, n_tokens, first)


def _sentences(filler: Filler, n_tokens: int, text: str) -> str:
    while _tokens(text) + 18 < n_tokens:
        text += filler.source.choice((" ", " ", "\n")) + filler.one(RULE_PATTERNS)
    return text


def _long(filler: Filler, n_tokens: int, first: str) -> str:
    source = filler.source
    style = source.choice(BANK.HEADS)
    parts = [first]
    left = n_tokens - _tokens(first)
    while left > 12:
        n_blocks = source.rng.choice((1, 1, 1, 2, 3))
        section: list[str] = []
        for _ in range(n_blocks):
            block = source.rng.choices(_KINDS, cum_weights=_CUMULATIVE)[0]
            text = block(filler, left)
            left -= _tokens(text) + 1
            section.append(text)
            if left < 12:
                break
        body = "\n\n".join(section)
        shape = source.choice(BANK.HEADS) if source.chance(0.12) else style
        parts.append(_section(filler, shape, body) if source.chance(0.85) else body)
        left -= 4
    return "\n\n".join(parts)


def _section(filler: Filler, shape: str, body: str) -> str:
    named = heading(filler)
    if "{tag}" in shape:
        tag = "_".join(word for word in named.lower().split() if word.isalnum()) or "section"
        return f"<{tag}>\n{body}\n</{tag}>"
    title = named.upper() if filler.random() < 0.1 else named
    return shape.format(title, body)


def _tokens(text: str) -> int:
    return len(text) * 10 // 36 + 1


_REMINDERS = ("system-reminder", "system_reminder", "reminder", "note", "important_rules")
Shape = Callable[[Filler, str], str]


def wrap(source: Source, text: str) -> str:
    """Put the user's words among what an agent adds to them, or leave them alone."""
    if source.chance(0.55):
        return text
    return source.choice(_SHAPES)(Filler(source, source.choice((5, 10, 30))), text)


def _details(filler: Filler) -> str:
    source = filler.source
    n = source.choice((2, 3, 5, 8, 12, 20, 40, 90))
    parts: list[str] = []
    for kind in source.some(range(6), 1, 3):
        if kind == 0:
            parts.append(_facts(filler, min(n, 10)))
        elif kind == 1:
            parts.append(f"# {source.choice(BANK.LISTINGS)}\n{listing(filler, n)}")
        elif kind == 2:
            parts.append(f"# Current Time\n{clock(filler)}")
        elif kind == 3:
            parts.append(f"gitStatus: {git_status(filler, min(n, 10))}")
        elif kind == 4:
            parts.append(f"# Context Window Usage\n{filler.value('n')} / 128K tokens used\n\n"
                         f"# Current Mode\n{filler.value('word').upper()} MODE")  # fmt: skip
        else:
            parts.append(_open_file(filler, n))
    return "\n\n".join(parts)


def _facts(filler: Filler, n: int) -> str:
    joint, mark = filler.source.choice(((": ", ""), (": ", "- "), (" = ", ""), (": ", "  ")))
    return "\n".join(f"{mark}{name}{joint}{v}" for name, v in facts(filler, n))


def _open_file(filler: Filler, n: int) -> str:
    path, body = filler.value("path"), code(filler, min(n, 60))
    style = filler.source.rng.randrange(4)
    if style == 0:
        return f"<file path=\"{path}\">\n{body}\n</file>"  # fmt: skip
    if style == 1:
        return f"Current file: {path}\n```\n{body}\n```"
    if style == 2:
        return f"{path}\n\n{numbered(body, 1)}"
    return f"The user has {path} open, cursor in line {filler.value('n')}.\n\n```\n{body}\n```"


def _tagged(filler: Filler, text: str) -> str:
    tag = filler.source.choice(BANK.wrap_outer_names)
    return f"<{tag}>\n{text}\n</{tag}>"


def _block(filler: Filler) -> str:
    tag = filler.source.choice(BANK.DETAILS)
    return f"<{tag}>\n{_details(filler)}\n</{tag}>"


def _reminder(filler: Filler) -> str:
    tag = filler.source.choice(_REMINDERS)
    n = filler.source.rng.randint(1, 4)
    body = filler.source.choice((" ", "\n")).join(filler.one(RULE_PATTERNS) for _ in range(n))
    return f"<{tag}>\n{body}\n</{tag}>"


def _xml_context(filler: Filler) -> str:
    value, source = filler.value, filler.source
    lines = [f"  <cwd>{value('dir')}</cwd>", f"  <shell>{source.choice(('bash', 'zsh'))}</shell>"]
    if source.chance(0.6):
        lines.insert(1, "  <approval_policy>on-request</approval_policy>\n"
                        f"  <sandbox_mode>{source.choice(('read-only', 'workspace-write'))}"
                        "</sandbox_mode>\n"
                        "  <network_access>restricted</network_access>")  # fmt: skip
    body = "\n".join(lines)
    return f"<environment_context>\n{body}\n</environment_context>"


def _title(filler: Filler) -> str:
    return filler.source.choice(BANK.TITLES).replace("{product}", filler.value("product"))


def _headed(mark: str) -> Shape:
    def shape(filler: Filler, text: str) -> str:
        before = filler.source.choice(BANK.BEFORE)
        return f"{mark}{before}\n{_details(filler)}\n\n{mark}{_title(filler)}\n{text}"

    return shape


def _query_with_data(filler: Filler, text: str) -> str:
    data = f"<additional_data>\n{_details(filler)}\n</additional_data>"
    return f"{data}\n\n<user_query>\n{text}\n</user_query>"


def _inline(filler: Filler, text: str) -> str:
    tag = filler.source.choice(BANK.wrap_outer_names)
    return f"<{tag}>{text}</{tag}>"


def _dated(filler: Filler, text: str) -> str:
    line = filler.source.choice(("Today is {}.", "[{}]", "Date: {}", "Current date: {}", "({})"))
    return f"{line.format(date(filler))}\n\n{text}"


def _agents_md(filler: Filler, text: str) -> str:
    n = filler.source.rng.randint(2, 12)
    rules = "\n".join(f"- {filler.one(RULE_PATTERNS)}" for _ in range(n))
    head = f"# AGENTS.md instructions for {filler.value('dir')}\n\n<INSTRUCTIONS>\n{rules}"
    return f"{head}\n</INSTRUCTIONS>\n\n{_xml_context(filler)}\n\n{text}"


def _attached(filler: Filler, text: str) -> str:
    n = filler.source.choice((3, 10, 30))
    return f"{_open_file(filler, n)}\n\n{_tagged(filler, text)}"


def _files_in_chat(filler: Filler, text: str) -> str:
    head = filler.source.choice((
        "Here are summaries of some files in the repository.", "I have added these files.",
        "These files are open in my editor:", "The workspace has the following structure:",
        "Visible in the editor at the moment:", "Some context on my workspace:",
    ))  # fmt: skip
    body = listing(filler, filler.source.choice((3, 8, 25)))
    return f"{head}\n\n{body}\n\n{_title(filler)}:\n{text}"


_SHAPES: tuple[Shape, ...] = (
    lambda f, t: f"{_tagged(f, t)}\n\n<environment_details>\n{_details(f)}\n</environment_details>",
    lambda f, t: f"<task>\n{t}\n</task>\n\n<environment_details>\n{_details(f)}\n"
                 "</environment_details>",
    _tagged,
    lambda f, t: f"<user_message>\n{t}\n</user_message>",
    lambda f, t: f"{_reminder(f)}\n{t}",
    lambda f, t: f"{_reminder(f)}\n\n{_block(f)}\n\n{t}",
    lambda f, t: f"{t}\n\n{_reminder(f)}",
    lambda f, t: f"{t}\n\n{_block(f)}",
    lambda f, t: f"{_block(f)}\n\n{_tagged(f, t)}",
    lambda f, t: f"{_block(f)}\n\n{t}",
    lambda f, t: f"{_block(f)}\n{_reminder(f)}\n{_tagged(f, t)}",
    _headed("# "),
    _headed("## "),
    _headed("### "),
    _query_with_data,
    _inline,
    lambda f, t: f"<user_query>\n{t}\n</user_query>",
    _dated,
    lambda f, t: f"[User] {t}",
    lambda f, t: f"User: {t}",
    lambda f, t: f"[User message]\n{t}",
    lambda f, t: f"{_xml_context(f)}\n\n{t}",
    lambda f, t: f"{_xml_context(f)}\n\n{_tagged(f, t)}",
    _agents_md,
    _attached,
    _files_in_chat,
    lambda f, t: f"{_details(f)}\n\n---\n\n{_title(f)}:\n{t}",
    lambda f, t: f"<context>\n{_details(f)}\n</context>\n\n<reminderInstructions>\n"
                 f"{f.one(RULE_PATTERNS)}\n</reminderInstructions>\n<userRequest>\n{t}\n</userRequest>",
    lambda f, t: f"{_tagged(f, t)}\n\n{_reminder(f)}\n{_block(f)}",
)  # fmt: skip
