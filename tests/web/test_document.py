"""The chat as a document: printed, compared, imported; messages that wait, and all chats."""

import io
import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect
from pypdf import PdfReader

from gptoss_local.talk.history import History
from tests.conftest import RunningServer, wait_until
from tests.history.test_history_import import CHATGPT
from tests.web.chatting import ask, box, intercept, kept, last_answer, new_chat, press, prose, until
from tests.web.conftest import Watch

N_CHATS = 230
QUESTION = "What is the capital of France?"


def say(page: Page, text: str) -> None:
    box(page).press_sequentially(text)
    page.keyboard.press("Enter")


def waiting(page: Page) -> list[str]:
    return page.get_by_role("list", name="Waiting").get_by_role("listitem").all_inner_texts()


def stored(server: RunningServer, n_turns: int) -> int:
    history = History(server.home / "chats.sqlite3")
    chat, last = history.new_chat("nano", "low", "Long"), None
    for n in range(n_turns):
        wide = f"```python\nx = '{'wide ' * 40}end{n}'\n```" if n % 2 else ""
        said = f"Message {n} is here.\n\n{wide}"
        last = history.add(chat, last, "assistant" if n % 2 else "user", said).id
    history.close()
    return chat


def test_a_pdf_has_all_of_the_chat(page: Page, scripted: RunningServer) -> None:
    n_turns = 120
    page.goto(f"{scripted.url}/#/chat/{stored(scripted, n_turns)}")
    expect(page.get_by_text(f"Message {n_turns - 1} is here.")).to_be_visible()
    expect(page.locator(".code").last).to_be_visible()  # what draws Markdown was loaded
    text = "\n".join(each.extract_text() for each in PdfReader(io.BytesIO(page.pdf())).pages)
    missing = [n for n in range(n_turns) if f"Message {n} is here." not in text]
    assert missing == []
    solid = re.sub(r"\s", "", text)
    assert [n for n in range(1, n_turns, 2) if f"end{n}'" not in solid] == []
    assert "```" not in text  # Markdown is drawn
    for words in ("New chat", "Search all chats", "Message nano", "Copy"):
        assert words not in text


def test_earlier_messages_come_by_scrolling(page: Page, scripted: RunningServer) -> None:
    page.goto(f"{scripted.url}/#/chat/{stored(scripted, 130)}")
    expect(page.get_by_text("Message 129 is here.")).to_be_visible()
    expect(page.get_by_text("Message 80 is here.")).to_have_count(0)
    page.locator(".transcript").hover()
    while page.get_by_text("Message 0 is here.").count() == 0:
        page.mouse.wheel(0, -3000)
        page.wait_for_function("new Promise((painted) => requestAnimationFrame(painted))")
    expect(page.get_by_role("button", name="Show earlier messages")).to_have_count(0)


@pytest.fixture(scope="module")
def many(scripted: RunningServer) -> Iterator[RunningServer]:
    history = History(scripted.home / "chats.sqlite3")
    old = history.new_chat("nano", "low", "An old one")
    history.add(old, None, "user", "Xylophones first")
    history.move(old, "Work")
    for n in range(N_CHATS):
        history.add(history.new_chat("nano", "low", f"Chat {n}"), None, "user", "xylophones")
    yield scripted
    history.delete(old)  # other tests take the first chat, and a folder is above it
    history.close()


def test_all_chats_are_listed_and_found(page: Page, many: RunningServer) -> None:
    page.goto(many.url)
    links = page.locator(".chats .row a")
    expect(page.get_by_role("region", name="Work").get_by_role("link")).to_have_text("An old one")
    expect(page.get_by_role("link", name="Chat 0", exact=True)).to_have_count(0)
    page.locator(".chats").hover()
    while page.get_by_role("link", name="Chat 0", exact=True).count() == 0:
        page.mouse.wheel(0, 3000)
        page.wait_for_function("new Promise((painted) => requestAnimationFrame(painted))")
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    with page.expect_response(lambda reply: "q=xylophones&" in reply.url):  # not of a part of it
        page.get_by_role("searchbox").press_sequentially("xylophones")
    expect(links).to_have_count(50)
    expect(links.first.locator("time")).to_have_text(
        page.evaluate("new Date().toLocaleDateString()")
    )
    for n in range(100, N_CHATS, 50):
        press(page, "Show more")
        expect(links).to_have_count(n)
    press(page, "Show more")
    expect(links).to_have_count(N_CHATS + 1)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    page.get_by_role("searchbox").fill("")


