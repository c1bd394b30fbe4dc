"""Models in the page: a new home gets a real one, and those that are there are used."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.conftest import PATIENCE_S, RunningServer, run_server
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
    expect(card(page)).to_contain_text(re.compile(r"GPUnone.*RAM[\d.]+ GiB of [\d.]+ GiB are free"))
    expect(card(page)).to_contain_text("13.8 GB to download, 12.")
    expect(card(page)).to_contain_text("suggestion")
    assert not hub.sent
    start_download(page, card(page))
    expect(card(page).locator(".progress")).to_contain_text(
        re.compile(r"[\d.]+ MB of [\d.]+ MB · [\d.]+ .B/s · \d+ (s|min) left")
    )
    press(page, "Stop downloading gpt-oss:20b")
    expect(card(page).get_by_role("status")).to_contain_text(re.compile(r"Stopped at [\d.]+ MB of"))
    n_before = hub.sent[FILE]
    hub.heal()
    start_download(page, card(page))
    expect(box(page)).to_have_attribute("placeholder", "Message gpt-oss:20b", timeout=60_000)
    expect(card(page)).to_have_count(0)
    whole = len(hub.repos[REPO].commits[hub.repos[REPO].revisions["main"]][FILE])
    assert n_before > 0
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
            fit |= {"fits": "no", "problem": "does not fit; 64 GiB do"}
        route.fulfill(json=found)

    page.route("**/api/gptoss/fits", without_room)
    page.reload()
    expect(card(page)).to_contain_text("✗ does not fit; 64 GiB do")
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
    expect(dialog.get_by_role("button", name="Load gpt-oss:20b")).to_be_visible(timeout=60_000)
    expect(dialog.get_by_role("alert")).to_have_count(0)


def test_load_and_unload(page: Page, scripted: RunningServer) -> None:
    press(page, "Models")
    here = page.get_by_label("On this machine")
    expect(here).to_contain_text(re.compile(r"nano\s*[\d.]+ MB · 111.4M"))
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
        page.locator(".composer .model").click()
        press(page, "Use nano")
        expect(page.get_by_role("dialog")).to_have_count(0)
        ask(page, "What is the capital of Italy?")
        expect(last_answer(page).locator(".facts")).to_contain_text("nano ·")
        page.locator(".composer .model").click()
        press(page, "Use second")
        expect(box(page)).to_have_attribute("placeholder", "Message second")
        page.reload()
        new_chat(page)
        expect(box(page)).to_have_attribute("placeholder", "Message second")
        assert http.request("DELETE", "/api/delete", json={"model": "second"}).is_success
