"""One conversation with a model, and how its answers are printed: never redrawn, only added to."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from gptoss_local.cli._loading import show_load
from gptoss_local.cli._output import DIM, RESET, is_plain, is_read_aloud, print_json
from gptoss_local.cli._wrapping import WordWrap
from gptoss_local.errors import GptOssError
from gptoss_local.printable import write_style

if TYPE_CHECKING:
    from gptoss_local.client import Client


class Printer:
    """Plain output: reasoning dimmed on stderr, the answer on stdout.

    Args:
        hide_reasoning: Print the answer alone.
        stats: Say how fast each answer was.
        wraps: On a terminal, break lines between words.
    """

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
        for call in message.get("tool_calls", ()):
            function = call["function"]
            self._write(sys.stdout, f"{function['name']}({function['arguments']})")
        if frame["done"] and self.stats:
            self.end()
            print(_figures(frame), file=sys.stderr)

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
    """

    client: "Client"
    model: str
    printer: Printer
    think: str | bool = "medium"
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    format: Any = None
    keep_alive: str | int | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)

    def load_request(self) -> dict[str, Any]:
        """Return what loads the model as the next question needs it."""
        keep_alive = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return {"model": self.model, "options": self.options, **keep_alive}

    def ask(self, text: str) -> bool:
        """Print the answer as it comes; False when Ctrl-C stopped it.

        Raises:
            GptOssError: there is no whole answer; the question is taken back.
        """
        question = {"role": "user", "content": text}
        frames = self.client.stream_chat(self._request(question))
        answer, is_whole = "", True
        try:
            for frame in frames:
                answer += frame["message"]["content"]
                if growth := frame.get("context_growth"):
                    self.printer.grow(self.client, self.model, growth)
                self.printer.show(frame)
        except KeyboardInterrupt:
            is_whole = False
        finally:
            frames.close()
            self.printer.end()
        if not is_whole:
            self.printer.stopped()
        self.messages += [question, {"role": "assistant", "content": answer}]
        return is_whole

    def _request(self, question: dict[str, Any]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.load_request() | {
            "messages": [*system, *self.messages, question],
            "think": self.think,
            "format": self.format,
            "return_progress": True,  # with which the server says that the context grows
        }

    def ask_again(self) -> bool:
        """Ask the last question once more, in place of its answer.

        Raises:
            GptOssError: as for `ask`; the former answer is kept.
        """
        kept = self.messages
        self.messages = kept[:-2]
        try:
            return self.ask(kept[-2]["content"])
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
    return (
        f"prompt {n_prompt} tokens in {prefill_s:.2f} s; answer {n_answer} tokens in "
        f"{decode_s:.2f} s{rate}; {total_s:.2f} s in all"
    )