def test_a_message_waits_for_the_answer(page: Page, scripted: RunningServer) -> None:
    say(page, "Count slowly")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    for text in (QUESTION, "What is the capital of Italy?"):
        say(page, text)
    assert waiting(page) == [QUESTION, "What is the capital of Italy?"]
    expect(page.get_by_text("sent when the answer is complete")).to_be_visible()
    page.get_by_role("button", name="Take it back").last.click()
    assert waiting(page) == [QUESTION]
    expect(box(page)).to_have_value("What is the capital of Italy?")
    press(page, "Send it now")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    _, turns = kept(page, scripted)
    assert [(turn.role, turn.state) for turn in turns] == [
        ("user", "done"), ("assistant", "stopped"), ("user", "done"), ("assistant", "done")
    ]  # fmt: skip
    expect(box(page)).to_have_value("What is the capital of Italy?")


def test_messages_follow_each_other_however_fast_they_are_typed(
    page: Page, watch: Watch, scripted: RunningServer
) -> None:
    """A chat that has no id yet takes them, too, and what is typed stays while they are sent."""
    for text in (QUESTION, "What is the capital of Italy?", "And so on"):
        say(page, text)
    box(page).press_sequentially("not sent")
    expect(page.locator(".turn.assistant")).to_have_count(3)
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    said = [QUESTION, "What is the capital of Italy?", "And so on"]
    assert [turn.content for turn in kept(page, scripted)[1][::2]] == said
    expect(box(page)).to_have_value("not sent")
    last_answer(page).get_by_role("button", name="Answer again").dblclick()
    expect(page.locator(".versions")).to_contain_text("2/2")  # once
    box(page).fill("")
    say(page, "Count slowly")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    box(page).press_sequentially(QUESTION)
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    new_chat(page)
    watch.expected = ("Failed to load resource",)
    held: list[Route] = []
    intercept(page, "**/api/gptoss/chats", lambda route: held.append(route))
    say(page, "Keep this")
    box(page).press_sequentially("and this")
    wait_until(lambda: page.evaluate("1") and held)
    held[0].abort()
    expect(box(page)).to_have_value("Keep this\n\nand this")


def test_what_waits_is_sent_though_its_answer_ended_during_a_look(page: Page) -> None:
    held: list[Route] = []
    looks: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        if route.request.method == "POST" and not held:
            held.append(route)
        elif route.request.method == "GET" and held and not looks:
            looks.append((route, route.fetch()))
        else:
            route.continue_()

    intercept(page, re.compile(r"/api/gptoss/chats/\d+(/ask)?$"), hold)
    say(page, "Read slowly")
    say(page, QUESTION)
    wait_until(lambda: page.evaluate("1") and held)
    held[0].continue_()
    wait_until(lambda: page.evaluate("1") and looks)
    expect(prose(page)).to_have_text("I have read it.")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    route, response = looks[0]
    assert response.json()["turns"][-1]["state"] == "streaming"
    route.fulfill(response=response)
    expect(prose(page)).to_have_text("The capital of France is Paris.")


