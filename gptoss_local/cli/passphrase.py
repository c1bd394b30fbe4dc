"""`gptoss passphrase`: the passphrase of saved chats. Needs no server."""

import getpass
import sys
from typing import Annotated, Literal

import typer

from gptoss_local.base.errors import HistoryLockedError, UsageError
from gptoss_local.base.private import keep_memory_private
from gptoss_local.base.settings import PASSPHRASE, Settings, load_settings, take_passphrase
from gptoss_local.cli._output import say
from gptoss_local.talk.history import History

_PROMPT = "Passphrase: "


def passphrase(
    action: Annotated[
        Literal["set", "change", "remove"],
        typer.Argument(metavar="set|change|remove", help="What to do."),
    ],
) -> None:
    """It is asked for at the terminal; elsewhere it is GPTOSS_PASSPHRASE or a line of stdin, and a
    new one in place of that is the next line. Without it the chats are lost.
    """
    settings = load_settings()
    history = History(settings.history_path)
    try:
        if (action == "set") == history.lock.is_set:
            has = "no" if action != "set" else "a"
            hint = "gptoss passphrase set" if action != "set" else "gptoss passphrase change"
            raise UsageError(f"the chats have {has} passphrase", hint=hint)
        match action:
            case "set":
                _set(history, take_passphrase() or _new(), settings)
            case "change":
                history.lock.change(_current(), _new())
                say("The passphrase is changed.")
            case "remove":
                history.lock.change(_current(), None)
                say("The chats are not encrypted any more.")
    finally:
        history.close()


def open_history(settings: Settings) -> History:
    history, passphrase = History(settings.history_path), take_passphrase()
    try:
        if history.lock.is_locked:
            keep_memory_private()
            if not (passphrase or sys.stdin.isatty()):
                raise HistoryLockedError("The chats are locked.", hint=f"Set {PASSPHRASE}.")
            history.lock.unlock(passphrase or _asked(_PROMPT))
    except BaseException:
        history.close()
        raise
    return history


def _set(history: History, passphrase: str, settings: Settings) -> None:
    try:
        history.lock.change(None, passphrase)
    finally:
        if history.lock.is_set:  # earlier files have plain text
            drafts = settings.history_path.with_name("drafts.json")
            prefixes = settings.prefix_dir.glob("*/*")
            for path in (drafts, settings.input_history, *prefixes):
                path.unlink(missing_ok=True)
    say(
        "The chats are encrypted. They are locked whenever a server or a chat starts; without the "
        "passphrase they are lost."
    )


def _current() -> str:
    return take_passphrase() or _asked(_PROMPT)


def _new() -> str:
    new = _asked("New passphrase: ")
    if sys.stdin.isatty() and _asked("The same again: ") != new:
        raise UsageError("the two passphrases differ")
    return new


def _asked(prompt: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(prompt)
    return sys.stdin.readline().rstrip("\r\n")
