"""Tools: programs of the user that the model asks for, and that run only when the user says so."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from gptoss_local.settings import ToolCommand
from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, OpenChat, run_chat
from tests.tui.scripted import ScriptedServer

TOO_MANY = "Not run: an answer may not have more calls. Answer without."
QUESTION = "What is the weather in Tokyo?"
ANSWER = "It is 21 degrees and sunny in Tokyo."
LOCATION = {"location": {"type": "string", "description": "The name of the city"}}
SCHEMA = {"type": "object", "properties": LOCATION, "required": ["location"]}
PRINTS = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read()); print(sys.argv[2])"


def weather(log: Path) -> dict[str, ToolCommand]:
    """A tool that notes what it was called with."""
    result = '{"temperature": 21, "description": "sunny"}'
    command = (sys.executable, "-c", PRINTS, str(log), result)
    about = "Gets the current weather in the provided location."
    return {
        "get_current_weather": ToolCommand(command=command, description=about, parameters=SCHEMA)
    }


async def ask(chat: Chat, question: str = QUESTION) -> None:
    await chat.enter("/set temperature 0")
    await chat.enter(question)
    await chat.asked()


async def test_a_call_runs_once_it_is_approved(
    open_chat: OpenChat, tmp_path: Path, history_path: Path
) -> None:
    log = tmp_path / "log"
    async with open_chat(tools=weather(log)) as chat:
        await ask(chat)
        await chat.until(lambda: "asks to run get_current_weather" in chat.screen())
        assert '"location": "Tokyo"' in chat.screen()
        assert not log.exists()
        await chat.press("x", *"my yes", "enter")  # a message that waits
        assert chat.app.chat.question.display
        assert not log.exists()
        await chat.press("escape")  # takes it back
        await chat.press("ctrl+c")
        await chat.answer("Allow once")
        assert await chat.answered() == ANSWER
        assert json.loads(log.read_text()) == {"location": "Tokyo"}
        assert [turn.role for turn in chat.turns()] == ["user", "assistant", "tool", "assistant"]
        await chat.until(lambda: "▸ calls get_current_weather(location: 'Tokyo')" in chat.screen())
        assert "▸ get_current_weather → 1 line" in chat.screen()
        chat_id = chat.app.chat.conversation.chat_id
        assert chat_id is not None
    async with open_chat(chat_id, tools=weather(log)) as chat:
        await chat.until(lambda: "▸ get_current_weather → 1 line" in chat.screen())
        chat.views()[2].focus()
        await chat.press("space")
        await chat.until(lambda: "▾ get_current_weather" in chat.screen())
        await chat.press("escape")  # back to the input
        await chat.enter(QUESTION.replace("Tokyo", "Rome"))
        await chat.answer("Allow in this chat", sure=True)  # anew
        assert "Rome" in await chat.answered()
        await chat.ask(QUESTION)  # without a question
        assert log.read_text().count("Tokyo") == 2
    history = History(history_path)
    exported = history.export_markdown(chat_id)
    assert "## Tool get_current_weather" in exported
    assert '"location": "Tokyo"' in exported
    again = history.import_json(history.export_json(chat_id))
    assert [turn.tool_name for turn in history.tree(again)][2] == "get_current_weather"
    history.close()


async def test_the_question_shows_the_command_that_would_run(open_chat: OpenChat) -> None:
    command = ToolCommand(command=("printf", "%s", "Sunny in {location}"), parameters=SCHEMA)
    async with open_chat(tools={"get_current_weather": command}) as chat:
        await ask(chat)
        assert "$ printf %s 'Sunny in Tokyo'" in chat.screen()
        assert '"location": "Tokyo"' in chat.screen()  # which it can read from its input
        await chat.answer("Allow once")
        await chat.answered()
        assert chat.turns()[2].content == "Sunny in Tokyo"


async def test_a_denied_call_is_told_to_the_model(open_chat: OpenChat, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_chat(tools=weather(log)) as chat:
        await ask(chat)
        await chat.answer("No, because")
        await chat.press(*"Ask in German", "enter")
        await chat.answered()
        result = chat.turns()[2]
        assert (result.role, result.content) == ("tool", "The user denied this call. Ask in German")
        assert chat.turns()[3].role == "assistant"
        assert not log.exists()


async def test_escape_ends_the_loop(open_chat: OpenChat, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_chat(tools=weather(log)) as chat:
        await ask(chat)
        await chat.press("escape")
        await chat.until(lambda: not chat.app.chat.is_answering)
        assert [turn.role for turn in chat.turns()] == ["user", "assistant", "tool"]
        assert chat.turns()[-1].content == "The user stopped this call."
        assert not log.exists()
        await chat.press("alt+r")  # the model goes on with that
        await chat.until(lambda: len(chat.turns()) == 4)
        await chat.until(lambda: not chat.app.chat.is_answering)


async def test_escape_kills_a_tool_that_runs(open_chat: OpenChat, tmp_path: Path) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    log = tmp_path / "pid"
    tools = weather(log)
    sleeps = (sys.executable, "-c", code, str(log))
    tools["get_current_weather"] = msgspec.structs.replace(
        tools["get_current_weather"], command=sleeps
    )
    async with open_chat(tools=tools) as chat:
        await ask(chat)
        await chat.answer("Allow once")
        await chat.until(lambda: log.exists() and log.read_text())
        await chat.until(lambda: "running get_current_weather" in chat.screen())
        await chat.press("escape")
        await chat.until(lambda: not chat.app.chat.is_answering)
        await chat.until(lambda: not psutil.pid_exists(int(log.read_text())), timeout_s=5)
        assert chat.turns()[-1].content == "The user stopped this call."


async def test_tools_are_switched(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(tools=weather(tmp_path / "log")) as chat:
        toolbox = chat.app.chat.parts.toolbox
        assert toolbox.on == {"get_current_weather"}
        await chat.enter("/tools")
        await chat.until(lambda: "off   read_file" in chat.screen())
        await chat.press("enter")
        await chat.until(lambda: "on    read_file" in chat.screen())
        await chat.press("escape")
        await chat.enter("/tools get_current_weather")
        assert toolbox.on == {"read_file"}
        await toolbox.prepare()
        assert [tool["function"]["name"] for tool in toolbox.declared()] == ["read_file"]
        await chat.enter("/tools nothing")
        await chat.until(lambda: "there is no tool 'nothing'" in chat.notices())


async def test_calls_without_end_are_ended(history_path: Path, tmp_path: Path) -> None:
    async with run_chat(Caller(), history_path, tools=weather(tmp_path / "log")) as chat:
        chat.app.chat.parts.toolbox.trusted.add("get_current_weather")
        await chat.enter("go")
        await chat.until(lambda: not chat.app.chat.is_answering, timeout_s=60)
        results = [turn.content for turn in chat.turns() if turn.role == "tool"]
        assert len(results) == 32
        assert results[-2:] == [TOO_MANY] * 2
        assert "Stopped after 30 rounds of tools" in chat.notices()


async def test_at_the_limit_the_model_is_told_to_answer(history_path: Path, tmp_path: Path) -> None:
    async with run_chat(Caller("Enough."), history_path, tools=weather(tmp_path / "log")) as chat:
        chat.app.chat.parts.toolbox.trusted.add("get_current_weather")
        await chat.enter("go")
        await chat.until(lambda: not chat.app.chat.is_answering, timeout_s=60)
        assert [turn.role for turn in chat.turns()].count("tool") == 31
        assert chat.turns()[-2].content == TOO_MANY
        assert chat.turns()[-1].content == "Enough."
        assert "Stopped after" not in chat.notices()


class Caller(ScriptedServer):
    """A model that only calls, unless it has something to say once it is told to answer."""

    def __init__(self, last_word: str = "") -> None:
        super().__init__("", [], 1)
        self._last_word = last_word

    async def stream_chat(
        self, body: dict[str, Any], *_: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        if self._last_word and body["messages"][-1]["content"] == TOO_MANY:
            yield {"message": {"role": "assistant", "content": self._last_word}, "done": False}
            yield {"message": {"role": "assistant", "content": ""}, "done": True}
            return
        call = {"function": {"name": "get_current_weather", "arguments": {"location": "X"}}}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        yield {"message": message, "done": False}
        yield {"message": {"role": "assistant", "content": ""}, "done": True}
