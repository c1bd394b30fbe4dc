"""MCP servers are added, tested and removed in the page, and a call of one is still asked about."""

import shlex

from playwright.sync_api import Locator, Page, expect

from tests.conftest import RunningServer
from tests.tools.mcp.conftest import GOOD
from tests.web.chatting import press
from tests.web.conftest import OpenPage, Watch
from tests.web.test_looks import check_axe


def dialog(page: Page) -> Locator:
    page.locator(".tools-on").click()
    found = page.get_by_role("dialog", name="Tools")
    found.get_by_text("Add an MCP server").click()
    return found


def test_a_server_is_tested_added_used_and_removed(page: Page, scripted: RunningServer) -> None:
    tools = dialog(page)
    tools.get_by_label("Name", exact=True).fill("good")
    tools.get_by_label("Command or address").fill(shlex.join([GOOD["command"], *GOOD["args"]]))
    tools.get_by_role("textbox", name="Variables").fill("MY_KEY=k3y")
    press(page, "Test")
    expect(tools.get_by_role("status")).to_contain_text("good 1.5 answered after")
    expect(tools.get_by_role("status")).to_contain_text("tools: add, ")
    expect(tools.get_by_role("checkbox", name="good")).to_have_count(0)
    press(page, "Add")
    expect(tools.get_by_role("checkbox", name="good")).to_be_checked()
    expect(tools.get_by_label("Name", exact=True)).to_have_value("")
    expect(tools).to_contain_text("add, get_weather_today")
    config = scripted.home / "config" / "gptoss" / "mcp.json"
    assert '"MY_KEY": "k3y"' in config.read_text()
    press(page, "Close")
    expect(page.locator(".tools-on")).to_have_text("get_weather, wait, good")
    page.locator(".tools-on").click()
    press(page, "Remove good")
    expect(tools.get_by_role("checkbox", name="good")).to_be_checked()  # it was not sure
    tools.get_by_text("Really remove").click()
    expect(tools.get_by_role("checkbox", name="good")).to_have_count(0)
    assert "good" not in config.read_text()


def test_a_server_that_does_not_answer(page: Page, watch: Watch) -> None:
    watch.expected = ("status of 502", "status of 400")
    tools = dialog(page)
    tools.get_by_label("Name", exact=True).fill("<b>x")
    tools.get_by_label("Command or address").fill("no-such-program-here")
    press(page, "Test")
    expect(tools.get_by_role("alert")).to_contain_text("no-such-program-here")
    expect(tools.get_by_role("alert")).to_contain_text("Is it installed there?")
    tools.get_by_label("Command or address").fill("http://127.0.0.1:9/mcp")
    tools.get_by_role("textbox", name="Headers").fill("no header")
    press(page, "Test")
    expect(tools.get_by_role("alert")).to_have_text("a header is written as NAME:VALUE")
    expect(tools.get_by_role("button", name="Test")).to_be_enabled()


def test_axe_finds_nothing_serious(open_page: OpenPage, scripted: RunningServer) -> None:
    page = open_page(scripted, bypass_csp=True, viewport={"width": 360, "height": 740})
    dialog(page)
    check_axe(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
