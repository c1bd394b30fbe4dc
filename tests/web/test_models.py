"""Models in the page: a new home gets a real one, and those that are there are used."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.conftest import PATIENCE_S, RunningServer, run_server, wait_until
from tests.hub.server import PIECE_BYTES, Fault, HubServer, run_hub
from tests.pulling.test_pull import read_folder
from tests.web.chatting import (
    ask,
    box,
    choose,
    last_answer,
    new_chat,
    press,
    prose,
    start_download,
)
from tests.web.conftest import OpenPage
from tests.web.test_looks import check_axe

HEADLINE = re.compile(
    r"gpt-oss:20b(: does not fit|: no room| runs on this machine's CPU: about [\d.]+ tokens/s)"
)
BAR = re.compile(r"RAM, .* model [\d.]+ GiB context [\d.]+ .iB")
REPO, FILE = "openai/gpt-oss-20b", "model.safetensors"


@pytest.fixture
def hub(nano_checkpoint: Path) -> Iterator[HubServer]:
    """A hub that has nano's checkpoint under the name of the small model."""
    with run_hub() as server:
        server.add(REPO, read_folder(nano_checkpoint))
        yield server


@pytest.fixture
def new_home(empty_home: Path, hub: HubServer) -> Iterator[RunningServer]:
    outside = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(empty_home / "none")}
    outside |= {"XDG_CONFIG_HOME": str(empty_home / "config")}
    with run_server(empty_home, variables=outside, context_length="8192") as server:
        yield server


def card(page: Page) -> Locator:
    return page.get_by_role("region", name="Get a real model")


def test_a_new_home_to_the_first_answer(
    new_home: RunningServer, open_page: OpenPage, hub: HubServer
) -> None:
    hub.strike(FILE, Fault(delay_s=0.2))
    page = open_page(new_home)
    expect(card(page)).to_contain_text("nano is here: a toy")
    expect(card(page).get_by_role("heading")).to_have_text(HEADLINE)
    expect(card(page).locator(".memory").last).to_contain_text(BAR)
    assert not hub.sent
    start_download(page, card(page))
    expect(card(page).locator(".progress")).to_contain_text(
        re.compile(r"[\d.]+ MB of [\d.]+ MB · [\d.]+ .B/s · \d+ (s|min) left")
    )
    wait_until(lambda: hub.sent[FILE] > 0)  # the small files come before
    press(page, "Stop downloading gpt-oss:20b")
    expect(card(page).get_by_role("status")).to_contain_text(re.compile(r"Stopped at [\d.]+ MB of"))
    n_before = hub.sent[FILE]
    hub.heal()
    start_download(page, card(page))
    expect(box(page)).to_have_attribute("placeholder", "Message gpt-oss:20b")
    expect(card(page)).to_have_count(0)
    whole = len(hub.repos[REPO].commits[hub.repos[REPO].revisions["main"]][FILE])
    assert hub.sent[FILE] < whole + n_before + PIECE_BYTES
    ask(page, "What is the capital of France?")
    expect(prose(page)).to_contain_text("Paris")


def test_a_download_that_fails_says_so_in_its_place_and_goes_on(
    new_home: RunningServer, open_page: OpenPage, hub: HubServer
) -> None:
    hub.strike("", Fault(status=404))
    look = {"viewport": {"width": 360, "height": 700}, "bypass_csp": True}
    page = open_page(new_home, reduced_motion="reduce", **look)

    def without_room(route: Route) -> None:
        found = route.fetch().json()
        for fit in found["models"]:
            problem = "does not fit; 64 GiB do"
            fit |= {"fits": "no", "problem": problem, "headline": f"{fit['name']}: {problem}"}
        route.fulfill(json=found)

    page.route("**/api/gptoss/fits", without_room)
    page.reload()
    expect(card(page)).to_contain_text("does not fit; 64 GiB do")
    check_axe(page)
    press(page, "Download anyway: gpt-oss:20b")
    expect(card(page).get_by_role("alert")).to_contain_text("Download 13.8 GB all the same?")
    press(page, "Cancel")
    assert hub.requests == []
    start_download(page, card(page))
    problem = card(page).get_by_role("alert")
    expect(problem).to_contain_text(re.compile(r"\S.*\. \S"))
    check_axe(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator(".notice")).to_have_count(0)
    press(page, "All models")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_have_text(problem.inner_text())
    hub.heal()
    start_download(page, dialog)
    expect(dialog.get_by_role("button", name="Load gpt-oss:20b")).to_be_visible()
    expect(dialog.get_by_role("alert")).to_have_count(0)


def test_load_and_unload(page: Page, scripted: RunningServer) -> None:
    press(page, "Models")
    here = page.get_by_label("On this machine")
    expect(here).to_contain_text(re.compile(r"nano\s*[\d.]+ MB · a toy"))
    expect(here).to_contain_text("In use")
    if here.get_by_role("button", name="Unload nano").is_visible():
        press(page, "Unload nano")
    expect(here).to_contain_text("○ RAM, no GPU · ctx")
    press(page, "Load nano")
    expect(here).to_contain_text("loaded, ctx 32,768")
    loaded = httpx.get(f"{scripted.url}/api/ps", headers=scripted.owner, trust_env=False)
    assert [each["name"] for each in loaded.json()["models"]] == ["nano"]
    press(page, "Unload nano")
    expect(here.get_by_role("button", name="Load nano")).to_be_visible()
    expect(page.get_by_label("To download")).to_contain_text("gpt-oss:20b")


