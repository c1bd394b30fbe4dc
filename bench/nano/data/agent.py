"""A coding agent's requests, calls, results and reports.

How a user puts a value into a sentence keeps its ends clear: between marks it may stand anywhere,
without them it ends the message or has its own line; several lines stand in a fence or come last.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.functions import draw_functions
from bench.nano.data.source import Source
from bench.nano.data.tools import (
    Ability,
    Toolset,
    assistant,
    call_and_result,
    call_answer,
    draw_ability,
    draw_editor,
    draw_other,
    user,
)
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony.message import Message, Tool

BANK = banks("agent")
WORDS = banks("words")
ROLES = ("shell", "create", "read", "edit", "list", "search")
Bank = dict[str, tuple[str, ...]]
Step = Literal["only", "first", "second"]


def draw_toolset(source: Source, n_tools: int, roles: Sequence[str] = ROLES) -> Toolset:
    """Draw `n_tools` tools, of which as many as fit have a role; functions may be among them."""
    abilities: dict[str, Ability] = {}
    tools: dict[str, Tool] = {}
    n_left_out = source.choice((0, 0, 0, 0, 1, 2)) if n_tools < 12 else 0
    order = source.rng.sample(list(roles), len(roles))
    if "shell" in order and source.chance(0.6):
        order.insert(0, order.pop(order.index("shell")))
    present = order[: max(min(n_tools, 1), min(n_tools, len(roles) - n_left_out))]
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
            if not ({ability.tool.name} & {*tools} or {ability.role} & {*abilities, *ROLES}):
                abilities[ability.role] = ability
                tools[ability.tool.name] = ability.tool
    while len(tools) < n_tools:
        tool = draw_other(source, tools)
        tools[tool.name] = tool
    declared = list(tools.values())
    if source.chance(0.8):
        source.rng.shuffle(declared)
    return Toolset(tuple(declared), abilities)


# --- what is asked for


def _command(source: Source) -> str:
    def with_text() -> str:
        return source.choice(BANK.TEXT_COMMANDS).format(
            text=source.tokens(source.rng.randint(1, 10)),
            word=source.invented() if source.chance(0.5) else source.token_word(),
            n=source.rng.randrange(1, 10000),
        )

    return source.drawn(
        (0.5, source.command),
        (0.9, lambda: source.fresh(with_text)),
        (0.95, source.line),
        (1, lambda: "\n".join(source.command() for _ in range(source.rng.randint(2, 4)))),
    )


def _odd_name(source: Source) -> str:
    """A word made of any tokens, without the signs that would end it in a sentence."""
    return re.sub(r"[\W]+", "", source.tokens(source.rng.randint(1, 3))) or source.invented()


def draw_file(source: Source) -> str:
    """A path of a file, sometimes with letters of any script or a space."""
    kind = source.rng.random()

    def odd() -> str:
        parts = [_odd_name(source) for _ in range(source.rng.choice((1, 1, 2, 3)))]
        if kind > 0.96:
            parts[-1] += f" {source.token_word()}"
        root = source.choice(("", "", "./", "/", "~/"))
        return f"{root}{'/'.join(parts)}.{source.choice(WORDS.EXTENSIONS)}"

    return source.path() if kind < 0.75 else source.fresh(odd)


def draw_folder(source: Source) -> str:
    """A path of a folder."""

    def draw() -> str:
        if source.chance(0.05):
            return source.choice((".", "..", "~", "/tmp", "./"))
        parts = [
            _odd_name(source) if source.chance(0.25) else source.choice(WORDS.FOLDERS)
            for _ in range(source.rng.choice((1, 1, 2, 2, 3)))
        ]
        dot = "" if parts[0].startswith(".") else "."
        root = source.choice(("", "", "", "./", "/", "/home/", "~/", dot))
        return root + "/".join(parts) + ("/" if source.chance(0.15) else "")

    return source.fresh(draw)


def _text(source: Source, most: int) -> str:
    """A text of 1 to `most` lines: code, prose, data or any tokens."""
    n = 1 if source.chance(0.4) else source.rng.randint(2, most)
    if n == 1:
        return source.line()
    kind = source.rng.randrange(6)
    if kind <= 1:
        return source.fresh(lambda: source.code(n))
    if kind == 3:
        return _json(source, indent=source.choice((2, 4)))
    bullet = source.choice(("- ", "* ", "", "1. ", "# ")) if kind == 4 else ""

    def line() -> str:
        if kind < 5:
            return source.line() if kind == 2 else bullet + source.sentence()
        name, sign = source.identifier(), source.choice("=:,")
        return name + sign + (source.number(10000) if source.chance(0.4) else source.line())

    return "\n".join(line() for _ in range(n))


def _json(source: Source, indent: int | None = None) -> str:
    data: dict[str, object] = {}
    for _ in range(source.rng.randint(1, 6)):
        inner: object = source.rng.randrange(1000) if source.chance(0.4) else source.line()
        if source.chance(0.2):
            inner = [source.invented() for _ in range(source.rng.randint(0, 3))]
        data[source.identifier()] = inner
    return json.dumps(data, ensure_ascii=source.chance(0.3), indent=indent)


def _change(source: Source) -> tuple[str, str]:
    """An old text and a new one, which differ in a word or in everything."""

    def word() -> str:
        draw = source.choice((source.identifier, source.token_word, source.invented, source.noun))
        return source.number(10000) if source.chance(0.15) else source.fresh(draw)

    def altered(text: str) -> str:
        found = list(re.finditer(r"\w+", text))
        if not found:
            return f"{text} {source.invented()}"
        spot = source.choice(found)
        other = source.number(1000) if spot.group().isdigit() else source.identifier()
        return text[: spot.start()] + other + text[spot.end() :]

    old = new = ""
    while old == new:
        if source.chance(0.2):
            old, new = word(), word()
        elif source.chance(0.3):
            n = source.rng.randint(2, 4)
            old = source.fresh(lambda n=n: source.code(n))
            new = altered(old) if source.chance(0.5) else source.code(n)
        else:
            old = source.line()
            new = altered(old) if source.chance(0.5) else source.line()
    return old, new


def _pattern(source: Source) -> str:
    return source.drawn(
        (0.4, source.identifier),
        (0.6, lambda: source.fresh(lambda: source.tokens(source.rng.randint(1, 4)))),
        (0.8, source.line),
        (1, lambda: source.fresh(source.token_word)),
    )


class Task(NamedTuple):
    """One thing to do with one tool; `slots` are the values that the user gives."""

    role: str
    ability: Ability
    slots: dict[str, str]

    @property
    def arguments(self) -> dict[str, object]:
        return self.ability.fill(self.slots)


def draw_task(source: Source, ability: Ability) -> Task:
    """Draw the values of a request for the ability's role."""
    role, slots = ability.role, dict[str, str]()
    if role == "shell":
        slots["command"] = _command(source)
    elif role == "search":
        slots["pattern"] = _pattern(source)
        if "?" in ability.fill({"pattern": "", "path": "?"}).values():
            slots["path"] = draw_folder(source)
    else:
        slots["path"] = (draw_folder if role == "list" else draw_file)(source)
    if role == "create":
        slots["content"] = _text(source, 8 if source.chance(0.7) else 25)
    elif role == "edit":
        slots["old"], slots["new"] = _change(source)
    return Task(role, ability, slots)


