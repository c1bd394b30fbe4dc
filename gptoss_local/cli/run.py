"""`gptoss run`: ask a model, once or line by line. Append-only: printed text is never redrawn."""

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptoss_local.cli._options import Json, named
from gptoss_local.cli._output import print_error, print_json, progress_bar
from gptoss_local.errors import GptOssError
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.client import Client

_INTERRUPTED = 130
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Effort(StrEnum):
    low = "low"
    medium = "medium"
    high = "high"


def run(
    model: Annotated[str, typer.Argument(help="Name, or path of a GGUF file.")] = "nano",
    prompt: Annotated[list[str] | None, typer.Argument(help="What to ask.")] = None,
    effort: Annotated[Effort, typer.Option("--effort", "--think", help="How long to think.")] = (
        Effort.medium
    ),
    hide_reasoning: Annotated[bool, typer.Option(help="Do not print the reasoning.")] = False,
    json: Json = False,
) -> None:
    """Ask MODEL for an answer; without a PROMPT, chat line by line.

    Text from a pipe goes before PROMPT. The reasoning goes to stderr, the answer to stdout.
    """
    text = " ".join(prompt or ())
    if not sys.stdin.isatty():
        text = "\n\n".join(part for part in (sys.stdin.read().strip(), text) if part)
        if not text:
            raise typer.BadParameter("no prompt given and nothing on stdin")
    settings = load_settings()
    model = named(model, settings)
    try:
        client = _prepare(model, settings)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    chat = _Chat(client, model, effort.value, _printer(json, hide_reasoning))
    if not text:
        _converse(chat)
    elif not chat.ask(text):
        raise typer.Exit(_INTERRUPTED)


def _prepare(model: str, settings: Settings) -> "Client":
    """Make sure that the model's file and a server are there; says what takes time."""
    from gptoss_local.client import Client
    from gptoss_local.store import find_model

    entry = find_model(model, settings)
    if entry.path is None:
        with progress_bar() as progress:
            entry.ensure_file(settings, progress)
    client = Client(settings)
    client.ensure_running()
    if sys.stderr.isatty() and entry.name not in (
        m["name"] for m in client.get("/api/ps")["models"]
    ):
        print(f"loading {entry.name} …", file=sys.stderr)
    return client


def _converse(chat: "_Chat") -> None:
    print("Type a message; Ctrl-C stops an answer, Ctrl-D or /bye leaves.", file=sys.stderr)
    while True:
        try:
            line = input(">>> ").strip()
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue
        except EOFError:
            print(file=sys.stderr)
            return
        if line == "/bye":
            return
        if line:
            try:
                chat.ask(line)
            except GptOssError as error:  # the conversation outlives a failed answer
                print_error(error)


class _Chat:
    """The messages of one conversation and where its answers are printed."""

    def __init__(self, client: "Client", model: str, effort: str, printer: "_Printer") -> None:
        self._client = client
        self._model = model
        self._effort = effort
        self._printer = printer
        self._messages: list[dict[str, Any]] = []

    def ask(self, text: str) -> bool:
        """Print the answer as it comes; False when Ctrl-C stopped it."""
        self._messages.append({"role": "user", "content": text})
        answer, is_whole = "", True
        body = {"model": self._model, "messages": self._messages, "think": self._effort}
        frames = self._client.stream_chat(body)
        try:
            for frame in frames:
                answer += frame["message"]["content"]
                self._printer.show(frame)
        except KeyboardInterrupt:
            is_whole = False
        except GptOssError:
            del self._messages[-1]  # so that it can be asked again
            raise
        finally:
            frames.close()
            self._printer.end()
        self._messages.append({"role": "assistant", "content": answer})
        return is_whole


class _Printer:
    """Plain output: reasoning dimmed on stderr, the answer on stdout."""

    def __init__(self, *, hide_reasoning: bool) -> None:
        self._hide_reasoning = hide_reasoning
        is_styled = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._dim, self._plain = ("\x1b[2m", "\x1b[0m") if is_styled else ("", "")
        self._open: Any = None  # the stream whose last line has no end yet

    def show(self, frame: dict[str, Any]) -> None:
        message = frame["message"]
        if (thinking := message.get("thinking")) and not self._hide_reasoning:
            self._write(sys.stderr, f"{self._dim}{_printable(thinking)}{self._plain}")
        if message["content"]:
            self._write(sys.stdout, _printable(message["content"]))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            self._write(sys.stdout, f"{function['name']}({function['arguments']})")

    def end(self) -> None:
        """End the line that is open."""
        if self._open is not None:
            print(file=self._open, flush=True)
            self._open = None

    def _write(self, stream: Any, text: str) -> None:
        if self._open is not stream:
            self.end()
        stream.write(text)
        stream.flush()
        self._open = stream


class _JsonPrinter(_Printer):
    """One JSON object per event, ending in `done` with the server's figures."""

    def show(self, frame: dict[str, Any]) -> None:
        message = frame["message"]
        if (thinking := message.get("thinking")) and not self._hide_reasoning:
            print_json(event="reasoning", text=thinking)
        if message["content"]:
            print_json(event="content", text=message["content"])
        for call in message.get("tool_calls", ()):
            print_json(event="tool_call", **call["function"])
        if frame["done"]:
            figures = {k: v for k, v in frame.items() if k not in ("message", "done")}
            print_json(event="done", **figures)


def _printer(json: bool, hide_reasoning: bool) -> _Printer:
    return (_JsonPrinter if json else _Printer)(hide_reasoning=hide_reasoning)


def _printable(text: str) -> str:
    """Drop control characters: an answer must not drive the terminal."""
    return text.translate(_CONTROL)
