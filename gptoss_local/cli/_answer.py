"""One conversation with a model, and how its answers are printed: never redrawn, only added to."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from gptoss_local.cli._loading import show_load
from gptoss_local.cli._output import DIM, RESET, is_plain, is_read_aloud, print_json
from gptoss_local.cli._wrapping import WordWrap
from gptoss_local.errors import GptOssError
from gptoss_local.printable import write_style
from gptoss_local.quantities import per_token

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.cli._tools import RunTools
    from gptoss_local.talk.conversation.what_runs import Part
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

    def show(self, frame: dict[str, Any]) -> None:
        """Print what a frame of `POST /api/chat` adds."""
        message = frame["message"]
        if (thinking := message.get("thinking")) and not self.hide_reasoning:
            self._write(sys.stderr, thinking, self._dim, self._reset)
        if message["content"]:
            self._write(sys.stdout, message["content"])
        for call in message.get("tool_calls", ()) if not self.runs_tools else ():
            function = call["function"]
            self._write(sys.stdout, f"{function['name']}({function['arguments']})")
        if frame["done"] and self.stats:
            self.end()
            print(_figures(frame), file=sys.stderr)

    def show_call(self, name: str, parts: "Sequence[Part]") -> None:
        """Print a call that runs without a question."""
        self._note(f"{name}: " + "\n".join(part.text for part in parts))

    def show_result(self, name: str, result: "ToolResult") -> None:
        """Print the beginning of what a call came to."""
        lines = result.text.rstrip().split("\n")
        n_more = len(lines) - _N_LINES
        more = [f"({n_more:,} more lines)"] if n_more > 0 else []
        self._note(f"{name} → " + "\n".join([*lines[:_N_LINES], *more]))

    def grow(self, client: "Client", model: str, growth: dict[str, int]) -> None:
        """Say that a long prompt needs more context, and show the load."""
        print(
            f"The prompt has {growth['prompt']:,} tokens: the context of {model} grows from "
            f"{growth['from']:,} to {growth['to']:,}.",
            file=sys.stderr,
        )
        show_load(client, {"model": model, "options": {"num_ctx": growth["to"]}})

    def end(self) -> None:
        """End the line that is open."""
        if self._open is not None:
            if self._wrap is not None:
                self._open.write(self._wrap.flush())
            print(file=self._open, flush=True)
            self._open = self._wrap = None

    def stopped(self) -> None:
        """End what Ctrl-C stopped."""
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

    def show(self, frame: dict[str, Any]) -> None:
        message = frame["message"]
        if (thinking := message.get("thinking")) and not self.hide_reasoning:
            print_json(event="reasoning", text=thinking)
        if message["content"]:
            print_json(event="content", text=message["content"])
        for call in message.get("tool_calls", ()):
            print_json(event="tool_call", **call["function"])
        if frame["done"]:
            figures = {k: v for k, v in frame.items() if k not in ("message", "done")}
            print_json(event="done", **figures)

    def show_call(self, name: str, parts: "Sequence[Part]") -> None:
        """It is printed as it comes."""

    def show_result(self, name: str, result: "ToolResult") -> None:
        print_json(
            event="tool_result",
            name=name,
            content=result.text,
            is_error=result.is_error,
            seconds=round(result.seconds, 3),
        )

    def grow(self, client: "Client", model: str, growth: dict[str, int]) -> None:
        print_json(event="context_growth", model=model, **growth)

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
    _last_frame: dict[str, Any] = field(default_factory=dict, init=False)

    def load_request(self) -> dict[str, Any]:
        """Return what loads the model as the next question needs it."""
        keep_alive = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return {"model": self.model, "options": self.options, **keep_alive}

    def ask(self, text: str) -> bool:
        """Print the answer as it comes, and run what it calls; False when Ctrl-C stopped it.

        Raises:
            GptOssError: there is no whole answer; the question is taken back.
        """
        exchange: list[dict[str, Any]] = [{"role": "user", "content": text}]
        if self.tools is not None:
            self.tools.begin()
        try:
            while self._answer(exchange) and self._call(exchange):
                pass
            is_whole = True
        except KeyboardInterrupt:
            is_whole = False
            exchange[-1].pop("tool_calls", None)  # of an answer that came no further
        finally:
            self.printer.end()
        if not is_whole:
            self.printer.stopped()
        self.messages += exchange
        return is_whole

    def _answer(self, exchange: list[dict[str, Any]]) -> bool:
        """Add an answer to what was said; returns whether it calls something that is run here."""
        answer: dict[str, Any] = {"role": "assistant", "content": ""}
        frames = self.client.stream_chat(self._request(exchange))
        try:
            for frame in frames:
                message = frame["message"]
                answer["content"] += message["content"]
                if self.tools is not None and (calls := message.get("tool_calls")):
                    answer["tool_calls"] = [*answer.get("tool_calls", ()), *calls]
                if self.tools is not None and (thinking := message.get("thinking")):
                    answer["thinking"] = answer.get("thinking", "") + thinking
                if growth := frame.get("context_growth"):
                    self.printer.grow(self.client, self.model, growth)
                self.printer.show(frame | {"done": frame["done"] and "tool_calls" not in answer})
        finally:
            exchange.append(answer)
            frames.close()
            self.printer.end()
        if "tool_calls" not in answer:
            answer.pop("thinking", None)  # which is used during a loop of calls alone
            return False
        self._last_frame = frame
        return True

    def _call(self, exchange: list[dict[str, Any]]) -> bool:
        """Add the results of the calls of the last answer; returns whether an answer follows."""
        from gptoss_local.talk.loop import STOPPED

        assert self.tools is not None
        calls = exchange[-1]["tool_calls"]
        results: list[ToolResult] = []
        try:
            for result in self.tools.results(calls, self.printer):
                results.append(result)
        finally:  # also after Ctrl-C: each call has a result
            results += [STOPPED] * (len(calls) - len(results))
            exchange += [
                {"role": "tool", "tool_name": call["function"]["name"], "content": result.text}
                for call, result in zip(calls, results, strict=True)
            ]
        if not self.tools.is_limit(results):
            return True
        self.printer.show(self._last_frame | {"message": {"content": ""}})
        return False

    def _request(self, exchange: list[dict[str, Any]]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        tools = self.tools.declared() if self.tools is not None else []
        return self.load_request() | {
            "messages": [*system, *self.messages, *exchange],
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


def _figures(frame: dict[str, Any]) -> str:
    """Say how fast an answer was; the server's durations are in nanoseconds."""
    n_prompt, n_answer = frame.get("prompt_eval_count", 0), frame.get("eval_count", 0)
    prefill_s = frame.get("prompt_eval_duration", 0) / 1e9
    decode_s = frame.get("eval_duration", 0) / 1e9
    rate = f", {n_answer / decode_s:.1f} tokens/s" if decode_s else ""
    total_s = frame.get("total_duration", 0) / 1e9
    joules = sum(frame.get("joules", {}).values())
    energy = f"; {joules:,.1f} J, {per_token(joules / n_answer)}" if joules and n_answer else ""
    return (
        f"prompt {n_prompt} tokens in {prefill_s:.2f} s; answer {n_answer} tokens in "
        f"{decode_s:.2f} s{rate}; {total_s:.2f} s in all{energy}"
    )
