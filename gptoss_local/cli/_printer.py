"""The terminal's side of an answer: text that is never redrawn, only added to."""

import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len

from gptoss_local.base.events import ContentDelta, Done, Growing, ReasoningDelta, ToolCall
from gptoss_local.base.printable import shown, write_style
from gptoss_local.base.quantities import per_token
from gptoss_local.cli._loading import show_load
from gptoss_local.cli._output import DIM, RESET, is_plain, is_read_aloud, print_json
from gptoss_local.talk.answer import figures_of, wire_call

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.talk.tools import ToolResult
    from gptoss_local.talk.what_runs import CallPart

_N_LINES = 12  # of a result; all of it is the model's
_ROOM = 16  # cells: with as many left in the row, a word is printed before it is complete
_TAB = 8
_LOOKED_AT = 200  # characters of a line
_CLUSTER = 8  # characters that may be drawn as one sign
_FENCE = re.compile(r"[\s>]*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"[\s>]*(?:[-*+]|\d+[.)])(?:\s|$)")
_INDENT = re.compile(r"[ >]*?(?: {4}|\t)")


class Printer:
    """Plain output: reasoning dimmed on stderr, the answer on stdout.

    `stats` adds its speed; if it `runs_tools`, calls and results are shown, but are no answer.
    """

    runs_tools = False

    def __init__(self, *, hide_reasoning: bool, stats: bool, wraps: bool = False) -> None:
        self.hide_reasoning = hide_reasoning
        self.stats = stats
        self.wraps = wraps
        is_styled = sys.stderr.isatty() and not is_plain()
        self._dim, self._reset = (DIM, RESET) if is_styled else ("", "")
        self._open: TextIO | None = None  # the stream with an unfinished line
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
        self._note(f"{name}: " + "\n".join(part.text for part in parts))

    def show_result(self, name: str, result: "ToolResult") -> None:
        lines = result.text.rstrip().split("\n")
        n_more = len(lines) - _N_LINES
        more = [f"({n_more:,} more lines)"] if n_more > 0 else []
        self._note(f"{name} → " + "\n".join([*lines[:_N_LINES], *more]))

    def grow(self, client: "Client", model: str, growth: Growing) -> None:
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
        stream.write(self._wrap.feed(shown(text)) if self._wrap is not None else text)
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


class WordWrap:
    """Wraps Markdown that comes in pieces, but not code and tables.

    A word near the edge is held back until it is known to fit.
    """

    def __init__(self) -> None:
        self._column = 0
        self._word, self._n_cells = "", 0  # held back
        self._is_cut = False  # the beginning of the word is printed already
        self._line = ""  # the beginning of the line, as far as it matters
        self._cluster = ""  # its last characters
        self._fence = ""  # the marker of the code that we are in
        self._is_list = False
        self._is_apart = True  # the line before is blank, or indented code

    def feed(self, text: str) -> str:
        """Take a piece and return the part that can be printed now."""
        width = shutil.get_terminal_size().columns
        printed = "".join(self._take(char, width) for char in text)
        if self._word and self._column + self._n_cells + _ROOM < width:
            printed += self.flush()
            self._is_cut = True
        return printed

    def flush(self) -> str:
        word, self._word = self._word, ""
        self._column += self._n_cells
        self._n_cells = 0
        return word

    def _take(self, char: str, width: int) -> str:
        if char == "\n":
            return self._end_line()
        if len(self._line) < _LOOKED_AT:
            self._line += char
        if self._is_verbatim():
            return self.flush() + char
        n_cells = self._cells_of(char)
        if char.isspace():
            return self._end_word(char, n_cells, width)
        broken = self._make_room(n_cells, width)
        self._word += char
        self._n_cells += n_cells
        if n_cells > 1 and cell_len(char) > 1:  # Chinese and Japanese break anywhere
            self._is_cut = False
            return broken + self.flush()
        return broken

    def _cells_of(self, char: str) -> int:
        """Return how much wider the line gets: several characters may make one sign."""
        if char == "\t":
            self._cluster = ""
            return _TAB - (self._column + self._n_cells) % _TAB
        before, self._cluster = self._cluster, (self._cluster + char)[-_CLUSTER:]
        return cell_len(before + char) - cell_len(before)

    def _is_verbatim(self) -> bool:
        text = self._line.lstrip(" \t>")
        if self._fence or text.startswith(("|", "```", "~~~")):
            return True
        is_code = self._is_apart and not self._is_list and bool(text)
        return is_code and bool(_INDENT.match(self._line))

    def _make_room(self, n_cells: int, width: int) -> str:
        if self._column + self._n_cells + n_cells <= width:
            return ""
        if self._is_cut or not self._column:
            word = self.flush()
            self._is_cut, self._column = True, 0  # the terminal itself begins the row
            return word
        self._column = 0
        return "\n"

    def _end_word(self, space: str, n_cells: int, width: int) -> str:
        word = self.flush()
        self._is_cut = False
        if self._column + n_cells > width:  # the edge itself separates the words
            return word
        self._column += n_cells
        return word + space

    def _end_line(self) -> str:
        line, is_verbatim = self._line, self._is_verbatim()
        marker = _FENCE.match(line)
        if self._fence:
            is_end = line.strip(" \t>").rstrip(self._fence[0]) == "" and self._fence in line
            self._fence = "" if is_end else self._fence
        elif marker is not None:
            self._fence = marker[1]
        elif _ITEM.match(line):
            self._is_list = True
        elif line[:1].strip(" >"):
            self._is_list = False
        self._is_apart = not line.strip(" \t>") or (is_verbatim and not marker)
        word = self.flush()
        self._column, self._line, self._cluster, self._is_cut = 0, "", "", False
        return word + "\n"
