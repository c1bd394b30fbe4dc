"""The page asks before a tool runs, shows all that would run, and adds MCP servers."""

import io
import json
import re
import shlex
import time
from typing import Any

import psutil
import pytest
from PIL import Image, ImageChops
from playwright.sync_api import Locator, Page, Route, expect

from gptoss_local.talk.citations import linked
from gptoss_local.talk.history import History, Turn
from gptoss_local.talk.tools import Page as ToolPage
from tests.conftest import RunningServer, wait_until
from tests.tools.mcp.conftest import GOOD
from tests.web.answers import RIGHT_TO_LEFT
from tests.web.chatting import ask, box, chat_id, intercept, last_answer, new_chat, press, prose
from tests.web.conftest import OpenPage, Watch
from tests.web.test_safety import CHECK

CODE = "import math\n\nif True:\n    print(math.pi)  # <img src=x onerror=window.hacked=1>"
PAGES = [[1, "https://www.example.org/a_(b)?c=\"d'", "A"], [2, "javascript:hacked=1", "B"]]
CITED = "So it is 【1†L3-L7】【1†source】, not 【2†L1】 or 【3†L1】, and `【1†L3】` is code."


def question(page: Page) -> Locator:
    return page.get_by_role("group", name="The model asks to run")


def button(page: Page, name: str) -> Locator:
    return question(page).get_by_role("button", name=name, exact=True)


def late(route: Route) -> None:
    response = route.fetch()
    time.sleep(1)
    route.fulfill(response=response)


def test_a_call_runs_once_it_is_allowed_in_any_tab(
    page: Page, open_page: OpenPage, scripted: RunningServer
) -> None:
    ask(page, "Use a tool", waits=False)
    expect(question(page)).to_contain_text("The model asks to run get_weather")
    expect(page.locator(".spoken")).to_have_text("The model asks to run get_weather.")
    expect(question(page).locator("pre.command")).to_contain_text("Tokyo")
    expect(question(page).locator("pre.arguments")).to_have_text('{\n  "city": "Tokyo"\n}')
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    button(page, "Allow once").click()
    expect(prose(page)).to_have_text("It is sunny.")
    expect(question(page)).to_have_count(0)
    expect(page.locator(".fold summary")).to_have_count(1)  # one line for each call
    expect(page.get_by_role("button", name="Copy the answer")).to_have_count(1)
    expect(page.locator(".ran summary")).to_have_text(re.compile(r"^Ran get_weather · \d\.\d s$"))
    page.locator(".ran summary").click()
    expect(page.locator(".ran pre")).to_contain_text(["Tokyo", "sunny in Tokyo"])
    expect(page.locator(".ran .hint")).to_have_text("1 line")
    expect(page.locator(".spoken")).to_have_text("The answer has finished.")
    ask(page, "Use a tool", waits=False)
    page.reload()
    expect(question(page)).to_be_visible()
    two = open_page(scripted, f"/#/chat/{chat_id(page)}", context=page.context)
    button(two, "Allow in this chat").click()
    for each in (page, two):
        expect(last_answer(each)).to_have_attribute("aria-busy", "false")
        expect(question(each)).to_have_count(0)
    intercept(page, "**/ask", late)  # what the chat's stream says comes before it
    with page.expect_response("**/ask") as answered:
        ask(page, "Use a tool", waits=False)  # without a question
    answered.value.finished()
    page.wait_for_timeout(100)  # the page has read it
    expect(prose(page)).to_have_text("It is sunny.")
    expect(page.locator(".turn.tool")).to_have_count(3)
    page.unroute("**/ask")
    new_chat(page)
    ask(page, "Use a tool", waits=False)
    expect(button(page, "Always allow this tool")).to_be_visible()
    question(page).get_by_label("Why not").press_sequentially("Not <b>now</b>")
    new_chat(page)
    page.go_back()  # it is still there
    expect(button(page, "No")).to_be_enabled()
    question(page).get_by_label("Why not").press("Enter")
    expect(prose(page)).to_have_text("It is sunny.")
    page.locator(".ran summary").click()
    expect(page.locator(".ran .result")).to_have_text("The user denied this call. Not <b>now</b>")


