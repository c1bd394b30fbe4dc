"""Draws what a coding agent is asked for, and the user's words: one thing, or one after another."""

from dataclasses import dataclass

from bench.nano.data.ability import Ability
from bench.nano.data.agent_values import (
    draw_change,
    draw_command,
    draw_file,
    draw_folder,
    draw_pattern,
    draw_text,
)
from bench.nano.data.agent_wording import Bank, Wordings, fenced, marked, marked_or_word, named
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks

ASKS = banks("asks")

_SHELL, _CREATE = Wordings(Bank(**ASKS.SHELL), "command"), Wordings(Bank(**ASKS.CREATE), "content")
_SEARCH, _SEARCH_IN = (
    Wordings(Bank(**ASKS.SEARCH), "pattern"),
    Wordings(Bank(**ASKS.SEARCH_IN), "pattern"),
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
            return (Bank(**ASKS.READ) if role == "read" else Bank(**ASKS.LIST)).draw(
                source, path=path
            )


def _edit_request(source: Source, path: str, old: str, new: str) -> str:
    in_lines = "\n" in old + new
    if source.chance(0.25 if in_lines else 0.06):
        merge = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        return Bank(**ASKS.MERGE).draw(source, path=path, block=merge)
    if in_lines or source.chance(0.25):
        language = source.choice(("", "", "python", "js", "text"))
        old, new = fenced(source, old, (language,)), fenced(source, new, (language,))
        return Bank(**ASKS.BLOCK).draw(source, path=path, old=old, new=new)
    old, new = marked_or_word(source, old), marked_or_word(source, new)
    return Bank(**ASKS.INLINE).draw(source, path=path, old=old, new=new)


def request_both(source: Source, first: Task, second: Task) -> str:
    """What the user says who wants two tasks done, in this order."""
    a, b = _clause(source, first), _clause(source, second)
    if first.role == second.role == "shell" and "\n" not in b and source.chance(0.3):
        b = marked(source, second.slots["command"])
    slots = {"a": a, "b": b, "A": a[0].upper() + a[1:], "B": b[0].upper() + b[1:]}
    if "\n" in a + b or source.chance(0.35):
        return phrase(source, ASKS.BLOCK_JOINS, ask=False, **slots)
    ask = source.chance(0.4)
    return phrase(source, ASKS.JOINS if ask else ASKS.OTHER_JOINS, ask=ask, **slots)


def _clause(source: Source, task: Task) -> str:
    """A task as an imperative that can stand inside a sentence."""
    blocks = [name for name, value in task.slots.items() if "\n" in value]
    slots = {
        name: named(source, value)
        if name == "path"
        else (f"\n{fenced(source, value)}\n" if name in blocks else marked_or_word(source, value))
        for name, value in task.slots.items()
    }
    bank = ASKS.CLAUSES["search_in" if task.role == "search" and "path" in slots else task.role]
    if blocks == ["content"]:
        bank = ASKS.CREATE_BLOCK
        slots["content"] = slots["content"].strip("\n")
    return phrase(source, bank, ask=False, **slots)