# --- how it is asked for

_MARKS = ("`", "`", "`", '"', '"', "'")
_LANGUAGES = ("", "", "", "", "bash", "text", "sh", "python", "js", "txt")
_WORD = re.compile(r"\w+", re.ASCII)


def _asked(source: Source, bank: Bank, **slots: str) -> str:
    """Draw from a bank's `asks`, which begin with a verb, or from its `others`."""
    asks, others = bank.get("asks", ()), bank.get("others", ())
    ask = bool(asks) and (not others or source.chance(0.6))
    return phrase(source, asks if ask else others, ask=ask, **slots)


def _only(bank: Bank, start: str, end: str) -> Bank:
    return {
        name: tuple(text for text in texts if text.endswith(end) or text.startswith(start))
        for name, texts in bank.items()
    }


def _wordings(bank: Bank, slot: str) -> Callable[..., str]:
    """What draws from a bank by the places where its main slot stands."""
    mark = f"{{{slot}}}"
    last, block = _only(bank, "\0", mark), _only(bank, "\0", f"\n{mark}")
    own_line = _only(bank, f"{mark}\n", f"\n{mark}")

    def draw(source: Source, value: str, **slots: str) -> str:
        kind = source.rng.random()
        if "\n" in value:
            bare, of_bare = kind < 0.3, block
        elif kind < 0.5:
            return _asked(source, bank, **{slot: marked(source, value)}, **slots)
        else:
            bare, of_bare = kind < 0.85 and not {value[0], value[-1]} & {*_MARKS}, last
        shown = value if bare else _fenced(source, value)
        return _asked(source, of_bare if bare else own_line, **{slot: shown}, **slots)

    return draw


