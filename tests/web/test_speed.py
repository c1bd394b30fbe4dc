"""A long chat: 200 turns, answers of 25 kB. `pytest -s` prints the figures.

To open it takes 0.7 s of the processor's time, and a key 7 ms, or 20 ms while an answer streams.
"""

import json

import pytest
from playwright.sync_api import Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer, wait_until
from tests.web.answers import RICH, TABLE
from tests.web.chatting import box, last_answer
from tests.web.cost import slow_ms, traced

OPENED = """document.querySelector(".turn:last-child .prose .block:last-child p")
  ?.textContent.includes("end of answer 99")"""
TYPE = """const box = document.querySelector(".composer textarea");
  const type = () => {
    box.value += "x";
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
    return new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
  };"""
KEYS = f"""async () => {{
  {TYPE}
  for (let n = 0; n < 40; n++) await type();
}}"""
STREAMED = f"""async () => {{
  {TYPE}
  const pause = (ms) => new Promise((over) => setTimeout(over, ms));
  document.querySelector('.composer .send').click();
  const last = () => document.querySelector(".turns").lastElementChild;
  while (last().ariaBusy !== "true") await pause(50);
  while (last().ariaBusy === "true") {{
    await type();
    await pause(50);
  }}
}}"""


@pytest.fixture(scope="module")
def long_chat(scripted: RunningServer) -> int:
    history = History(scripted.home / "chats.sqlite3")
    chat, parent = history.new_chat("nano", "low", "A long chat"), None
    for n in range(100):
        parent = history.add(chat, parent, "user", f"Question {n}").id
        text = (RICH + "\n\n") * (25_000 // len(RICH)) + f"\n\nThe end of answer {n}."
        parent = history.add(chat, parent, "assistant", text, model="nano").id
    history.set_options(chat, {"truncate": True})
    history.close()
    return chat


@pytest.mark.timing
def test_a_long_chat_opens_and_takes_keys(
    page: Page, scripted: RunningServer, long_chat: int
) -> None:
    page.goto(f"{scripted.url}/#/")
    expect(box(page)).to_be_visible()
    page.wait_for_timeout(500)
    with traced(page) as opening:
        page.evaluate("(chat) => { location.hash = `#/chat/${chat}`; }", long_chat)
        wait_until(lambda: page.evaluate(OPENED), timeout_s=60)
    with traced(page) as keys:
        page.evaluate(KEYS)
    n_elements = page.evaluate("document.querySelectorAll('*').length")
    box(page).fill(TABLE)
    with traced(page) as streaming:
        page.evaluate(STREAMED)  # the selectors of Playwright would take as long
    expect(last_answer(page).locator("tr")).to_have_count(131)
    assert page.evaluate("document.querySelectorAll('.turn').length") == 40
    figures = {"open": sum(opening), "key": slow_ms(keys), "streaming": slow_ms(streaming)}
    print(json.dumps({"elements": n_elements, **figures}))
    assert n_elements < 20_000  # else far prose is drawn
    assert figures["open"] < 3_000
    assert figures["key"] < 50
    assert figures["streaming"] < 80
