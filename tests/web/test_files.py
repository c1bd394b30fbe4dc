"""Files by drop, paste and button, and long pastes: the stored text equals the terminal's."""

from pathlib import Path

from playwright.sync_api import Page, Route, expect

from gptoss_local.talk.history import History, Turn
from tests.conftest import RunningServer
from tests.tui.docx import REPORT, make_docx
from tests.tui.pdf import make_pdf
from tests.web.chatting import ask, box, intercept, kept, press
from tests.web.conftest import Watch
from tui.conversation import composed_of
from tui.paste import shown_parts

DROP = """([files, type]) => {
  const data = new DataTransfer();
  for (const [name, content] of files)
    data.items.add(new File([Array.isArray(content) ? new Uint8Array(content) : content], name));
  document.body.dispatchEvent(
    new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
PASTE = """([text]) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  document.querySelector(".composer textarea").dispatchEvent(
    new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


def question_of(page: Page, server: RunningServer) -> Turn:
    return next(turn for turn in reversed(kept(page, server)[1]) if turn.role == "user")


def test_a_dropped_file_becomes_a_chip_and_a_fold(page: Page, scripted: RunningServer) -> None:
    text = "# Notes\n\n😀 with ``` in it\n"
    page.evaluate(DROP, [[["no]tes.md", text]], "dragover"])
    expect(page.locator("body")).to_have_class("dropping")
    page.evaluate(DROP, [[["no]tes.md", text]], "drop"])
    expect(page.locator("body")).not_to_have_class("dropping")
    chip = page.get_by_label("Attached").get_by_role("listitem")
    expect(chip).to_have_text("file: no)tes.md, 3 lines, 18 tokens")
    ask(page, "What is in it? 😀")
    expect(page.locator(".turn.user summary")).to_have_text("file: no)tes.md, 3 lines, 18 tokens")
    expect(page.locator(".turn.user p")).to_have_text("What is in it? 😀")
    turn = question_of(page, scripted)
    whole = f"no]tes.md:\n````\n{text}````\n"
    assert turn.content == f"{whole}\nWhat is in it? 😀"
    assert list(shown_parts(composed_of(turn))) == [  # in the terminal
        ("file: no)tes.md, 3 lines, 18 tokens", whole),
        ("", "What is in it? 😀"),
    ]
    expect(page.get_by_label("Attached")).to_have_count(0)


def test_a_long_paste_becomes_a_chip_and_a_short_one_stays(
    page: Page, scripted: RunningServer
) -> None:
    box(page).fill("Sum it up")
    page.evaluate(PASTE, ["short"])
    expect(page.get_by_label("Attached")).to_have_count(0)
    pasted = "a line of words\r\n" * 150
    page.evaluate(PASTE, [pasted])
    chip = page.get_by_label("Attached").get_by_role("listitem")
    expect(chip).to_have_text("pasted: 150 lines, 750 tokens")
    box(page).press("Enter")
    expect(page.locator(".turn.user summary")).to_have_text("pasted: 150 lines, 750 tokens")
    expect(page.locator(".turn.assistant")).to_have_attribute("aria-busy", "false")
    turn = question_of(page, scripted)
    assert turn.content == "a line of words\n" * 150 + "\nSum it up"
    assert turn.stats["folds"] == [[0, 2400, "pasted: 150 lines, 750 tokens"]]
    press(page, "Edit the message")
    expect(page.locator(".editor .chips li")).to_have_text("pasted: 150 lines, 750 tokens")
    expect(page.get_by_role("textbox", name="Edit your message")).to_have_value("Sum it up")
    there = DROP.replace("document.body", "document.querySelector('.editor textarea')")
    page.evaluate(there, [[["notes.md", "text"]], "drop"])
    expect(page.locator(".editor .chips li").last).to_contain_text("file: notes.md, 1 line")
    expect(page.locator(".composer .chips")).to_have_count(0)
    page.get_by_role("button", name="Remove file: notes.md").click()
    press(page, "Remove pasted: 150 lines, 750 tokens")
    held: list[Route] = []
    intercept(page, "**/api/gptoss/files?*", lambda route: held.append(route))
    with page.expect_request("**/api/gptoss/files?*"):
        page.evaluate(there, [[["late.md", "text"]], "drop"])
    page.get_by_role("textbox", name="Edit your message").press("Enter")
    expect(page.locator(".editor")).to_contain_text("sent when its files are read")
    held[0].continue_()
    expect(page.locator(".turn.user .versions")).to_contain_text("2/2")
    assert question_of(page, scripted).content == "late.md:\n```\ntext\n```\n\nSum it up"


def test_what_has_no_text_is_refused(page: Page, watch: Watch) -> None:
    """Each kind of file is tested with the server; these are the page's own ways to refuse."""
    watch.expected = ("status of 400",)
    for name, content, why in (
        ("cat.PNG", [1, 2, 3], "cat.PNG is an image gpt-oss reads text only, no images."),
        ("data.bin", [0xFF, 0x00, 0x81], "data.bin is not a text file"),
        ("big.txt", "A" * (2**20 + 1), "big.txt is larger than 1 MiB Attach a part of it."),
        ("scan.pdf", list(make_pdf([[]])), "it may be a scan Let a program such as ocrmypdf"),
    ):
        page.evaluate(DROP, [[[name, content]], "drop"])
        expect(page.get_by_role("alert")).to_contain_text(why)
        expect(page.get_by_label("Attached")).to_have_count(0)


def test_documents_by_the_button_and_nothing_is_sent_while_they_are_read(
    page: Page, scripted: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "paper.pdf").write_bytes(make_pdf([["On MXFP4"], ["The end."]]))
    (tmp_path / "rivers.docx").write_bytes(make_docx())
    (tmp_path / "a.txt").write_bytes("größer".encode("utf-16"))
    names = ("a.txt", "paper.pdf", "rivers.docx")
    held: list[Route] = []
    intercept(page, "**/api/gptoss/files?*", lambda route: held.append(route))
    chooser = page.get_by_label("Files", exact=True)
    chooser.set_input_files([tmp_path / name for name in names])
    chips = page.get_by_label("Attached").get_by_role("listitem")
    expect(chips).to_have_text([f"reading {name}…" for name in names])
    box(page).fill("Compare them")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    press(page, "Remove reading a.txt…")
    for route in held:
        route.continue_()
    labels = ["PDF: paper.pdf, 2 pages, 25 tokens", "Word: rivers.docx, 39 words, 63 tokens"]
    expect(chips).to_have_text(labels)
    page.unroute_all(behavior="wait")
    chooser.set_input_files([tmp_path / "a.txt"])
    utf_16 = "file: a.txt, 1 line, 10 tokens"
    expect(chips).to_have_text([*labels, utf_16])
    press(page, f"Remove {utf_16}")
    ask(page, "Compare them")
    expect(page.locator(".turn.user summary")).to_have_text(labels)
    assert list(shown_parts(composed_of(question_of(page, scripted)))) == [  # in the terminal
        (labels[0], "paper.pdf:\n```\n[page 1]\nOn MXFP4\n\n[page 2]\nThe end.\n```\n"),
        (labels[1], f"rivers.docx:\n```\n{REPORT}\n```\n"),
        ("", "Compare them"),
    ]


def test_a_message_of_the_terminal_is_edited_without_loss(
    page: Page, scripted: RunningServer
) -> None:
    """A fold at the end moves to the beginning, one within the text becomes text."""
    text = "Compare INSIDE with this: LAST"
    folds = [[8, 14, "file: a.txt, 1 line, ~2 tokens"], [26, 30, "pasted: 1 line, ~1 tokens"]]
    history = History(scripted.home / "chats.sqlite3")
    made = history.new_chat("nano", "low")
    question = history.add(made, None, "user", text, stats={"folds": folds})
    history.add(made, question.id, "assistant", "They are the same.")
    history.close()
    page.goto(f"{scripted.url}/#/chat/{made}")
    expect(page.locator(".turn.user summary")).to_have_count(2)
    press(page, "Edit the message")
    editor = page.get_by_role("textbox", name="Edit your message")
    expect(editor).to_have_value("Compare INSIDE with this:")
    expect(page.locator(".editor .chips li")).to_have_text("pasted: 1 line, ~1 tokens")
    editor.press("Enter")
    expect(page.locator(".turn.user .versions")).to_contain_text("2/2")
    assert question_of(page, scripted).content == "LAST\n\nCompare INSIDE with this:"
