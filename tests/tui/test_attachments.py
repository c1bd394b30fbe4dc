"""Files, folders, patterns and PDFs in a message; images are refused with a sentence."""

import os
import random
import re
import subprocess
from io import BytesIO
from pathlib import Path
from threading import Event

import psutil
import pypdf
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer
from tests.tui.docx import REPORT, make_docx
from tests.tui.pdf import make_pdf
from tests.tui.running_chat import Chat, opener, run_chat
from tests.tui.scripted import seen
from tests.tui.test_folds import paste
from tui.attachments import attach
from tui.paste import find_files

PNG = b"\x89PNG\r\n\x1a\n\xff\xfe"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as users have them."""
    files = {
        ".gitignore": "*.log\nbuild/\n!keep.log\n",
        ".env": "SECRET=1",
        "README.md": "# Read me\n",
        "keep.log": "kept\n",
        "noise.log": "ignored\n",
        "build/out.py": "ignored\n",
        "node_modules/a/index.js": "ignored\n",
        "lib/.gitignore": "generated.py\n",
        "lib/a.py": "a = 1\n",
        "lib/b.py": "b = '````'\n",
        "lib/generated.py": "ignored\n",
        "lib/deep/c.py": "c = 3\n",
        "lib/deep/日本.txt": "こんにちは\n",
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    folder = tmp_path / "project"
    (folder / "logo.png").write_bytes(PNG)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / "huge.csv").write_text("1,2\n" * 300_000)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    return folder


async def attached(chat: Chat) -> None:
    await chat.until(lambda: "[reading " not in chat.app.chat.prompt.text)


def names_in(text: str) -> list[str]:
    return re.findall(r"^(\S+):\n`{3,}$", text, re.MULTILINE)


async def test_a_folder(project: Path, tmp_path: Path) -> None:
    server = seen()
    async with run_chat(server, tmp_path / "c") as chat:
        await chat.type("Explain @li")
        await chat.press("tab")
        assert chat.app.chat.prompt.text == "Explain @lib/"
        assert re.search("⇥ @lib/ +the whole folder", chat.screen())
        await chat.shows("@lib/a.py")
        await chat.press("tab")
        await attached(chat)
        assert re.search(r"Explain \[folder #1: lib, 4 files, ~\d+ tokens\]", chat.screen())
        await chat.ask("")
        [sent] = server.asked
        assert names_in(sent) == ["lib/a.py", "lib/b.py", "lib/deep/c.py", "lib/deep/日本.txt"]
        assert "lib/b.py:\n`````\nb = '````'\n`````\n" in sent
        assert "ignored" not in sent.replace("ignored or hidden", "")
        assert re.search(r"▸ folder: lib, 4 files, ~\d+ tokens", chat.screen())


async def test_what_is_left_out_is_said(project: Path, tmp_path: Path) -> None:
    server = seen()
    async with run_chat(server, tmp_path / "c", notifications=True) as chat:
        await chat.enter("/attach .")
        await attached(chat)
        await chat.shows("Left out: ")
        said = " ".join(chat.screen().split())
        assert re.search(r"\[folder #1: \., 6 files, ~\d+ tokens\]", said)
        for words in ("2 not text", "1 over 1 MiB", "1 that cannot be read"):
            assert words in chat.notices()
        assert re.search(r"6 files, ~\d+ tokens, of at most 98,304\.", chat.notices())
        assert "6 ignored or hidden" in chat.notices()
        await chat.ask("what is this?")
        assert names_in(server.asked[0])[:2] == ["README.md", "keep.log"]
        assert "SECRET" not in server.asked[0]


async def test_a_pattern(project: Path, tmp_path: Path) -> None:
    server = seen()
    async with run_chat(server, tmp_path / "c") as chat:
        for typed, names in (
            ("@**/*.py", ["lib/a.py", "lib/b.py", "lib/generated.py", "lib/deep/c.py"]),
            ("@lib/*.py", ["lib/a.py", "lib/b.py", "lib/generated.py"]),
            ("@*.log", ["keep.log", "noise.log"]),
            (f"@{project}/lib/[ab].py", [f"{project}/lib/a.py", f"{project}/lib/b.py"]),
        ):
            await chat.type(typed)
            assert f"⇥{typed}whatmatches" in "".join(chat.screen().split())
            await chat.press("tab")
            await attached(chat)
            assert "[files #" in chat.app.chat.prompt.text
            await chat.ask("")
            assert names_in(server.asked[-1]) == names
        await chat.type("@*.nothing")
        await chat.press("tab")
        await attached(chat)
        assert chat.app.chat.prompt.text == "@*.nothing"
        assert "*.nothing has no text files to attach" in chat.notices()


def test_the_limit(tmp_path: Path) -> None:
    for n in range(12):
        (tmp_path / f"{n:02}.txt").write_text("x" * 50_000)
    (tmp_path / "small.txt").write_text("small")
    found = attach(str(tmp_path), tmp_path, Event())
    assert "5 over the limit of 98,304 tokens" in found.note
    assert names_in(found.text) == [f"{tmp_path}/{n:02}.txt" for n in range(7)] + [
        f"{tmp_path}/small.txt"
    ]
    assert "Left out: 5 over the limit" in found.text


_PATTERNS = ["*.py", "/a", "a/", "!a", "b/*", "**/b", "a/**", "!*.py", "a.*", "[ab].md", "\\#x",
             "# no rule", "", "!", "a/b", "b/**/a.py", "*.m?"]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_git_agrees_on_what_is_ignored(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    for place in ("", "a/", "b/", "a/b/", "b/a/", "a/b/a/"):
        (tmp_path / place).mkdir(exist_ok=True, parents=True)
        for name in ("a.py", "b.py", "a.md", "b.md", "#x", "c"):
            (tmp_path / place / name).write_text("text")
        if source.random() < 0.5:
            lines = source.sample(_PATTERNS, source.randint(1, 5))
            (tmp_path / place / ".gitignore").write_text("\n".join(lines))
    run = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True}
    subprocess.run(["git", "init", "-q"], **run)  # type: ignore[call-overload]
    for start in ("", "a/", "b/a/"):
        listed = subprocess.run(  # type: ignore[call-overload]
            ["git", "ls-files", "--others", "--exclude-standard", f"./{start}"], **run
        ).stdout.split()
        wanted = sorted(name for name in listed if ".gitignore" not in name)
        if not wanted:  # git ignores the folder, but the user named it
            continue
        found = attach(start or ".", tmp_path, Event())
        assert sorted(names_in(found.text)) == wanted, start


async def test_tokens_are_counted_by_the_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: RunningServer,
    vocabulary: Vocabulary,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rivers.docx").write_bytes(make_docx())
    whole = f"{tmp_path}/rivers.docx:\n```\n{REPORT}\n```\n"
    async with opener(server, tmp_path / "c")() as chat:
        await chat.enter("/attach rivers.docx")
        await attached(chat)
        n = len(vocabulary.encode(whole))
        assert chat.app.chat.prompt.text == f"[Word #1: rivers.docx, 39 words, {n} tokens] "


def slow_pdf() -> bytes:
    """Return a PDF of 2 kB whose 100 pages take a second each."""
    writer, data = pypdf.PdfWriter(), BytesIO()
    source = pypdf.PdfReader(BytesIO(make_pdf([[" "] * 40_000 + ["the end"]])))
    page = writer.add_page(source.pages[0])
    page.compress_content_streams()
    for _ in range(99):
        writer.add_page(page)
    writer.write(data)
    return data.getvalue()


async def test_a_pdf_is_given_up_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def readers() -> list[psutil.Process]:
        children = psutil.Process().children()
        return [
            each for each in children if "gptoss_local.talk.tools.browser.reading" in each.cmdline()
        ]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.pdf").write_bytes(slow_pdf())
    async with run_chat(seen(), tmp_path / "c") as chat:
        await chat.enter("/attach slow.pdf")
        await chat.until(readers)
        await chat.shows("[reading slow.pdf …]")
        await chat.press("enter")
        await chat.tells("A file is still being read.")
        assert chat.turns() == []
        await chat.press("ctrl+c")
        await chat.until(lambda: not readers())
        assert chat.app.chat.prompt.text == ""


async def test_a_file_that_is_dropped(tmp_path: Path) -> None:
    """Its path is text until Tab."""
    (tmp_path / "my notes.md").write_text("remember\n")
    (tmp_path / "b.md").write_text("b\n")
    server = seen()
    async with run_chat(server, tmp_path / "c") as chat:
        await chat.type("read ")
        dropped = f"'{tmp_path}/my notes.md' file://{tmp_path}/b.md "
        await paste(chat, dropped)
        assert chat.app.chat.prompt.text == f"read {dropped}"
        await chat.shows("⇥ attach my notes.md, b.md")
        await chat.press("tab")
        await attached(chat)
        assert re.fullmatch(
            r"read \[file #\d: my notes\.md,[^]]+\] *\[file #\d: b\.md,[^]]+\] *",
            chat.app.chat.prompt.text,
        )
        await chat.ask("")
        assert "remember" in server.asked[0]


async def test_a_pdf_and_a_word_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages = [["On MXFP4", "It has 32 values."], ["The end."]]
    (tmp_path / "paper.pdf").write_bytes(make_pdf(pages))
    (tmp_path / "rivers.docx").write_bytes(make_docx())
    server = seen()
    async with run_chat(server, tmp_path / "c") as chat:
        for typed in ("Compare @pa", "and @ri"):
            await chat.type(typed)
            await chat.press("tab")
            await attached(chat)
        shown = " ".join(chat.app.chat.prompt.text.split())
        assert re.search(r"\[PDF #1: paper\.pdf, 2 pages, ~\d+ tokens\] and", shown)
        assert "[Word #2: rivers.docx, 39 words, ~" in shown
        await chat.ask("")
    assert "[page 1]\nOn MXFP4\nIt has 32 values.\n\n[page 2]\nThe end." in server.asked[0]
    assert f"rivers.docx:\n```\n{REPORT}\n```" in server.asked[0]


def test_files_that_cannot_be_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each fault of a PDF or a Word document is tested with the page's own way to read them."""
    for name, data, words, hint in (
        ("a.pdf", b"%PDF-1.4\n" + bytes(range(256)) * 9, "the PDF is damaged", ""),
        ("a.pdf", make_pdf([[], []]), "the PDF has no text; it may be a scan", "ocrmypdf"),
        ("a.doc", make_docx(), "is an old Word document", "Save it as .docx or PDF."),
        ("a.xlsx", make_docx(), "is a spreadsheet", "Save it as CSV or PDF."),
        ("large", b"x" * (1 << 20) + b"x", "large", "Attach a part of it."),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=words) as caught:
            attach(name, tmp_path, Event())
        assert caught.value.hint
        assert hint in caught.value.hint
    assert capfd.readouterr() == ("", "")  # the screen is the chat's


