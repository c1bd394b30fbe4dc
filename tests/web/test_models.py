"""Models from the page: which there are, use, load, unload, download."""

import json
import re
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.conftest import PATIENCE_S, RunningServer
from tests.web.chatting import ask, box, choose, last_answer, new_chat, press, start_download
from tests.web.conftest import Watch


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


PULL = """() => {
  const real = window.fetch;
  window.fetch = (path, options) => {
    if (path !== "/api/pull") return real(path, options);
    window.asked = options.body;
    options.signal.addEventListener("abort", () => window.send(null));
    return Promise.resolve(new Response(new ReadableStream({ start: (stream) => {
      window.send = (frame) => frame
        ? stream.enqueue(new TextEncoder().encode(JSON.stringify(frame) + "\\n"))
        : stream.error(new DOMException("", "AbortError"));
    } })));
  };
}"""
"""Replaces the server's stream of a download by one that the test writes."""


def test_progress_of_a_download_its_stop_and_its_failure(page: Page) -> None:
    """The page's part; the server's stream is tested in tests/server."""
    page.evaluate(PULL)
    press(page, "Models")
    start_download(page, page.get_by_role("dialog"))
    frame = {"status": "pulling model", "total": 4_000_000_000, "completed": 1_000_000_000}
    page.evaluate("frame => window.send(frame)", frame)
    dialog = page.get_by_role("dialog")
    bar = dialog.get_by_role("progressbar", name="Downloading gpt-oss:20b")
    expect(bar).to_have_js_property("value", 0.25)
    expect(dialog.locator(".progress")).to_contain_text("1.0 GB of 4.0 GB")
    assert json.loads(page.evaluate("window.asked")) == {"model": "gpt-oss:20b"}
    dialog.get_by_role("button", name="Stop downloading gpt-oss:20b").click()
    expect(bar).to_have_count(0)
    expect(page.get_by_role("dialog").get_by_role("status")).to_have_text(
        "Stopped at 1.0 GB of 4.0 GB."
    )
    start_download(page, page.get_by_role("dialog"))
    failure = {"error": "the hub does not answer", "hint": "Try again later."}
    page.evaluate("frame => window.send(frame)", failure)
    problem = page.get_by_role("dialog").get_by_role("alert")
    expect(problem).to_have_text("the hub does not answer Try again later.")
    expect(page.locator(".notice")).to_have_count(0)


def test_an_error_of_a_download_is_seen_where_no_list_of_models_is_open(page: Page) -> None:
    page.evaluate(PULL)
    ask(page, "What is the capital of France?")
    press(page, "Models")
    start_download(page, page.get_by_role("dialog"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.evaluate(
        "frame => window.send(frame)", {"error": "the disk is full", "hint": "Make room."}
    )
    expect(page.locator(".notice")).to_contain_text("the disk is full Make room.")


def test_a_real_refusal_of_a_download_is_shown(page: Page, watch: Watch) -> None:
    """Nano is in the package: there is nothing to download but an unknown model."""
    watch.expected = ("status of 404",)
    fits = {"models": [{"name": "no-such-model", "fits": "no", "vram_share": 0, "n_ctx": 0}]}
    page.route("**/api/gptoss/fits", lambda route: route.fulfill(json=fits))
    press(page, "Models")
    expect(page.get_by_label("To download")).to_contain_text("✗ does not fit")
    press(page, "Download anyway: no-such-model")
    page.get_by_role("dialog").get_by_role("button", name="Download", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("gptoss pulls gpt-oss:20b")


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
