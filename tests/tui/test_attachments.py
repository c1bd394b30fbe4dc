"""Files, folders, patterns and documents in a message; images are refused with a sentence."""

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
from tests.tui.docx import REPORT, make_docx
from tests.tui.pdf import make_pdf
from tests.tui.running_chat import Chat, OpenChat, run_chat
from tests.tui.scripted import ScriptedServer
from tests.tui.test_prompt import paste
from tui.attachments import attach, typed_path
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
    folder = tmp_path / "project"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "logo.png").write_bytes(PNG)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / "huge.csv").write_text("1,2\n" * 300_000)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    return folder


async def attached(chat: Chat) -> None:
    await chat.until(lambda: "[reading " not in chat.app.chat.prompt.text)


async def tab(chat: Chat, typed: str) -> str:
    """Type, press Tab, and return the input's text once files are read."""
    await chat.type(typed)
    await chat.press("tab")
    await attached(chat)
    return chat.app.chat.prompt.text


def names_in(text: str) -> list[str]:
    return re.findall(r"^(\S+):\n`{3,}$", text, re.MULTILINE)


async def test_folders_and_patterns(project: Path, tmp_path: Path) -> None:
    server = ScriptedServer()
    async with run_chat(server, tmp_path / "c", notifications=True) as chat:
        assert await tab(chat, "Explain @li") == "Explain @lib/"
        assert re.search("⇥ @lib/ +the whole folder", chat.screen())
        await chat.shows("@lib/a.py")
        text = await tab(chat, "")
        assert re.match(r"Explain \[folder #1: lib, 4 files, ~\d+ tokens\]", text)
        await chat.ask("")
        sent = server.asked[-1]
        assert names_in(sent) == ["lib/a.py", "lib/b.py", "lib/deep/c.py", "lib/deep/日本.txt"]
        assert "lib/b.py:\n`````\nb = '````'\n`````\n" in sent
        assert "ignored" not in sent.replace("ignored or hidden", "")
        await chat.shows("▸ folder: lib, 4 files, ~")
        await chat.enter("/attach .")
        await attached(chat)
        assert re.search(r"\[folder #\d: \., 6 files, ~\d+ tok", chat.app.chat.prompt.text)
        await chat.tells("Left out: ")
        for words in ("2 not text", "1 over 1 MiB", "1 that cannot be read", "6 ignored or hidden"):
            assert words in chat.notices()
        assert re.search(r"6 files, ~\d+ tokens, of at most 98,304\.", chat.notices())
        await chat.ask("what is this?")
        assert names_in(server.asked[-1])[:2] == ["README.md", "keep.log"]
        assert "SECRET" not in server.asked[-1]
        for typed, names in (
            ("@**/*.py", ["lib/a.py", "lib/b.py", "lib/generated.py", "lib/deep/c.py"]),
            ("@*.log", ["keep.log", "noise.log"]),
            (f"@{project}/lib/[ab].py", [f"{project}/lib/a.py", f"{project}/lib/b.py"]),
        ):
            assert "[files #" in await tab(chat, typed)
            await chat.ask("")
            assert names_in(server.asked[-1]) == names
        for typed in ("@*.nothing", "@*env"):  # .env is hidden
            assert await tab(chat, typed) == typed
            assert f"{typed[1:]} has no text files to attach" in chat.notices()
            chat.app.chat.prompt.fill("")


_MINE, _HOME = ("my notes.md", ""), "~ is too much to attach"
TYPED = {
    "@my notes.md please": _MINE,
    '@"my notes.md".': ('"my notes.md"', ""),
    "“@my\\ notes.md”": ("my\\ notes.md", ""),
    "(@src), @notes.md": ("src", ""),
    "@src/gone": ("src/gone", "There is no file src/gone"),
    "@main.py": ("main.py", "There is no file main.py; there is src/main.py"),
    "@~": ("~", _HOME),
    "@~/gone.": ("~/gone", "There is no file ~/gone"),
    "@*.md?": ("*.md", ""),
    "me@example.com, @types/node, @missing, @\\ @) and HEAD@{1}": None,
    '@app.get("/notes.md")\n@cache.it\nasync def get():': None,
    "```java\n@a.Test\n```\nof @my notes.md": _MINE,
}
"""Messages, and what follows the first `@` that is a path, with a refusal."""


