"""The commands of the line-by-line chat: our short ones, and Ollama's `/set` and `/show`."""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from gptoss_local.base.errors import ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Effort
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._loading import show_load
from gptoss_local.cli._modelfile import parse_parameter
from gptoss_local.cli._options import named, read_format, server_for
from gptoss_local.cli._output import print_facts, say, say_rows
from gptoss_local.cli.show import facts_of, part_of
from gptoss_local.models.catalog import canonical_name
from gptoss_local.models.store import ModelEntry, find_model
from gptoss_local.models.store.models import parameter_lines
from gptoss_local.server.dialects.options import Options
from tui.commands import Registry

if TYPE_CHECKING:
    from gptoss_local.cli._line_editor import LineEditor

EFFORTS: tuple[str, ...] = get_args(Effort)
_PARAMETERS = (
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
    ("format json|FILE", "answer in JSON, or by the schema in FILE"),
    ("noformat", "answer in text"),
    ("verbose, quiet", "say how fast answers were, or do not"),
    ("history, nohistory", "remember what you type for the Up key, or do not"),
    ("wordwrap, nowordwrap", "draw Markdown, or print it as it is written"),
)
_SHORTCUTS = (
    ("Ctrl-A, Home", "to the beginning of the line"),
    ("Ctrl-E, End", "to the end of the line"),
    ("Alt-B, Alt-F", "a word back, a word on"),
    ("Ctrl-K, Ctrl-U", "delete what is after the cursor, before it"),
    ("Ctrl-W", "delete the word before the cursor"),
    ("Up, Down", "what you typed before"),
    ("Tab", "complete a command, or a path after an @"),
    ("Alt-Enter", "new line"),
    ("Ctrl-L", "clear the screen"),
    ("Ctrl-G", "write the message in $EDITOR"),
    ("Ctrl-C", "stop the answer"),
    ("Ctrl-D", "leave (/bye)"),
)
_SHOW = (
    ("info", "details of the model"),
    ("license", "its license"),
    ("modelfile", "the model as a Modelfile"),
    ("parameters", "its parameters and yours"),
    ("system", "the system message"),
    ("template", "the prompt format"),
)
_TOPICS: dict[str, tuple[str, Sequence[tuple[str, str]], str]] = {
    "set": ("Available commands:", _SET, "/set "),
    "show": ("Available commands:", _SHOW, "/show "),
    "shortcuts": ("Keys, where the terminal allows editing:", _SHORTCUTS, ""),
    "parameter": ("Available parameters:", _PARAMETERS, "/set parameter "),
}
"""The topics of `/?` besides the commands."""


@dataclass
class Session:
    """A conversation line by line; no `editor` where no control sequence is wanted."""

    chat: Chat
    settings: Settings
    editor: "LineEditor | None"
    is_over: bool = False

    def entry(self) -> ModelEntry:
        return find_model(self.chat.model, self.settings)

    def ready_model(self) -> None:
        """Start the server and load the model, which may have been unloaded since."""
        self.chat.client.ensure_running()
        show_load(self.chat.client, self.chat.load_request())


def _meant(name: str, names: list[str], before: str) -> str:
    begun = [each for each in names if each.startswith(name)]
    close = begun or get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean {before}{close[0]}?"
    return f"{before.removesuffix('? ')}? lists them."