def marked(source: Source, value: str) -> str:
    """Put a value of one line between marks that are not in it."""
    fitting = [mark for mark in _MARKS if mark not in value]
    if not fitting:
        return f"```\n{value}\n```"
    mark = source.choice(fitting)
    return f"{mark}{value}{mark}"


def _marked_or_word(source: Source, value: str) -> str:
    is_bare = _WORD.fullmatch(value) and source.chance(0.45)
    return value if is_bare else marked(source, value)


def _named(source: Source, path: str) -> str:
    """A path, which needs no marks if no space or full stop hides where it ends."""
    clear = " " not in path and (path[-1].isalnum() or (path.endswith("/") and len(path) > 2))
    return path if clear and source.chance(0.5) else marked(source, path)


def _fenced(source: Source, value: str, languages: tuple[str, ...] = _LANGUAGES) -> str:
    fence = "```"
    while fence in value:
        fence += "`"
    return f"{fence}{source.choice(languages)}\n{value}\n{fence}"


_WORDINGS = {
    name: _wordings(getattr(BANK, name), slot)
    for name, slot in (
        ("SHELL", "command"), ("CREATE", "content"), ("SEARCH", "pattern"),
        ("SEARCH_IN", "pattern"),
    )
}  # fmt: skip


def request(source: Source, task: Task) -> str:
    """What the user says who wants a task done."""
    slots = task.slots
    path = _named(source, slots["path"]) if "path" in slots else ""
    match task.role:
        case "shell":
            return _WORDINGS["SHELL"](source, slots["command"])
        case "create":
            return _WORDINGS["CREATE"](source, slots["content"], path=path)
        case "search":
            wordings = _WORDINGS["SEARCH_IN" if path else "SEARCH"]
            return wordings(source, slots["pattern"], path=path)
        case "edit":
            return _edit_request(source, path, slots["old"], slots["new"])
    return _asked(source, BANK.READ if task.role == "read" else BANK.LIST, path=path)


def _edit_request(source: Source, path: str, old: str, new: str) -> str:
    in_lines = "\n" in old + new
    if source.chance(0.25 if in_lines else 0.06):
        merge = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        return _asked(source, BANK.MERGE, path=path, block=merge)
    if in_lines or source.chance(0.25):
        language = (source.choice(("", "", "python", "js", "text")),)
        old, new = _fenced(source, old, language), _fenced(source, new, language)
        return _asked(source, BANK.BLOCK, path=path, old=old, new=new)
    old, new = _marked_or_word(source, old), _marked_or_word(source, new)
    return _asked(source, BANK.INLINE, path=path, old=old, new=new)


def _request_both(source: Source, first: Task, second: Task) -> str:
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
    slots: dict[str, str] = {}
    for name, value in task.slots.items():
        if name == "path":
            slots[name] = _named(source, value)
        else:
            in_lines = "\n" in value
            slots[name] = (
                f"\n{_fenced(source, value)}\n" if in_lines else _marked_or_word(source, value)
            )
    bank = BANK.CLAUSES["search_in" if task.role == "search" and "path" in slots else task.role]
    if [name for name, value in task.slots.items() if "\n" in value] == ["content"]:
        bank = BANK.CREATE_BLOCK
        slots["content"] = slots["content"].strip("\n")
    return phrase(source, bank, ask=False, **slots)


# --- what tools answer; how it begins tells whether the tool has failed


def _looks_failed(result: str) -> bool:
    is_zero_exit = result.startswith(("Exit code: 0\n", "Exit code 0\n"))
    return result.lstrip().lower().startswith(BANK.FAILURE_STARTS) and not is_zero_exit


def _draw_result(source: Source, role: str, path: str) -> str:
    draw = _RESULTS[role]
    while _looks_failed(result := draw(source, path)):
        pass
    return result + ("\n" if result and source.chance(0.15) else "")


def _failure(source: Source, path: str) -> str:
    slots = {
        "word": source.identifier(), "path": path or source.path(),
        "n": source.rng.randrange(1, 256),
        "name": source.invented().capitalize(), "text": source.line(),
    }  # fmt: skip
    message = source.choice(BANK.MESSAGES).format(**slots)
    return source.choice(BANK.FAILED).format(message=message.replace('"', ""), **slots)


