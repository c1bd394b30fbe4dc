"""Tools over the life of a chat: what is on, what was allowed, what is cited, what is shown."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Arguments, Page, ToolResult
from tests.tools.own_source import OwnSource, toolbox_of
from tests.tui.running_chat import run_chat
from tests.tui.wire import answer_of

CODE = "import math\n\nprint(math.pi)"
SITE = Page(1, "https://www.example.org/a_(b)", "A page")
ANSWER = "It is so 【1†L3-L7】, and so【9†L1】."


class Model:
    """A server whose model says what it is given, one answer after the other."""

    def __init__(self, *answers: list[dict[str, Any]] | str) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def stream_chat(
        self, body: dict[str, Any], *_: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        self.asked.append(body)
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            for letter in answer:
                yield {"message": {"content": letter}, "done": False}
                await asyncio.sleep(0)
        else:
            yield {"message": {"content": "", "tool_calls": answer}, "done": False}
        yield {"message": {"content": ""}, "done": True}

    async def get(self, path: str, _answer_type: object) -> Any:
        return answer_of(path)

    async def post(self, path: str, body: dict[str, Any], _answer_type: object) -> Any:
        raise AssertionError(path)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


async def runs(arguments: Arguments) -> str:
    return f"ran {len(str(arguments.get('code', '')))} characters"


async def finds(_arguments: Arguments) -> ToolResult:
    return ToolResult("L0: a page", pages=(SITE,))


def sources() -> tuple[OwnSource, OwnSource]:
    python = OwnSource("python", "runs code", {"python": runs})
    web = OwnSource("web", "searches", {"web.search": finds}, is_on=False)
    return python, web


@pytest.mark.quick
async def test_code_is_shown_as_code(tmp_path: Path) -> None:
    model = Model([call("python", code=CODE)], "Done.")
    box = toolbox_of(*sources())
    async with run_chat(model, tmp_path / "c", make_toolbox=lambda: box) as chat:
        await chat.enter("go")
        await chat.asked()
        shown = chat.screen()
        assert "import math" in shown
        assert "print(math.pi)" in shown
        assert "\\n" not in shown
        await chat.answer("Allow once")
        assert await chat.answered() == "Done."
        await chat.shows("▸ calls python: import math")
        chat.views()[1].focus()
        await chat.press("space")
        await chat.shows("print(math.pi)")
        assert chat.turns()[2].content == "ran 27 characters"
    messages = model.asked[-1]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool"]
    assert [t["function"]["name"] for t in model.asked[0]["tools"]] == ["python"]


async def test_what_is_on_belongs_to_the_chat(tmp_path: Path, history_path: Path) -> None:
    box = toolbox_of(*sources())
    model = Model("One.", "Two.", "Three.")
    async with run_chat(model, history_path, make_toolbox=lambda: box) as chat:
        await chat.enter("/tools web")
        assert await chat.ask("go") == "One."
        first = chat.app.chat.conversation.chat_id
        assert first is not None
        assert {t["function"]["name"] for t in model.asked[-1]["tools"]} == {"python", "web.search"}
        await chat.press("ctrl+n")
        assert box.on == {"python"}
        assert await chat.ask("go") == "Two."
        second = chat.app.chat.conversation.chat_id
        await chat.enter("/tools python")
        assert await chat.ask("go") == "Three."
        assert "tools" not in model.asked[-1]
    history = History(history_path)
    assert history.chat(first).options == {"tools": "python,web"}
    assert history.chat(second or 0).options == {"tools": ""}
    history.set_options(first, {"tools": "web, gone"})
    history.close()
    box = toolbox_of(*sources())
    async with run_chat(model, history_path, first, make_toolbox=lambda: box) as chat:
        await chat.until(lambda: box.on == {"web"})
        await chat.enter("/tools python")
        assert chat.app.chat.conversation.options["tools"] == "gone,python,web"


async def test_citations_are_links_and_the_text_stays(tmp_path: Path, history_path: Path) -> None:
    python, web = sources()
    web.is_on = True
    box = toolbox_of(python, web)
    box.trusted.add("web.search")
    model = Model([call("web.search")], ANSWER)
    async with run_chat(model, history_path, make_toolbox=lambda: box) as chat:
        await chat.enter("go")
        await chat.asked()
        await chat.answer("Allow once")
        assert await chat.answered() == ANSWER
        await chat.shows("It is so www.example.org ↗")
        assert "【1†" not in chat.screen()
        assert "【9†L1】" in chat.screen()  # it has not read such a page
        await chat.enter("/copy")
        assert chat.app.clipboard == ANSWER
        chat_id = chat.app.chat.conversation.chat_id
        assert chat.turns()[2].stats["pages"] == [list(SITE)]
    python, web = sources()
    box = toolbox_of(python, web)
    async with run_chat(model, history_path, chat_id, make_toolbox=lambda: box) as chat:
        await chat.shows("It is so www.example.org ↗")
        assert web.chats == [[SITE]]
        await chat.press("ctrl+n")
        assert web.chats == [[SITE], []]
    assert web.n_closed == 1


async def test_calls_that_were_open_when_the_chat_was_killed(history_path: Path) -> None:
    """Each call has a result for the model, whatever became of the process that ran it."""
    history = History(history_path)
    made = history.new_chat("nano", "low")
    question = history.add(made, None, "user", "go")
    calls = (call("python", code="1"), call("web.search"), call("python", code="2"))
    answer = history.add(made, question.id, "assistant", "", tool_calls=calls)
    history.add(made, answer.id, "tool", "", tool_name="python", state="stopped")
    history.close()
    model = Model("Well.")
    box = toolbox_of(*sources())
    async with run_chat(model, history_path, made, make_toolbox=lambda: box) as chat:
        await chat.shows("python → ■ stopped")
        assert await chat.ask("What now?") == "Well."
    assert [(m["role"], m["content"]) for m in model.asked[0]["messages"]] == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "This call was interrupted; it is not known how far it came."),
        ("tool", "Not run."),
        ("tool", "Not run."),
        ("user", "What now?"),
    ]


async def test_a_call_that_the_page_runs_meanwhile(history_path: Path) -> None:
    """Its turn streams until its result is there; it is shown, and nothing is asked below it."""
    history = History(history_path)
    made = history.new_chat("nano", "low")
    question = history.add(made, None, "user", "go")
    calls = (call("python", code="1"),)
    answer = history.add(made, question.id, "assistant", "", tool_calls=calls)
    model = Model("Well.")
    box = toolbox_of(*sources())
    async with run_chat(model, history_path, made, make_toolbox=lambda: box,
                        notifications=True) as chat:  # fmt: skip
        await chat.shows("▸ calls python")
        turn = history.add(made, answer.id, "tool", "", tool_name="python", state="streaming")
        await chat.shows("python → …")
        await chat.enter("And?")
        await chat.shows("another window writes this answer")
        history.update(turn.id, content="3.14", state="done", stats={"seconds": 0.5})
        await chat.shows("python → 1 line, 0.5 s: 3.14")
    history.close()
