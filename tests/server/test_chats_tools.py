"""Tools in the page's chats: the server holds the loop, asks, runs and ends the tools."""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.chats import exchange
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Reply, Script, answer, calls, run_scripted_server
from tests.server.page_client import Json, Page

NOTES = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read()); print('sunny', sys.argv[2])"
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(100)"
TOO_MANY = "Not run: an answer may not have more calls. Answer without."


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Weather?", calls("weather", {"city": "Tokyo"}, "Hm."), answer("It is sunny."))
    script.say("Twice?", *(calls("weather", {"city": city}) for city in ("Rome", "Oslo")),
               answer("Both are sunny."))  # fmt: skip
    in_a_row = calls("weather", {"city": "Rome"}).text.replace("}", '}{"city": "Oslo"}')
    script.say("Both?", Reply(text=in_a_row), answer("None."), answer("Both are sunny."))
    script.say("Sleep?", calls("sleep", {}), answer("I slept."))
    script.say("Forever?", *(calls("weather", {"city": "X"}) for _ in range(9)))
    script.otherwise(answer("As you say."))
    return script


def configure(home: Path) -> None:
    """Give the server two programs."""
    lines = []
    for name, (code, word) in {"weather": (NOTES, ["{city}"]), "sleep": (SLEEPS, [])}.items():
        properties = "{city = {type = 'string', description = 'Its name'}}" if word else "{}"
        lines += [
            f"[tools.{name}]",
            f"command = {json.dumps([sys.executable, '-c', code, str(home / name), *word])}",
            f"timeout_s = 90\ndescription = 'The {name}'",
            f"parameters = {{type = 'object', properties = {properties}}}",
        ]
    (home / "gptoss").mkdir(parents=True)
    (home / "gptoss" / "config.toml").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, nano_home: Path) -> Path:
    home = tmp_path_factory.mktemp("tools")
    shutil.copytree(nano_home / "cache", home / "cache")
    configure(home)
    return home


@pytest.fixture(scope="module")
def served(home: Path, script: Script) -> Iterator[RunningServer]:
    variables = {"context_length": "4096", "tool_rounds": "3"}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        with run_scripted_server(home, script, **variables) as server:
            yield server


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


def leaf(page: Page, chat_id: int) -> Json:
    return page.tree(chat_id)[-1]


def asked(page: Page, chat_id: int) -> Json:
    """Wait for a question; returns the turn of its call."""
    wait_until(lambda: "question" in leaf(page, chat_id)["stats"])
    return leaf(page, chat_id)


def settled(page: Page, chat_id: int, content: str) -> list[Json]:
    """Wait for the last word of an exchange; returns all turns."""
    wait_until(lambda: leaf(page, chat_id)["content"] == content)
    wait_until(lambda: leaf(page, chat_id)["state"] == "done")
    return page.tree(chat_id)


def allow(page: Page, turn: Json, scope: str, *, reason: str = "", status: int = 200) -> Json:
    body = {"turn_id": turn["id"], "scope": scope, "reason": reason}
    return page.call("POST", f"chats/{turn['chat_id']}/allow", body, status)


def test_another_tab_answers_the_question(page: Page, served: RunningServer, home: Path) -> None:
    chat_id = page.new()
    with page.listening(chat_id) as heard:
        page.ask(chat_id, "Weather?")
        turn = asked(page, chat_id)
        heard.until(lambda h: "question" in h.turns.get(turn["id"], {"stats": {}})["stats"])
        question = turn["stats"]["question"]
        assert (turn["state"], turn["tool_name"]) == ("streaming", "weather")
        assert question["about"] == f"runs {sys.executable}"
        assert question["always"] == "this tool"
        command, arguments = question["parts"]
        assert command["kind"] == "command"
        assert command["text"].endswith("Tokyo")
        assert json.loads(arguments["text"]) == {"city": "Tokyo"}
        assert not (home / "weather").exists()
        with Page(served) as other, other.listening(chat_id) as late:
            assert late.turns[turn["id"]]["stats"] == turn["stats"]  # without having been there
            allow(other, turn, "once")
        reply = allow(page, turn, "once", status=409)
        assert reply["error"] == "this question is not open"
        turns = settled(page, chat_id, "It is sunny.")
        heard.until(lambda h: h.turns[turn["id"]]["state"] == "done")
        heard.until(lambda h: h.turns[turns[-1]["id"]]["content"] == "It is sunny.")
    assert [t["role"] for t in turns] == ["user", "assistant", "tool", "assistant"]
    assert turns[2]["content"].startswith("sunny Tokyo")
    assert turns[2]["stats"].keys() == {"seconds", "is_error"}
    assert json.loads((home / "weather").read_text()) == {"city": "Tokyo"}


