"""The slash commands of the terminal chat and of the line-by-line chat."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gptoss_local.base.errors import UsageError

_SLASH = re.compile(r"/([a-z?]*)(?:[ \t]+(.*))?", re.DOTALL | re.IGNORECASE)
_SHELL = re.compile(r"!(?![!\[])[ \t]*(\S[^\n]*)")  # but no picture of Markdown's
_NO_MATCH = 3


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    summary: str
    argument: str = ""  # its name in the help; in brackets if it may be left out
    available_during_turn: bool = False
    aliases: tuple[str, ...] = ()  # mostly Ollama's

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".strip()

    @property
    def all_usages(self) -> str:
        return f"{', '.join(f'/{name}' for name in self.names)} {self.argument}".strip()


COMMANDS = (
    Command("help", "Keys and commands", "", True, ("?",)),
    Command("new", "Begin a new chat", "", True, ("clear",)),
    Command("resume", "Open, rename, delete or export a chat", "", True),
    Command("search", "Search all chats", "WORDS", True),
    Command("find", "Find words in this chat", "[WORDS]", True),
    Command("recall", "Search the messages that you wrote", "", True),
    Command("model", "Continue with another model", "[NAME]", True),
    Command("load", "Begin with another model, or a saved session", "NAME"),
    Command("save", "Save the session as a model", "NAME"),
    Command("show", "Details of the model; /show lists them", "[NAME]"),
    Command("effort", "How long to reason: low, medium, high", "[LEVEL]", True, ("think",)),
    Command("reasoning", "Print the reasoning or not", "[on|off]"),
    Command("edit", "Edit your last message, or the n-th last", "[N]"),
    Command("attach", "Attach a file, a PDF, a folder, or *.py", "PATH", True),
    Command("continue", "Continue the last answer where it was cut"),
    Command("now", "End the thinking, and answer now", "", True),
    Command("retry", "Answer the last message again"),
    Command("copy", "Copy the last answer, or its n-th code block", "[N]", True),
    Command("open", "Open a link of the last answer", "[N]", True),
    Command("export", "Write the chat to FILE.md or FILE.json", "[FILE]", True),
    Command("import", "Add a chat that was exported as JSON", "FILE", True),
    Command("system", "Set the instructions for the model", "TEXT", True),
    Command("again", "Answer again, with the next effort; the old one stays"),
    Command("compare", "The versions of an answer side by side", "", True),
    Command("branch", "Continue from here in a new chat; this one stays"),
    Command("stats", "Speed of the answers: show or hide", "[on|off]", True, ("verbose",)),
    Command("inspect", "What the model saw and wrote, token by token"),
    Command("preset", "Begin a chat with a preset; make or edit one", "[NAME]", True),
    Command("temporary", "Begin a chat that is not kept, or one that is", "", True),
    Command("tools", "List the tools, or turn one on or off", "[NAME]", True),
    Command("undo", "Take back the model's last patch (chat --work)"),
    Command("set", "Set an option; /set alone lists them", "[NAME VALUE]"),
    Command("editor", "Write the message in $EDITOR", "", True),
    Command("theme", "Choose colours", "[NAME]", True),
    Command("mouse", "Off: the terminal selects text with it", "on|off", True),
    Command("quit", "Leave", "", True, ("bye", "exit")),
)


def shell_command(typed: str) -> str:
    """Return the command of a line that begins with `!`; empty for a message.

    A message may begin so after a space, or continue in a second line, as pasted code does.
    """
    found = _SHELL.fullmatch(typed.rstrip())
    return found[1] if found else ""


class Registry:
    """The commands of one chat, as listed; `actions` are their functions by name."""

    def __init__(self, actions: Mapping[str, Callable[..., Any]]) -> None:
        self.actions = actions
        self.commands = [command for command in COMMANDS if command.name in actions]
        self.by_name = {name: command for command in self.commands for name in command.names}

    def parse(self, text: str) -> tuple[Command, str] | None:
        """Read a line of input; None if it is a message, which may begin with a path."""
        found = _SLASH.fullmatch(text.strip())
        if found is None:
            return None
        command = self.by_name.get(found[1].lower())
        if command is None and found[1] and os.path.lexists(f"/{found[1]}"):
            return None
        if command is None:
            near = self.complete(f"/{found[1]}") if found[1] else []
            hint = f"Did you mean /{near[0].name}?" if near else "/help lists all commands."
            raise UsageError(f"there is no command /{found[1]}", hint=hint)
        argument = (found[2] or "").strip()
        if argument and not command.argument and command.name not in ("help", "resume"):
            raise UsageError(f"/{command.name} takes nothing after it", hint="Enter it alone.")
        return command, argument

    def complete(self, text: str) -> list[Command]:
        typed = text.removeprefix("/").lower()
        if not text.startswith("/") or " " in text or "\n" in text:
            return []
        ranked = [(_rank(typed, command.names), command) for command in self.commands]
        return [c for rank, c in sorted(ranked, key=lambda pair: pair[0]) if rank < _NO_MATCH]


def _rank(typed: str, names: tuple[str, ...]) -> int:
    """Rank a prefix 0, a substring 1, letters in this order 2, anything else 3."""
    if any(name.startswith(typed) for name in names):
        return 0
    if any(typed in name for name in names):
        return 1
    return 2 if any(_is_subsequence(typed, name) for name in names) else _NO_MATCH


def _is_subsequence(typed: str, name: str) -> bool:
    letters = iter(name)
    return all(letter in letters for letter in typed)
