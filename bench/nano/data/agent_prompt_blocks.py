"""The parts of a long system prompt: lists of rules, tools, examples, tables, code, plain prose."""

import json
from collections.abc import Callable

from bench.nano.data import agent_environment as environment
from bench.nano.data.agent_prompt_fill import (
    HEADING_PATTERNS,
    IDENTITY_PATTERNS,
    LOG_PATTERNS,
    PROSE_PATTERNS,
    QUESTION_PATTERNS,
    REPLY_PATTERNS,
    RULE_PATTERNS,
    TOOL_PATTERNS,
    Filler,
)
from bench.nano.phrases import banks

BANK = banks("prompts")

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
        body = environment.code(filler, n)
    elif kind == 2:
        body = "\n".join(filler.value("cmd") for _ in range(min(n, 8)))
    elif kind == 3:
        body = environment.log(filler, n)
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
        return "\n".join(
            f"{name}: {value}" for name, value in environment.facts(filler, min(n, 12))
        )
    if kind == 1:
        return f"```\n{environment.listing(filler, n)}\n```"
    return environment.git_status(filler, min(n, 12))


def questions(filler: Filler, n_tokens: int) -> str:
    """Short subsections with their own headings."""
    n = _count(filler, n_tokens, 45, 6)
    mark = filler.source.choice(("### ", "#### ", "**"))
    end = "**" if mark == "**" else ""
    return "\n\n".join(
        f"{mark}{filler.one(HEADING_PATTERNS)}{end}\n{paragraph(filler, 40)}" for _ in range(n)
    )


def log(filler: Filler, n_tokens: int) -> str:
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
    """How many lines of a length fit, at least one."""
    fitting = max(1, min(most, n_tokens // tokens_each))
    return filler.source.rng.randint((fitting + 1) // 2, fitting)


Block = Callable[[Filler, int], str]
BLOCKS: tuple[tuple[Block, int], ...] = (
    (rules, 30), (paragraph, 14), (prose, 8), (any_tokens, 6), (tools, 9), (examples, 9),
    (fenced, 12), (table, 4), (surroundings, 7), (questions, 6), (log, 2), (settings, 4),
)  # fmt: skip
