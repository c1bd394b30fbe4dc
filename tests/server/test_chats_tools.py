"""Tools in the page's chats: the server holds the loop, asks, runs and ends the tools."""

import json
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.chats import exchange
from tests.conftest import RunningServer, give_nano, wait_until
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.server.page_client import Json, Page

NOTES = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read()); print('sunny', sys.argv[2])"
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(100)"
LONG = " ".join(f"word{n}" for n in range(600))
TOO_MANY = "Not run: an answer may not have more calls. Answer without."


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Weather?", calls("weather", {"city": "Tokyo"}, "Hm."), answer("It is sunny."))
    script.say("Twice?", *(calls("weather", {"city": city}) for city in ("Rome", "Oslo")),
               answer("Both are sunny."))  # fmt: skip
    script.say("Sleep?", calls("sleep", {}), answer("I slept."))
    script.say("Slow?", answer(LONG, tok_s=60))
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
    give_nano(nano_home, home / "cache")
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


@pytest.mark.quick
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
    """The version that is shown meanwhile stays."""
    chat_id = page.new()
    first = page.answered(page.ask(chat_id, "Anything?"))
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    page.call("PATCH", f"chats/{chat_id}", {"leaf_id": first["id"]})
    page.call("POST", f"chats/{chat_id}/allow", {"turn_id": turn["id"], "scope": "x"}, 400)
    allow(page, turn | {"chat_id": page.new()}, "once", status=404)
    allow(page, turn, "no", reason=" Not now. ")
    settled(page, chat_id, "It is sunny.")
    denied = page.turn(turn)
    assert denied["content"] == "The user denied this call. Not now."
    assert denied["stats"]["is_error"]
    assert denied["content"] in script.vocabulary.encoding.decode(script.prompts[-1])
    assert page.call("GET", f"chats/{chat_id}")["chat"]["leaf_id"] == first["id"]


def test_yes_in_this_chat_and_yes_for_good(page: Page, home: Path) -> None:
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
    with page.listening(chat_id) as heard:
        page.ask(chat_id, "Forever?", turns[-1]["id"])
        heard.until(lambda h: h.of("notice"))
        assert [e["notice"] for e in heard.of("notice")] == ["Stopped after 3 rounds of tools."]
        settled(page, chat_id, TOO_MANY)
    other, file = page.new(), home / "gptoss" / "allowed-tools.json"
    file.symlink_to(home / "missing" / "file")
    page.ask(other, "Weather?")
    turn = asked(page, other)
    assert "cannot be written" in allow(page, turn, "always", status=400)["error"]
    file.unlink()
    allow(page, turn, "always")  # the question was left open
    settled(page, other, "It is sunny.")
    assert json.loads(file.read_text())["allowed"].keys() == {"weather"}
    third = page.new()
    page.ask(third, "Weather?")
    settled(page, third, "It is sunny.")
    file.unlink()


def test_stop_ends_a_question_and_a_tool(page: Page, home: Path) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
    turns = page.tree(chat_id)
    assert [t["content"] for t in turns[2:]] == ["The user stopped this call."]

    def sleeping() -> int:
        page.ask(chat_id, "Sleep?", leaf(page, chat_id)["id"])
        allow(page, asked(page, chat_id), "once")
        pid = home / "sleep"
        wait_until(lambda: pid.exists() and pid.read_text())
        return int(pid.read_text())

    pid = sleeping()
    busy = leaf(page, chat_id)
    assert (busy["state"], busy["stats"]) == ("streaming", {})
    page.call("POST", f"chats/{chat_id}/ask", {"content": "x", "parent_id": busy["id"]}, 409)
    # The answer before it is over, and stopping that one stops its call, however often it is done.
    stop = partial(page.call, "POST", f"chats/{chat_id}/stop", {"turn_id": busy["parent_id"]})
    with ThreadPoolExecutor() as clicks:
        assert all(each.result() for each in [clicks.submit(stop) for _ in range(5)])
    wait_until(lambda: not psutil.pid_exists(pid))
    assert leaf(page, chat_id)["content"] == "The user stopped this call."
    (home / "sleep").unlink()
    pid = sleeping()
    page.call("DELETE", f"chats/{chat_id}")
    wait_until(lambda: not psutil.pid_exists(pid))