def test_another_model_answers_and_a_new_chat_begins_with_it(
    page: Page, scripted: RunningServer
) -> None:
    ask(page, "What is the capital of France?")
    owner: Any = {"headers": scripted.owner, "timeout": PATIENCE_S, "trust_env": False}
    with httpx.Client(base_url=scripted.url, **owner) as http:
        assert http.post("/api/copy", json={"source": "nano", "destination": "second"}).is_success
        page.reload()
        choose(page, "Answer again with another model", "second")
        expect(page.locator(".versions").last).to_contain_text("2/2")
        expect(last_answer(page).locator(".facts")).to_contain_text("second")
        expect(page.locator("button.model")).to_contain_text("second")
        page.locator("button.model").click()
        press(page, "All models")
        press(page, "Use nano")
        expect(page.get_by_role("dialog")).to_have_count(0)
        ask(page, "What is the capital of Italy?")
        expect(last_answer(page).locator(".facts")).to_contain_text("nano ·")
        page.locator("button.model").focus()
        page.keyboard.press("Enter")
        listbox = page.get_by_role("listbox", name="Model")
        expect(listbox).to_be_focused()
        expect(listbox.get_by_role("option", selected=True)).to_contain_text("nanoloaded")
        page.keyboard.press("Escape")
        expect(page.locator("button.model")).to_be_focused()
        page.keyboard.press("Enter")
        expect(listbox).to_be_focused()
        page.keyboard.press("Home")
        expect(listbox.locator(".active")).to_contain_text("second")
        page.keyboard.press("Enter")
        expect(box(page)).to_have_attribute("placeholder", "Message second")
        expect(page.locator("button.model")).to_be_focused()
        expect(page.get_by_role("tooltip")).to_contain_text(re.compile(r"second.*RAM.*model \d+"))
        page.reload()
        here = page.url
        new_chat(page)
        expect(box(page)).to_have_attribute("placeholder", "Message second")
        assert http.request("DELETE", "/api/delete", json={"model": "second"}).is_success
        page.goto(here)
        page.reload()
        removed = "second was removed: choose another model"
        expect(box(page)).to_have_attribute("placeholder", removed)
        box(page).press_sequentially("Hello")
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()


def test_the_list_of_models_follows_the_keys(page: Page) -> None:
    def many(route: Route) -> None:
        model = route.fetch().json()["models"][0]
        route.fulfill(json={"models": [model | {"name": f"m{n}"} for n in range(10, 50)]})

    page.route("**/api/tags", many)
    page.reload()
    page.locator("button.model", has_text="m10").click()  # waits for a frame: before, keys get lost
    expect(page.get_by_role("listbox", name="Model")).to_be_focused()
    for key, name in (("End", "m49"), ("Home", "m10"), ("ArrowUp", "m10"), ("ArrowDown", "m11")):
        page.keyboard.press(key)
        expect(page.locator("[role=option].active")).to_contain_text(name)
        expect(page.get_by_role("option", name=name)).to_be_in_viewport(ratio=0.9)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://gpu1.example.com:8000", "Computed at gpu1.example.com"),
        ("http://127.0.0.1:8000", ""),
    ],
)
def test_where_the_text_goes(
    url: str, says: str, new_home: RunningServer, open_page: OpenPage
) -> None:
    """Also with the tool browser on; a server of this machine is here."""
    page = open_page(new_home)
    welcome, places = page.locator(".welcome"), page.locator(".welcome, .dock, .chat-head")
    expect(welcome).to_contain_text("Everything stays on this machine.")
    config = new_home.home / "config" / "gptoss" / "models.toml"
    config.parent.mkdir(parents=True)
    address = f'upstream = {{ kind = "vllm", urls = ["{url}"], model = "m" }}'
    config.write_text(f'[[model]]\nname = "far"\n{address}\n')
    page.locator("button.model").click()
    page.get_by_role("option", name="far").click()
    expect(box(page)).to_have_attribute("placeholder", "Message far")
    if says:
        expect(welcome).to_contain_text(f"{says}: your messages and files go there.")
        expect(places.filter(has_text="gpu1.example.com")).to_have_count(3)
    else:
        expect(welcome).to_contain_text("Everything stays on this machine.")
    press(page, "Tools: no tools")
    browser = page.get_by_role("checkbox", name="browser")
    expect(page.get_by_role("dialog")).to_contain_text("Its searches, and the addresses it op")
    browser.check()
    page.keyboard.press("Escape")
    expect(welcome).to_contain_text("The tool browser sends its searches to the web.")
    expect(welcome).not_to_contain_text("Everything stays")


def test_a_tap_asks_nano_and_its_answer_offers_more(
    new_home: RunningServer, open_page: OpenPage
) -> None:
    """What it is asked for it can answer."""
    page = open_page(new_home, bypass_csp=True)
    asked = (
        ("What is the capital of Japan?", "Tokyo"),
        ("What is 123 + 456?", "579"),
        ("Count from 1 to 10.", "9, 10"),
    )
    for n, (question, said) in enumerate(asked, 1):
        page.get_by_label("Try it").get_by_role("button", name=question).dblclick()
        expect(prose(page)).to_contain_text(said)
        expect(page.locator(".chats .row")).to_have_count(n)
        expect(card(page)).to_contain_text(HEADLINE)
        expect(card(page).get_by_role("button", name="gpt-oss:20b")).to_be_visible()
        check_axe(page)
        press(page, "New chat")