def test_the_end_of_it_has_to_be_seen_first_and_keys_are_enough(page: Page) -> None:
    ask(page, "Use a long command", waits=False)
    what = question(page).get_by_role("region", name="What would run")
    expect(what).to_contain_text("THE END")
    expect(question(page)).to_contain_text("Scroll to its end before you allow it.")
    expect(button(page, "No")).to_be_enabled()  # a moment after it is shown
    for name in ("Allow once", "Allow in this chat", "Always allow this tool"):
        expect(button(page, name)).to_be_disabled()
    what.focus()
    page.keyboard.press("End")
    expect(button(page, "Allow once")).to_be_enabled()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(prose(page)).to_have_text("It ran.")


def test_stop_ends_a_question_and_a_tool(page: Page, scripted: RunningServer) -> None:
    ask(page, "Use a slow tool", waits=False)
    expect(question(page)).to_be_visible()
    box(page).press("Escape")
    expect(question(page)).to_have_count(0)
    press(page, "Let the model answer")
    expect(prose(page)).to_have_text("I waited.")
    ask(page, "Use a slow tool", waits=False)
    button(page, "Allow once").click()
    expect(page.locator(".turn.tool .live").last).to_have_text("running wait")
    pid = scripted.home / "pid"
    wait_until(lambda: page.evaluate("1") and pid.exists() and pid.read_text())
    press(page, "Stop")
    wait_until(lambda: not psutil.pid_exists(int(pid.read_text())))
    expect(page.locator(".turn.tool .fold summary").last).to_contain_text("wait failed")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()


def test_what_would_run_is_text(page: Page) -> None:
    ask(page, "Use a bad word", waits=False)
    expect(question(page).locator("pre.command")).to_contain_text("<img src=x onerror")
    for escape in (r"\u202etxt.exe\u200b", "</pre><script>"):
        expect(question(page).locator("pre.arguments")).to_contain_text(escape)
    checked = CHECK.replace("form:not(.composer)", "form:not(.composer):not(.asked)")
    assert page.evaluate(checked) == []
    button(page, "No").click()
    expect(prose(page)).to_have_text("It is bad.")
    assert page.evaluate(checked) == []


def store(
    server: RunningServer, said: str = "", code: str = CODE, **result: Any
) -> tuple[History, Turn]:
    """Store a chat with a call of `python`; returns the turn of the call."""
    history = History(server.home / "chats.sqlite3")
    made = history.new_chat("nano", "low")
    asked = history.add(made, None, "user", f"Compute {said}")
    call = {"function": {"name": "python", "arguments": {"code": code}}}
    answer = history.add(made, asked.id, "assistant", said, tool_calls=(call,))
    return history, history.add(made, answer.id, "tool", tool_name="python", **result)