async def test_typed_paths_are_attached_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("x = 1\n")
    (tmp_path / "notes.md").write_text("one\ntwo\n")
    (tmp_path / "my notes.md").write_text("three\n")
    for typed in ("main.py", "sr/mai", "ain.p"):
        assert find_files(typed, tmp_path) == ["src/main.py"], typed
    server = ScriptedServer("Well.")
    for typed, found in TYPED.items():
        path = typed_path(typed, tmp_path, ())
        assert (path and (typed[path.start + 1 : path.end], path.refusal)) == found, typed
    async with run_chat(server, tmp_path / "c") as chat:
        prompt = chat.app.chat.prompt
        await chat.type("sum up @notes.md and @src/main.py, @someone")
        await chat.press("escape", "enter")
        await chat.until(lambda: bool(server.asked))
        assert "one\ntwo\n" in server.asked[-1]
        assert "x = 1\n" in server.asked[-1]
        assert "\n and " in server.asked[-1]
        assert ", @someone" in server.asked[-1]
        await chat.answered()
        await chat.shows("file: notes.md, 2 lines")
        await chat.type("see @gone.md and user@example.com, and (@my notes.md)!")
        await chat.press("escape", "enter")
        assert prompt.text == "see @gone.md and user@example.com, and (@my notes.md)!"
        await chat.tells("There is no file gone.md")
        await chat.press("enter")
        await chat.until(lambda: server.asked[-1].startswith("see @gone.md and user@example.com"))
        assert "three\n" in server.asked[-1]
        await chat.answered()


async def test_a_command_of_the_shell_offers_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTOSS_API_KEY", "hidden")
    monkeypatch.setenv("SHELL", "/bin/sh")
    server = ScriptedServer("Well.")

    async def run(chat: Chat, line: str, *shown: str) -> None:
        await chat.press(*line[:2])
        await chat.type(line[2:])
        await chat.shows("Enter runs it in")
        await chat.press("enter")
        await chat.shows(*shown)
        assert not server.asked

    async with run_chat(server, tmp_path / "c") as chat:
        await run(chat, "!echo '\\033[31mred' key=$GPTOSS_API_KEY. @gone.md; pwd >&2; exit 3",
                  "  red key=. @gone.md", f"  {tmp_path}"[:60], "exit status 3",
                  "+ output: echo")  # fmt: skip
        await run(chat, "!true", "! true", "exit status 0")
        await run(chat, "!printf '50%%\\r99%%'; sleep 61 & sleep 62", "99%", "runs; Esc ends it")
        sleeping = [each for each in psutil.Process().children(recursive=True)
                    if "sleep" in each.name()]  # fmt: skip
        assert len(sleeping) == 2
        await chat.press("escape")
        await chat.shows("stopped", "+ output: printf")
        await chat.until(lambda: not any(map(psutil.Process.is_running, sleeping)))
        await chat.press("escape")
        assert "+ output: printf" not in chat.screen()  # taken away
        await run(chat, "!seq 100000", "+ output: seq 100000")
        await chat.ask("Why?")
        sent = server.asked[-1]
        assert sent.endswith("\n\nWhy?")
        assert sent.count("exit status") == 2
        assert "red key=. @gone.md\n" in sent
        assert f"{tmp_path}\n" in sent
        assert "[... 5" in sent
        assert "\n100000\n" in sent
        assert "hidden" not in sent
        assert len(sent) < 34_000
        assert "+ output" not in chat.screen()
        await chat.shows("▸ output: echo")
        for message in (" !important or not?", "![a](b.md)", "!!"):
            await chat.ask(message)
            assert server.asked[-1] == message.strip()
        await paste(chat, "!touch RAN\nimport os")
        await chat.press("enter")
        await chat.answered()
        await chat.enter("/edit 4")
        assert chat.app.chat.typed == " !important or not?"
        await chat.press("enter")
        await chat.answered()
        assert server.asked[-2:] == ["!touch RAN\nimport os", "!important or not?"]
        assert not (tmp_path / "RAN").exists()


def test_a_folder_over_the_limit_of_tokens(tmp_path: Path) -> None:
    for n in range(12):
        (tmp_path / f"{n:02}.txt").write_text("x" * 50_000)
    (tmp_path / "small.txt").write_text("small")
    found = attach(str(tmp_path), tmp_path, Event())
    assert "5 over the limit of 98,304 tokens" in found.note
    kept = [*(f"{n:02}" for n in range(7)), "small"]
    assert names_in(found.text) == [f"{tmp_path}/{name}.txt" for name in kept]
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
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for start in ("", "a/", "b/a/"):
        command = ["git", "ls-files", "--others", "--exclude-standard", f"./{start}"]
        listed = subprocess.check_output(command, cwd=tmp_path, text=True).split()
        wanted = sorted(name for name in listed if ".gitignore" not in name)
        if wanted:  # else git ignores the folder, but the user named it
            assert sorted(names_in(attach(start or ".", tmp_path, Event()).text)) == wanted, start


