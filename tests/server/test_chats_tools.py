"""Tools in the page's chats: the server holds the loop, asks, runs and ends the tools."""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import (
    SCRIPT_VARIABLE,
    Reply,
    Script,
    answer,
    calls,
    calls_built_in,
    run_scripted_server,
)
from tests.server.page_client import Json, Page
from tests.tools.browser.site import running_site

NOTES = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read()); print('sunny', sys.argv[2])"
CODE = "n = 6\n\nprint(n * 7)"
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(100)"
TOO_MANY = "Not run: an answer may not have more calls. Answer without."
CITY = {"city": {"type": "string", "description": "Its name"}}


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Weather?", calls("weather", {"city": "Tokyo"}, "Hm."), answer("It is sunny."))
    script.say("Twice?", *(calls("weather", {"city": city}) for city in ("Rome", "Oslo")),
               answer("Both are sunny."))  # fmt: skip
    in_a_row = calls("weather", {"city": "Rome"}).text.replace("}", '}{"city": "Oslo"}')
    script.say("Both?", Reply(text=in_a_row), answer("None."), answer("Both are sunny."))
    script.say("Compute?", calls_built_in("python", CODE), answer("It is 42."))
    script.say("Undeclared?", calls("nothing", {}), answer("I see."))
    script.say("Sleep?", calls("sleep", {}), answer("I slept."))
    rounds = [calls("weather", {"city": city}) for city in ("Rome", "Oslo", "Bern", "Nice")]
    script.say("Enough?", *rounds, answer("It is sunny everywhere."))
    script.say("Forever?", *(calls("weather", {"city": "X"}) for _ in range(9)))
    script.otherwise(answer("As you say."))
    return script


def configure(home: Path) -> None:
    """Give the server two programs."""
    programs = {"weather": (NOTES, CITY, "{city}"), "sleep": (SLEEPS, {}, "")}
    lines = []
    for name, (code, properties, word) in programs.items():
        words = [sys.executable, "-c", code, str(home / name), *([word] if word else [])]
        schema = {"type": "object", "properties": properties}
        lines += [f"[tools.{name}]", f"command = {json.dumps(words)}", "timeout_s = 90",
                  f"description = \"The {name}\"", f"[tools.{name}.parameters]",
                  "type = \"object\"", f"properties = {_inline(schema['properties'])}"]  # fmt: skip
    (home / "gptoss").mkdir(parents=True)
    (home / "gptoss" / "config.toml").write_text("\n".join(lines))


def _inline(value: object) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + "}"


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
    wait_until(lambda: "question" in leaf(page, chat_id)["stats"], timeout_s=15)
    return leaf(page, chat_id)


def settled(page: Page, chat_id: int, content: str) -> list[Json]:
    """Wait for the last word of an exchange; returns all turns."""
    wait_until(lambda: leaf(page, chat_id)["content"] == content, timeout_s=15)
    wait_until(lambda: leaf(page, chat_id)["state"] == "done", timeout_s=15)
    return page.tree(chat_id)


def allow(page: Page, turn: Json, scope: str, *, reason: str = "", status: int = 200) -> Json:
    body = {"turn_id": turn["id"], "scope": scope, "reason": reason}
    return page.call("POST", f"chats/{turn['chat_id']}/allow", body, status)


