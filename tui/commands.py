"""The registry of commands: slash commands, the palette and the help page are made from it.

What a command does is in `actions`; here is only how it is named, found and completed. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gptoss_local.errors import UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: What follows the slash.
        argument: How the help names its argument; empty if it takes none.
        key: The key that does the same, as Textual spells it; empty if there is none.
        available_during_turn: Whether it may be used while an answer streams.
        action: Called with the parts of the chat and the argument.
    """

    name: str
    summary: str
    action: Any
    argument: str = ""
    key: str = ""
    available_during_turn: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".strip()


class Registry:
    """All commands, in the order in which they are listed."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.commands = tuple(commands)
        self._by_name = {c.name: c for c in self.commands}
        self._by_name |= {alias: c for c in self.commands for alias in c.aliases}

    def parse(self, text: str) -> tuple[Command, str] | None:
        """Read a line of input; None if it is a message and not a command.

        A path such as `/etc/hosts` at the beginning of a message is not a command either: they
        are letters only, up to a space.

        Raises:
            UsageError: it looks like a command, but there is no such command.
        """
        word, _, argument = text.strip().partition(" ")
        if not (word.startswith("/") and word[1:].isalpha()) or "\n" in word:
            return None
        command = self._by_name.get(word[1:].lower())
        if command is None:
            near = self.complete(word)
            hint = f"Did you mean {near[0].usage}?" if near else "/help lists all commands."
            raise UsageError(f"there is no command {word}", hint=hint)
        return command, argument.strip()

    def complete(self, text: str) -> list[Command]:
        """Commands for what is typed so far: those that begin so, then those that contain it."""
        typed = text.removeprefix("/").lower()
        if not text.startswith("/") or " " in text or "\n" in text:
            return []
        ranked = [(_rank(typed, (c.name, *c.aliases)), c) for c in self.commands]
        return [c for rank, c in sorted(ranked, key=lambda pair: pair[0]) if rank < _NO_MATCH]


_NO_MATCH = 3


def _rank(typed: str, names: tuple[str, ...]) -> int:
    """0 begins so, 1 contains it, 2 has its letters in this order, 3 has not."""
    if any(name.startswith(typed) for name in names):
        return 0
    if any(typed in name for name in names):
        return 1
    return 2 if any(_is_subsequence(typed, name) for name in names) else _NO_MATCH


def _is_subsequence(typed: str, name: str) -> bool:
    letters = iter(name)
    return all(letter in letters for letter in typed)
