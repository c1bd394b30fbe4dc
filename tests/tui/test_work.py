"""`gptoss chat --work`: a model mends a program, and each change is seen before it is made."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rich.color import Color

from gptoss_local.base.settings import Settings
from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.tools.work import Work
from tests.conftest import RunningServer
from tests.scripted_engine import Reply, Script, answer, calls, run_scripted_server
from tests.tui.running_chat import Chat, OpenChat, opener, run_chat
from tests.tui.scripted import ScriptedServer, call

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = WRONG.replace("-", "+")
TEST = """\
import unittest
from sums import add

class T(unittest.TestCase):
    def test(self):
        self.assertEqual(add(2, 3), 5)
"""
RUN = f"{sys.executable} -m unittest -q"


def raw(patch: str) -> Reply:
    """A patch as gpt-oss was trained to write it: no JSON, though the header says so."""
    header = "<|channel|>commentary to=functions.apply_patch <|constrain|>json<|message|>"
    return Reply(text=f"{header}{patch}<|call|>")


def patch_of(old: str, new: str) -> str:
    return (
        "*** Begin Patch\n*** Update File: sums.py\n@@ def add(a, b):\n"
        f"-    return {old}\n+    return {new}\n*** End Patch"
    )


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, text in (
        ("sums.py", WRONG), ("test_sums.py", TEST), ("AGENTS.md", "Write British English."),
        (".gitignore", "__pycache__/\n"), (".env", "TOKEN=s3cret\n"),
    ):  # fmt: skip
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say(
        "Mend the test",
        calls("list_files", {}, "What is there?"),
        calls("search", {"pattern": "def add"}),
        calls("read_file", {"path": "sums.py"}),
        raw(patch_of("a - b", "5")),
        calls("apply_patch", {"patch": patch_of("a * b", "a + b")}),
        calls("apply_patch", {"input": patch_of("a - b", "a + b")}),
        calls("run_command", {"command": RUN}),
        raw(patch_of("a + b", "b + a")),
        answer("Mended."),
    )
    script.say("And now?", answer("As you wish."))
    return script


@pytest.fixture
def scripted(nano_home: Path, script: Script) -> Iterator[RunningServer]:
    with run_scripted_server(nano_home, script) as server:
        yield server


def colours(chat: Chat, text: str) -> set[Color | None]:
    """The colours of a text on the screen."""
    pieces = (piece for strip in chat.strips() for piece in strip if text in piece.text)
    return {piece.style.color for piece in pieces if piece.style}


def heard_by(script: Script) -> str:
    """The last prompt."""
    known = script.vocabulary.token_bytes
    return b"".join(known[n] for n in script.prompts[-1] if n < len(known)).decode()


async def test_a_model_mends_a_program(
    scripted: RunningServer, script: Script, history_path: Path, repository: Path
) -> None:
    open_chat: OpenChat = opener(scripted, history_path)
    work, sums = Work(repository, Settings()), repository / "sums.py"
    async with open_chat(work=work, size=(100, 40)) as chat:
        await chat.shows("Works in ~/repository; reads AGENTS.md.", "work │ nano")
        await chat.enter("Mend the test")
        await chat.shows("--- a/sums.py", "+++ b/sums.py", "-    return a - b", "+    return 5")
        (red,), (green,) = colours(chat, "-    return a"), colours(chat, "+    return 5")
        assert red != green
        assert "this tool" not in chat.screen()  # no "always"
        await chat.answer("No, because")
        await chat.press(*"no tricks", "enter")
        await chat.shows("+    return a + b")  # after one that did not fit
        await chat.answer("Allow once")
        await chat.shows(f"$ {RUN}")
        assert sums.read_text() == RIGHT
        assert "in this chat" not in chat.screen()
        await chat.answer("Allow once")
        await chat.shows("+    return b + a")
        await chat.answer("Allow once")
        assert await chat.answered() == "Mended."
        assert "b + a" in sums.read_text()
        await chat.shows("Mended.")  # else the label moves away from the click
        folds = chat.app.chat.query("AssistantTurnView Fold > Static")
        label = [each for each in folds if each.region][-1]
        await chat.pilot.click(label, offset=(3, 0))
        await chat.shows("*** Update File: sums.py")
        assert colours(chat, "-    return a + b") == {red}
        assert colours(chat, "+    return b + a") == {green}
        results = [turn.content for turn in chat.turns() if turn.role == "tool"]
        assert results[:5] == [
            "AGENTS.md\nsums.py\ntest_sums.py",
            "sums.py:1: def add(a, b):",
            WRONG,
            "The user denied this call. no tricks",
            "Error: sums.py, hunk 1: its lines are not in the file: it has no line "
            "`    return a * b`; the nearest is line 2, `    return a - b`",
        ]
        assert results[5] == results[7] == "Done: sums.py"
        assert results[6].startswith("exit code 0\n")
        assert results[6].endswith("OK")
        sums.write_text("mine\n")
        await chat.enter("/undo")
        await chat.tells("sums.py has changed since; nothing was undone")
        sums.write_text(RIGHT.replace("a + b", "b + a"))
        await chat.enter("/undo")
        await chat.shows("The user took back your patch of sums.py")
        assert sums.read_text() == RIGHT
        await chat.enter("/undo")
        assert sums.read_text() == WRONG
        await chat.enter("/undo")
        await chat.tells("there is no patch of this session to undo")
        assert await chat.ask("And now?") == "As you wish."
        heard = heard_by(script)
        assert heard.count("The user took back your patch of sums.py") == 2
        assert heard.count("Write British English.") == 1
        chat_id = chat.app.chat.conversation.chat_id
    async with open_chat(chat_id) as chat:  # without `--work` it has none of these tools
        await chat.shows("As you wish.")
        assert "work │" not in chat.screen()
        await chat.enter("/undo")
        await chat.tells("only patches are undone")
        await chat.ask("And now?")
        assert "British" not in heard_by(script)
    async with open_chat(chat_id, work=work, notifications=True) as chat:
        await chat.shows("reads AGENTS.md")
        await chat.shows("work │ nano")


async def test_a_file_that_git_ignores_is_asked_about(tmp_path: Path, repository: Path) -> None:
    server = ScriptedServer("well", before=[[call("read_file", path=".env")]])
    work = Work(repository, Settings())
    async with run_chat(server, tmp_path / "c", work=work) as chat:
        await chat.enter("go")
        await chat.asked()
        await chat.shows("looks at what git ignores", '/.env"')
        assert "in this chat" not in chat.screen()
        await chat.answer("No")
        await chat.answered()
        assert "s3cret" not in str(server.bodies)


async def test_escape_ends_a_command_with_all_its_children(
    tmp_path: Path, repository: Path
) -> None:
    command = "sleep 97 | (sh -c 'echo $$ > pid; sleep 98')"
    server = ScriptedServer("well", before=[[call("run_command", command=command)]])
    async with run_chat(server, tmp_path / "c", work=Work(repository, Settings())) as chat:
        await chat.enter("go")
        await chat.answer("Allow once")
        pid = repository / "pid"
        await chat.until(lambda: pid.exists() and pid.read_text())
        await chat.press("escape")
        await chat.until(lambda: not psutil.pid_exists(int(pid.read_text())))
        await chat.until(lambda: not chat.app.chat.is_answering)
        assert chat.turns()[-1].content == "The user stopped this call."


async def test_the_same_command_runs_again_after_each_patch(
    tmp_path: Path, repository: Path
) -> None:
    def patches(n: int) -> str:
        return patch_of(f"a - b{' ' * n}", f"a - b{' ' * (n + 1)}")

    before = [
        [each]
        for n in range(4)
        for each in (call("apply_patch", patch=patches(n)), call("run_command", command="true"))
    ]
    server = ScriptedServer("well", before=before)
    async with run_chat(server, tmp_path / "c", work=Work(repository, Settings())) as chat:
        await chat.enter("go")
        await chat.answer("Allow in this chat", sure=True)
        for _ in range(4):
            await chat.answer("Allow once")
        await chat.answered()
        results = [turn.content for turn in chat.turns() if turn.role == "tool"]
        assert results == 4 * ["Done: sums.py", "exit code 0"]


async def test_a_diff_shows_white_space_that_changes(tmp_path: Path, repository: Path) -> None:
    (repository / "sums.py").write_text(WRONG.replace("    return", "\treturn"))
    patch = "@@\n-\treturn a - b\n+    return a - b  \n"
    whole = f"*** Begin Patch\n*** Update File: sums.py\n{patch}*** End Patch"
    server = ScriptedServer("", before=[[call("apply_patch", patch=whole)]])
    async with run_chat(server, tmp_path / "c", work=Work(repository, Settings())) as chat:
        await chat.enter("go")
        await chat.shows("-→   return a - b\n", "+    return a - b··\n")
        await chat.answer("Allow once")
        await chat.shows("■ ended without an answer")


async def test_a_long_diff_is_read_before_it_is_allowed(tmp_path: Path, repository: Path) -> None:
    added = "".join(f"+line {n}\n" for n in range(60))
    patch = f"*** Begin Patch\n*** Add File: new\n{added}*** End Patch"
    server = ScriptedServer("well", before=[[call("apply_patch", patch=patch)]])
    async with run_chat(server, tmp_path / "c", work=Work(repository, Settings())) as chat:
        await chat.enter("go")
        await chat.asked()
        await chat.shows("lines not seen", "+line 0")
        await chat.answer("Allow once")
        await chat.shows("never on the screen")
        assert not (repository / "new").exists()
        for _ in range(10):  # as fast as a key that is held down
            await chat.press("pagedown")
        await chat.shows("+line 59")
        await chat.until(lambda: "not seen" not in chat.screen())