def _ran(source: Source, _path: str) -> str:
    kind = source.rng.random()
    if kind < 0.1:
        return "" if kind < 0.08 else "\n"
    body = _output(source)
    if kind < 0.65:
        return body
    milliseconds = source.rng.randrange(5000)
    packed = (
        json.dumps({"output": body, "exit_code": 0}),
        json.dumps({"output": body, "metadata": {"exit_code": 0}}, ensure_ascii=False),
        json.dumps({"stdout": body, "stderr": "", "code": 0}, ensure_ascii=False, indent=2),
    )
    wrap = source.choice(BANK.RAN)
    return wrap.format(body=body, ms=milliseconds, s=milliseconds / 1000, packed=packed)


def _output(source: Source) -> str:
    """What a program prints: up to 40 lines."""
    kind, n = source.rng.randrange(9), source.choice((1, 1, 2, 3, 5, 8, 16, 40))
    if kind <= 2:
        return source.line()
    if kind == 4:
        return _listing(source, "")
    if kind == 5:
        return _json(source, indent=source.choice((None, None, 2)))
    if kind == 7:
        return _text(source, 12)
    if kind < 8:
        draw = source.line if kind == 3 else partial(_log_line, source)
        return "\n".join(draw() for _ in range(min(n, 12) if kind == 3 else n))
    passed = [f"{source.path()} {'.' * source.rng.randint(1, 30)}" for _ in range(min(n, 8))]
    return "\n".join([*passed, "", f"{source.rng.randrange(500)} passed in 0.{n}s"])


def _log_line(source: Source) -> str:
    clock = f"{source.rng.randrange(24):02}:{source.rng.randrange(60):02}"
    level = source.choice(("INFO", "DEBUG", "WARN"))
    return f"{clock} {level} {source.identifier()}: {source.rng.randrange(10000)}"


def _message(templates: tuple[str, ...], source: Source, path: str) -> str:
    template = source.choice(templates)
    code = source.code(source.rng.randint(1, 5)) if "{code}" in template else ""
    n, word = source.rng.randrange(1, 5000), source.invented()
    name = path.replace("\\", "/")
    return template.format(path=path, name=name, n=n, word=word, code=_numbered(source, code))


def _read(source: Source, path: str) -> str:
    if source.chance(0.04):
        return ""
    body = _text(source, source.choice((3, 8, 15, 40)))
    kind = source.rng.random()
    if kind < 0.55:
        return body
    if kind < 0.85:
        return _numbered(source, body)
    in_file, by_cat = _numbered(source, body), _numbered(source, body)
    in_json = json.dumps({"content": body}, ensure_ascii=False)
    by_line = json.dumps({"path": path, "lines": body.split("\n")})
    wrap = source.choice(BANK.READ_WRAPS)
    return wrap.format(path=path, body=body, a=in_file, b=by_cat, c=in_json, d=by_line)


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


_RESULTS: dict[str, Callable[[Source, str], str]] = {
    "shell": _ran, "create": partial(_message, BANK.WRITTEN), "read": _read,
    "edit": partial(_message, BANK.CHANGED), "list": _listing, "search": _matches,
}  # fmt: skip


# --- what the agent thinks and says


def _call_analysis(effort: Effort, task: Task, step: Step = "only") -> str:
    word, slot = BANK.MAIN.get(task.role, ("path", "path"))
    value = task.slots[slot]
    short = len(value) <= 40 and "`" not in value and "\n" not in value
    return thought(
        effort,
        BANK.THOUGHTS[step],
        purpose=BANK.PURPOSES[task.role],
        tool=task.ability.tool.name,
        told=f" The {word} is `{value}`." if short else "",
        names=", ".join(f"`{name}`" for name in task.arguments),
    )


def _reported(effort: Effort, tasks: Sequence[Task], results: Sequence[str]) -> Answer:
    last, result = tasks[-1], results[-1]
    kind = "failed" if _looks_failed(result) else "two" if len(results) > 1 else ""
    kind = kind or ("done" if last.role in ("create", "edit") else "")
    kind = kind or ("result" if result.strip() else "empty")
    purpose, tool = BANK.PURPOSES[last.role], last.ability.tool.name
    analysis = thought(effort, BANK.THOUGHTS[kind], purpose=purpose, tool=tool)
    return Answer("\n\n".join(map(_report_one, tasks, results)), analysis)


