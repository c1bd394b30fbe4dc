"""The list of chats: new, search, rename, pin, delete, export and import."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.chatting import (
    ask,
    box,
    chat_id,
    choose,
    last_answer,
    new_chat,
    press,
    prose,
    until,
)
from tests.web.conftest import Watch


def rows(page: Page) -> list[str]:
    return page.locator(".sidebar .row a").all_inner_texts()


def test_new_chats_are_listed_and_opened(page: Page) -> None:
    ask(page, "What is the capital of France?")
    first = chat_id(page)
    new_chat(page)
    expect(box(page)).to_be_focused()
    ask(page, "What is the capital of Italy?")
    assert rows(page)[:2] == ["What is the capital of Italy?", "What is the capital of France?"]
    expect(page.locator(".row.current")).to_contain_text("Italy")
    page.locator(f'.sidebar a[href="#/chat/{first}"]').click()
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    page.reload()
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    page.go_back()
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")


def test_a_chat_that_a_search_opens_stays_at_the_turn_that_was_found(page: Page) -> None:
    ask(page, "What is the capital of France?")
    ask(page, "Write a long program")
    new_chat(page)
    page.get_by_role("searchbox").fill("capital of France")
    page.get_by_label("Found").get_by_role("link").first.click()
    found = page.locator(".turn.user").first
    expect(found).to_be_in_viewport()
    page.get_by_role("searchbox").fill("")  # the page is painted again
    expect(page.locator(".row.current")).to_be_visible()
    expect(found).to_be_in_viewport()


def test_search_finds_words_marks_them_and_opens_their_branch(page: Page) -> None:
    ask(page, "What is the capital of France?")
    press(page, "Edit the message")
    page.get_by_role("textbox", name="Edit your message").fill("A question about platypuses")
    page.keyboard.press("Enter")
    expect(prose(page)).to_contain_text("only a few answers")
    press(page, "Version before")
    expect(prose(page)).to_contain_text("Paris")
    new_chat(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("platypus")
    hit = page.get_by_label("Found").get_by_role("link")
    expect(hit).to_have_count(1)
    expect(hit.locator("mark")).to_have_text("platypuses")
    expect(page.locator(".spoken")).to_have_text("1 found")
    page.get_by_role("searchbox").press("ArrowDown")
    expect(hit).to_be_focused()
    hit.press("ArrowUp")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("searchbox").press("ArrowDown")
    hit.press("Enter")
    expect(page.locator(".turn.user")).to_contain_text("A question about platypuses")
    page.get_by_role("searchbox").fill("no such words anywhere")
    expect(page.locator(".sidebar")).to_contain_text("Nothing found.")
    page.get_by_role("searchbox").fill("")
    expect(page.locator(".row.current")).to_be_visible()


def test_rename_pin_and_delete(page: Page, scripted: RunningServer) -> None:
    ask(page, "What is the capital of France?")
    made = chat_id(page)
    choose(page, "Actions for this chat", "Rename")
    page.get_by_role("textbox", name="Title").fill("Paris, of course")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Paris, of course")
    new_chat(page)
    ask(page, "What is the capital of Italy?")
    choose(page, "Actions for Paris, of course", "Pin to the top")
    expect(page.get_by_role("region", name="Pinned")).to_contain_text("Paris, of course")
    assert "Paris, of course" in rows(page)[0]
    choose(page, "Actions for Paris, of course", "Delete")
    press(page, "Cancel")
    expect(page.get_by_role("region", name="Pinned")).to_be_visible()
    choose(page, "Actions for Paris, of course", "Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("region", name="Pinned")).to_have_count(0)
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")  # another chat stays open
    history = History(scripted.home / "chats.sqlite3")
    assert made not in [chat.id for chat in history.chats()]
    history.close()


def test_a_chat_is_moved_to_a_folder_and_found_there(page: Page) -> None:
    ask(page, "What is the capital of France?")
    for folder in ("Geography", "Homework"):
        choose(page, "Actions for this chat", "Move to a folder")
        page.get_by_role("combobox", name="Folder").fill(folder)
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name=folder).get_by_role("link")).to_have_count(1)
    expect(page.get_by_role("region", name="Geography")).to_have_count(0)
    page.get_by_role("searchbox").fill("homew")
    expect(page.get_by_label("Found").get_by_role("link")).to_contain_text("Homework")
    page.get_by_role("searchbox").fill("")
    choose(page, "Actions for this chat", "Move to a folder")
    page.get_by_role("combobox", name="Folder").fill("")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Homework")).to_have_count(0)


def test_export_and_import_round_trip(page: Page, tmp_path: Path) -> None:
    ask(page, "What is the capital of France?")
    press(page, "Answer again")
    expect(page.locator(".versions")).to_contain_text("2/2")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    with page.expect_download() as download:
        choose(page, "Actions for this chat", "Export as JSON")
    assert download.value.suggested_filename == "What-is-the-capital-of-France.json"
    path = tmp_path / "chat.json"
    download.value.save_as(path)
    assert len(json.loads(path.read_text())["turns"]) == 3
    with page.expect_download() as download:
        choose(page, "Actions for this chat", "Export as Markdown")
    assert "The capital of France is **Paris**." in Path(download.value.path()).read_text()
    before = chat_id(page)
    page.get_by_label("A chat to import").set_input_files(path)
    until(page, f"!location.hash.endsWith('/{before}')")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    expect(page.locator(".versions")).to_contain_text("2/2")


def test_what_is_not_a_chat_is_refused_with_a_hint(
    page: Page, watch: Watch, tmp_path: Path
) -> None:
    watch.expected = ("status of 400",)
    (tmp_path / "notes.json").write_text("[1, 2]")
    page.get_by_label("A chat to import").set_input_files(tmp_path / "notes.json")
    expect(page.get_by_role("alert")).to_contain_text("This is not an exported chat")
    expect(page.get_by_role("alert")).to_contain_text("gptoss chats CHAT --json")
    press(page, "Dismiss")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_chat_that_is_not_there_says_so(
    page: Page, watch: Watch, scripted: RunningServer
) -> None:
    watch.expected = ("status of 404",)
    page.goto(f"{scripted.url}/#/chat/987654")
    expect(page.get_by_text("This chat was deleted.")).to_be_visible()
    expect(page.get_by_role("heading", name="What can I help with?")).to_be_visible()


def test_a_draft_and_its_files_survive_a_reload(page: Page) -> None:
    ask(page, "What is the capital of France?")
    page.get_by_label("Files", exact=True).set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"my notes"}
    )
    box(page).fill("Not sent yet")
    expect(page.locator(".chips li")).to_contain_text("token")  # it is read
    page.reload()
    expect(box(page)).to_have_value("Not sent yet")
    expect(page.locator(".chips li")).to_contain_text("notes.txt")
    new_chat(page)
    expect(box(page)).to_have_value("")


def test_what_is_sent_is_seen_wherever_the_page_was_scrolled(page: Page) -> None:
    ask(page, "Explain it fast")
    scroller = page.locator(".transcript")
    scroller.evaluate("(each) => each.scrollTo({ top: 0 })")
    expect(page.get_by_role("button", name="To the end")).to_be_visible()
    ask(page, "What is the capital of Italy?")
    expect(page.locator(".turn.user").last).to_be_in_viewport()
    expect(last_answer(page)).to_be_in_viewport()


def test_the_list_of_chats_closes_on_a_wide_screen(page: Page) -> None:
    sidebar = page.locator(".sidebar")
    expect(sidebar).to_be_visible()
    press(page, "Chats")
    expect(sidebar).to_be_hidden()
    press(page, "Chats")
    expect(sidebar).to_be_visible()
    skip = page.get_by_role("button", name="Skip to the message")
    skip.focus()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(box(page)).to_be_focused()
