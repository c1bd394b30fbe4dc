"""One conversation with a model, and how its answers are printed: never redrawn, only added to."""

import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from gptoss_local.cli._loading import show_load
from gptoss_local.cli._output import DIM, RESET, is_plain, is_read_aloud, print_json
from gptoss_local.cli._wrapping import WordWrap
from gptoss_local.errors import GptOssError
from gptoss_local.events import ChatEvent, ContentDelta, Done, Growing, ReasoningDelta, ToolCall
from gptoss_local.printable import write_style
from gptoss_local.quantities import per_token
from gptoss_local.talk.answer import Answer, figures_of, wire_call
from gptoss_local.talk.frames import events_of

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.cli._tools import RunTools
    from gptoss_local.talk.conversation.what_runs import CallPart
    from gptoss_local.talk.tools import ToolResult

_N_LINES = 12  # of a result; all of it is the model's


class Printer:
    """Plain output: reasoning dimmed on stderr, the answer on stdout.

    Args:
        hide_reasoning: Print the answer alone.
        stats: Say how fast each answer was.
        wraps: On a terminal, break lines between words.

    Attributes:
        runs_tools: Calls are run and shown with their results, so they are not the answer.
    """

    runs_tools = False

    def __init__(self, *, hide_reasoning: bool, stats: bool, wraps: bool = False) -> None:
        self.hide_reasoning = hide_reasoning
        self.stats = stats
        self.wraps = wraps
        is_styled = sys.stderr.isatty() and not is_plain()
        self._dim, self._reset = (DIM, RESET) if is_styled else ("", "")
        self._open: TextIO | None = None  # the stream whose last line has no end yet
        self._wrap: WordWrap | None = None  # of the open stream

    def show(self, event: object) -> None:
        match event:
            case ReasoningDelta(text) if not self.hide_reasoning:
                self._write(sys.stderr, text, self._dim, self._reset)
            case ContentDelta(text):
                self._write(sys.stdout, text)
            case ToolCall() if not self.runs_tools:
                self._write(sys.stdout, f"{event.name}({event.arguments})")

    def show_end(self, model: str, done: Done) -> None:
        self.end()
        if self.stats:
            print(_figures(done), file=sys.stderr)

    def show_call(self, name: str, parts: "Sequence[CallPart]") -> None:
        """Print a call that runs without a question."""
        self._note(f"{name}: " + "\n".join(part.text for part in parts))

    def show_result(self, name: str, result: "ToolResult") -> None:
        """Print the beginning of what a call came to."""
        lines = result.text.rstrip().split("\n")
        n_more = len(lines) - _N_LINES
        more = [f"({n_more:,} more lines)"] if n_more > 0 else []
        self._note(f"{name} → " + "\n".join([*lines[:_N_LINES], *more]))

    def grow(self, client: "Client", model: str, growth: Growing) -> None:
        """Say that a long prompt needs more context, and show the load."""
        print(
            f"The prompt has {growth.n_prompt:,} tokens: the context of {model} grows from "
            f"{growth.n_ctx_before:,} to {growth.n_ctx:,}.",
            file=sys.stderr,
        )
        show_load(client, {"model": model, "options": {"num_ctx": growth.n_ctx}})

    def end(self) -> None:
        if self._open is not None:
            if self._wrap is not None:
                self._open.write(self._wrap.flush())
            print(file=self._open, flush=True)
            self._open = self._wrap = None

    def stopped(self) -> None:
        self.end()

    def _note(self, text: str) -> None:
        """Print whole lines, dimmed, on stderr."""
        self.end()
        write_style(sys.stderr, self._dim)
        sys.stderr.write(text)
        write_style(sys.stderr, self._reset)
        print(file=sys.stderr, flush=True)

    def _write(self, stream: TextIO, text: str, style: str = "", reset: str = "") -> None:
        if self._open is not stream:
            self.end()
            if is_read_aloud():  # dimming says nothing there
                print("Reasoning:" if stream is sys.stderr else "Answer:", file=sys.stderr)
            self._wrap = WordWrap() if self.wraps and stream.isatty() else None
        write_style(stream, style)
        stream.write(self._wrap.feed(text) if self._wrap is not None else text)
        write_style(stream, reset)
        stream.flush()
        self._open = stream


