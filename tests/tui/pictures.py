"""The looks of the chat: its screens on chats that lie in a file, and how they become text.

A picture has the characters of a screen, and the styles that have a meaning.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.screen import Screen
from textual.strip import Strip

import tui
from gptoss_local.api.gptoss import GpuMemory, HarmonyPiece, Inspection, ModelFit
from gptoss_local.base.errors import ContextOverflowError, ServerUnavailableError
from gptoss_local.base.settings import Settings, ToolCommand
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.history import History, Turn
from gptoss_local.talk.presets import Preset
from gptoss_local.talk.tools import Arguments, RunnableTool, Toolbox, ToolResult, ToolSources
from gptoss_local.talk.tools.sources import Program
from gptoss_local.talk.what_runs import answers_to, asked_text, what_runs
from tests.tools.own_source import OwnSource, toolbox_of
from tests.tui.running_chat import Chat
from tests.tui.scripted import ScriptedServer, chat_frame, installed, running
from tui.conversation import Conversation
from tui.exchange import overflow_text, ways_for
from tui.screens.chats import ChatsDialog
from tui.screens.compare import CompareDialog
from tui.screens.dialog import ConfirmDialog
from tui.screens.errors import show_error
from tui.screens.inspector import InspectorDialog
from tui.screens.models import ModelsDialog
from tui.screens.presets import PresetForm
from tui.screens.tools import ToolsDialog
from tui.widgets.question import CallView
from tui.widgets.speed_panel import SpeedPanel

_ATTRIBUTES = ("bold", "italic", "underline", "reverse")
_COLOURS = ("error", "warning", "success", "accent")


def picture(app: App[Any]) -> str:
    """The rows of a screen, and below them `row: style: text` of each marked text."""
    strips = app.screen._compositor.render_strips()
    rows = "\n".join(strip.text.rstrip() for strip in strips)
    roles = _roles(app)
    marks = [mark for n, strip in enumerate(strips, 1) for mark in _marks(n, strip, roles)]
    return f"{rows.rstrip()}\n\n" + "".join(f"{line}\n" for line in _merged(marks))


def _roles(app: App[Any]) -> dict[str, str]:
    """By the colours of the theme, what they mean; the cursor of a list is a background.

    `marked` is the cursor of a list that keys reach while another part has the focus.
    """
    variables = app.get_css_variables()
    roles = {variables[f"text-{name}"].lower(): name for name in _COLOURS}
    roles |= {variables[name].lower(): name for name in _COLOURS}
    blurred = Color.parse(variables["surface"]) + Color.parse(
        variables["block-cursor-blurred-background"]
    )
    roles[f"on {blurred.hex6.lower()}"] = "marked"
    roles[f"on {variables['block-cursor-background'].lower()}"] = "cursor"
    return roles


def _marks(row: int, strip: Strip, roles: dict[str, str]) -> Iterator[tuple[int, str]]:
    runs = groupby(strip, key=lambda segment: _style_words(segment.style, roles))
    for words, segments in runs:
        text = "".join(segment.text for segment in segments).strip()
        if words and text:
            yield row, f"{words}: {text}"


def _style_words(style: Style | None, roles: dict[str, str]) -> str:
    if style is None:
        return ""
    words = [name for name in _ATTRIBUTES if getattr(style, name)]
    for prefix, colour in (("", style.color), ("on ", style.bgcolor)):
        if colour is not None and colour.triplet is not None:
            words.append(roles.get(prefix + colour.triplet.hex, ""))
    return " ".join(filter(None, words))


def _merged(marks: list[tuple[int, str]]) -> list[str]:
    """One line for the same mark in rows below each other, as a border is."""
    spans: list[tuple[int, int, str]] = []
    for row, mark in dict.fromkeys(marks):
        above = [(first, last, m) for first, last, m in spans if (last, m) == (row - 1, mark)]
        if above:
            spans[spans.index(above[0])] = (above[0][0], row, mark)
        else:
            spans.append((row, row, mark))
    return [f"{a if a == b else f'{a}-{b}'}: {mark}" for a, b, mark in spans]


GIB = 2**30

MARKDOWN = """\
# Title