def test_a_link_is_asked_about_by_its_address(
    nano_home: Path, tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shutil.copytree(nano_home / "cache", tmp_path / "cache")
    script = Script(vocabulary)
    with running_site() as site:
        site.answers["/page"] = (200, {"Content-Type": "text/html"}, b'<a href="/there">here</a>')
        opens = [calls("browser.open", {"id": each}) for each in (f"{site.url}/page", 0)]
        script.say("Open it", *opens, answer("It is open."))
        settings = {"enabled_tools": "browser", "browser_private": "true"}
        with run_scripted_server(tmp_path, script, **settings) as server, Page(server) as page:
            chat_id = page.new()
            page.ask(chat_id, "Open it")
            first = asked(page, chat_id)
            allow(page, first, "once")
            wait_until(lambda: leaf(page, chat_id)["id"] != first["id"])
            turn = asked(page, chat_id)
            (part,) = turn["stats"]["question"]["parts"]
            assert json.loads(part["text"]) == {"id": f"{site.url}/there", "cursor": 0}
            assert site.paths == ["/page"]
            allow(page, turn, "once")
            settled(page, chat_id, "It is open.")
        assert site.paths == ["/page", "/there"]


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


def test_code_is_asked_about_as_code(page: Page) -> None:
    """The real sandbox; what it has made ends with the chat."""
    chat_id = page.new(options={"tools": "python"})
    page.ask(chat_id, "Compute?")
    turn = asked(page, chat_id)
    assert turn["stats"]["question"]["parts"] == [{"kind": "code", "text": CODE}]
    allow(page, turn, "once")
    turns = settled(page, chat_id, "It is 42.")
    function = turns[1]["tool_calls"][0]["function"]
    assert (function["name"], function["arguments"]) == ("python", {"code": CODE})
    assert (turns[2]["tool_name"], turns[2]["content"].strip()) == ("python", "42")
    page.call("DELETE", f"chats/{chat_id}")


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


def test_at_the_limit_the_model_is_told_to_answer(page: Page, script: Script) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    allow(page, asked(page, chat_id), "chat")
    settled(page, chat_id, "It is sunny.")
    page.ask(chat_id, "Enough?", leaf(page, chat_id)["id"])
    turns = settled(page, chat_id, "It is sunny everywhere.")[-9:]
    assert [t["role"] for t in turns] == ["assistant", "tool"] * 4 + ["assistant"]
    assert [t["stats"]["is_error"] for t in turns[1::2]] == [False] * 3 + [True]
    assert turns[-2]["content"] == TOO_MANY
    assert script.vocabulary.encoding.decode(script.prompts[-1]).count(TOO_MANY) == 1


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


def test_a_tool_that_is_not_there(page: Page, script: Script) -> None:
    chat_id = page.new()
    done = page.answered(page.ask(chat_id, "Undeclared?"))
    assert (done["content"], done["tool_calls"]) == ("I see.", [])
    prompt = script.vocabulary.encoding.decode(script.prompts[-1])
    assert "there is no tool functions.nothing. There are: functions.weather" in prompt


def test_stop_ends_a_question_and_a_tool(page: Page, home: Path) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
    turns = page.tree(chat_id)
    assert [t["content"] for t in turns[2:]] == ["The user stopped this call."]
    page.ask(chat_id, "Sleep?", turns[-1]["id"])
    allow(page, asked(page, chat_id), "once")
    wait_until(lambda: (home / "sleep").exists() and (home / "sleep").read_text(), timeout_s=15)
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
    wait_until(lambda: (home / "sleep").exists() and (home / "sleep").read_text(), timeout_s=15)
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
    wait_until(lambda: leaf(page, chat_id)["id"] != first["id"], timeout_s=15)
    allow(page, asked(page, chat_id), "once")
    turns = settled(page, chat_id, "Both are sunny.")
    assert [t["content"].strip() for t in turns[2:4]] == [
        "The user denied this call. Not there.", "sunny Oslo"
    ]  # fmt: skip
    page.ask(chat_id, "Both?", turns[-1]["id"])
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": asked(page, chat_id)["id"]})
    stopped = [t["content"] for t in page.tree(chat_id)[-2:]]
    assert stopped == ["The user stopped this call."] * 2


def test_a_page_of_another_site_allows_nothing(page: Page, served: RunningServer) -> None:
    chat_id = page.new()
    page.ask(chat_id, "Weather?")
    turn = asked(page, chat_id)
    body = {"turn_id": turn["id"], "scope": "once"}
    path = f"{served.url}/api/gptoss/chats/{chat_id}/allow"
    for headers, status in (
        ({"origin": "https://evil.example"}, 403),
        ({"x-gptoss-token": "guessed"}, 401),
    ):
        reply = httpx.post(path, json=body, headers=headers, trust_env=False)
        assert reply.status_code == status
    assert "question" in leaf(page, chat_id)["stats"]
    allow(page, turn, "no")
    settled(page, chat_id, "It is sunny.")


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


def test_a_question_that_nobody_answers(home: Path, script: Script, tmp_path: Path) -> None:
    script.write(tmp_path / "script")
    with ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        variables = {SCRIPT_VARIABLE: str(tmp_path / "script")}
        server = stack.enter_context(run_server(home, "tests.server.impatient", variables))
        page = stack.enter_context(Page(server))
        chat_id = page.new()
        page.ask(chat_id, "Weather?")
        turns = settled(page, chat_id, "It is sunny.")
        assert turns[2]["content"] == "Not run: the user did not answer whether it may run."
    history = History(home / "chats.sqlite3")
    assert [turn.state for turn in history.tree(chat_id)] == ["done"] * 4
    history.close()
