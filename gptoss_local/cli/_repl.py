"""A conversation line by line, for any terminal, pipe or screen reader: text is only added."""

import io
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.private import is_private
from gptoss_local.base.settings import Settings
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._output import is_plain, is_read_aloud, print_error, say
from gptoss_local.cli._repl_set import Session, set_system

if TYPE_CHECKING:
    from gptoss_local.cli._line_editor import LineEditor
from collections.abc import Callable
from typing import Any

from gptoss_local.base.errors import ModelNotFoundError
from gptoss_local.cli._output import say_rows
from gptoss_local.cli._repl_set import (
    EFFORTS,
    PARAMETERS,
    SETTERS,
    help_parameters,
    help_set,
    meant,
    set_effort,
    set_reasoning,
    set_stats,
    set_variable,
    show_system,
)
from tui.commands import Registry

_SHORTCUTS = (
    ("Ctrl-A, Home", "to the beginning of the line"),
    ("Ctrl-E, End", "to the end of the line"),
    ("Alt-B, Alt-F", "a word back, a word on"),
    ("Ctrl-K, Ctrl-U", "delete what is after the cursor, before it"),
    ("Ctrl-W", "delete the word before the cursor"),
    ("Up, Down", "what you typed before"),
    ("Tab", "complete a command"),
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


def _help(_session: Session, topic: str) -> None:
    topics: dict[str, Callable[[], None]] = {
        "set": help_set,
        "show": _help_show,
        "shortcuts": lambda: say_rows("Keys, where the terminal allows editing:", _SHORTCUTS),
        "parameter": help_parameters,
    }
    topic = topic.removeprefix("/").removeprefix("set ")
    if topic in topics:
        topics[topic]()
    elif command := REGISTRY.by_name.get(topic):
        say(f"{command.all_usages}: {command.summary}")
    elif topic:
        names = [*topics, *REGISTRY.by_name]
        raise UsageError(f"there is no help for {topic}", hint=meant(topic, names, "/? "))
    else:
        rows = [(command.all_usages, command.summary) for command in REGISTRY.commands]
        more = (("/? COMMAND", "Explain one"), ("/? shortcuts", "Keys of the line"))
        say_rows("Available commands:", [*rows, *more])
        say('\nUse """ to begin and to end a message of several lines.')


def _help_show() -> None:
    say_rows("Available commands:", _SHOW, "/show ")


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
    from gptoss_local.models.store import find_model, render_modelfile

    entry = find_model(session.chat.model, session.settings)
    match what:
        case "" | "?":
            _help_show()
        case "info":
            from gptoss_local.cli._output import print_facts
            from gptoss_local.cli.show import facts_of

            print_facts(facts_of(entry, session.settings), file=sys.stderr)
        case "license":
            say("\n".join(entry.defaults.license) or "No license was specified for this model.")
        case "modelfile":
            say(render_modelfile(entry))
        case "parameters":
            _say_parameters("Model defined parameters:", entry.defaults.parameters)
            _say_parameters("User defined parameters:", session.chat.options)
        case "system":
            show_system(session)
        case "template":
            say("gptoss renders harmony itself; a template is not used.")
        case _:
            names = [name for name, _ in _SHOW]
            raise UsageError(f"there is no /show {what}", hint=meant(what, names, "/show "))


def _say_parameters(title: str, parameters: dict[str, Any]) -> None:
    from gptoss_local.models.store.models import parameter_lines

    lines = [f"  {name:<31}{value}" for name, value in parameter_lines(parameters)]
    say("\n".join([title, *(lines or ["  none"])]))


def _load(session: Session, model: str) -> None:
    """Begin a conversation with a model, which may be a session that was saved."""
    from gptoss_local.models.store import find_model

    if not model:
        raise UsageError("/load needs a model", hint="`gptoss ls` lists the models.")
    _change_model(session, model)
    session.chat.messages = []
    n_messages = len(find_model(session.chat.model, session.settings).defaults.messages)
    if n_messages:
        say(f"It begins with a conversation of {n_messages} messages.")


def _change_model(session: Session, model: str) -> None:
    from gptoss_local.cli._loading import show_load
    from gptoss_local.cli._options import named, server_for

    if model:
        name = named(model, session.settings)
        client = server_for(name, session.settings)
        show_load(client, session.chat.load_request() | {"model": name})
        session.chat.client, session.chat.model = client, name
    say(f"model: {session.chat.model}")


def _tools(session: Session, name: str) -> None:
    tools = session.chat.tools
    if tools is None:
        raise UsageError("there are no tools here", hint="Begin with: gptoss run MODEL --tools")
    if name:
        say(f"{name} is {'on' if tools.switch(name) else 'off'}.")
        return
    rows = [(f"{'on ' if g.is_on else 'off'} {g.name}", f"It {g.about}") for g in tools.groups()]
    say_rows("Tools; /tools NAME turns one on or off:", rows)


def _save(session: Session, name: str) -> None:
    from gptoss_local.models.catalog import canonical_name
    from gptoss_local.models.store import find_model

    chat = session.chat
    if not name:
        raise UsageError("/save needs a name", hint="/save my-session, later /load my-session")
    parent = find_model(chat.model, session.settings)
    is_same = canonical_name(name) == parent.name
    if not is_same and _exists(session, name):
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


def _exists(session: Session, name: str) -> bool:
    from gptoss_local.models.store import find_model

    try:
        find_model(name, session.settings)
    except ModelNotFoundError:
        return False
    return True


REGISTRY = Registry[Callable[[Session, str], None]](
    {
        "help": _help,
        "new": _clear,
        "model": _change_model,
        "load": _load,
        "save": _save,
        "show": _show,
        "effort": set_effort,
        "reasoning": set_reasoning,
        "retry": _retry,
        "system": set_system,
        "stats": set_stats,
        "tools": _tools,
        "set": set_variable,
        "quit": _leave,
    }
)

_Completions = dict[str, "_Completions"]
_SETTABLE: _Completions = {name: {} for name in SETTERS} | {
    "parameter": {name.partition(" ")[0]: {} for name, _ in PARAMETERS},
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


_QUOTES = '"""'
_HINT = "Send a message (/? for help)"
_OPENING = re.compile(rf"(/set\s+system\s+|/system\s+)?{_QUOTES}")


class Repl:
    def __init__(self, chat: Chat, settings: Settings, *, is_temporary: bool = False) -> None:
        self._session = Session(chat, settings, _open_editor(settings))
        if is_temporary and self._session.editor is not None:
            self._session.editor.keep_history(is_kept=False)
        self._prompt, self._prompt_more = ("You: ", "") if is_read_aloud() else (">>> ", "... ")

    def talk(self) -> None:
        """Ask and answer until /bye or the end of the input; Ctrl-C ends only an answer."""
        say("Type a message. Ctrl-C stops an answer, /bye leaves, /? lists the commands.")
        while not self._session.is_over:
            try:
                message = self._read_message()
            except KeyboardInterrupt:
                say("\nUse Ctrl-D or /bye to leave.")
                continue
            except EOFError:
                say("")
                return
            try:
                self._take(message)
            except GptOssError as error:  # the conversation outlives a failed answer
                print_error(error)
            except KeyboardInterrupt:
                say("")

    def _take(self, message: str) -> None:
        opening = _OPENING.match(message)
        if opening is not None:
            self._take_quoted(message, opening)
            return
        if (parsed := REGISTRY.parse(message)) is not None:
            command, argument = parsed
            REGISTRY.actions[command.name](self._session, argument)
        else:
            self._ask(message)

    def _take_quoted(self, message: str, opening: re.Match[str]) -> None:
        text, _, rest = message[opening.end() :].partition(_QUOTES)
        text = text.strip("\n")
        is_command = opening[1] is not None
        if is_command and rest.strip():
            raise UsageError(
                f"there is text after the closing {_QUOTES}", hint=f"Put it before {_QUOTES}."
            )
        if is_command:
            set_system(self._session, text)
        else:  # where more follows, as in a paste of code, the quotes are a part of the message
            self._ask(message if rest.strip() else text)

    def _ask(self, message: str) -> None:
        if message.strip():
            self._session.ready_model()
            self._session.chat.ask(message)

    def _read_message(self) -> str:
        text = self._read_line(self._prompt).strip()
        opening = _OPENING.match(text)
        while opening is not None and text.find(_QUOTES, opening.end()) < 0:
            text += "\n" + self._read_line(self._prompt_more)
        return text

    def _read_line(self, prompt: str) -> str:
        if (editor := self._session.editor) is not None:
            hint = _HINT if prompt == self._prompt else ""
            return editor.read(prompt, self._prompt_more, hint)
        if _has_terminal():
            return input(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def _open_editor(settings: Settings) -> "LineEditor | None":
    """Return the line editor on a terminal; None if it must get no control sequences."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is not text ends nothing
    if not _has_terminal() or is_plain():
        return None
    from gptoss_local.cli._line_editor import LineEditor

    private = partial(is_private, settings.history_path)
    return LineEditor(settings.input_history, COMPLETIONS, private)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