Some **bold** words, *slanted* ones and `code`, then 日本語 and a [link](http://x.test).

- one
- two

> quoted

| model | size |
|-------|-----:|
| 20b   |   12 |
| 120b  |   60 |

```python
def f(x: int) -> int:
    return x + 1
```
"""
REASONING = "\n".join(f"Thought {n}, of which there are nine." for n in range(1, 10))
STATS: dict[str, Any] = {
    "prompt_eval_count": 1200, "prompt_cached_count": 1000, "prompt_eval_duration": 100_000_000,
    "eval_count": 50, "eval_duration": 500_000_000, "load_duration": 2_500_000_000,
    "total_duration": 3_100_000_000, "ttft_s": 2.75, "reasoning_s": 0.4, "n_reasoning_frames": 18,
    "latencies_ms": [9.0, 10.0, 12.0, 8.0, 30.0, 9.5, 10.5, 11.0],
}  # fmt: skip
CALL = {"function": {"name": "get_weather", "arguments": {"location": "Tokyo", "days": 3}}}


def streaming(*frames: dict[str, Any], step_s: float = 0.5) -> Answer:
    """An answer that streams: one frame each `step_s` seconds, and now it is `step_s` later."""
    now = [0.0]
    answer = Answer(clock=lambda: now[0])
    for frame in frames:
        now[0] += step_s
        for event in chat_frame(**frame).events():
            answer.add(event)
    now[0] += step_s
    return answer


WEATHER = ToolCommand(
    command=("weather", "{location}"),
    description="Gets the weather of a city.",
    parameters={"type": "object", "properties": {"location": {"type": "string"}}},
)


def saying(text: str, kind: str = "content") -> list[dict[str, Any]]:
    """Frames of a text, one for each word."""
    return [{"message": {kind: word}} for word in re.findall(r"\s*\S+", text)]


def toolbox() -> Toolbox:
    """One tool of the user that is trusted, and those that are built in."""
    box = ToolSources(Settings(tools={"get_weather": WEATHER}), Path(".")).toolbox()
    box.trusted.add("get_weather")
    return box


_CODE = 'total = 0\nfor n in range(10):\n\ttotal += n  # "[b]\u200bsum"\nprint(total)\n'
SMALL, LARGE = (80, 24), (120, 40)
THEME = "nord"
"""Here no two of the colours with a meaning are the same."""


class Stage(App[None]):
    """A dialog below the rules of the chat."""

    CSS_PATH = Path(tui.__file__).with_name("chat.tcss")
    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__()
        self.theme = THEME


DialogCase = tuple[Callable[[History], Screen[Any]], tuple[str, ...], tuple[int, int]]
"""Makes the dialog; the keys that are pressed then; the size of the terminal."""


def _models(_history: History) -> ModelsDialog:
    tags = [
        installed("nano", 0, "1.5M"),
        installed("gpt-oss:20b", 12_100_000_000, "20.9B"),
        installed("mine:120b", 63_400_000_000, "117B"),
        installed("mine:7b", 4_000_000_000, "7B"),
    ]
    fits = {
        "nano": ModelFit("nano", "ram", n_ctx=32_768),
        "gpt-oss:20b": ModelFit("gpt-oss:20b", "vram", 1, 131_072),
        "mine:120b": ModelFit("mine:120b", "split", 0.21, 32_768),
        "gpt-oss:120b": ModelFit("gpt-oss:120b", "split", 0.14, 32_768),
        "mine:7b": ModelFit("mine:7b", "no"),
    }

    async def ask() -> dict[str, ModelFit]:
        return fits

    return ModelsDialog(
        tags, [running("gpt-oss:20b", 131_072)], "gpt-oss:20b", ask, lambda _name: None
    )


async def _leave_it(_id: int) -> None:
    pass


def _chats(words: str = "") -> Callable[[History], Screen[Any]]:
    def make(history: History) -> ChatsDialog:
        for title in ("Capitals of Europe", "Sums"):
            chat_id = history.new_chat("nano", "medium", title)
            history.add(chat_id, None, "user", f"Tell me of {title.lower()}, [b]all[/b] of them")
        history.pin(1, True)
        return ChatsDialog(history, lambda _id: None, lambda _path: 0, _leave_it, words=words)

    return make


def _inspector(_history: History) -> InspectorDialog:
    def piece(author: str, text: str, tokens: list[int], **fields: Any) -> HarmonyPiece:
        return HarmonyPiece(author=author, text=text, tokens=tokens, **fields)

    pieces = [
        piece("system", "You are ChatGPT.\nReasoning: medium", [200006, 17360, 200008]),
        piece("user", "What is the capital of France?", [200006, 1428]),
        piece("assistant", "Easy. " * 30, list(range(60)), is_answer=True, channel="analysis",
              is_dropped=True),
        piece("assistant", "{}", [1, 2], is_answer=True, channel="commentary",
              recipient="functions.get_weather", content_type="json"),
    ]  # fmt: skip
    return InspectorDialog(Inspection(70, 62, pieces))


async def _never(_arguments: Arguments) -> str:
    raise AssertionError("it is not allowed")


def _tool_groups(_history: History) -> ToolsDialog:
    runs = dict.fromkeys(("search_issues", "read_file", "create_issue"), _never)
    github = OwnSource("github", "is an MCP server: npx github", runs)
    mail = OwnSource("mail", "is an MCP server: mail", {}, problem="[b]mail ended with code 1")
    python = OwnSource("python", "runs Python code in a sandbox", {"python": _never}, is_on=False)
    box = toolbox_of(github, mail, python)
    box.trusted.add("read_file")
    return ToolsDialog(box)


def _compare(_history: History) -> CompareDialog:
    def made(content: str, **fields: Any) -> Turn:
        whole: dict[str, Any] = {"reasoning": REASONING, "stats": STATS, "model": "nano"}
        return Turn(id=1, chat_id=1, parent_id=None, role="assistant", content=content,
                    created_s=0, **(whole | fields))  # fmt: skip

    error = {"error": "no server answers"}
    failed = made("", effort="medium", state="failed", stats=error, reasoning="")
    called = made(MARKDOWN, effort="high", tool_calls=(CALL,))
    return CompareDialog([made("Paris, *perhaps*.", effort="low"), failed, called])


_PRESET = Preset(
    system="Answer in Japanese.\nBe brief.", effort="low", options={"temperature": 0.3, "seed": 7}
)
DIALOGS: dict[str, DialogCase] = {
    "models": (_models, (), SMALL),
    "chats": (_chats(), (), SMALL),
    "chats-found": (_chats("europe"), (), SMALL),
    "inspector": (_inspector, (), SMALL),
    "compare-below": (_compare, (), SMALL),
    "tools-groups": (_tool_groups, (), LARGE),
    "preset-form-wrong": (lambda _history: PresetForm("", _PRESET), ("ctrl+s",), LARGE),
    "confirm": (lambda _history: ConfirmDialog("Delete “[b]Sums[/b]” for good?"), (), SMALL),
}


def talk(conversation: Conversation) -> None:
    """A chat with versions, a call of a tool and an answer in Markdown."""
    conversation.ask("What is the weather in Tokyo?")
    answer(conversation, tool_calls=(CALL,))
    conversation.add_result("get_weather", ToolResult('{"celsius": 21}', seconds=0.25))
    answer(conversation, content="It is sunny.")
    conversation.begin_answer(instead_of=conversation.turns[-1])
    _finish(conversation, content="It is **sunny** at 21 °C.")
    conversation.ask("And tomorrow?")
    answer(conversation, content="I was about to", state="stopped")


_MATHEMATICS = r"""The roots of \( ax^2 + bx + c \), for $5 or $6:

\[
x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}
\]