def _set_variable(session: Session, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if name in ("", "?"):
        say_rows(*_TOPICS["set"])
    elif name not in _SETTERS:
        raise UsageError(f"there is no /set {name}", hint=_meant(name, [*_SETTERS], "/set "))
    else:
        _SETTERS[name](session, value.strip())


def set_system(session: Session, text: str) -> None:
    text = text.strip()
    if text:
        quoted = re.fullmatch(r'"([^"]*)"', text)
        session.chat.system = quoted[1].strip() if quoted else text
        say("Set system message." if session.chat.system else "The system message is the model's.")
    else:
        _show_system(session)


def _show_system(session: Session) -> None:
    say(session.chat.system or part_of(session.entry(), "system"))


def _set_effort(session: Session, level: str) -> None:
    think = session.chat.think = _checked(level, EFFORTS) or session.chat.think
    say(f"effort: {think if isinstance(think, str) else 'medium' if think else 'none'}")


def _switch(name: str, attribute: str, *, value_on: bool = True) -> Callable[[Session, str], None]:
    def set_it(session: Session, wanted: str) -> None:
        printer = session.chat.printer
        if _checked(wanted, ("on", "off")):
            setattr(printer, attribute, value_on == (wanted == "on"))
        say(f"{name}: {'on' if getattr(printer, attribute) == value_on else 'off'}")

    return set_it


def _checked(word: str, words: tuple[str, ...]) -> str:
    if word and word not in words:
        raise UsageError(f"{word} is not one of {', '.join(words)}")
    return word


def _set_parameter(session: Session, argument: str) -> None:
    name, _, text = argument.partition(" ")
    if name in ("", "?"):
        say_rows(*_TOPICS["parameter"])
        return
    known = Options.__struct_fields__
    if name not in known:
        raise UsageError(
            f"there is no parameter {name}", hint=_meant(name, [*known], "/set parameter ")
        )
    if not text.strip():
        raise UsageError(f"/set parameter {name} needs a value")
    values: dict[str, Any] = {}
    for word in text.split() if name == "stop" else [text.strip()]:
        parse_parameter(values, name, word)
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


def _set(name: str, attribute: str, *, is_on: bool) -> Callable[[Session, str], None]:
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


_SETTERS: dict[str, Callable[[Session, str], None]] = {
    "parameter": _set_parameter,
    "system": set_system,
    "think": _think,
    "nothink": _do_not_think,
    "format": _set_format,
    "noformat": _unset_format,
    "verbose": _set("verbose", "stats", is_on=True),
    "noverbose": _set("quiet", "stats", is_on=False),
    "quiet": _set("quiet", "stats", is_on=False),
    "history": _history(is_kept=True),
    "nohistory": _history(is_kept=False),
    "wordwrap": _set("wordwrap", "draws", is_on=True),
    "nowordwrap": _set("nowordwrap", "draws", is_on=False),
}


def _help(_session: Session, topic: str) -> None:
    topic = topic.removeprefix("/").removeprefix("set ")
    if topic in _TOPICS:
        say_rows(*_TOPICS[topic])
    elif command := REGISTRY.by_name.get(topic):
        say(f"{command.all_usages}: {command.summary}")
    elif topic:
        names = [*_TOPICS, *REGISTRY.by_name]
        raise UsageError(f"there is no help for {topic}", hint=_meant(topic, names, "/? "))
    else:
        rows = [(command.all_usages, command.summary) for command in REGISTRY.commands]
        more = (
            ("/? COMMAND", "Explain one"),
            ("/? shortcuts", "Keys of the line"),
            ("!COMMAND", "Run it in the shell; its output goes with the next message"),
            ("@PATH", "Attach a file, a PDF, a folder, or *.py"),
        )
        say_rows("Available commands:", [*rows, *more])
        say('\nUse """ to begin and to end a message of several lines.')


def _leave(session: Session, _argument: str) -> None:
    session.is_over = True


def _clear(session: Session, _argument: str) -> None:
    session.chat.messages = []
    say("Cleared session context.")


def _retry(session: Session, _argument: str) -> None:
    if not session.chat.messages:
        raise UsageError("nothing has been asked yet")
    session.ready_model()
    session.chat.ask_again()


def _show(session: Session, what: str) -> None:
    match what:
        case "" | "?":
            say_rows(*_TOPICS["show"])
        case "info":
            print_facts(facts_of(session.entry(), session.settings), file=sys.stderr)
        case "license" | "modelfile" | "template":
            say(part_of(session.entry(), what))
        case "parameters":
            _say_parameters("Model defined parameters:", session.entry().defaults.parameters)
            _say_parameters("User defined parameters:", session.chat.options)
        case "system":
            _show_system(session)
        case _:
            names = [name for name, _ in _SHOW]
            raise UsageError(f"there is no /show {what}", hint=_meant(what, names, "/show "))


def _say_parameters(title: str, parameters: dict[str, Any]) -> None:
    lines = [f"  {name:<31}{value}" for name, value in parameter_lines(parameters)]
    say("\n".join([title, *(lines or ["  none"])]))


def _load(session: Session, model: str) -> None:
    """Begin a conversation with a model, which may be a session that was saved."""
    if not model:
        raise UsageError("/load needs a model", hint="`gptoss ls` lists the models.")
    _change_model(session, model)
    session.chat.messages = []
    n_messages = len(session.entry().defaults.messages)
    if n_messages:
        say(f"It begins with a conversation of {n_messages} messages.")


def _change_model(session: Session, model: str) -> None:
    if model:
        name = named(model, session.settings)
        client = server_for(name, session.settings)
        show_load(client, session.chat.load_request() | {"model": name})
        session.chat.client, session.chat.model = client, name
    say(f"model: {session.chat.model}")


def _tools(session: Session, name: str) -> None:
    if session.chat.tools is None:
        raise UsageError("there are no tools here", hint="Begin with: gptoss run MODEL --tools")
    toolbox = session.chat.tools.toolbox
    if name:
        say(f"{name} is {'on' if toolbox.switch(name) else 'off'}.")
        return
    rows = [(f"{'on ' if g.is_on else 'off'} {g.name}", f"It {g.about}") for g in toolbox.groups()]
    say_rows("Tools; /tools NAME turns one on or off:", rows)


def _save(session: Session, name: str) -> None:
    chat = session.chat
    if not name:
        raise UsageError("/save needs a name", hint="/save my-session, later /load my-session")
    parent = session.entry()
    is_same = canonical_name(name) == parent.name
    with suppress(ModelNotFoundError):
        if not is_same and find_model(name, session.settings):
            raise UsageError(f"there is a model {name} already", hint="Choose another name.")
    body: dict[str, Any] = {"model": name, "from": chat.model, "stream": False}
    body |= {"messages": [*parent.defaults.messages, *chat.messages]}
    body |= {"system": chat.system} if chat.system else {}
    body |= {"parameters": chat.options} if chat.options else {}
    chat.client.ensure_running()
    chat.client.post("/api/create", body)
    if is_same:
        chat.messages = []  # which the model now begins with
    say(f"Created new model '{name}'. Continue with: gptoss run {name}")


REGISTRY = Registry(
    {
        "help": _help,
        "new": _clear,
        "model": _change_model,
        "load": _load,
        "save": _save,
        "show": _show,
        "effort": _set_effort,
        "reasoning": _switch("reasoning", "hide_reasoning", value_on=False),
        "retry": _retry,
        "system": set_system,
        "stats": _switch("stats", "stats"),
        "tools": _tools,
        "set": _set_variable,
        "quit": _leave,
    }
)

_Completions = dict[str, "_Completions"]
_SETTABLE: _Completions = {name: {} for name in _SETTERS} | {
    "parameter": {name.partition(" ")[0]: {} for name, _ in _PARAMETERS},
    "think": {level: {} for level in EFFORTS},
    "format": {"json": {}},
}
COMPLETIONS: _Completions = {f"/{name}": {} for name in REGISTRY.by_name} | {
    "/set": _SETTABLE,
    "/show": {name: {} for name, _ in _SHOW},
    "/effort": _SETTABLE["think"],
    "/think": _SETTABLE["think"],
}
"""Words that Tab completes, and the words that may follow each."""
