"""Tools: programs of the user that the model asks for, and that run only when the user says so."""

import json
import sys
from pathlib import Path

import msgspec
import psutil

from gptoss_local.base.settings import ToolCommand
from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, OpenChat

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
        await chat.shows("asks to run get_current_weather")
        await chat.shows('"location": "Tokyo"')
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
        await chat.shows("▸ calls get_current_weather(location: 'Tokyo')")
        await chat.shows("▸ get_current_weather → 1 line")
        chat_id = chat.app.chat.conversation.chat_id
        assert chat_id is not None
    async with open_chat(chat_id, tools=weather(log)) as chat:
        await chat.shows("▸ get_current_weather → 1 line")
        chat.views()[2].focus()
        await chat.press("space")
        await chat.shows("▾ get_current_weather")
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
        await chat.shows("running get_current_weather")
        await chat.press("escape")
        await chat.until(lambda: not chat.app.chat.is_answering)
        await chat.until(lambda: not psutil.pid_exists(int(log.read_text())))
        assert chat.turns()[-1].content == "The user stopped this call."
        await chat.press("alt+r")  # the model goes on with that
        await chat.until(lambda: len(chat.turns()) == 4)
        await chat.answered()


async def test_tools_are_switched(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(tools=weather(tmp_path / "log")) as chat:
        toolbox = chat.app.chat.parts.toolbox
        assert toolbox.on == {"get_current_weather"}
        await chat.enter("/tools")
        await chat.shows("off   read_file")
        await chat.press("enter")
        await chat.shows("on    read_file")
        await chat.press("escape")
        await chat.enter("/tools get_current_weather")
        assert toolbox.on == {"read_file"}
        await toolbox.prepare()
        assert [tool["function"]["name"] for tool in toolbox.declared()] == ["read_file"]
        await chat.enter("/tools nothing")
        await chat.tells("there is no tool 'nothing'")
