"""The dialogs, and the chat screen itself on chats that lie in a file."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.screen import Screen

from gptoss_local.api.client import AsyncClient
from gptoss_local.api.gptoss import GpuMemory, HarmonyPiece, Inspection, ModelFit
from gptoss_local.base.errors import ContextOverflowError, ServerUnavailableError
from gptoss_local.talk.conversation import what_runs
from gptoss_local.talk.conversation.what_runs import answers_to, asked_text
from gptoss_local.talk.history import History
from gptoss_local.talk.presets import Preset
from gptoss_local.talk.tools import Arguments, RunnableTool, ToolResult
from gptoss_local.talk.tools.programs import Program
from tests.tools.own_source import OwnSource, toolbox_of
from tests.tui.running_chat import Chat
from tests.tui.snapshots.values import (
    CALL,
    GIB,
    MARKDOWN,
    REASONING,
    STATS,
    WEATHER,
    answered,
    toolbox,
)
from tests.tui.wire import answer_of, installed, running
from tui.actions.help import HelpDialog
from tui.conversation import Conversation
from tui.exchange import overflow_text, ways_for
from tui.screens.chats import ChatsDialog
from tui.screens.compare import CompareDialog
from tui.screens.dialog import ConfirmDialog, LineDialog
from tui.screens.inspector import InspectorDialog
from tui.screens.models import ModelsDialog
from tui.screens.presets import PresetForm, PresetsDialog
from tui.screens.tools import ToolsDialog
from tui.widgets.question import CallView

_CODE = 'total = 0\nfor n in range(10):\n\ttotal += n  # "[b]\u200bsum"\nprint(total)\n'
SMALL, LARGE = (80, 24), (120, 40)

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
    versions = [
        answered("Paris, *perhaps*.", effort="low"),
        answered(
            "", effort="medium", state="failed", stats={"error": "no server answers"}, reasoning=""
        ),
        answered(MARKDOWN, effort="high", tool_calls=(CALL,)),
    ]
    return CompareDialog(versions)


def _help(_history: History) -> HelpDialog:
    keys = [("F1", "Help"), ("^o", "Reasoning: folded, tail, full")]
    return HelpDialog("Enter sends.", [("Keys", keys), ("On a message", [("e", "Edit or retry")])])


_PRESET = Preset(
    system="Answer in Japanese.\nBe brief.", effort="low", options={"temperature": 0.3, "seed": 7}
)
DIALOGS: dict[str, DialogCase] = {
    "models": (_models, (), SMALL),
    "chats": (_chats(), (), SMALL),
    "chats-found": (_chats("europe"), (), SMALL),
    "chats-none": (_chats("nowhere"), (), SMALL),
    "inspector": (_inspector, (), SMALL),
    "compare-below": (_compare, (), SMALL),
    "tools": (lambda _history: ToolsDialog(toolbox()), (), SMALL),
    "tools-groups": (_tool_groups, (), LARGE),
    "help": (_help, (), SMALL),
    "presets-none": (lambda _history: PresetsDialog("", Preset()), (), SMALL),
    "preset-form": (lambda _history: PresetForm("[b]tutor", _PRESET), (), SMALL),
    "preset-form-wrong": (lambda _history: PresetForm("", _PRESET), ("ctrl+s",), LARGE),
    "line": (lambda _history: LineDialog("Rename the chat", "Sums"), (), SMALL),
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
    chat.app.chat.show_error(
        ServerUnavailableError("no server answers", hint="Start one: gptoss serve")
    )


async def _focus(chat: Chat) -> None:
    chat.views()[3].focus()
    await chat.press("space", "space")


async def _stats(chat: Chat) -> None:
    await chat.press("f8")


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


_PYTHON = RunnableTool("python", "", {}, _never, "runs Python code in a sandbox", "python")
_ISSUES = RunnableTool("create_issue", "", {}, _never, "is a tool of an MCP server", "github")

ChatCase = tuple[Callable[[Chat], Awaitable[None]], tuple[int, int], bool]
"""What is done; the size of the terminal; whether there is a chat already."""

CHATS: dict[str, ChatCase] = {
    "chat-empty": (_nothing, SMALL, False),
    "chat": (_nothing, SMALL, True),
    "chat-wide": (_stats, LARGE, True),
    "chat-narrow": (_nothing, (40, 16), True),
    "chat-waits": (_wait, SMALL, True),
    "chat-edits": (_edit, SMALL, True),
    "chat-error": (_error, SMALL, True),
    "chat-reasoning": (_focus, LARGE, True),
    "asks-command": (
        _asks(Program("get_weather", WEATHER, Path(".")).tool, CALL["function"]["arguments"]),
        SMALL,
        True,
    ),
    "asks-code": (_asks(_PYTHON, {"code": _CODE}), SMALL, True),
    "asks-server": (_asks(_ISSUES, {"title": "[b]x"}), SMALL, True),
    "overflow": (_overflow, SMALL, True),
}


class StillServer(AsyncClient):
    """A server with a model in memory and a GPU, which is sent no message."""

    def __init__(self) -> None:
        pass  # nothing to connect to

    def stream_chat(self, body: dict[str, Any], *_: object) -> Any:
        raise AssertionError("no message is sent")

    async def post(self, path: str, body: dict[str, Any], _answer_type: object) -> Any:
        raise AssertionError(f"{path} is not asked")

    async def get(self, path: str, _answer_type: object) -> Any:
        model = running("nano", 32_768, size=10, size_vram=10)
        return answer_of(path, loaded=[model], gpus=[GpuMemory("g", 16 * GIB, 4 * GIB)])
