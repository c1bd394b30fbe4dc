"""One conversation with a model, and how its answers are printed: never redrawn, only added to."""

import sys
from typing import TYPE_CHECKING, Any, TextIO

from gptoss_local.cli._output import is_plain, is_read_aloud, print_json
from gptoss_local.errors import GptOssError

if TYPE_CHECKING:
    from gptoss_local.client import Client

_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Printer:
    """Plain output: reasoning dimmed on stderr, the answer on stdout."""

    def __init__(self, *, hide_reasoning: bool, stats: bool) -> None:
        self.hide_reasoning = hide_reasoning
        self.stats = stats
        is_styled = sys.stderr.isatty() and not is_plain()
        self._dim, self._end_dim = ("\x1b[2m", "\x1b[0m") if is_styled else ("", "")
        self._open: TextIO | None = None  # the stream whose last line has no end yet

    def show(self, frame: dict[str, Any]) -> None:
        """Print what a frame of `POST /api/chat` adds."""
        message = frame["message"]
        if (thinking := message.get("thinking")) and not self.hide_reasoning:
            self._write(sys.stderr, f"{self._dim}{_printable(thinking)}{self._end_dim}")
        if message["content"]:
            self._write(sys.stdout, _printable(message["content"]))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            self._write(sys.stdout, _printable(f"{function['name']}({function['arguments']})"))
        if frame["done"] and self.stats:
            self.end()
            print(_figures(frame), file=sys.stderr)

    def end(self) -> None:
        """End the line that is open."""
        if self._open is not None:
            print(file=self._open, flush=True)
            self._open = None

    def stopped(self) -> None:
        """Ctrl-C ended the answer."""
        self.end()

    def _write(self, stream: TextIO, text: str) -> None:
        if self._open is not stream:
            self.end()
            if is_read_aloud():  # dimming says nothing there
                print("Reasoning:" if stream is sys.stderr else "Answer:", file=sys.stderr)
        stream.write(text)
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

    def stopped(self) -> None:
        print_json(event="done", done_reason="interrupted")


class Chat:
    """The messages of one conversation, and what its next question is asked with."""

    def __init__(self, client: "Client", model: str, printer: Printer) -> None:
        self.client = client
        self.model = model
        self.printer = printer
        self.effort = "medium"
        self.system = ""
        self.messages: list[dict[str, Any]] = []

    def ask(self, text: str) -> bool:
        """Print the answer as it comes; False when Ctrl-C stopped it.

        Raises:
            GptOssError: there is no whole answer; the question is taken back.
        """
        question = {"role": "user", "content": text}
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*system, *self.messages, question]
        body = {"model": self.model, "messages": messages, "think": self.effort}
        frames = self.client.stream_chat(body)
        answer, is_whole = "", True
        try:
            for frame in frames:
                answer += frame["message"]["content"]
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
    """How fast an answer was, in words; the server's durations are in nanoseconds."""
    n_prompt, n_answer = frame.get("prompt_eval_count", 0), frame.get("eval_count", 0)
    prefill_s = frame.get("prompt_eval_duration", 0) / 1e9
    decode_s = frame.get("eval_duration", 0) / 1e9
    rate = f", {n_answer / decode_s:.1f} tokens/s" if decode_s else ""
    total_s = frame.get("total_duration", 0) / 1e9
    return (
        f"prompt {n_prompt} tokens in {prefill_s:.2f} s; answer {n_answer} tokens in "
        f"{decode_s:.2f} s{rate}; {total_s:.2f} s in all"
    )


def _printable(text: str) -> str:
    """Drop control characters: an answer must not drive the terminal."""
    return text.translate(_CONTROL)