def test_keys_while_parts_of_the_page_are_loaded(page: Page) -> None:
    """It is printed once it can be, and a dialog that was closed does not open."""
    ask(page, "Explain it fast")
    held: list[Route] = []
    page.route(re.compile(r"/(markdown|dialogs)\.js"), lambda route: held.append(route))
    printed = "[...document.querySelectorAll('.prose')].map((each) => each.className)"
    page.add_init_script(f"window.print = () => (window.printed = {printed})")
    page.reload()
    expect(page.locator(".prose.raw")).to_have_count(1)
    page.keyboard.press("Control+p")
    assert page.evaluate("window.printed") is None
    page.keyboard.press("Control+/")
    page.keyboard.press("Escape")
    wait_until(lambda: page.evaluate("1") and len(held) == 2)
    for route in held:
        route.continue_()
    expect(page.locator(".offer")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    until(page, "window.printed?.join() === 'prose'")


def test_a_message_waits_in_a_chat_that_is_left(page: Page, scripted: RunningServer) -> None:
    say(page, "Explain it slowly")
    first = page.locator(".row.current a")
    expect(first).to_have_text("Explain it slowly")
    say(page, QUESTION)
    expect(page).to_have_title("… Explain it slowly · gptoss")
    expect(page.locator(".row.current").get_by_role("img", name="Answering")).to_be_visible()
    new_chat(page)
    row = page.locator(".row", has_text="Explain it slowly").first
    expect(row.get_by_role("img", name="New answer")).to_be_visible()
    expect(page).to_have_title("● gptoss")
    row.get_by_role("link").click()
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    expect(page).to_have_title("Explain it slowly · gptoss")
    expect(page.locator(".row.current").get_by_role("img")).to_have_count(0)


def test_a_stopped_answer_gives_back_what_waits(page: Page, scripted: RunningServer) -> None:
    say(page, "Count slowly")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    say(page, QUESTION)
    page.keyboard.press("Escape")
    expect(box(page)).to_have_value(QUESTION)
    expect(page.get_by_role("list", name="Waiting")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(prose(page)).to_have_text("The capital of France is Paris.")


def test_enter_waits_for_files(page: Page, scripted: RunningServer) -> None:
    held: list[Route] = []
    intercept(page, "**/api/gptoss/files*", lambda route: held.append(route))
    page.get_by_label("Files", exact=True).set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"my notes"}
    )
    say(page, QUESTION)
    expect(page.get_by_text("sent when its files are read")).to_be_visible()
    expect(page.locator(".turn")).to_have_count(0)
    held[0].continue_()
    expect(page.locator(".turn.user")).to_contain_text("notes.txt")
    expect(page.locator(".turn.user")).to_contain_text(QUESTION)
    until(page, "!document.querySelector('.chips')")


def test_two_answers_side_by_side(page: Page, scripted: RunningServer) -> None:
    ask(page, QUESTION)
    press(page, "Answer again")
    expect(page.locator(".versions")).to_contain_text("2/2")
    press(page, "Side by side")
    columns = page.get_by_role("dialog").get_by_role("region")
    expect(columns).to_have_count(2)
    expect(columns.first).to_contain_text("Paris")
    columns.first.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".versions")).to_contain_text("1/2")


def imported(page: Page, name: str, data: bytes) -> None:
    page.get_by_label("A chat to import").set_input_files(
        {"name": name, "mimeType": "application/json", "buffer": data}
    )


def test_an_export_of_chatgpt(page: Page, watch: Watch, scripted: RunningServer) -> None:
    ask(page, QUESTION)  # an imported chat gets the model of the newest one
    imported(page, "conversations.json", json.dumps([CHATGPT, CHATGPT]).encode())
    expect(page.get_by_text("2 chats imported. Not imported: 2 citations")).to_be_visible()
    expect(page.locator(".turn.user").last).to_contain_text("And this?")
    expect(page.locator(".versions").first).to_contain_text("2/2")
    box(page).press_sequentially(QUESTION)
    page.keyboard.press("Enter")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    assert kept(page, scripted)[0].model == "nano"
    watch.expected = ("status of 400",)
    imported(page, "mine.json", b"[1")
    expect(page.get_by_role("alert")).to_contain_text("mine.json: This is not an exported chat")
