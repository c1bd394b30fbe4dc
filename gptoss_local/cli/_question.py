"""Ask the user on the terminal; Esc, Ctrl-C and Ctrl-D leave a question and the command."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gptoss_local.base.printable import on_one_line
from gptoss_local.cli._output import is_plain, say

_ESCAPE = "\x1b"
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def echo(*, is_on: bool) -> Iterator[None]:
    """Show keys on the terminal as they are typed, or not; Windows shows them at a question."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    changed = [*before]
    changed[3] = before[3] | termios.ECHO if is_on else before[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def keep_typed() -> None:
    """Set what was typed before a question aside, for the next message: it answers nothing."""
    from prompt_toolkit.input import create_input  # PERF: 0.15 s
    from prompt_toolkit.input.typeahead import store_typeahead

    keyboard = create_input()
    with keyboard.raw_mode():  # else only whole lines could be read
        while keys := keyboard.read_keys():
            store_typeahead(keyboard, keys)


def take_typed() -> str:
    """Return what was set aside, for a message that is read without the line editor."""
    from prompt_toolkit.input import create_input
    from prompt_toolkit.input.typeahead import get_typeahead

    return "".join(key.data for key in get_typeahead(create_input()))


def confirm(question: str, *, default: bool = False) -> bool:
    asked = f"{on_one_line(question)} [{'Y/n' if default else 'y/N'}]: "
    while True:
        answer = _read(asked).lower()
        if not answer:
            return default
        if answer in _ANSWERS:
            return _ANSWERS[answer]
        say("Type y or n; Enter takes the upper-case one, Esc leaves.")


def choose(question: str, n_choices: int, *, default: int) -> int:
    while True:
        answer = _read(f"{question} [{default}]: ")
        if not answer:
            return default
        if answer.isdecimal() and 1 <= int(answer) <= n_choices:
            return int(answer)
        say(f"Type a number from 1 to {n_choices}; Enter takes {default}, Esc leaves.")


def _read(question: str) -> str:
    try:
        if has_terminal() and not is_plain():
            return _read_key_by_key(question).strip()
    except EOFError:
        raise KeyboardInterrupt from None
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line or _ESCAPE in line:
        raise KeyboardInterrupt
    return line.strip()


def _read_key_by_key(question: str) -> str:
    from prompt_toolkit import PromptSession  # PERF: 0.15 s
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import create_output

    os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")  # some terminals never answer that
    keys = KeyBindings()

    @keys.add("escape", eager=True)
    def leave(event: Any) -> None:
        event.app.exit(exception=EOFError())

    session: PromptSession[str] = PromptSession(
        key_bindings=keys, output=create_output(sys.stderr), reserve_space_for_menu=0
    )
    session.app.ttimeoutlen = 0.1  # in which the rest of a key such as Up would have come
    return session.prompt(question)
