"""A coding agent's requests, calls, results and reports."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bench.nano.data.document import Answer, Branch
from bench.nano.data.functions import draw_functions
from bench.nano.data.source import Source
from bench.nano.data.tools import (
    Ability,
    Toolset,
    arguments_json,
    call_and_result,
    draw_ability,
    draw_editor,
    draw_other,
)
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message, Tool
from gptoss_local.types import Effort

BANK = banks("agent")
WORDS = banks("words")

ROLES = ("shell", "create", "read", "edit", "list", "search")


def draw_toolset(source: Source, n_tools: int, roles: Sequence[str] = ROLES) -> Toolset:
    """Draw `n_tools` tools, of which as many as fit have a role.

    Args:
        roles: May be empty, then no tool can be asked for. Else a function that has nothing to do
            with code ("weather") may be among the tools, under its own role.
    """
    abilities: dict[str, Ability] = {}
    tools: dict[str, Tool] = {}
    present = _present(source, roles, n_tools)
    if {"edit", "create"} <= {*present} and source.chance(0.18):
        edit, create = draw_editor(source, tools)
        abilities |= {"edit": edit, "create": create}
        tools[edit.tool.name] = edit.tool
    for role in present:
        if role not in abilities:
            ability = abilities[role] = draw_ability(source, role, tools)
            tools[ability.tool.name] = ability.tool
    if roles and n_tools > len(tools) and source.chance(0.25):
        for ability in draw_functions(source)[: n_tools - len(tools)]:
            clash = ability.tool.name in tools or ability.role in abilities
            if not clash and ability.role not in ROLES:
                abilities[ability.role] = ability
                tools[ability.tool.name] = ability.tool
    while len(tools) < n_tools:
        tool = draw_other(source, tools)
        tools[tool.name] = tool
    declared = list(tools.values())
    if source.chance(0.8):
        source.rng.shuffle(declared)
    return Toolset(tuple(declared), abilities)


def _present(source: Source, roles: Sequence[str], n_tools: int) -> list[str]:
    """Which roles get a tool; the shell is there more often than the others."""
    n_left_out = source.choice((0, 0, 0, 0, 1, 2)) if n_tools < 12 else 0
    order = source.rng.sample(list(roles), len(roles))
    if "shell" in order and source.chance(0.6):
        order.remove("shell")
        order.insert(0, "shell")
    return order[: max(min(n_tools, 1), min(n_tools, len(roles) - n_left_out))]


def draw_command(source: Source) -> str:
    """A command; in a few cases of several lines, often with text of any kind."""
    kind = source.rng.random()
    if kind < 0.5:
        return source.command()
    if kind < 0.9:
        return source.fresh(lambda: _text_command(source))
    if kind < 0.95:
        return source.line()
    return "\n".join(source.command() for _ in range(source.rng.randint(2, 4)))


def _text_command(source: Source) -> str:
    return source.choice(BANK.TEXT_COMMANDS).format(
        text=source.tokens(source.rng.randint(1, 10)),
        word=source.invented() if source.chance(0.5) else source.token_word(),
        n=source.rng.randrange(1, 10000),
    )


def draw_file(source: Source) -> str:
    """A path of a file, sometimes with letters of any script or a space."""
    kind = source.rng.random()
    if kind < 0.75:
        return source.path()
    return source.fresh(lambda: _odd_path(source, spaces=kind > 0.96))


def _odd_path(source: Source, *, spaces: bool) -> str:
    parts = [_odd_name(source) for _ in range(source.rng.choice((1, 1, 2, 3)))]
    if spaces:
        parts[-1] += f" {source.token_word()}"
    root = source.choice(("", "", "./", "/", "~/"))
    return f"{root}{'/'.join(parts)}.{source.choice(WORDS.EXTENSIONS)}"


def _odd_name(source: Source) -> str:
    """A word made of any tokens, without the signs that would end it in a sentence."""
    name = re.sub(r"[\W]+", "", source.tokens(source.rng.randint(1, 3)))
    return name or source.invented()


def draw_folder(source: Source) -> str:
    """A path of a folder."""
    return source.fresh(lambda: _folder(source))


def _folder(source: Source) -> str:
    kind = source.rng.random()
    if kind < 0.05:
        return source.choice((".", "..", "~", "/tmp", "./"))
    parts = [
        _odd_name(source) if source.chance(0.25) else source.choice(WORDS.FOLDERS)
        for _ in range(source.rng.choice((1, 1, 2, 2, 3)))
    ]
    dot = "" if parts[0].startswith(".") else "."
    root = source.choice(("", "", "", "./", "/", "/home/", "~/", dot))
    return root + "/".join(parts) + ("/" if source.chance(0.15) else "")


def draw_text(source: Source, most: int) -> str:
    """A text of 1 to `most` lines: code, prose, data or any tokens."""
    n = 1 if source.chance(0.4) else source.rng.randint(2, most)
    if n == 1:
        return source.line()
    kind = source.rng.randrange(6)
    if kind <= 1:
        return source.fresh(lambda: source.code(n))
    if kind == 2:
        return "\n".join(source.line() for _ in range(n))
    if kind == 3:
        return draw_json(source, indent=source.choice((2, 4)))
    if kind == 4:
        bullet = source.choice(("- ", "* ", "", "1. ", "# "))
        return "\n".join(bullet + source.sentence() for _ in range(n))
    return "\n".join(
        f"{source.identifier()}{source.choice('=:,')}{_value(source)}" for _ in range(n)
    )


def _value(source: Source) -> str:
    return str(source.rng.randrange(10000)) if source.chance(0.4) else source.line()


def draw_json(source: Source, indent: int | None = None) -> str:
    """A small JSON object."""
    data: dict[str, object] = {}
    for _ in range(source.rng.randint(1, 6)):
        inner: object = source.rng.randrange(1000) if source.chance(0.4) else source.line()
        if source.chance(0.2):
            inner = [source.invented() for _ in range(source.rng.randint(0, 3))]
        data[source.identifier()] = inner
    return json.dumps(data, ensure_ascii=source.chance(0.3), indent=indent)


def draw_change(source: Source) -> tuple[str, str]:
    """An old text and a new one, which differ in a word or in everything."""
    while True:
        old, new = _change(source)
        if old != new:
            return old, new


def _change(source: Source) -> tuple[str, str]:
    if source.chance(0.2):
        return _word(source), _word(source)
    if source.chance(0.3):
        n = source.rng.randint(2, 4)
        old = source.fresh(lambda: source.code(n))
        return old, _altered(source, old) if source.chance(0.5) else source.code(n)
    old = source.line()
    return old, _altered(source, old) if source.chance(0.5) else source.line()


def _word(source: Source) -> str:
    """A word or a number, which may stand in a sentence without marks around it."""
    draws = (source.identifier, source.token_word, source.invented, source.noun)
    draw = source.choice(draws)
    return str(source.rng.randrange(10000)) if source.chance(0.15) else source.fresh(draw)


def _altered(source: Source, text: str) -> str:
    """The text with another word, number or end."""
    found = list(re.finditer(r"\w+", text))
    if not found:
        return f"{text} {source.invented()}"
    spot = source.choice(found)
    other = str(source.rng.randrange(1000)) if spot.group().isdigit() else source.identifier()
    return text[: spot.start()] + other + text[spot.end() :]


def draw_pattern(source: Source) -> str:
    """What to search for."""
    kind = source.rng.random()
    if kind < 0.4:
        return source.identifier()
    if kind < 0.6:
        return source.fresh(lambda: source.tokens(source.rng.randint(1, 4)))
    return source.line() if kind < 0.8 else source.fresh(source.token_word)


_MARKS = ("`", "`", "`", '"', '"', "'")
_LANGUAGES = ("", "", "", "", "bash", "text", "sh", "python", "js", "txt")
_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bank:
    """Phrasings that mean the same; those of `asks` begin with a verb, `others` do not."""

    asks: tuple[str, ...]
    others: tuple[str, ...] = ()

    def draw(self, source: Source, **slots: str) -> str:
        """Draw a phrasing and fill it."""
        ask = bool(self.asks) and (not self.others or source.chance(0.6))
        return phrase(source, self.asks if ask else self.others, ask=ask, **slots)


class Wordings:
    """The phrasings of a role by the places where its main slot stands."""

    def __init__(self, bank: Bank, slot: str) -> None:
        mark = f"{{{slot}}}"
        self._slot = slot
        self._anywhere = bank
        self._last = _only(bank, "\0", mark)
        self._own_line = _only(bank, f"{mark}\n", f"\n{mark}")
        self._block = _only(bank, "\0", f"\n{mark}")

    def draw(self, source: Source, value: str, **slots: str) -> str:
        """Draw a phrasing and fill it; `slots` are the other ones, and clear already."""
        kind = source.rng.random()
        if "\n" in value:
            bare = kind < 0.3
            bank = self._block if bare else self._own_line
        elif kind < 0.5:
            bare, bank = False, self._anywhere
            return bank.draw(source, **{self._slot: marked(source, value)}, **slots)
        else:
            bare = kind < 0.85 and not _looks_marked(value)
            bank = self._last if bare else self._own_line
        return bank.draw(source, **{self._slot: value if bare else fenced(source, value)}, **slots)


def _looks_marked(value: str) -> bool:
    """Whether the value's own quotes would be taken for marks."""
    return value[0] in _MARKS or value[-1] in _MARKS


