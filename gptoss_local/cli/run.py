"""`gptoss run`: ask a model, once or line by line."""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Literal, get_args

import typer

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.types import Effort
from gptoss_local.base.whole_file import read_text
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._first_model import chosen_model
from gptoss_local.cli._loading import continues, loaded_model, show_load, warn_if_smaller
from gptoss_local.cli._options import (
    Json,
    KeepAlive,
    is_path,
    keep_alive_of,
    model_and_words,
    named,
    number,
    read_format,
    request_option,
    server_for,
    with_missing_values,
)
from gptoss_local.cli._output import INTERRUPTED, say
from gptoss_local.cli._printer import JsonPrinter, Printer
from gptoss_local.cli._streams import read_stdin
from gptoss_local.talk.presets import POLICY, Preset, find_preset

Think = Literal[Effort, "true", "false"]
_NAMES = re.compile(r"\w[\w.-]*(,\w[\w.-]*)*")
_THINK: dict[str, str | bool] = {"true": True, "false": False}

_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")
]
_Prompt = Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="What to ask.")]
_Effort = Annotated[
    Effort | None, typer.Option("--effort", help="How long to think; medium by default.")
]
_Think = Annotated[
    Think | None, typer.Option("--think", help="The same, or false: answer without thinking.")
]
_System = Annotated[str, typer.Option(help="System message, instead of the model's own.")]
_SystemFile = Annotated[
    Path | None, typer.Option("--system-file", metavar="FILE", help="The same, from a file.")
]
_Preset = Annotated[
    str, typer.Option("--preset", metavar="NAME", help="Begin with this preset of the chat.")
]
_Context = Annotated[int | None, number("--ctx", 1, "Tokens of context, at least.", is_whole=True)]
_Temperature = Annotated[
    float | None,
    request_option(
        "--temperature", "temperature", "0 always takes the likeliest token; the default is 1."
    ),
]
_Seed = Annotated[
    int | None, request_option("--seed", "seed", "The same seed gives the same answer.")
]
_Format = Annotated[
    str, typer.Option(metavar="json|FILE", help="Answer in JSON, or by the JSON schema in FILE.")
]
_HideReasoning = Annotated[
    bool, typer.Option("--hide-reasoning", "--hidethinking", help="Do not print the reasoning.")
]
_Plain = Annotated[
    bool, typer.Option("--plain", "--nowordwrap", help="Print Markdown as it is written.")
]
_Stats = Annotated[bool, typer.Option("--stats", "--verbose", help="Say how fast the answer was.")]
_Tools = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="[NAME,...]",
        help="Let the model call your tools, or these; you are asked before each call.",
    ),
]
_Allow = Annotated[
    str, typer.Option("--allow", metavar="NAME,...", help="Tools that run without a question.")
]
_Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Put a file, a folder or *.py before it."),
]
_Continue = Annotated[
    bool, typer.Option("--continue", "-c", help="Continue the last saved conversation.")
]
_Save = Annotated[bool, typer.Option("--save", help="Save the conversation, as `chat` does.")]
_Temporary = Annotated[bool, typer.Option("--temporary", help="Keep nothing on disk.")]
_Interactive = Annotated[
    bool, typer.Option("--interactive", "-i", help="Chat line by line, also in a pipe.")
]