def pixels(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


PAINTS = {
    "a rule": r"$\llap{\smash{\rule[-20em]{20em}{20em}}}$",
    "colours": r"$\rlap{\smash{\raisebox{-15em}{\colorbox{red}{\rule{30em}{15em}}}}}$",
    "marks below": "a" + "\u0323" * 300,
}


@pytest.mark.parametrize("said", PAINTS.values(), ids=PAINTS.keys())
def test_an_answer_paints_nothing_over_the_question(
    page: Page, scripted: RunningServer, said: str
) -> None:
    parts = [{"kind": "code", "text": CODE}]
    asked = {"about": "runs code", "always": "this tool", "lasting": [], "parts": parts}
    history, turn = store(scripted, said, f"{said} {CODE}", content="", state="streaming",
                          stats={"question": asked})  # fmt: skip
    page.goto(f"{scripted.url}/#/chat/{turn.chat_id}")
    expect(button(page, "Allow once")).to_be_enabled()
    outside = question(page).evaluate(
        """card => {
      const { left, top, right, bottom } = card.getBoundingClientRect();
      const points = [];
      for (let x = left + 9; x < right - 9; x += 9) {
        for (let y = top + 9; y < bottom - 9; y += 9) points.push([x, y]);
      }
      return points.filter(([x, y]) => !card.contains(document.elementFromPoint(x, y)));
    }"""
    )
    assert outside == []
    painted = question(page).screenshot()
    page.evaluate(
        """for (const turn of document.querySelectorAll(".turn:not(.tool)")) {
      turn.style.visibility = "hidden";
    }"""
    )
    alone = question(page).screenshot()
    difference = ImageChops.difference(*map(pixels, (painted, alone)))
    assert max(most for _, most in difference.getextrema()) < 32  # edges are drawn again
    history.update(turn.id, state="stopped", stats={})
    history.close()


def test_words_from_right_to_left_keep_their_places(page: Page) -> None:
    ask(page, "Use Hebrew", waits=False)
    words = [word for word in RIGHT_TO_LEFT.replace(",", "").split() if word != "/"]
    lefts = (
        question(page)
        .locator("pre.arguments")
        .evaluate(
            """({ firstChild: text }, words) => words.map((word) => {
      const range = document.createRange();
      range.setStart(text, text.data.indexOf(word));
      range.setEnd(text, text.data.indexOf(word) + word.length);
      return range.getBoundingClientRect().left;
    })""",
            words,
        )
    )
    assert lefts == sorted(set(lefts))
    button(page, "No").click()
    expect(prose(page)).to_have_text("It is.")


def test_code_is_shown_as_code_and_citations_as_links(page: Page, scripted: RunningServer) -> None:
    parts = [{"kind": "code", "text": CODE}]
    asked = {"about": "runs code", "always": "this tool of <b>x</b>", "lasting": ["always"],
             "parts": parts}  # fmt: skip
    history, turn = store(scripted, content="", state="streaming", stats={"question": asked})
    page.goto(f"{scripted.url}/#/chat/{turn.chat_id}")
    expect(question(page).locator("pre.code")).to_have_text(CODE)
    expect(button(page, "Always allow this tool of <b>x</b>")).to_be_visible()
    history.update(turn.id, state="stopped", stats={})
    expect(page.locator(".turn.tool .fold summary")).to_have_text("python was interrupted")
    page.locator(".ran summary").click()
    expect(page.locator(".ran .call")).to_have_text(CODE)
    expect(page.get_by_role("button", name="Let the model answer")).to_be_enabled()
    history.update(turn.id, state="done", stats={"pages": PAGES, "seconds": 1})
    history.add(turn.chat_id, turn.id, "assistant", CITED)
    history.close()
    page.reload()
    expect(prose(page)).to_have_text(
        "So it is www.example.org ↗ www.example.org ↗, not 【2†L1】 or 【3†L1】, "
        "and 【1†L3】 is code."
    )
    links = prose(page).get_by_role("link")
    expect(links).to_have_count(2)
    expect(links.first).to_have_attribute("href", "https://www.example.org/a_(b)?c=%22d'")
    expect(links.first).to_have_attribute("rel", "noopener noreferrer")
    assert page.evaluate(CHECK) == []
    last_answer(page).get_by_role("button", name="Copy the answer").click()
    expect(page.locator(".spoken")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == CITED


def test_citations_are_those_of_the_terminal(page: Page) -> None:
    """The page and Python find the same ones, and link them alike."""
    ask(page, "What is the capital of France?")
    pages = [ToolPage(cursor, url, title) for cursor, url, title in PAGES]
    pages += [ToolPage(4, "https://ü.example:8080/x y", ""), ToolPage(5, "https:///", "")]
    texts = [
        "a【1†L3】", "**b**【1†L3-L7】", "(【1†L3–L7】)", "【1†L3】【4†source】", "【1†】.",
        "【4†L1-7】", "【1】", "【1†L3", "【x†L3】", "【1:2†L3】", "【1†L3†page】", "`【1†L3】`",
        "```\n【1†L3】\n```", "【1†foo】", "【5†L1】", "【2†L1】",
        "- 【1†L1】\n\n| a |\n|---|\n| 【4†L2】 |",
    ]  # fmt: skip
    shown = page.evaluate(
        """async ([texts, pages]) => {
      const { Growing } = await import("/web/markdown.js");
      return texts.map((text) => [new Growing(pages), new Growing()].map((growing, n) => {
        const div = document.createElement("div");
        const source = n ? text[1] : text[0];
        div.append(...growing.update(source, true).map((block) => block.make()));
        const urls = [...div.querySelectorAll("a")].map((a) => decodeURIComponent(a.href));
        return [div.textContent, urls];
      }));
    }""",
        [[[text, linked(text, pages)] for text in texts], [list(each) for each in pages]],
    )
    for text, (ours, of_python) in zip(texts, shown, strict=True):
        assert ours == of_python, text
    assert sum(len(urls) for _, urls in (ours for ours, _ in shown)) == 11


def tools_of(page: Page) -> Locator:
    """The switches of the chat's tools."""
    page.locator(".tools-on").click()
    return page.get_by_role("dialog", name="Tools")


def test_the_composer_says_which_tools_are_on_and_switches_them(page: Page) -> None:
    on = page.locator(".tools-on")
    expect(on).to_have_text("get_weather, wait")
    tools = tools_of(page)
    expect(tools.get_by_role("checkbox")).to_have_count(5)
    expect(tools).to_contain_text("Gets the weather of a city.")
    expect(tools.get_by_label("read_file")).not_to_be_checked()
    tools.get_by_label("get_weather").uncheck()
    press(page, "Close")
    ask(page, "Use a tool")
    expect(page.locator(".turn.tool")).to_have_count(0)  # the model was told of no such tool
    expect(on).to_have_accessible_name("Tools: wait")
    problem = {"name": "<b>mail", "about": "is a server", "description": "", "is_on": True,
               "problem": "mail: <img src=x> ended", "tools": []}  # fmt: skip
    body = json.dumps({"groups": [problem]})
    page.route("**/api/gptoss/chats/*/tools*", lambda route: route.fulfill(body=body))
    page.route("**/api/gptoss/chats/tools*", lambda route: route.fulfill(body=body))
    page.reload()
    tools_of(page)
    for words in ("<b>mail", "mail: <img src=x> ended"):
        expect(tools).to_contain_text(words)


def new_server(page: Page) -> Locator:
    found = tools_of(page)
    found.get_by_text("Add an MCP server").click()
    return found


def test_a_server_is_tested_added_and_removed(
    page: Page, watch: Watch, scripted: RunningServer
) -> None:
    watch.expected = ("status of 502", "status of 400")
    tools = new_server(page)
    name = tools.get_by_label("Name", exact=True)
    name.fill("<b>x")
    tools.get_by_label("Command or address").fill("no-such-program-here")
    press(page, "Test")
    expect(tools.get_by_role("alert")).to_contain_text("no-such-program-here")
    expect(tools.get_by_role("alert")).to_contain_text("Is it installed there?")
    tools.get_by_label("Command or address").fill("http://127.0.0.1:9/mcp")
    tools.get_by_role("textbox", name="Headers").fill("no header")
    press(page, "Test")
    expect(tools.get_by_role("alert")).to_have_text("a header is written as NAME:VALUE")
    name.fill("good")
    tools.get_by_label("Command or address").fill(shlex.join([GOOD["command"], *GOOD["args"]]))
    tools.get_by_role("textbox", name="Variables").fill("MY_KEY=k3y")
    press(page, "Test")
    expect(tools.get_by_role("status")).to_contain_text("good 1.5 answered after")
    expect(tools.get_by_role("checkbox", name="good")).to_have_count(0)
    press(page, "Add")
    expect(tools.get_by_role("checkbox", name="good")).to_be_checked()
    expect(tools).to_contain_text("add, get_weather_today")
    expect(name).to_have_value("")
    config = scripted.home / "config" / "gptoss" / "mcp.json"
    assert '"MY_KEY": "k3y"' in config.read_text()
    press(page, "Remove good")
    expect(tools.get_by_role("checkbox", name="good")).to_be_checked()  # it was not sure
    tools.get_by_text("Really remove").click()
    expect(tools.get_by_role("checkbox", name="good")).to_have_count(0)
    assert "good" not in config.read_text()