As it was typed: \( \unknown{AB} \).
"""
_WIDE = f"""```js
const text = "{"a long line " * 12}";
```

| name | year | what it is | 説明 |
|---|---:|---|---|
| first | 2024 | {"words of a long cell " * 4}| 日本語の長い説明文です |
| second | 2025 | short | 短い |
"""
_HTML = """
Press <kbd>Ctrl</kbd>.

<details>
  <summary>More</summary>

- [x] inside

</details>
"""


def kinds(conversation: Conversation) -> None:
    """A chat with each kind of turn and of block."""
    conversation.new("Be brief.")
    conversation.ask("Where is *Paris*?\n[bold]And[/bold] Rome?")
    answer(conversation, tool_calls=(CALL,), reasoning="")
    denied = ToolResult("The user denied this call. Not today", is_error=True)
    conversation.add_result("get_weather", denied)
    answer(conversation, content=MARKDOWN + _MATHEMATICS + _WIDE + _HTML, reasoning="")
    conversation.ask("Again")
    error = "the engine stopped unexpectedly. Ask again; the log says more"
    answer(conversation, content="Pa", state="failed", stats={"error": error})


def answer(conversation: Conversation, **fields: Any) -> None:
    conversation.begin_answer()
    _finish(conversation, **fields)


def _finish(conversation: Conversation, **fields: Any) -> None:
    whole = {"reasoning": REASONING, "stats": STATS, "state": "done"} | fields
    conversation._history.update(conversation.turns[-1].id, **whole)
    conversation.turns[-1] = conversation._history.turn(conversation.turns[-1].id)


async def _wait(chat: Chat) -> None:
    chat.app.chat.queue.add("And the day after?")
    await chat.type("/s")


async def _edit(chat: Chat) -> None:
    chat.views()[0].focus()
    await chat.press("e")


async def _error(chat: Chat) -> None:
    error = ServerUnavailableError("no server answers", hint="Start one: gptoss serve")
    show_error(chat.app.chat, error)


async def _focus(chat: Chat) -> None:
    chat.views()[3].focus()
    await chat.press("space", "space")


async def _stream(chat: Chat) -> None:
    """Show the surroundings of an answer that streams: its speed, a full queue and a long draft."""
    for text in ("What is\nthe capital?", "and " * 40, *"abc"):
        chat.app.chat.queue.add(text)
    await chat.type("\n".join(f"line {n}" for n in range(14)))
    await chat.app.chat._catch_up()  # or it shows the answer before in the panel later
    panel = chat.app.chat.query_one(SpeedPanel)
    panel.display = True
    panel.show_live(streaming(*saying("a b c d e f g h"), step_s=1 / 32))


async def _nothing(_chat: Chat) -> None:
    pass


def _asks(tool: RunnableTool, arguments: Arguments) -> Callable[[Chat], Awaitable[None]]:
    async def act(chat: Chat) -> None:
        screen = chat.app.chat
        await screen.transcript.ask(CallView(what_runs(tool, arguments), lambda _n: None))
        labels = [answer.label for answer in answers_to(tool)]
        screen.run_worker(screen.question.choose(asked_text(tool), labels))
        await chat.asked()

    return act


async def _overflow(chat: Chat) -> None:
    error = ContextOverflowError("", n_prompt=40_000, n_ctx=32_768, n_ctx_max=131_072)
    ways = ways_for(57_344, ModelFit("", "split", 0.62, 57_344), can_drop=True, can_summarise=True)
    screen = chat.app.chat
    screen.run_worker(screen.question.choose(overflow_text(error), list(ways)))
    await chat.asked()
    await chat.press("down")


_WEATHER = asyncio.run(Program("get_weather", WEATHER, Path(".")).tools())[0]
_PYTHON = RunnableTool("python", "", {}, _never, "runs Python code in a sandbox", "python")

ChatCase = tuple[Callable[[Chat], Awaitable[None]], tuple[int, int]]
"""The keys to press; the size of the terminal."""

CHATS: dict[str, ChatCase] = {
    "chat-empty": (_nothing, SMALL),
    "chat-kinds": (_nothing, (100, 90)),
    "chat-streams": (_stream, (100, 30)),
    "chat-wide": (lambda chat: chat.press("f8"), LARGE),
    "chat-narrow": (_nothing, (40, 16)),
    "chat-waits": (_wait, SMALL),
    "chat-edits": (_edit, SMALL),
    "chat-error": (_error, SMALL),
    "chat-reasoning": (_focus, LARGE),
    "asks-command": (_asks(_WEATHER, CALL["function"]["arguments"]), SMALL),
    "asks-code": (_asks(_PYTHON, {"code": _CODE}), SMALL),
    "overflow": (_overflow, SMALL),
}
MADE: dict[str, Callable[[Conversation], None]] = {
    "chat-empty": lambda _chat: None,
    "chat-kinds": kinds,
}
"""The conversation before, if it is not `talk`."""


def still_server() -> ScriptedServer:
    """A server with a model in memory and a GPU."""
    model = running("nano", 32_768, size=10, size_vram=10)
    return ScriptedServer(loaded=[model], gpus=[GpuMemory("g", 16 * GIB, 4 * GIB)])