def _only(bank: Bank, start: str, end: str) -> Bank:
    def fits(template: str) -> bool:
        return template.endswith(end) or template.startswith(start)

    return Bank(tuple(filter(fits, bank.asks)), tuple(filter(fits, bank.others)))


def marked(source: Source, value: str) -> str:
    """Put a value of one line between marks that are not in it."""
    fitting = [mark for mark in _MARKS if mark not in value]
    if not fitting:
        return f"```\n{value}\n```"
    mark = source.choice(fitting)
    return f"{mark}{value}{mark}"


def marked_or_word(source: Source, value: str) -> str:
    """A value between marks; a single word now and then without them."""
    if _WORD.fullmatch(value) and source.chance(0.45):
        return value
    return marked(source, value)


def named(source: Source, path: str) -> str:
    """A path, which needs no marks if no space or full stop hides where it ends."""
    clear = " " not in path and (path[-1].isalnum() or (path.endswith("/") and len(path) > 2))
    return path if clear and source.chance(0.5) else marked(source, path)


def fenced(source: Source, value: str, languages: tuple[str, ...] = _LANGUAGES) -> str:
    """A value in a code fence that it does not close itself."""
    fence = "```"
    while fence in value:
        fence += "`"
    return f"{fence}{source.choice(languages)}\n{value}\n{fence}"