def test_a_no_is_told_to_the_model(page: Page, script: Script) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    page.call("POST", f"chats/{chat_id}/allow", {"turn_id": turn["id"], "scope": "x"}, 400)
    allow(page, turn | {"chat_id": page.new()}, "once", status=404)
    allow(page, turn, "no", reason=" Not now. ")
    turns = settled(page, chat_id, "It is sunny.")
    assert turns[2]["content"] == "The user denied this call. Not now."
    assert turns[2]["stats"]["is_error"]
    prompt = script.vocabulary.encoding.decode(script.prompts[-1])
    assert "The user denied this call. Not now." in prompt


def test_yes_in_this_chat_and_yes_for_good(page: Page, served: RunningServer, home: Path) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    allow(page, asked(page, chat_id), "chat")
    turns = settled(page, chat_id, "It is sunny.")
    page.ask(chat_id, "Twice?", turns[-1]["id"])  # both without a question, and with no tab open
    turns = settled(page, chat_id, "Both are sunny.")
    assert [t["content"].strip() for t in turns[-4:-1:2]] == ["sunny Rome", "sunny Oslo"]
    listed = page.call("GET", f"chats/tools?chat={chat_id}")["groups"]
    trusts = {tool["name"]: tool["trust"] for group in listed for tool in group["tools"]}
    assert trusts == {"weather": "chat", "sleep": ""}
    other = page.new()
    page.ask(other, "Weather?")
    allow(page, asked(page, other), "always")
    settled(page, other, "It is sunny.")
    file = home / "gptoss" / "allowed-tools.json"
    assert json.loads(file.read_text())["allowed"].keys() == {"weather"}
    third = page.new()
    page.ask(third, "Weather?")
    settled(page, third, "It is sunny.")
    file.unlink()


def test_calls_after_the_limit_end_the_exchange(page: Page) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    allow(page, asked(page, chat_id), "chat")
    settled(page, chat_id, "It is sunny.")
    with page.listening(chat_id) as heard:
        page.ask(chat_id, "Forever?", leaf(page, chat_id)["id"])
        heard.until(lambda h: h.of("notice"))
        assert [e["notice"] for e in heard.of("notice")] == ["Stopped after 3 rounds of tools."]
        turns = settled(page, chat_id, TOO_MANY)
    assert [t["content"] for t in turns if t["role"] == "tool"][-2:] == [TOO_MANY] * 2
    assert [t["role"] for t in turns].count("tool") == 1 + 5


def test_permissions_that_cannot_be_written_leave_the_question_open(page: Page, home: Path) -> None:
    chat_id = page.new()
    blocked = home / "gptoss" / "allowed-tools.json"
    blocked.symlink_to(home / "missing" / "file")
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    assert "cannot be written" in allow(page, turn, "always", status=400)["error"]
    blocked.unlink()
    allow(page, turn, "once")
    settled(page, chat_id, "It is sunny.")


def test_stop_ends_a_question_and_a_tool(page: Page, home: Path) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
    turns = page.tree(chat_id)
    assert [t["content"] for t in turns[2:]] == ["The user stopped this call."]
    page.ask(chat_id, "Sleep?", turns[-1]["id"])
    allow(page, asked(page, chat_id), "once")
    wait_until(lambda: (home / "sleep").exists() and (home / "sleep").read_text())
    pid = int((home / "sleep").read_text())
    busy = leaf(page, chat_id)
    assert (busy["state"], busy["stats"]) == ("streaming", {})
    page.call("POST", f"chats/{chat_id}/ask", {"content": "x", "parent_id": busy["id"]}, 409)
    # The answer before it is over, and stopping that one stops what it has begun.
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": busy["parent_id"]})
    wait_until(lambda: not psutil.pid_exists(pid))
    assert leaf(page, chat_id)["content"] == "The user stopped this call."
    (home / "sleep").unlink()
    page.ask(chat_id, "Sleep?", leaf(page, chat_id)["id"])
    allow(page, asked(page, chat_id), "once")
    wait_until(lambda: (home / "sleep").exists() and (home / "sleep").read_text())
    pid = int((home / "sleep").read_text())
    page.call("DELETE", f"chats/{chat_id}")
    wait_until(lambda: not psutil.pid_exists(pid))