def slow_pdf() -> bytes:
    """Return a PDF of 2 kB with 100 pages that take a second each."""
    writer, data = pypdf.PdfWriter(), BytesIO()
    source = pypdf.PdfReader(BytesIO(make_pdf([[" "] * 40_000 + ["the end"]])))
    page = writer.add_page(source.pages[0])
    page.compress_content_streams()
    for _ in range(99):
        writer.add_page(page)
    writer.write(data)
    return data.getvalue()


def readers() -> list[psutil.Process]:
    reading = "gptoss_local.talk.tools.browser.reading"
    return [each for each in psutil.Process().children() if reading in each.cmdline()]


async def test_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_chat: OpenChat
) -> None:
    """They become text, and the server counts its tokens; one that takes long is given up."""
    monkeypatch.chdir(tmp_path)
    pages = [["On MXFP4", "It has 32 values."], ["The end."]]
    (tmp_path / "paper.pdf").write_bytes(make_pdf(pages))
    (tmp_path / "rivers.docx").write_bytes(make_docx())
    (tmp_path / "slow.pdf").write_bytes(slow_pdf())
    async with open_chat() as chat:
        text = await tab(chat, "Compare @pa")
        assert re.search(r"\[PDF #1: paper\.pdf, 2 pages, \d+ tokens\] ", text)
        text = await tab(chat, "and @ri")
        assert re.search(r"\[Word #2: rivers\.docx, 39 words, \d+ tokens\]", text)
        await chat.ask("")
        sent = chat.turns()[0].content
        assert "[page 1]\nOn MXFP4\nIt has 32 values.\n\n[page 2]\nThe end." in sent
        assert f"rivers.docx:\n```\n{REPORT}\n```" in sent
        await chat.enter("/attach slow.pdf")
        await chat.until(readers)
        await chat.shows("[reading slow.pdf …]")
        await chat.press("enter")
        await chat.tells("A file is still being read.")
        assert len(chat.turns()) == 2
        await chat.press("ctrl+c")
        await chat.until(lambda: not readers())
        assert chat.app.chat.prompt.text == ""


async def test_names_that_are_typed_pasted_or_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes").mkdir()
    (tmp_path / "my notes" / "of may.md").write_text("remember\n")
    (tmp_path / "b.md").write_text("b\n")
    server = ScriptedServer()
    async with run_chat(server, tmp_path / "c") as chat:
        assert await tab(chat, "ask @bob, read @my") == "ask @bob, read @my notes/"
        text = await tab(chat, "of ")
        assert text.startswith("ask @bob, read [file #1: of may.md, 1 line,")
        await chat.press("ctrl+c")
        dropped = f"'{tmp_path}/my notes/of may.md' file://{tmp_path}/b.md "
        await paste(chat, dropped)
        assert chat.app.chat.prompt.text == dropped  # its path is text until Tab
        await chat.shows("⇥ attach of may.md, b.md")
        text = await tab(chat, "")
        assert re.fullmatch(r"\[file #\d: of may\.md,[^]]+\] *\[file #\d: b\.md,[^]]+\] *", text)
        await chat.ask("")
        assert "remember" in server.asked[0]
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        for typed in (
            *("@~nobody-of-that-name/x", "@x", "@~nobody-of-that-name", "@what? x"),
            *(f"@bob, what of {'this ' * 60}?", "猫" * 120 + ".png"),  # too long for a name
        ):
            assert await tab(chat, typed) == typed
            chat.app.chat.prompt.fill("")


async def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed, pasted or dropped: the chat says it before they are sent, and then."""
    monkeypatch.chdir(tmp_path)
    async with run_chat(ScriptedServer(), tmp_path / "c") as chat:
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


def test_files_that_cannot_be_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each fault of a PDF or a Word document is tested with the page's own way to read them."""
    for name, data, words, hint in (
        ("a.pdf", make_pdf([[], []]), "the PDF has no text; it may be a scan", "ocrmypdf"),
        ("a.xlsx", make_docx(), "is a spreadsheet", "Save it as CSV or PDF."),
        ("large", b"x" * (1 << 20) + b"x", "large", "Attach a part of it."),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=words) as caught:
            attach(name, tmp_path, Event())
        assert hint in caught.value.hint
    assert capfd.readouterr() == ("", "")  # the screen is the chat's


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