class JsonPrinter(Printer):
    """One JSON object per event, ending in `done` with the server's figures."""

    def show(self, event: object) -> None:
        match event:
            case ReasoningDelta(text) if not self.hide_reasoning:
                print_json(event="reasoning", text=text)
            case ContentDelta(text):
                print_json(event="content", text=text)
            case ToolCall():
                print_json(event="tool_call", **wire_call(event)["function"])

    def show_end(self, model: str, done: Done) -> None:
        print_json(event="done", model=model, **figures_of(done))

    def show_call(self, name: str, parts: "Sequence[CallPart]") -> None:
        """It is printed as it comes."""

    def show_result(self, name: str, result: "ToolResult") -> None:
        print_json(
            event="tool_result",
            name=name,
            content=result.text,
            is_error=result.is_error,
            seconds=round(result.seconds, 3),
        )

    def grow(self, client: "Client", model: str, growth: Growing) -> None:
        sizes = {"prompt": growth.n_prompt, "from": growth.n_ctx_before, "to": growth.n_ctx}
        print_json(event="context_growth", model=model, **sizes)

    def stopped(self) -> None:
        print_json(event="done", done_reason="interrupted")


@dataclass
class Chat:
    """The messages of one conversation, and what its next question is asked with.

    Attributes:
        think: As `think` of `POST /api/chat`.
        system: Instead of the model's own; empty for that.
        options: As `options` there.
        format: As `format` there; None for text.
        keep_alive: As `keep_alive` there; None leaves it to the server.
        tools: What the model may call; None: nothing.
        answer: The newest one.
    """

    client: "Client"
    model: str
    printer: Printer
    think: str | bool = "medium"
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    format: Any = None
    keep_alive: str | int | None = None
    tools: "RunTools | None" = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    answer: Answer = field(default_factory=Answer, init=False)
    _exchange: list[dict[str, Any]] = field(default_factory=list, init=False)

    def load_request(self) -> dict[str, Any]:
        """Return what loads the model as the next question needs it."""
        keep_alive = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return {"model": self.model, "options": self.options, **keep_alive}

    def ask(self, text: str) -> bool:
        """Print the answer as it comes, and run what it calls; False when Ctrl-C stopped it.

        Raises:
            GptOssError: there is no whole answer; the question is taken back.
        """
        self._exchange = [{"role": "user", "content": text}]
        is_whole = True
        try:
            if self.tools is None:
                with closing(self._events([])) as events:
                    for event in events:
                        self.answer.add(event)
                        self.printer.show(event)
            else:
                self.tools.run(self, self._take, self.printer)
        except KeyboardInterrupt:
            is_whole = False
        finally:
            self.printer.end()
        if is_whole:
            self.printer.show_end(self.model, self.answer.done)
        else:
            self.printer.stopped()
        self.messages += self._exchange
        return is_whole

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the next answer; nothing else is done until each is there."""
        assert self.tools is not None
        with closing(self._events(await self.tools.declared())) as events:
            for event in events:
                yield event

    def _events(self, tools: list[dict[str, Any]]) -> Generator[ChatEvent, None, None]:
        """Yield the events of an answer, which becomes a message as far as it came."""
        answer = self.answer = Answer()
        frames = self.client.stream_chat(self._request(tools))
        try:
            for frame in frames:
                for event in events_of(frame):
                    if isinstance(event, Growing):
                        self.printer.grow(self.client, self.model, event)
                    yield event
        finally:
            frames.close()
            self.printer.end()
            said: dict[str, Any] = {"role": "assistant", "content": answer.content}
            if self.tools is not None and answer.calls and answer.phase == "done":
                said |= {"tool_calls": answer.tool_calls, "thinking": answer.reasoning}
            self._exchange.append(said)

    def _take(self, call: ToolCall, result: "ToolResult") -> None:
        told = {"role": "tool", "tool_name": call.name, "content": result.text}
        self._exchange.append(told)

    def _request(self, tools: list[dict[str, Any]]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.load_request() | {
            "messages": [*system, *self.messages, *self._exchange],
            "think": self.think,
            "format": self.format,
            "return_progress": True,  # with which the server says that the context grows
            **({"tools": tools} if tools else {}),
        }

    def ask_again(self) -> bool:
        """Ask the last question once more, in place of its answer.

        Raises:
            GptOssError: as for `ask`; the former answer is kept.
        """
        kept = self.messages
        asked = max(n for n, message in enumerate(kept) if message["role"] == "user")
        self.messages = kept[:asked]
        try:
            return self.ask(kept[asked]["content"])
        except GptOssError:
            self.messages = kept
            raise


def _figures(done: Done) -> str:
    usage, n_answer = done.usage, done.usage.n_generated
    decode_s = usage.decode_ns / 1e9
    rate = f", {n_answer / decode_s:.1f} tokens/s" if decode_s else ""
    joules = sum(done.joules.values())
    energy = f"; {joules:,.1f} J, {per_token(joules / n_answer)}" if joules and n_answer else ""
    return (
        f"prompt {usage.n_prompt} tokens in {usage.prefill_ns / 1e9:.2f} s; answer {n_answer} "
        f"tokens in {decode_s:.2f} s{rate}; {done.total_ns / 1e9:.2f} s in all{energy}"
    )
