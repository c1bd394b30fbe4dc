"""A long chat: 200 turns, answers of 25 kB. `pytest -s` prints the processor time that it takes.

To open it takes 0.7 s of the processor's time, and a key 7 ms, or 20 ms while an answer streams.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer, wait_until
from tests.web.answers import LONG_TABLE, RICH, TABLE
from tests.web.chatting import box, last_answer

FRAME_MS = 1000 / 60
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
  const last = () => document.querySelector(".turns")?.lastElementChild;
  while (last()?.ariaBusy !== "true") await pause(50);
  while (last().ariaBusy === "true") {{
    await type();
    await pause(50);
  }}
}}"""


@contextmanager
def traced(page: Page) -> Iterator[list[float]]:
    """Collect the milliseconds that each task of the page's main thread takes of the processor.

    The promises that are settled after a task count as one more.
    """
    browser = page.context.browser
    assert browser is not None
    tasks: list[float] = []
    browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
    try:
        yield tasks
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    names = [each for each in events if each["name"] == "thread_name"]
    main = {
        (each["pid"], each["tid"]) for each in names if each["args"]["name"] == "CrRendererMain"
    }
    ends = dict.fromkeys(main, 0)
    for each in sorted(events, key=lambda each: (each["ts"], -each.get("dur", 0))):
        thread = each["pid"], each["tid"]
        if thread in main and "tdur" in each and each["ts"] >= ends[thread]:  # it is in no other
            ends[thread] = each["ts"] + each["dur"]
            tasks.append(each["tdur"] / 1000)
    assert sum(tasks) > 0, "nothing was traced"


def slow_ms(tasks: list[float]) -> float:
    """Return the 95th percentile of the tasks that take a millisecond and more."""
    long = sorted(each for each in tasks if each >= 1)
    return long[int(len(long) * 0.95)] if long else 0.0


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
def test_a_key_waits_for_no_table_that_streams(page: Page) -> None:
    """At most two frames: three times what a key takes on a page where nothing streams."""
    expect(box(page)).to_be_visible()
    page.wait_for_timeout(500)
    with traced(page) as keys:
        page.evaluate(KEYS)
    box(page).fill(LONG_TABLE)
    with traced(page) as streaming:
        page.evaluate(STREAMED)
    expect(last_answer(page).locator("tr")).to_have_count(201)
    figures = {"key": slow_ms(keys), "streaming": slow_ms(streaming), "longest": max(streaming)}
    print(json.dumps(figures))
    assert figures["key"] < FRAME_MS
    assert figures["streaming"] < 2 * FRAME_MS


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