async def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed, pasted or dropped: the chat says it before they are sent, and then."""
    monkeypatch.chdir(tmp_path)
    async with run_chat(seen(), tmp_path / "c") as chat:
        for name, typed in (
            ("pic.png", "what is in {0}?"),
            ("pic.png", "@pic.png tell me"),
            ("my holiday.JPG", "'{0}' "),
            ("my holiday.JPG", "look at @my holiday.JPG"),
            ("my holiday.JPG", "{1}"),
            ("ü.webp", "file://{0}"),
        ):
            path = str(tmp_path / name)
            (tmp_path / name).write_bytes(PNG)
            chat.told.clear()
            await paste(chat, typed.format(path, path.replace(" ", "\\ ")))
            await chat.shows(f"! {name} is an image. gpt-oss reads text only.")
            assert "⇥ attach" not in chat.screen()
            await chat.ask("")
            await chat.tells("Only its path is sent.")
        await chat.type("Rename a.png to b.png in every file of /nowhere/x.png")
        assert "is an image" not in chat.screen().split("╭")[-1]


def test_names_and_patterns_that_are_none(tmp_path: Path) -> None:
    """They are refused; a wrong line of `.gitignore` is skipped."""
    (tmp_path / ".gitignore").write_text("[z-a].py\n*\\\nb.py\n")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("text")
    (tmp_path / "link").symlink_to("x" * 300)
    for typed in ("[z-a].py", "*\\", "x" * 300, f"{'x' * 300}?", f"{'x' * 300}/y/*.py"):
        with pytest.raises(UsageError):
            attach(typed, tmp_path, Event())
    assert names_in(attach(".", tmp_path, Event()).text) == ["a.py"]
    assert find_files("l", tmp_path) == ["link"]
