"""A new home in the page: from the toy that is here to a real model's first answer."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.conftest import RunningServer, run_server
from tests.hub.server import PIECE_BYTES, Fault, HubServer, run_hub
from tests.pulling.test_pull import read_folder
from tests.web.chatting import ask, box, press, prose, start_download
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
    check_axe(page)
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


def test_a_model_that_does_not_fit_is_asked_about(
    new_home: RunningServer, open_page: OpenPage, hub: HubServer
) -> None:
    hub.strike("", Fault(status=404))
    page = open_page(new_home)

    def without_room(route: Route) -> None:
        found = route.fetch().json()
        for fit in found["models"]:
            fit |= {"fits": "no", "problem": "does not fit; 64 GiB do"}
        route.fulfill(json=found)

    page.route("**/api/gptoss/fits", without_room)
    page.reload()
    expect(card(page)).to_contain_text("✗ does not fit; 64 GiB do")
    press(page, "Download anyway: gpt-oss:20b")
    expect(card(page).get_by_role("alert")).to_contain_text("Download 13.8 GB all the same?")
    press(page, "Cancel")
    assert hub.requests == []
    press(page, "Download anyway: gpt-oss:20b")
    card(page).get_by_role("button", name="Download", exact=True).click()
    expect(card(page).get_by_role("alert")).to_contain_text("404 Not Found")
