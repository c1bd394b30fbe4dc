"""The system prompt, presets and sampling."""

from playwright.sync_api import Locator, Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.chatting import ask, chat_id, press, prose


def dialog(page: Page) -> Locator:
    press(page, "System prompt and sampling")
    return page.get_by_role("dialog")


def apply(page: Page) -> None:
    press(page, "Apply")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_new_chat_begins_with_them(page: Page, scripted: RunningServer) -> None:
    form = dialog(page)
    form.get_by_label("System prompt").fill("Be brief.")
    form.get_by_label("temperature").fill("0.3")
    form.get_by_label("seed").fill("7")
    form.get_by_label("Leave out the oldest turns").check()
    apply(page)
    ask(page, "What is the capital of France?")
    history = History(scripted.home / "chats.sqlite3")
    chat = history.chat(chat_id(page))
    assert chat.options == {"temperature": 0.3, "seed": 7, "truncate": True}
    turns = history.branch(chat.leaf_id)
    history.close()
    assert [(t.role, t.content) for t in turns[:1]] == [("system", "Be brief.")]
    expect(page.locator(".turn.system summary")).to_have_text("System prompt")


def test_they_change_in_a_chat_and_the_version_before_stays(
    page: Page, scripted: RunningServer
) -> None:
    ask(page, "What is the capital of France?")
    form = dialog(page)
    form.get_by_label("System prompt").fill("Speak Latin.")
    form.get_by_label("top_k").fill("20")
    apply(page)
    expect(page.locator(".turn.system")).to_be_visible()
    expect(page.locator(".turn.user")).to_have_count(1)
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    form = dialog(page)
    expect(form.get_by_label("System prompt")).to_have_value("Speak Latin.")
    expect(form.get_by_label("top_k")).to_have_value("20")
    form.get_by_label("top_k").fill("")
    form.get_by_label("num_predict").fill("5")
    apply(page)
    ask(page, "Explain it fast")
    expect(page.locator(".state").last).to_contain_text("Reached its length limit")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    history = History(scripted.home / "chats.sqlite3")
    assert history.chat(chat_id(page)).options == {"num_predict": 5}
    history.close()


def test_presets_are_saved_used_and_deleted(page: Page, scripted: RunningServer) -> None:
    form = dialog(page)
    form.get_by_label("System prompt").fill("You review code.")
    form.get_by_label("temperature").fill("0.2")
    form.get_by_label("Name of the preset").fill("Reviewer")
    press(page, "Save as a preset")
    expect(form.get_by_role("button", name="Delete Reviewer")).to_be_visible()
    page.keyboard.press("Escape")
    page.reload()
    form = dialog(page)
    expect(form.get_by_label("System prompt")).to_have_value("")
    form.locator("select").select_option("Reviewer")
    expect(form.get_by_label("System prompt")).to_have_value("You review code.")
    apply(page)
    expect(page.locator(".preset")).to_have_text("Reviewer")
    ask(page, "What is the capital of France?")
    expect(page.locator(".preset")).to_have_text("Reviewer")
    history = History(scripted.home / "chats.sqlite3")
    chat = history.chat(chat_id(page))
    history.close()
    assert (chat.preset, chat.options) == ("Reviewer", {"temperature": 0.2})
    form = dialog(page)
    press(page, "Delete Reviewer")
    expect(form.locator("option", has_text="Reviewer")).to_have_count(0)


def test_decimals_are_taken_and_values_out_of_range_refused(page: Page) -> None:
    form = dialog(page)
    for name, value in (("top_p", "0.955"), ("min_p", "0.0125"), ("temperature", "7")):
        form.get_by_label(name).fill(value)
    press(page, "Apply")
    expect(form).to_be_visible()
    assert form.get_by_label("temperature").evaluate("field => field.validity.rangeOverflow")
    form.get_by_label("temperature").fill("0.333")
    apply(page)
    expect(dialog(page).get_by_label("temperature")).to_have_value("0.333")