def test_tools_are_switched_by_an_option(page: Page, script: Script) -> None:
    def names(listed: Json) -> dict[str, bool]:
        return {group["name"]: group["is_on"] for group in listed["groups"]}

    all_on = {"read_file": False, "python": False, "browser": False, "weather": True, "sleep": True}
    assert names(page.call("GET", "chats/tools")) == all_on
    chat = page.call("POST", "chats", {"model": "nano", "options": {"tools": "weather,gone"}})
    assert chat["options"] == {"tools": "weather,gone"}
    assert names(page.call("GET", f"chats/tools?chat={chat['id']}")) == all_on | {"sleep": False}
    options = {"tools": "", "seed": 7}
    page.call("PATCH", f"chats/{chat['id']}", {"options": options})
    assert not any(names(page.call("GET", f"chats/tools?chat={chat['id']}")).values())
    page.ask(chat["id"], "Weather?")
    assert len(settled(page, chat["id"], "It is sunny.")) == 2
    prompt = script.vocabulary.encoding.decode(script.prompts[-1])
    assert "There are no tools: answer without." in prompt
    page.call("PATCH", f"chats/{chat['id']}", {"options": {}})
    assert names(page.call("GET", f"chats/tools?chat={chat['id']}")) == all_on
    page.call("PATCH", f"chats/{chat['id']}", {"options": {"tools": 7}}, 400)
    page.call("GET", "chats/tools?chat=x", status=400)
    page.call("GET", "chats/tools?chat=99999", status=404)


def test_another_version_that_is_shown_stays(page: Page) -> None:
    chat_id = page.new()
    first = page.answered(page.ask(chat_id, "Anything?"))
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    page.call("PATCH", f"chats/{chat_id}", {"leaf_id": first["id"]})
    allow(page, turn, "once")
    settled(page, chat_id, "It is sunny.")
    assert page.call("GET", f"chats/{chat_id}")["chat"]["leaf_id"] == first["id"]


def test_several_calls_of_one_answer(page: Page) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Both?")
    first = asked(page, chat_id)
    assert len(page.tree(chat_id)[1]["tool_calls"]) == 2
    allow(page, first, "no", reason="Not there.")
    wait_until(lambda: leaf(page, chat_id)["id"] != first["id"])
    allow(page, asked(page, chat_id), "once")
    turns = settled(page, chat_id, "Both are sunny.")
    assert [t["content"].strip() for t in turns[2:4]] == [
        "The user denied this call. Not there.", "sunny Oslo"
    ]  # fmt: skip
    page.ask(chat_id, "Both?", turns[-1]["id"])
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": asked(page, chat_id)["id"]})
    stopped = [t["content"] for t in page.tree(chat_id)[-2:]]
    assert stopped == ["The user stopped this call."] * 2


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_server_that_ends_in_the_middle_of_a_question(
    tmp_path: Path, nano_home: Path, script: Script, is_killed: bool
) -> None:
    home = tmp_path / "home"
    shutil.copytree(nano_home / "cache", home / "cache")
    configure(home)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        with run_scripted_server(home, script, is_process=is_killed, grace_s="60") as server:
            with Page(server) as page:
                chat_id = page.new()
                page.ask(chat_id, "Weather?")
                asked(page, chat_id)
            if is_killed:
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
        with run_scripted_server(home, script) as server, Page(server) as page:
            page.call("GET", f"chats/{chat_id}")  # notices that the writer is dead
            turns = page.tree(chat_id)
            ended = "This call was stopped, as the server ended."
            if is_killed:
                assert [(t["content"], t["state"]) for t in turns[2:]] == [("", "stopped")]
            else:
                assert [(t["content"], t["state"]) for t in turns[2:]] == [(ended, "done")]
            allow(page, turns[2], "once", status=409)
            page.answered(page.ask(chat_id, "And now?", turns[-1]["id"]))
            prompt = script.vocabulary.encoding.decode(script.prompts[-1])
            assert prompt.count("functions.weather to=assistant") == 1
            assert ("This call was interrupted" in prompt) == is_killed


def test_a_question_that_nobody_answers(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ASK_S", 0.1)
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turns = settled(page, chat_id, "It is sunny.")
    assert turns[2]["content"] == "Not run: the user did not answer whether it may run."
    assert [turn["state"] for turn in turns] == ["done"] * 4