_SHELL, _CREATE = Wordings(Bank(**BANK.SHELL), "command"), Wordings(Bank(**BANK.CREATE), "content")
_SEARCH, _SEARCH_IN = (
    Wordings(Bank(**BANK.SEARCH), "pattern"),
    Wordings(Bank(**BANK.SEARCH_IN), "pattern"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do with one tool; `slots` are the values that the user gives."""

    role: str
    ability: Ability
    slots: dict[str, str]

    @property
    def arguments(self) -> dict[str, object]:
        return self.ability.fill(self.slots)


def draw_task(source: Source, ability: Ability) -> Task:
    """Draw the values of a request for the ability's role."""
    role = ability.role
    slots: dict[str, str] = {}
    if role == "shell":
        slots["command"] = draw_command(source)
    elif role == "list":
        slots["path"] = draw_folder(source)
    elif role == "search":
        slots["pattern"] = draw_pattern(source)
        if _needs_folder(ability):
            slots["path"] = draw_folder(source)
    else:
        slots["path"] = draw_file(source)
    if role == "create":
        slots["content"] = draw_text(source, 8 if source.chance(0.7) else 25)
    elif role == "edit":
        slots["old"], slots["new"] = draw_change(source)
    return Task(role, ability, slots)


def _needs_folder(ability: Ability) -> bool:
    return "?" in ability.fill({"pattern": "", "path": "?"}).values()


def request(source: Source, task: Task) -> str:
    """What the user says who wants a task done."""
    slots = task.slots
    path = named(source, slots["path"]) if "path" in slots else ""
    match task.role:
        case "shell":
            return _SHELL.draw(source, slots["command"])
        case "create":
            return _CREATE.draw(source, slots["content"], path=path)
        case "edit":
            return _edit_request(source, path, slots["old"], slots["new"])
        case "search":
            wordings = _SEARCH_IN if path else _SEARCH
            return wordings.draw(source, slots["pattern"], path=path)
        case role:
            return (Bank(**BANK.READ) if role == "read" else Bank(**BANK.LIST)).draw(
                source, path=path
            )


def _edit_request(source: Source, path: str, old: str, new: str) -> str:
    in_lines = "\n" in old + new
    if source.chance(0.25 if in_lines else 0.06):
        merge = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        return Bank(**BANK.MERGE).draw(source, path=path, block=merge)
    if in_lines or source.chance(0.25):
        language = source.choice(("", "", "python", "js", "text"))
        old, new = fenced(source, old, (language,)), fenced(source, new, (language,))
        return Bank(**BANK.BLOCK).draw(source, path=path, old=old, new=new)
    old, new = marked_or_word(source, old), marked_or_word(source, new)
    return Bank(**BANK.INLINE).draw(source, path=path, old=old, new=new)


def request_both(source: Source, first: Task, second: Task) -> str:
    """What the user says who wants two tasks done, in this order."""
    a, b = _clause(source, first), _clause(source, second)
    if first.role == second.role == "shell" and "\n" not in b and source.chance(0.3):
        b = marked(source, second.slots["command"])
    slots = {"a": a, "b": b, "A": a[0].upper() + a[1:], "B": b[0].upper() + b[1:]}
    if "\n" in a + b or source.chance(0.35):
        return phrase(source, BANK.BLOCK_JOINS, ask=False, **slots)
    ask = source.chance(0.4)
    return phrase(source, BANK.JOINS if ask else BANK.OTHER_JOINS, ask=ask, **slots)


def _clause(source: Source, task: Task) -> str:
    """A task as an imperative that can stand inside a sentence."""
    blocks = [name for name, value in task.slots.items() if "\n" in value]
    slots = {
        name: named(source, value)
        if name == "path"
        else (f"\n{fenced(source, value)}\n" if name in blocks else marked_or_word(source, value))
        for name, value in task.slots.items()
    }
    bank = BANK.CLAUSES["search_in" if task.role == "search" and "path" in slots else task.role]
    if blocks == ["content"]:
        bank = BANK.CREATE_BLOCK
        slots["content"] = slots["content"].strip("\n")
    return phrase(source, bank, ask=False, **slots)


def looks_failed(result: str) -> bool:
    """Whether a result begins as only failures do."""
    return result.lstrip().lower().startswith(BANK.FAILURE_STARTS) and not _is_zero_exit(result)


def _is_zero_exit(result: str) -> bool:
    return result.startswith(("Exit code: 0\n", "Exit code 0\n"))


def draw_result(source: Source, role: str, path: str) -> str:
    """What the tool of a role answers when all went well.

    Args:
        path: The file or folder of the call; empty for the others.
    """
    draw = {
        "shell": _shell, "create": _created, "read": _read, "edit": _edited, "list": _listing,
        "search": _matches,
    }[role]  # fmt: skip
    while True:
        result = draw(source, path)
        if not looks_failed(result):
            return result + ("\n" if result and source.chance(0.15) else "")


def draw_failure(source: Source, path: str) -> str:
    """What a tool answers when the call has failed."""
    slots = {
        "word": source.identifier(), "path": path or source.path(),
        "n": source.rng.randrange(1, 256),
        "name": source.invented().capitalize(), "text": source.line(),
    }  # fmt: skip
    message = source.choice(BANK.MESSAGES).format(**slots)
    return source.choice(BANK.FAILED).format(message=message.replace('"', ""), **slots)


def _shell(source: Source, _path: str) -> str:
    kind = source.rng.random()
    if kind < 0.1:
        return "" if kind < 0.08 else "\n"
    body = _output(source)
    if kind < 0.65:
        return body
    milliseconds = source.rng.randrange(5000)
    wraps = (
        f"<result>\n{body}\n</result>", f"Command executed.\nOutput:\n{body}",
        f"Exit code: 0\n{body}",
        f"Exit code: 0\nOutput:\n{body}", f"<output>{body}</output>", f"stdout:\n{body}\nstderr:\n",
        json.dumps({"output": body, "exit_code": 0}), f"{body}\n(took {milliseconds} ms)",
        json.dumps({"output": body, "metadata": {"exit_code": 0}}, ensure_ascii=False),
        json.dumps({"stdout": body, "stderr": "", "code": 0}, ensure_ascii=False, indent=2),
        f"Wall time: {milliseconds / 1000} seconds\nProcess exited with code 0\nOutput:\n{body}",
        f"$\n{body}\n$", f"<stdout>\n{body}\n</stdout>\n<stderr></stderr>", f"[exit 0]\n{body}",
    )  # fmt: skip
    return source.choice(wraps)


def _output(source: Source) -> str:
    """What a program prints: up to 40 lines."""
    kind = source.rng.randrange(9)
    n = source.choice((1, 1, 2, 3, 5, 8, 16, 40))
    if kind <= 2:
        return source.line()
    if kind == 3:
        return "\n".join(source.line() for _ in range(min(n, 12)))
    if kind == 4:
        return _listing(source, "")
    if kind == 5:
        return draw_json(source, indent=source.choice((None, None, 2)))
    if kind == 6:
        return "\n".join(_log_line(source) for _ in range(n))
    if kind == 7:
        return draw_text(source, 12)
    passed = [f"{source.path()} {'.' * source.rng.randint(1, 30)}" for _ in range(min(n, 8))]
    return "\n".join([*passed, "", f"{source.rng.randrange(500)} passed in 0.{n}s"])


def _log_line(source: Source) -> str:
    clock = f"{source.rng.randrange(24):02}:{source.rng.randrange(60):02}"
    level = source.choice(("INFO", "DEBUG", "WARN"))
    return f"{clock} {level} {source.identifier()}: {source.rng.randrange(10000)}"


def _created(source: Source, path: str) -> str:
    return _message(source, BANK.WRITTEN, path)


def _edited(source: Source, path: str) -> str:
    return _message(source, BANK.CHANGED, path)


def _message(source: Source, templates: tuple[str, ...], path: str) -> str:
    template = source.choice(templates)
    code = source.code(source.rng.randint(1, 5)) if "{code}" in template else ""
    return template.format(
        path=path,
        name=path.replace("\\", "/"),
        n=source.rng.randrange(1, 5000),
        word=source.invented(),
        code=_numbered(source, code),
    )


def _read(source: Source, path: str) -> str:
    if source.chance(0.04):
        return ""
    body = draw_text(source, source.choice((3, 8, 15, 40)))
    kind = source.rng.random()
    if kind < 0.55:
        return body
    if kind < 0.85:
        return _numbered(source, body)
    wraps = (
        f"<file>\n{_numbered(source, body)}\n</file>", f"<content>\n{body}\n</content>",
        f"{path}:\n{body}",
        f'<file path="{path}">\n{body}\n</file>', json.dumps({"content": body}, ensure_ascii=False),
        f"Here's the result of running `cat -n` on {path}:\n{_numbered(source, body)}",
        json.dumps({"path": path, "lines": body.split("\n")}), f"--- {path} ---\n{body}",
    )  # fmt: skip
    return source.choice(wraps)


def _numbered(source: Source, text: str) -> str:
    """The text as editors show it, with the number of each line before it."""
    pattern = source.choice(("{:>6}\t{}", "{}: {}", "{:>5}→{}", "{:05}| {}", "{} | {}", "L{}: {}"))
    first = 1 if source.chance(0.8) else source.rng.randrange(1, 500)
    return "\n".join(pattern.format(i, line) for i, line in enumerate(text.split("\n"), first))


def _listing(source: Source, path: str) -> str:
    if path and source.chance(0.05):
        return ""
    n = source.choice((1, 2, 3, 5, 8, 13, 25))
    names = [draw_file(source).replace("\\", "/").split("/")[-1] for _ in range(n)]
    names = [source.choice(WORDS.FOLDERS) + "/" if source.chance(0.25) else name for name in names]
    kind = source.rng.randrange(8)
    if kind <= 2:
        return "\n".join(names)
    if kind == 3:
        return json.dumps(names, ensure_ascii=False)
    if kind == 4:
        entries = [{"name": name, "size": source.rng.randrange(100000)} for name in names[:8]]
        return json.dumps({"entries": entries}, ensure_ascii=False)
    if kind == 5:
        return "\n".join(f"[{'DIR' if name.endswith('/') else 'FILE'}] {name}" for name in names)
    if kind == 6:
        rows = (f"-rw-r--r-- 1 dev dev {source.rng.randrange(99999):>6} {name}" for name in names)
        return f"total {n}\n" + "\n".join(rows)
    return f"- {path or '.'}\n" + "\n".join(f"  - {name}" for name in names)


def _matches(source: Source, path: str) -> str:
    kind = source.rng.random()
    if kind < 0.12:
        return ""
    files = [draw_file(source) for _ in range(source.rng.choice((1, 1, 2, 4, 8)))]
    if kind < 0.3:
        return "\n".join(files)
    rows = [f"{name}:{source.rng.randrange(1, 900)}:{source.code(1)}" for name in files]
    if kind < 0.75:
        return "\n".join(rows)
    if kind < 0.85:
        return f"Found {len(files)} file{'s' if len(files) > 1 else ''}\n" + "\n".join(files)
    if kind < 0.93:
        return json.dumps({"matches": files, "truncated": False}, ensure_ascii=False)
    return f"Found {len(rows)} matches in {path or '.'}\n" + "\n".join(rows)


Step = Literal["only", "first", "second"]
_PURPOSES = {
    "shell": "run the command", "create": "create the file", "read": "read the file",
    "edit": "edit the file", "list": "list the folder", "search": "search the files",
}  # fmt: skip
_MAIN = {"shell": ("command", "command"), "search": ("text", "pattern"), "list": ("folder", "path")}
_LONGEST_VALUE = 40  # characters that an analysis repeats


def call_analysis(effort: Effort, task: Task, step: Step = "only") -> str:
    """What to think before the call of a task."""
    purpose, tool = _PURPOSES[task.role], task.ability.tool.name
    if effort == "low":
        return ""
    if effort == "medium":
        starts = {"only": "I", "first": "First I", "second": "The first step is done. Now I"}
        return f"{starts[step]} should {purpose} with `{tool}`."
    start = {
        "only": f"The user wants me to {purpose}.",
        "first": f"The user asks for two things. First I {purpose}.",
        "second": f"The first step is done. Now I {purpose}.",
    }[step]
    word, slot = _MAIN.get(task.role, ("path", "path"))
    value = task.slots[slot]
    short = len(value) <= _LONGEST_VALUE and "`" not in value and "\n" not in value
    told = f" The {word} is `{value}`." if short else ""
    names = ", ".join(f"`{name}`" for name in task.arguments)
    return (
        f"{start}{told} My tool for this is `{tool}`. I fill {names}. "
        "I copy the text exactly as it is given."
    )


def report_analysis(effort: Effort, tasks: Sequence[Task], results: Sequence[str]) -> str:
    """What to think after the last result."""
    if effort == "low":
        return ""
    tool, role, result = tasks[-1].ability.tool.name, tasks[-1].role, results[-1]
    if looks_failed(result):
        short, long = "The tool failed, so I report the error.", "The result is an error."
        end = "I tell the user that it failed and show the error as it is."
    elif len(results) > 1:
        short, long = "Both steps are done, so I report both.", "Both steps are done."
        end = "I report the first result and then the second, exactly as they are."
    elif role in ("create", "edit"):
        short, long = "The tool is done, so I confirm it.", "It did not fail."
        end = "I confirm it in one short sentence."
    elif not result.strip():
        short, long = "The result is empty, so I say so.", "The result is empty."
        end = "I say that there is nothing."
    else:
        short, long = "The tool answered, so I report the result.", "The result is not an error."
        end = "I report it exactly as it is, in a code block."
    if effort == "medium":
        return short
    return f"I was asked to {_PURPOSES[role]}. I called `{tool}` and it answered. {long} {end}"


def report(tasks: Sequence[Task], results: Sequence[str]) -> str:
    """The final text for the results so far."""
    return "\n\n".join(map(_report_one, tasks, results))


def _report_one(task: Task, result: str) -> str:
    shown = result.rstrip("\n")
    block = f"\n\n```\n{shown}\n```"
    path = f"`{task.slots.get('path', '')}`"
    if looks_failed(result):
        return f"That failed:{block}"
    if task.role == "create":
        return f"I created {path}."
    if task.role == "edit":
        return f"I changed {path}."
    empty = not shown.strip()
    if task.role == "shell":
        return "The command printed nothing." if empty else f"The command printed:{block}"
    if task.role == "search":
        return "I found nothing." if empty else f"I found:{block}"
    return f"{path} is empty." if empty else f"{path} contains:{block}"


_ROLES = ("shell", "create", "read", "edit", "list", "search")


def _single(role: str, source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """One thing to do: its call, or the report of its result."""
    task = _task(source, toolset, role)
    if task is None:
        return None
    user = _user(request(source, task))
    if source.chance(0.68):
        return _branch(source, toolset, role, [user], _call(effort, task))
    result = draw_result(source, role, task.slots.get("path", ""))
    messages = [user, *_done(effort, task, result)]
    return _branch(source, toolset, role, messages, _reported(effort, [task], [result]))


def _error(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """The tool has failed."""
    task = _task(source, toolset, *_ROLES)
    if task is None:
        return None
    result = draw_failure(source, task.slots.get("path", ""))
    messages = [_user(request(source, task)), *_done(effort, task, result)]
    answer = _reported(effort, [task], [result])
    return _branch(source, toolset, "agent_error", messages, answer)


def _two(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """Two things to do one after the other; a failure of the first one ends it."""
    first, second = _task(source, toolset, *_ROLES), _task(source, toolset, *_ROLES)
    if first is None or second is None or first.slots == second.slots:
        return None
    messages = [_user(request_both(source, first, second))]
    stage = source.rng.random()
    if stage < 0.38:
        return _branch(source, toolset, "two", messages, _call(effort, first, "first"))
    fails = stage > 0.97
    results = [_result(source, first, fails=fails)]
    messages += _done(effort, first, results[0], "first")
    if fails:
        return _branch(source, toolset, "two", messages, _reported(effort, [first], results))
    if stage < 0.76:
        return _branch(source, toolset, "two", messages, _call(effort, second, "second"))
    results.append(_result(source, second, fails=stage > 0.94))
    messages += _done(effort, second, results[1], "second")
    answer = _reported(effort, [first, second], results)
    return _branch(source, toolset, "two", messages, answer)


BRANCHES: dict[str, Callable[[Source, Effort, Toolset], Branch | None]] = {
    **{role: partial(_single, role) for role in _ROLES},
    "two": _two,
    "agent_error": _error,
}


def _task(source: Source, toolset: Toolset, *roles: str) -> Task | None:
    """A task for one of the roles that the toolset has, more often for the shell."""
    present = [role for role in roles if role in toolset.abilities]
    if not present:
        return None
    role = source.choice(present)
    if "shell" in present and source.chance(0.3):
        role = "shell"
    return draw_task(source, toolset.abilities[role])


def _result(source: Source, task: Task, *, fails: bool) -> str:
    path = task.slots.get("path", "")
    return draw_failure(source, path) if fails else draw_result(source, task.role, path)


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _call(effort: Effort, task: Task, step: Step = "only") -> Answer:
    text = arguments_json(task.arguments)
    return Answer(text, call_analysis(effort, task, step), task.ability.tool.name)


def _reported(effort: Effort, tasks: Sequence[Task], results: Sequence[str]) -> Answer:
    return Answer(report(tasks, results), report_analysis(effort, tasks, results))


def _done(effort: Effort, task: Task, result: str, step: Step = "only") -> tuple[Message, Message]:
    """The call of a task in a running tool loop, which keeps what was thought."""
    reasoning = call_analysis(effort, task, step)
    return call_and_result(task.ability.tool.name, task.arguments, result, reasoning=reasoning)


def _branch(
    source: Source, toolset: Toolset, skill: str, messages: Sequence[Message], answer: Answer
) -> Branch:
    """Name the stage and, now and then, put finished exchanges before the messages."""
    earlier: list[Message] = []
    if source.chance(0.3):
        for _ in range(source.choice((1, 1, 2))):
            earlier += _finished(source, toolset)
    stage = "call" if answer.call else "report"
    return Branch(f"{skill}_{stage}", (*earlier, *messages), answer)


def _finished(source: Source, toolset: Toolset) -> list[Message]:
    """An earlier question with its answer, of which no analysis is left."""
    task = None if source.chance(0.25) else _task(source, toolset, *_ROLES)
    if task is None:
        question, answer = source.choice(BANK.CHATS)
        return [_user(question), Message(role="assistant", content=answer)]
    result = _result(source, task, fails=source.chance(0.1))
    final = Message(role="assistant", content=report([task], [result]))
    return [_user(request(source, task)), *_done("low", task, result), final]