def _report_one(task: Task, result: str) -> str:
    shown = result.rstrip("\n")
    block, path = f"\n\n```\n{shown}\n```", f"`{task.slots.get('path', '')}`"
    if _looks_failed(result):
        return f"That failed:{block}"
    if task.role in ("create", "edit"):
        return f"I {'created' if task.role == 'create' else 'changed'} {path}."
    full, empty = {
        "shell": ("The command printed:", "The command printed nothing."),
        "search": ("I found:", "I found nothing."),
    }.get(task.role, (f"{path} contains:", f"{path} is empty."))
    return full + block if shown.strip() else empty


# --- branches


def _single(role: str, source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """One thing to do: its call, or the report of its result."""
    if (task := _task(source, toolset, role)) is None:
        return None
    asked = user(request(source, task))
    if source.chance(0.68):
        return _branch(source, toolset, role, [asked], _call(effort, task))
    result = _draw_result(source, role, task.slots.get("path", ""))
    messages = [asked, *_done(effort, task, result)]
    return _branch(source, toolset, role, messages, _reported(effort, [task], [result]))


def _error(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    if (task := _task(source, toolset, *ROLES)) is None:
        return None
    result = _failure(source, task.slots.get("path", ""))
    messages = [user(request(source, task)), *_done(effort, task, result)]
    answer = _reported(effort, [task], [result])
    return _branch(source, toolset, "agent_error", messages, answer)


def _two(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """Two things to do one after the other; a failure of the first one ends it."""
    first, second = _task(source, toolset, *ROLES), _task(source, toolset, *ROLES)
    if first is None or second is None or first.slots == second.slots:
        return None
    messages, results = [user(_request_both(source, first, second))], list[str]()
    stage = source.rng.random()
    if stage < 0.38:
        answer = _call(effort, first, "first")
    else:
        fails = stage > 0.97
        results.append(_result(source, first, fails=fails))
        messages += _done(effort, first, results[0], "first")
        if fails:
            answer = _reported(effort, [first], results)
        elif stage < 0.76:
            answer = _call(effort, second, "second")
        else:
            results.append(_result(source, second, fails=stage > 0.94))
            messages += _done(effort, second, results[1], "second")
            answer = _reported(effort, [first, second], results)
    return _branch(source, toolset, "two", messages, answer)


BRANCHES: dict[str, Callable[[Source, Effort, Toolset], Branch | None]] = {
    **{role: partial(_single, role) for role in ROLES},
    "two": _two,
    "agent_error": _error,
}


def _task(source: Source, toolset: Toolset, *roles: str) -> Task | None:
    present = [role for role in roles if role in toolset.abilities]
    if not present:
        return None
    role = source.choice(present)
    if "shell" in present and source.chance(0.3):
        role = "shell"
    return draw_task(source, toolset.abilities[role])


def _result(source: Source, task: Task, *, fails: bool) -> str:
    path = task.slots.get("path", "")
    return _failure(source, path) if fails else _draw_result(source, task.role, path)


def _call(effort: Effort, task: Task, step: Step = "only") -> Answer:
    return call_answer(task.ability.tool.name, task.arguments, _call_analysis(effort, task, step))


def _done(effort: Effort, task: Task, result: str, step: Step = "only") -> tuple[Message, Message]:
    reasoning = _call_analysis(effort, task, step)
    return call_and_result(task.ability.tool.name, task.arguments, result, reasoning=reasoning)


def _branch(
    source: Source, toolset: Toolset, skill: str, messages: Sequence[Message], answer: Answer
) -> Branch:
    """A branch, often behind finished exchanges; its stage is part of its name."""
    earlier: list[Message] = []
    if source.chance(0.3):
        for _ in range(source.choice((1, 1, 2))):
            earlier += _finished(source, toolset)
    stage = "call" if answer.call else "report"
    return Branch(f"{skill}_{stage}", (*earlier, *messages), answer)


def _finished(source: Source, toolset: Toolset) -> list[Message]:
    task = None if source.chance(0.25) else _task(source, toolset, *ROLES)
    if task is None:
        question, answer = source.choice(BANK.CHATS)
        return [user(question), assistant(answer)]
    result = _result(source, task, fails=source.chance(0.1))
    final = assistant(_report_one(task, result))
    return [user(request(source, task)), *_done("low", task, result), final]
