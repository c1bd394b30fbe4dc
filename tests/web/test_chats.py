"""The chats next to the conversation: listed, found, changed, exported, and set up."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.chatting import (
    ask,
    box,
    chat_id,
    choose,
    intercept,
    kept,
    new_chat,
    press,
    prose,
    until,
)
from tests.web.conftest import Watch


def rows(page: Page) -> list[str]:
    return page.locator(".sidebar .row a").all_inner_texts()


def test_chats_are_listed_opened_and_drafted(
    page: Page, watch: Watch, scripted: RunningServer
) -> None:
    ask(page, "What is the capital of France?")
    first = chat_id(page)
    new_chat(page)
    expect(box(page)).to_be_focused()
    ask(page, "What is the capital of Italy?")
    today = page.get_by_role("region", name="Today").get_by_role("link")
    expect(today.nth(0)).to_have_text("What is the capital of Italy?")
    expect(today.nth(1)).to_have_text("What is the capital of France?")
    expect(page.locator(".row.current")).to_contain_text("Italy")
    page.get_by_label("Files", exact=True).set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"my notes"}
    )
    box(page).fill("Not sent yet")
    expect(page.locator(".chips li")).to_contain_text("token")  # it is read
    page.locator(f'.sidebar a[href="#/chat/{first}"]').click()
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    expect(box(page)).to_have_value("")
    page.reload()
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    press(page, "System prompt and sampling")
    page.go_back()  # what is set is not set for another chat
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")
    expect(box(page)).to_have_value("Not sent yet")
    expect(page.locator(".chips li")).to_contain_text("notes.txt")
    for is_shown in (False, True):
        press(page, "Chats")
        expect(page.locator(".sidebar")).to_be_visible(visible=is_shown)
    watch.expected = ("status of 404",)
    page.goto(f"{scripted.url}/#/chat/987654")
    expect(page.get_by_text("This chat was deleted.")).to_be_visible()


def test_search_marks_words_and_opens_their_branch_at_the_turn(page: Page) -> None:
    ask(page, "What is the capital of France?")
    press(page, "Edit the message")
    page.get_by_role("textbox", name="Edit your message").fill("A question about platypuses")
    page.keyboard.press("Enter")
    expect(prose(page)).to_contain_text("only a few answers")
    ask(page, "Write a long program")
    press(page, "Version before")
    expect(prose(page)).to_contain_text("Paris")
    new_chat(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("platypus")
    hit = page.get_by_label("Found").get_by_role("link")
    search = page.get_by_role("searchbox")
    expect(hit).to_have_count(1)
    expect(hit.locator("mark")).to_have_text("platypuses")
    expect(page.locator(".spoken")).to_have_text("1 found")
    search.press("ArrowDown")
    expect(hit).to_be_focused()
    hit.press("ArrowUp")
    expect(search).to_be_focused()
    page.keyboard.press("Escape")
    expect(search).to_have_value("")
    expect(page.get_by_label("Found")).to_have_count(0)
    page.keyboard.type("platypus")
    page.keyboard.press("ArrowDown")  # before anything is found
    expect(hit).to_be_focused()
    hit.press("ArrowUp")
    page.keyboard.press("Enter")
    found = page.locator(".turn.user").first
    expect(found).to_contain_text("A question about platypuses")
    expect(found).to_be_in_viewport()
    search.fill("no such words anywhere")
    expect(page.locator(".sidebar")).to_contain_text("Nothing found.")
    search.fill("")  # the page is painted again
    expect(page.locator(".row.current")).to_be_visible()
    expect(found).to_be_in_viewport()


def test_rename_pin_move_and_delete(page: Page, watch: Watch, scripted: RunningServer) -> None:
    watch.expected = ("status of 400",)
    ask(page, "What is the capital of France?")
    made = chat_id(page)
    choose(page, "Actions for this chat", "Rename")
    intercept(page, "**/chats/*", lambda route: route.fulfill(status=400, json={"error": "No."}))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text("No.")
    page.unroute_all(behavior="wait")
    press(page, "Cancel")
    expect(page.get_by_role("alert")).to_have_count(0)
    choose(page, "Actions for this chat", "Rename")
    page.get_by_role("textbox", name="Title").fill("Paris, of course")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Paris, of course")
    for folder in ("Geography", "Homework", ""):
        choose(page, "Actions for this chat", "Move to a folder")
        page.get_by_role("combobox", name="Folder").fill(folder)
        page.keyboard.press("Enter")
        for name in ("Geography", "Homework"):
            region = page.get_by_role("region", name=name)
            expect(region.get_by_role("link")).to_have_count(int(name == folder))
    new_chat(page)
    ask(page, "What is the capital of Italy?")
    choose(page, "Actions for Paris, of course", "Pin to the top")
    expect(page.get_by_role("region", name="Pinned")).to_contain_text("Paris, of course")
    assert "Paris, of course" in rows(page)[0]
    for sure, n_left in (("Cancel", 1), ("Delete", 0)):
        choose(page, "Actions for Paris, of course", "Delete")
        page.get_by_role("dialog").get_by_role("button", name=sure).click()
        expect(page.get_by_role("region", name="Pinned")).to_have_count(n_left)
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")  # another chat stays open
    history = History(scripted.home / "chats.sqlite3")
    assert made not in [chat.id for chat in history.chats()]
    history.close()


def test_export_and_import_round_trip(page: Page, watch: Watch, tmp_path: Path) -> None:
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
    watch.expected = ("status of 400",)
    path.write_text("[1, 2]")
    page.get_by_label("A chat to import").set_input_files(path)
    expect(page.get_by_role("alert")).to_contain_text("This is not an exported chat")
    expect(page.get_by_role("alert")).to_contain_text("gptoss chats CHAT --json")
    press(page, "Dismiss")
    expect(page.get_by_role("alert")).to_have_count(0)


def dialog(page: Page) -> Locator:
    press(page, "System prompt and sampling")
    return page.get_by_role("dialog")


def apply(page: Page) -> None:
    press(page, "Apply")
    expect(page.get_by_role("dialog")).to_have_count(0)


def type_into(form: Locator, name: str, text: str) -> None:
    """Replace what is in a field, key by key."""
    form.get_by_label(name).press("Control+a")
    form.get_by_label(name).press("Delete")
    form.get_by_label(name).press_sequentially(text)


WRONG = {  # a field, and what is no number for it
    "temperature": ("7", "1,5", "0.7.1", "hot", "0x1"),
    "top_p": ("1.05", "-.1"),
    "top_k": ("0.5",),
}


def test_a_chat_has_a_system_prompt_and_sampling(page: Page, scripted: RunningServer) -> None:
    form = dialog(page)
    for name, texts in WRONG.items():
        for text in texts:
            type_into(form, name, text)
            press(page, "Apply")
            expect(form.get_by_role("alert")).to_contain_text(f"{name} takes a ")
            expect(form.get_by_role("alert")).to_contain_text(f"not “{text}”.")
            expect(form.get_by_label(name)).to_be_focused()
            expect(form.get_by_label(name)).to_have_value(text)
        type_into(form, name, "")
    for name, value in (("System prompt", "Be brief."), ("seed", "7"), ("top_p", "0.955"),
                        ("min_p", ".05"), ("think_budget", "100")):  # fmt: skip
        type_into(form, name, value)
    form.get_by_label("Leave out the oldest turns").check()
    type_into(form, "temperature", "1.05")
    for _ in range(2):  # in haste: not for the button that opened it
        page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    ask(page, "What is the capital of France?")
    chat, turns = kept(page, scripted)
    options = {"temperature": 1.05, "seed": 7, "top_p": 0.955, "min_p": 0.05,
               "think_budget": 100, "truncate": True}  # fmt: skip
    assert chat.options == options
    assert (turns[0].role, turns[0].content) == ("system", "Be brief.")
    expect(page.locator(".turn.system summary")).to_have_text("System prompt")
    form = dialog(page)
    expect(form.get_by_label("temperature")).to_have_value("1.05")
    type_into(form, "System prompt", "Speak Latin.")
    type_into(form, "seed", "")
    type_into(form, "num_predict", "5")
    apply(page)
    expect(page.locator(".turn.user")).to_have_count(1)
    expect(prose(page)).to_have_text("The capital of France is Paris.")  # the version before stays
    ask(page, "Explain it fast")
    expect(page.locator(".state").last).to_contain_text("Reached its length limit")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    del options["seed"]
    assert kept(page, scripted)[0].options == options | {"num_predict": 5}


@pytest.mark.parametrize("size", [(1200, 900), (390, 844), (844, 390)])
def test_what_was_typed_is_not_thrown_away(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    form = dialog(page)
    expect(form.get_by_role("button", name="Apply")).to_be_in_viewport(ratio=1)
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)
    form = dialog(page)
    type_into(form, "System prompt", "Be brief.")
    for way in ("Escape", "Escape", "outside", "Close"):
        if way == "Escape":
            page.keyboard.press(way)
        elif way == "Close":
            press(page, way)
        else:
            page.mouse.click(2, 2)
        expect(form.get_by_role("alert")).to_contain_text("Discard what you typed?")
        expect(form.get_by_role("button", name="Keep it")).to_be_focused()
        expect(form.get_by_role("button", name="Apply")).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(form.get_by_role("alert")).to_have_count(0)
    expect(form.get_by_label("System prompt")).to_have_value("Be brief.")
    page.keyboard.press("Escape")
    press(page, "Discard")
    expect(form).to_have_count(0)
    page.locator(".tools-on").click()
    page.get_by_text("Add an MCP server").click()
    type_into(form, "Command or address", "uvx mail")
    page.keyboard.press("Escape")
    expect(form.get_by_role("alert")).to_contain_text("Discard what you typed?")
    expect(form.get_by_label("Command or address")).to_have_value("uvx mail")


def test_a_new_chat_keeps_its_settings_until_it_begins(page: Page, scripted: RunningServer) -> None:
    ask(page, "What is the capital of France?")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    new = page.locator("button.new")
    new.click()
    form = dialog(page)
    type_into(form, "System prompt", "Be brief.")
    type_into(form, "temperature", "0.5")
    apply(page)
    page.locator(".chats .row a").first.click()
    expect(page.get_by_text("with a system prompt")).to_have_count(0)
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    new.click()
    expect(page.get_by_text("with a system prompt")).to_be_visible()
    ask(page, "What is the capital of France?")
    expect(page.locator(".turn.system summary")).to_have_text("System prompt")
    chat, turns = kept(page, scripted)
    assert (turns[0].content, chat.options) == ("Be brief.", {"temperature": 0.5})
    new.click()
    expect(page.get_by_text("with a system prompt")).to_have_count(0)
    expect(dialog(page).get_by_label("System prompt")).to_have_value("")


def test_presets_are_saved_used_and_deleted(page: Page, scripted: RunningServer) -> None:
    form = dialog(page)
    type_into(form, "System prompt", "You review code.")
    type_into(form, "temperature", "0.2")
    type_into(form, "Name of the preset", "Reviewer")
    page.keyboard.press("Enter")  # does not close the dialog
    expect(form.get_by_role("button", name="Delete Reviewer")).to_be_visible()
    page.keyboard.press("Escape")
    page.reload()
    form = dialog(page)
    expect(form.get_by_label("System prompt")).to_have_value("")
    form.locator("select").select_option("Reviewer")
    expect(form.get_by_label("System prompt")).to_have_value("You review code.")
    apply(page)
    ask(page, "What is the capital of France?")
    expect(page.locator(".preset")).to_have_text("Reviewer")
    chat, _ = kept(page, scripted)
    assert (chat.preset, chat.options) == ("Reviewer", {"temperature": 0.2})
    form = dialog(page)
    press(page, "Delete Reviewer")
    expect(form.locator("option", has_text="Reviewer")).to_have_count(0)
