"""The terminal's side of an answer."""

import sys
from collections.abc import Sequence
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, TextIO

from gptoss_local.base.events import ContentDelta, Done, Growing, ReasoningDelta, ToolCall
from gptoss_local.base.printable import shown, write_style
from gptoss_local.base.quantities import per_token
from gptoss_local.cli._loading import show_load
from gptoss_local.cli._output import DIM, RESET, is_plain, is_read_aloud, print_json, say
from gptoss_local.talk.answer import figures_of, wire_call

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.cli._drawn import DrawnText
    from gptoss_local.talk.tools import ToolResult
    from gptoss_local.talk.what_runs import CallPart

_N_LINES = 12  # of a result; all of it is the model's


class Printer:
    """Reasoning dimmed on stderr, the answer on stdout; Markdown is drawn on terminals.

    `stats` adds its speed; if it `runs_tools`, calls and results are shown, but are no answer.
    """

    runs_tools = False

    def __init__(self, *, hide_reasoning: bool, stats: bool, draws: bool = False) -> None:
        self.hide_reasoning = hide_reasoning
        self.stats = stats
        self.draws = draws and not is_plain()
        if self.draws and sys.stdout.isatty():  # PERF: it takes 0.2 s, while the model reads
            Thread(target=import_module, args=("gptoss_local.cli._drawn",), daemon=True).start()
        is_styled = sys.stderr.isatty() and not is_plain()
        self._dim, self._reset = (DIM, RESET) if is_styled else ("", "")
        self._open: TextIO | None = None  # the stream with an unfinished line
        self._drawn: DrawnText | None = None  # of the open stream

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
        self._note(f"{name}: " + "\n".join(part.text for part in parts))

    def show_result(self, name: str, result: "ToolResult") -> None:
        lines = result.text.rstrip().split("\n")
        n_more = len(lines) - _N_LINES
        more = [f"({n_more:,} more lines)"] if n_more > 0 else []
        self._note(f"{name} → " + "\n".join([*lines[:_N_LINES], *more]))

    def grow(self, client: "Client", model: str, growth: Growing) -> None:
        say(
            f"The prompt has {growth.n_prompt:,} tokens: the context of {model} grows from "
            f"{growth.n_ctx_before:,} to {growth.n_ctx:,}."
        )
        show_load(client, {"model": model, "options": {"num_ctx": growth.n_ctx}})

    def end(self) -> None:
        if self._open is not None:
            if self._drawn is not None:
                self._drawn.end()
            else:
                print(file=self._open, flush=True)
            self._open = self._drawn = None

    def stopped(self) -> None:
        self.end()

    def _note(self, text: str) -> None:
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
            self._open = stream
            if self.draws and stream.isatty():
                from gptoss_local.cli._drawn import DrawnText

                self._drawn = DrawnText(stream, "dim" if style else "")
        if self._drawn is not None:
            self._drawn.feed(text)
            return
        write_style(stream, style)
        stream.write(shown(text) if stream.isatty() else text)
        write_style(stream, reset)
        stream.flush()


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
        """Print nothing, as the call was printed when it came."""

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