def test_tools_are_switched_by_an_option(page: Page, script: Script) -> None:
    def names(query: str = "") -> dict[str, bool]:
        groups = page.call("GET", f"chats/tools{query}")["groups"]
        return {group["name"]: group["is_on"] for group in groups}

    all_on = {"read_file": False, "python": False, "browser": False, "weather": True, "sleep": True}
    assert names() == all_on
    chat_id = page.new(options={"tools": "weather,gone"})
    assert names(f"?chat={chat_id}") == all_on | {"sleep": False}
    page.call("PATCH", f"chats/{chat_id}", {"options": {"tools": "", "seed": 7}})
    assert not any(names(f"?chat={chat_id}").values())
    page.ask(chat_id, "Weather?")
    assert len(settled(page, chat_id, "It is sunny.")) == 2
    prompt = script.vocabulary.encoding.decode(script.prompts[-1])
    assert "There are no tools: answer without." in prompt
    page.call("PATCH", f"chats/{chat_id}", {"options": {}})
    assert names(f"?chat={chat_id}") == all_on
    page.call("PATCH", f"chats/{chat_id}", {"options": {"tools": 7}}, 400)
    page.call("GET", "chats/tools?chat=x", status=400)
    page.call("GET", "chats/tools?chat=99999", status=404)


def test_a_question_that_nobody_answers(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ASK_S", 0.1)
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turns = settled(page, chat_id, "It is sunny.")
    assert turns[2]["content"] == "Not run: the user did not answer whether it may run."
    assert [turn["state"] for turn in turns] == ["done"] * 4


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_server_that_ends_in_the_middle_of_a_question(
    tmp_path: Path,
    nano_home: Path,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
) -> None:
    """A kill costs an answer its last second."""
    home = tmp_path / "home"
    give_nano(nano_home, home / "cache")
    configure(home)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    with (
        run_scripted_server(home, script, is_process=is_killed, grace_s="1") as server,
        Page(server) as page,
    ):
        chat_id, other = page.new(), page.new()
        page.ask(chat_id, "Weather?")
        asked(page, chat_id)
        with page.listening(other) as heard:
            cut = page.ask(other, "Slow?")
            heard.until(lambda h: len(h.turns.get(cut["id"], {}).get("content", "")) > 300)
            if is_killed:
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
                heard.until(lambda heard: heard.is_over)
            seen = heard.turns[cut["id"]]["content"]
    with run_scripted_server(home, script) as server, Page(server) as page:
        page.call("GET", f"chats/{chat_id}")  # notices that the writer is dead
        turns = page.tree(chat_id)
        ended = "This call was stopped, as the server ended."
        told = ("", "stopped") if is_killed else (ended, "done")
        assert [(t["content"], t["state"]) for t in turns[2:]] == [told]
        allow(page, turns[2], "once", status=409)
        page.answered(page.ask(chat_id, "And now?", turns[-1]["id"]))
        prompt = script.vocabulary.encoding.decode(script.prompts[-1])
        assert prompt.count("functions.weather to=assistant") == 1
        assert ("This call was interrupted" in prompt) == is_killed
        left = page.turn(cut)
        assert left["state"] == "stopped"
        assert LONG.startswith(left["content"])
        words_of_a_second = 30  # tokens, of which a word has two or three
        assert len(left["content"].split()) > len(seen.split()) - words_of_a_second
        page.call("POST", f"chats/{other}/continue", {"turn_id": cut["id"]})
        wait_until(lambda: len(page.turn(cut)["content"]) > len(left["content"]))
        page.call("POST", f"chats/{other}/stop", {"turn_id": cut["id"]})
        assert page.turn(cut)["content"].startswith(left["content"])