def run(
    model: _Model = None,
    prompt: _Prompt = None,
    effort: _Effort = None,
    think: _Think = None,
    system: _System = "",
    system_file: _SystemFile = None,
    preset: _Preset = "",
    ctx: _Context = None,
    temperature: _Temperature = None,
    seed: _Seed = None,
    format: _Format = "",
    keep_alive: KeepAlive = "",
    hide_reasoning: _HideReasoning = False,
    plain: _Plain = False,
    stats: _Stats = False,
    tools: _Tools = None,
    allow: _Allow = "",
    interactive: _Interactive = False,
    files: _Files = None,
    is_continued: _Continue = False,
    saves: _Save = False,
    temporary: _Temporary = False,
    json: Json = False,
) -> None:
    """A MODEL that can only be a text is taken as the PROMPT. Text from a pipe goes before it. The
    reasoning goes to stderr, the answer to stdout. With --json: an event per line, the last one
    with "event": "done".
    """
    if allow and tools is None:
        raise UsageError("--allow needs --tools")
    model, words = model_and_words(model, prompt)
    attached = [_attached(file) for file in files or ()]
    text = _prompt(words, model, interactive=interactive or bool(files))
    text = "\n\n".join(filter(None, (*attached, text)))
    begun = find_preset(preset)[1] if preset else Preset()
    if "truncate" in begun.options:
        raise UsageError(f"the preset {preset} sets truncate, which only `gptoss chat` has")
    options = {"num_ctx": ctx, "temperature": temperature, "seed": seed}
    wishes: dict[str, Any] = {
        "think": _THINK.get(think, think) if think else effort or begun.effort or "medium",
        "system": _system_message(system, system_file, begun),
        "options": begun.options | {key: each for key, each in options.items() if each is not None},
        "format": read_format(format) if format else None,
        "keep_alive": keep_alive_of(keep_alive) if keep_alive else None,
        "is_temporary": temporary,
    }
    settings = load_settings()
    saves = _saves(settings, saves or is_continued, temporary=temporary, tools=tools is not None)
    printer = (JsonPrinter if json else Printer)(
        hide_reasoning=hide_reasoning, stats=stats, draws=not plain
    )
    with ExitStack() as stack:
        saved = None
        if saves:
            from gptoss_local.cli._repl import saved_chat, saved_conversation

            opened = saved_conversation(settings, is_continued=is_continued)
            saved = stack.enter_context(opened)
        model = _model_of(model or (saved.model if saved else None), settings, is_asked=bool(words))
        client = server_for(model, settings)
        make = partial(saved_chat, saved) if saved else Chat
        chat = make(client, printer=printer, model=model, **wishes)
        if tools is not None:
            stack.callback(_take_tools(chat, settings, tools, allow))
        show_load(chat.client, chat.load_request(), if_interrupted=continues(model))
        is_whole = not text or chat.ask(text)
        if ctx is not None:
            warn_if_smaller(loaded_model(chat.client, model), ctx)
        if not is_whole:
            raise typer.Exit(INTERRUPTED)
        if interactive or not text:
            from gptoss_local.cli._repl import Repl

            Repl(chat, settings, is_temporary=temporary).talk()


def _saves(settings: Settings, is_wanted: bool, *, temporary: bool, tools: bool) -> bool:
    if is_wanted and (temporary or tools):
        other = "--temporary" if temporary else "--tools"
        raise UsageError(f"{other} cannot be saved", hint="`gptoss chat` saves calls of tools.")
    return is_wanted or (settings.run_saves and not temporary and not tools)


def _model_of(model: str | None, settings: Settings, *, is_asked: bool) -> str:
    if model:
        return named(model, settings)
    chosen = chosen_model(settings)
    if is_asked:  # perhaps meant to name one
        say(f"No model is named: asking {chosen}.")
    return chosen


def _attached(typed: str) -> str:
    from tui.attachments import attach
    from tui.paste import expanded

    found = attach(str(expanded(typed)), Path.cwd(), Event())
    if found.note:
        say(f"{found.what}, {found.length}{found.note}")
    return found.text


def _prompt(words: list[str], model: str | None, *, interactive: bool) -> str:
    reads_stdin = "-" in words
    text = " ".join(word for word in words if word != "-")
    if words and not reads_stdin and not text.strip():
        raise UsageError("the prompt is empty")
    if reads_stdin or not (interactive or sys.stdin.isatty()):
        text = "\n\n".join(part for part in (read_stdin().strip(), text) if part)
        if not text:
            hint = f"{model} was taken as the model. Ask it: gptoss run {model} PROMPT"
            raise UsageError("no prompt given and nothing on stdin", hint=hint if model else "")
    return text


def _system_message(system: str, file: Path | None, preset: Preset) -> str:
    if system and file:
        raise UsageError("--system and --system-file are two system messages")
    system = (read_text(file) if file else system) or preset.system
    if preset is POLICY and not system.strip():
        raise UsageError(
            "the preset policy needs a policy",
            hint="gptoss run gpt-oss-safeguard:20b --preset policy --system-file policy.md TEXT",
        )
    return system


def _take_tools(chat: Chat, settings: Settings, tools: str, allow: str) -> Callable[[], None]:
    """Return what closes them."""
    from gptoss_local.cli._tools import RunTools

    chat.tools = RunTools(chat, settings, Path.cwd(), tools, allow)
    chat.printer.runs_tools = True
    return chat.tools.close


def with_values(arguments: Sequence[str]) -> list[str]:
    """Give a bare `--think` or `--tools` its value; others stay as they are.

    A word after `--tools` that could name a tool is its value, so that a typo is refused.
    """
    options = {"--think": (get_args(Think).__contains__, "true"), "--tools": (_are_tools, "")}
    return with_missing_values(arguments, options)


def _are_tools(word: str) -> bool:
    """Return whether a word is a list of tools, perhaps with a name in it that is wrong."""
    from gptoss_local.models.catalog import canonical_name, known_model
    from gptoss_local.models.store import find_model

    if not _NAMES.fullmatch(word) or is_path(word) or known_model(canonical_name(word)):
        return False
    try:
        find_model(word, load_settings())
    except GptOssError:
        return True
    return False
