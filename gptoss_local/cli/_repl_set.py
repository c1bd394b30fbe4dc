"""The state of the line-by-line chat, Ollama's `/set`, and our short forms of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Effort
from gptoss_local.base.validation import in_words
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._loading import show_load
from gptoss_local.cli._modelfile import parse_parameter
from gptoss_local.cli._options import read_format
from gptoss_local.cli._output import say, say_rows

if TYPE_CHECKING:
    from gptoss_local.cli._line_editor import LineEditor

EFFORTS: tuple[str, ...] = get_args(Effort)
PARAMETERS = (
    ("seed INT", "the same seed, the same answer"),
    ("num_predict INT", "most tokens of an answer"),
    ("top_k INT", "draw from the likeliest INT tokens"),
    ("top_p FLOAT", "draw from the likeliest tokens, up to this probability together"),
    ("min_p FLOAT", "draw from tokens at least so likely, as a share of the likeliest"),
    ("think_budget INT", "most tokens of thinking, then it answers; -1: any number"),
    ("repeat_guard BOOL", "false: an answer may go in circles"),
    ("num_ctx INT", "tokens of context, at least"),
    ("temperature FLOAT", "0 is the likeliest token, 1 the default"),
    ("repeat_penalty FLOAT", "makes repetitions less likely; 1 is none"),
    ("repeat_last_n INT", "tokens that the penalties look back; -1: all of the answer"),
    ("presence_penalty FLOAT", "for tokens that the answer has already"),
    ("frequency_penalty FLOAT", "for each time that it has them"),
    ("stop TEXT ...", "where an answer ends"),
)
_SET = (
    ("parameter NAME VALUE", "set a parameter; /set parameter lists them"),
    ("system TEXT", 'set the system message; "" for the model\'s own'),
    ("think [low|medium|high]", "think before the answer, and how long"),
    ("nothink", "answer without thinking"),
    ("format json|FILE", "answer in JSON, or in that of a schema in FILE"),
    ("noformat", "answer in text"),
    ("verbose, quiet", "say how fast answers were, or do not"),
    ("history, nohistory", "remember what you type for the Up key, or do not"),
    ("wordwrap, nowordwrap", "break lines between words, or do not"),
)


@dataclass
class Session:
    """A conversation line by line; no `editor` where no control sequence is wanted."""

    chat: Chat
    settings: Settings
    editor: "LineEditor | None"
    is_over: bool = False

    def ready_model(self) -> None:
        """Start the server and load the model, which may have been unloaded since."""
        self.chat.client.ensure_running()
        show_load(self.chat.client, self.chat.load_request())


def meant(name: str, names: list[str], before: str) -> str:
    """Return the hint for an unknown name; `before` is typed before it."""
    begun = [each for each in names if each.startswith(name)]
    close = begun or get_close_matches(name, names, n=1)
    return (
        f"Did you mean {before}{close[0]}?"
        if close
        else f"{before.removesuffix('? ')}? lists them."
    )


def set_variable(session: Session, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if name in ("", "?"):
        help_set()
    elif name not in SETTERS:
        raise UsageError(f"there is no /set {name}", hint=meant(name, [*SETTERS], "/set "))
    else:
        SETTERS[name](session, value.strip())


def help_set() -> None:
    say_rows("Available commands:", _SET, "/set ")


def help_parameters() -> None:
    say_rows("Available parameters:", PARAMETERS, "/set parameter ")


def set_system(session: Session, text: str) -> None:
    text = text.strip()
    if text:
        quoted = re.fullmatch(r'"([^"]*)"', text)
        session.chat.system = quoted[1].strip() if quoted else text
        say("Set system message." if session.chat.system else "The system message is the model's.")
    else:
        show_system(session)


def show_system(session: Session) -> None:
    from gptoss_local.models.store import find_model

    chat = session.chat
    system = chat.system or find_model(chat.model, session.settings).defaults.system
    say(system or "No system message was specified for this model.")


def set_effort(session: Session, level: str) -> None:
    think = session.chat.think = _checked(level, EFFORTS) or session.chat.think
    say(f"effort: {think if isinstance(think, str) else 'medium' if think else 'none'}")


def set_reasoning(session: Session, wanted: str) -> None:
    printer = session.chat.printer
    if _checked(wanted, ("on", "off")):
        printer.hide_reasoning = wanted == "off"
    say(f"reasoning: {'off' if printer.hide_reasoning else 'on'}")


def set_stats(session: Session, wanted: str) -> None:
    printer = session.chat.printer
    if _checked(wanted, ("on", "off")):
        printer.stats = wanted == "on"
    say(f"stats: {'on' if printer.stats else 'off'}")


def _checked(word: str, words: tuple[str, ...]) -> str:
    if word and word not in words:
        raise UsageError(f"{word} is not one of {', '.join(words)}")
    return word


def _set_parameter(session: Session, argument: str) -> None:
    from gptoss_local.server.dialects.options import Options

    name, _, text = argument.partition(" ")
    if name in ("", "?"):
        help_parameters()
        return
    known = Options.__struct_fields__
    if name not in known:
        raise UsageError(
            f"there is no parameter {name}", hint=meant(name, [*known], "/set parameter ")
        )
    if not text.strip():
        raise UsageError(f"/set parameter {name} needs a value")
    values: dict[str, Any] = {}
    for word in text.split() if name == "stop" else [text.strip()]:
        parse_parameter(values, name, word)
    try:
        msgspec.convert(values, Options, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(in_words(error, values)) from error
    session.chat.options = session.chat.options | values
    say(f"Set parameter '{name}' to '{text.strip()}'.")


def _think(session: Session, level: str) -> None:
    session.chat.think = _checked(level, EFFORTS) or True
    say(f"Set 'think' mode to '{level}'." if level else "Set 'think' mode.")


def _do_not_think(session: Session, _value: str) -> None:
    session.chat.think = False
    say("Set 'nothink' mode.")


def _set_format(session: Session, text: str) -> None:
    if not text:
        raise UsageError("/set format needs json, or a file with a JSON schema")
    session.chat.format = read_format(text)
    say(f"Set format to '{text}' mode.")


def _unset_format(session: Session, _value: str) -> None:
    session.chat.format = None
    say("Disabled format.")


def _switch(name: str, attribute: str, *, is_on: bool) -> Callable[[Session, str], None]:
    def set_it(session: Session, _value: str) -> None:
        setattr(session.chat.printer, attribute, is_on)
        say(f"Set '{name}' mode.")

    return set_it


def _history(*, is_kept: bool) -> Callable[[Session, str], None]:
    def set_it(session: Session, _value: str) -> None:
        if session.editor is not None:
            session.editor.keep_history(is_kept=is_kept)
        say(f"What you type is {'' if is_kept else 'not '}remembered.")

    return set_it


SETTERS: dict[str, Callable[[Session, str], None]] = {
    "parameter": _set_parameter,
    "system": set_system,
    "think": _think,
    "nothink": _do_not_think,
    "format": _set_format,
    "noformat": _unset_format,
    "verbose": _switch("verbose", "stats", is_on=True),
    "noverbose": _switch("quiet", "stats", is_on=False),
    "quiet": _switch("quiet", "stats", is_on=False),
    "history": _history(is_kept=True),
    "nohistory": _history(is_kept=False),
    "wordwrap": _switch("wordwrap", "wraps", is_on=True),
    "nowordwrap": _switch("nowordwrap", "wraps", is_on=False),
}
