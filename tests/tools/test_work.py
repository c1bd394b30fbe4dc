"""`--work`: patches and what they may touch, looking around, and commands, in a folder."""

import asyncio
import difflib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gptoss_local.base.errors import PathNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.conversation import ToolChoice
from gptoss_local.talk.tools import Toolbox, ToolResult, ToolSources
from gptoss_local.talk.tools import work as work_module
from gptoss_local.talk.tools.patches import parse_patch, patched
from gptoss_local.talk.tools.work import Work
from tests.conftest import wait_until

MISSING, AMBIGUOUS = "its lines are not in the file", "times, at lines"


def patch_of(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def update(*lines: str, path: str = "a") -> str:
    return patch_of(f"*** Update File: {path}", *lines)


class Folder:
    """A folder that a model works in."""

    def __init__(self, path: Path) -> None:
        self.path = path / "work"
        self.path.mkdir()
        self.work = Work(self.path, Settings())
        self.toolbox = ToolSources(Settings(), self.path).toolbox(self.work)

    def put(self, name: str, data: bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def all(self) -> dict[str, bytes]:
        files = (path for path in self.path.rglob("*") if path.is_file())
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in files}

    async def call(self, name: str, **arguments: object) -> ToolResult:
        await self.toolbox.prepare()
        return await self.toolbox.run(name, arguments)

    async def patch(self, patch: str) -> str:
        return (await self.call("apply_patch", patch=patch)).text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("before", "hunks", "after"),
    [
        (b"a\r\nb\r\nc\r\n", ["@@", " a", "-b", "+B", "+D", " c"], b"a\r\nB\r\nD\r\nc\r\n"),
        (b"a\nb", ["@@", " a", "-b", "+B", "+C"], b"a\nB\nC"),
        (b"a\nb", ["@@", "-b"], b"a"),
        (b"a\r\nb", [" a", " b", "+c"], b"a\r\nb\r\nc"),
        (b"\xef\xbb\xbfa\nb\n", ["@@", "-a", "+\u00e9"], "\ufeff\u00e9\nb\n".encode()),
        ("\ufeffa\r\n\u00e9\r\n".encode("utf-16-le"), ["@@", " a", "-\u00e9", "+\u732b"],
         "\ufeffa\r\n\u732b\r\n".encode("utf-16-le")),
        (b"caf\xe9\nx\n", ["@@", "-x", "+y"], b"caf\xe9\ny\n"),
        (b"a\nb\r\nc\n", ["@@", " a", " b", "-c", "+C"], b"a\nb\r\nC\n"),
        (b"a\x0cb\nc\n", ["@@", "-a\x0cb", "+x\x85y"], "x\x85y\nc\n".encode()),
        (b"x\na\nx\nb\n", ["@@ a", "-x", "+y"], b"x\na\ny\nb\n"),
        (b"class A:\n def f\n  1\nclass B:\n def f\n  1\n",
         ["@@ class B:", "@@  def f", "-  1", "+  2"],
         b"class A:\n def f\n  1\nclass B:\n def f\n  2\n"),
        (b"x\nx\n", ["@@", "-x", "+y", "*** End of File"], b"x\ny\n"),
        (b"a\nb\n", ["@@ -7,9 +8,9 @@ def guessed():", "-b", "+B"], b"a\nB\n"),
        (b"a\n\nb\n", ["@@", " a", "", "-b", "+B", ""], b"a\n\nB\n"),
        (b"", ["+new"], b"new\n"),
        (b"a\nb\nc\nd\n", ["@@", "-a", "+A", "@@", "-d", "+D"], b"A\nb\nc\nD\n"),
        (b"a\nb\n", ["@@ a", "+x"], b"a\nx\nb\n"),
        (b"x\nb\nx\nb\n", ["@@", "-b", "+B"], f"hunk 1 fits 2 {AMBIGUOUS} 2, 4"),
        (b"a\n  b\nc\n", ["@@", " a", "-b", "+B"], f"{MISSING}: it has no line `b`"),
        (b"alpha = 1\nbeta = 2\n", ["@@", "-beta = 3", "+B"],
         f"{MISSING}: it has no line `beta = 3`; the nearest is line 2, `beta = 2`"),
        (b"a\nb\n", ["@@", "-b", "+B", "@@", "-a", "+A"], "hunk 2 is before the hunk above it"),
        (b"a\nb\n", ["@@ def f():", "-b"], "there is no line `def f():`"),
        (b"a\nb\n", ["+x"], "has no context"),
        (b"a\nb\n", ["@@"], "has no lines"),
        (b"a\nb\n", ["@@", " a", "b"], "line 5 of the patch, `b`, is not of this format"),
        (b"a\nb\n", ["@@", " a"], "changes nothing"),
        (b"a\0b\n", ["@@", "-a", "+b"], "is not a text file"),
        ("\u00e9\nb\n".encode("latin-1"), ["@@", "-b", "+\u00e9"], "only ASCII can be added"),
    ],
)  # fmt: skip
async def test_hunks(folder: Folder, before: bytes, hunks: list[str], after: bytes | str) -> None:
    folder.put("a", before)
    said = await folder.patch(update(*hunks))
    if isinstance(after, bytes):
        assert (said, folder.all()["a"]) == ("Done: a", after)
        assert folder.work.undo() == "a"
    else:
        assert after in said
        assert "a" in said
    assert folder.all() == {"a": before}


_LINES = st.lists(st.sampled_from(["a", "b", "  b", "", "{", "}", "é", "+x", "-y", "@@", "*** z"]),
                  max_size=14)  # fmt: skip
_WHOLE = 20  # lines of context


@given(
    _LINES, _LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([0, 1, 3, 20])
)
def test_a_patch_of_any_edit_gives_the_edited_text(
    old: list[str], new: list[str], end: str, is_ended: bool, n_context: int
) -> None:
    """Where its context fits several places it is refused, not guessed; so is one with an error."""
    assume(is_ended or (old and old[-1] and not (new and not new[-1])))
    assume(end == "\n" or len(old) > (not is_ended))
    lines = list(difflib.unified_diff(old, new, n=n_context, lineterm=""))[2:]
    assume(lines)
    before, after = (
        (end.join(each) + end * (is_ended and bool(each))).encode() for each in (old, new)
    )

    def made(lines: list[str]) -> bytes:
        (file,) = parse_patch(update(*lines))
        return patched("a", before, file.hunks)

    refused = "" if n_context == _WHOLE else f"{AMBIGUOUS}|no context"
    with suppress_matching(refused):
        assert made(lines) == after
    for n, line in enumerate(lines):
        if line[0] in " -":
            with pytest.raises(UsageError):
                made([*lines[:n], f"{line}?", *lines[n + 1 :]])


@contextmanager
def suppress_matching(pattern: str) -> Iterator[None]:
    """Let only UsageErrors with the pattern pass; without a pattern none."""
    try:
        yield
    except UsageError as error:
        if not (pattern and re.search(pattern, error.message)):
            raise


async def test_many_files_change_together(folder: Folder) -> None:
    folder.put("src/a.py", b"one\n").chmod(0o755)
    folder.put("gone", b"bye\n")
    folder.put("kept", b"kept\n")
    before = folder.all()
    patch = patch_of(
        "*** Update File: src/a.py", "*** Move to: lib/b.py", "@@", "-one", "+two",
        "*** Add File: new/c", "+c", "+",
        "*** Delete File: gone",
        "*** Update File: lib/b.py", "@@", " two", "+three",
    )  # fmt: skip
    call = (await _prepared(folder)).call("apply_patch", {"patch": patch})
    assert call.error is None
    assert call.arguments["diff"].split("\n") == [
        "rename from src/a.py", "rename to lib/b.py", "--- a/src/a.py", "+++ b/lib/b.py",
        "@@ -1 +1,2 @@", "-one", "+two", "+three",
        "--- /dev/null", "+++ b/new/c", "@@ -0,0 +1,2 @@", "+c", "+",
        "--- a/gone", "+++ /dev/null", "@@ -1 +0,0 @@", "-bye",
    ]  # fmt: skip
    assert folder.all() == before  # the user has not answered yet
    assert (await folder.toolbox.run_call(call)).text == "Done: src/a.py, lib/b.py, new/c, gone"
    assert folder.all() == {"lib/b.py": b"two\nthree\n", "new/c": b"c\n\n", "kept": b"kept\n"}
    assert os.access(folder.path / "lib/b.py", os.X_OK)
    assert not os.access(folder.path / "new/c", os.X_OK)
    folder.work.undo()
    assert folder.all() == before
    assert os.access(folder.path / "src/a.py", os.X_OK)


async def _prepared(folder: Folder) -> Toolbox:
    await folder.toolbox.prepare()
    return folder.toolbox


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (["*** Add File: kept", "+x"], "kept exists already"),
        (["*** Update File: a", "*** Move to: kept", "@@", "-1", "+2"], "kept exists already"),
        (["*** Update File: none", "@@", "-1", "+2"], "there is no file none"),
        (["*** Delete File: none"], "there is no file none"),
        (["*** Add File: ../out", "+x"], "is not below"),
        (["*** Add File: {outside}/new", "+x"], "is not below"),
        (["*** Add File: link/new", "+x"], "is not below"),
        (["*** Update File: link/secret", "@@", "-s", "+x"], "is not below"),
        (["*** Update File: secret", "@@", "-s", "+x"], "is not below"),
        (["*** Update File: a", "*** Move to: link/a", "@@", "-1", "+2"], "is not below"),
        (["*** Add File: .git/hooks/post-commit", "+x"], "is not written"),
        (["*** Add File: .GIT/config", "+x"], "is not written"),
        (["*** Add File: sub/.git", "+x"], "is not written"),
        (["*** Add File: .g\u200cit/config", "+x"], "is not written"),
        (["*** Add File: hooks/x", "+x"], "is not written"),  # a link to .git/hooks
        (["*** Add File: dir", "+x"], "dir is a folder"),
        (["*** Add File: kept/x", "+x"], "nothing was changed"),
        (["*** Add File: x", "+1", "", "+2"], "begins with +"),
        (["*** Delete File: a", "-1"], "is not of this format"),
        (["*** Update File: a", "@@", "-1", "+\ud800"], "is not text"),
        (["*** Update File: .env", "@@", "-token=1", "+x"], "lines are not in the file"),
    ],
)  # fmt: skip
async def test_one_wrong_part_and_nothing_is_written(
    folder: Folder, part: list[str], said: str
) -> None:
    outside = folder.path.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s\n")
    for name, data in (("a", b"1\n"), ("kept", b"k\n"), ("b", b"b\n"), (".env", b"token=s3cret\n")):
        folder.put(name, data)
    (folder.path / "dir").mkdir()
    (folder.path / ".git" / "hooks").mkdir(parents=True)
    (folder.path / "link").symlink_to(outside)
    (folder.path / "secret").symlink_to(outside / "secret")
    (folder.path / "hooks").symlink_to(".git/hooks")
    before = folder.all()
    lines = [line.format(outside=outside) for line in part]
    good = ["*** Update File: b", "@@", "-b", "+B", "*** Add File: new", "+n"]
    for patch in (patch_of(*good, *lines), patch_of(*lines, *good)):
        result = await folder.call("apply_patch", patch=patch)
        assert result.is_error
        assert said in result.text
        assert "s3cret" not in result.text  # the model may not read it without a question
        assert folder.all() == before
        assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    with pytest.raises(UsageError, match="no patch"):
        folder.work.undo()


async def test_a_patch_that_cannot_be_written_to_its_end(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        folder.put(name, b"1\n")
    before, put = folder.all(), work_module._put

    def full(path: Path, state: object) -> None:
        if path.name == "c" and state != before:
            monkeypatch.setattr(work_module, "_put", put)
            raise OSError(28, "No space left on device")
        put(path, state)  # type: ignore[arg-type]

    monkeypatch.setattr(work_module, "_put", full)
    parts = [line for name in "abc" for line in (f"*** Update File: {name}", "@@", "-1", "+2")]
    assert "No space left on device; nothing was changed" in await folder.patch(patch_of(*parts))
    assert folder.all() == before


async def test_what_the_user_saw_is_what_is_written(folder: Folder) -> None:
    path = folder.put("a", b"1\n2\n3\n")
    call = (await _prepared(folder)).call("apply_patch", {"patch": update("@@", "-2", "+two")})
    path.write_bytes(b"1\n2\n3\n4\n5\n6\n")  # far away, but the diff is another one
    assert "have changed while" in (await folder.toolbox.run_call(call)).text
    assert await folder.patch(update("@@", "-2", "+two")) == "Done: a"
    assert await folder.patch(update("@@", "-6", "+six")) == "Done: a"
    path.write_bytes(path.read_bytes() + b"mine\n")
    with pytest.raises(UsageError, match="a has changed since"):
        folder.work.undo()
    path.write_bytes(path.read_bytes().removesuffix(b"mine\n"))
    assert [folder.work.undo(), folder.work.undo()] == ["a", "a"]
    assert path.read_bytes() == b"1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize(
    "payload",
    [
        {"patch": update("@@", "-1", "+2")},
        {"input": update("@@", "-1", "+2")},
        {"patch": f"apply_patch <<'EOF'\n{update('@@', '-1', '+2')}\nEOF\n"},
        {"patch": f"```diff\n{update('@@', '-1', '+2')}\n```"},
        {"patch": update("@@", "-1", "+2").replace("\n", "\r\n")},
    ],
)
async def test_patches_as_models_write_them(folder: Folder, payload: dict[str, str]) -> None:
    folder.put("a", b"1\n")
    assert (await folder.call("apply_patch", **payload)).text == "Done: a"
    assert folder.all() == {"a": b"2\n"}


async def test_looking_around_takes_no_question_but_for_what_git_ignores(folder: Folder) -> None:
    for name in ("a.py", "src/b.py", "build/c.py", ".env", ".git/config"):
        folder.put(name, f"in {name}\n".encode())
    folder.put(".gitignore", b"build/\n")
    folder.put("big", b"in x\n" * 400_000)
    (folder.path / "link.py").symlink_to(folder.path / ".env")
    (folder.path / "out").symlink_to("/etc/hostname")
    toolbox = await _prepared(folder)
    assert (await folder.call("list_files")).text == "a.py\nbig\nlink.py\nout\nsrc/b.py"
    assert (
        await folder.call("search", pattern="^in .*py")
    ).text == "a.py:1: in a.py\nsrc/b.py:1: in src/b.py"
    assert (await folder.call("search", pattern="in", path="src")).text == "src/b.py:1: in src/b.py"
    assert "not a regular expression" in (await folder.call("search", pattern="(")).text
    assert (await folder.call("search", pattern="zzz")).text == "nothing found"
    assert (await folder.call("read_file", path="src/b.py")).text == "in src/b.py\n"

    def asks(name: str, **arguments: object) -> bool:
        call = toolbox.call(name, arguments)
        assert call.tool is not None, call.error
        return toolbox.needs_consent(call.tool)

    assert not asks("list_files")
    assert not asks("search", pattern="x")
    assert not asks("read_file", path="a.py")
    assert not asks("list_files", path="src")
    for path in (".env", "build/c.py", "link.py", ".git/config"):
        assert asks("read_file", path=path)
        assert asks("search", pattern="x", path=path)
    assert asks("list_files", path="build")
    assert asks("list_files", path=".git")
    for path in ("../x", "/etc/hostname", "out"):
        assert "is not below" in (await folder.call("read_file", path=path)).text
    wrong = await folder.call("read_file", path="a.py", lines=3)
    assert "read_file has no argument lines; there are path, line" in wrong.text
    (folder.path / "long").write_text("".join(f"line {n}\n" for n in range(1, 9001)))
    first = (await folder.call("read_file", path="long")).text
    n = int(first.rpartition("continue with line ")[2].rstrip(")"))
    assert (await folder.call("read_file", path="long", line=n)).text.startswith(f"line {n}\n")


async def test_a_search_without_end_is_stopped(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("a", b"a" * 5000)
    monkeypatch.setattr(work_module, "_SEARCH_S", 2.0)
    assert "took longer than 2 s" in (await folder.call("search", pattern="(a+)+$b")).text


async def test_commands(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTOSS_API_KEY", "s3cret")
    toolbox = await _prepared(folder)
    tool = toolbox.tools["run_command"]
    toolbox.allow(tool, "chat")
    toolbox.allow(tool, "always")
    assert toolbox.needs_consent(tool)  # each time
    ok = await folder.call("run_command", command="echo hi | tr a-z A-Z; pwd; echo no >&2")
    assert ok.text == f"exit code 0\nHI\n{folder.path.resolve()}\nno"
    assert (await folder.call("run_command", command="exit 3")).text == "exit code 3"
    assert "s3cret" not in (await folder.call("run_command", command="env")).text
    assert (await folder.call("run_command", command="cat")).text == "exit code 0"  # no input
    many = (await folder.call("run_command", command="seq 100000")).text
    assert many.endswith("99999\n100000")
    assert len(many) < 17_000
    listed = await folder.call("run_command", command=["sh", "-c", "echo a  b"])
    assert listed.text == "exit code 0\na b"
    left = await folder.call("run_command", command="sleep 90 & echo $!")
    pid = int(left.text.split()[-1])
    await asyncio.to_thread(wait_until, lambda: _is_gone(pid))
    monkeypatch.setattr(work_module, "_COMMAND_S", 1.0)
    slow = await folder.call("run_command", command="echo begun; sleep 90")
    assert (slow.text, slow.is_error) == ("stopped after 1 s\nbegun", True)


def _is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


async def test_a_command_that_is_cancelled_ends_with_its_children(folder: Folder) -> None:
    task = asyncio.create_task(
        folder.call("run_command", command="sleep 90 | (echo $$ > pid; sleep 91)")
    )
    await asyncio.to_thread(wait_until, lambda: (folder.path / "pid").exists())
    await asyncio.to_thread(wait_until, lambda: (folder.path / "pid").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = int((folder.path / "pid").read_text())
    await asyncio.to_thread(wait_until, lambda: _is_gone(pid))


def test_which_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder's own instructions are read, bounded, and never from elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in").mkdir()
    for wrong in (tmp_path, tmp_path.parent, Path("/")):
        with pytest.raises(UsageError, match="home folder"):
            Work(wrong, Settings())
    assert Work(tmp_path, Settings(read_folder=tmp_path)).folder == tmp_path.resolve()
    with pytest.raises(PathNotFoundError):
        Work(tmp_path / "none", Settings())
    assert Work(tmp_path / "in", Settings()).line == "Works in ~/in"
    agents = tmp_path / "in" / "AGENTS.md"
    agents.write_text("Be careful.")
    work = Work(tmp_path / "in", Settings())
    assert work.line == "Works in ~/in; reads AGENTS.md"
    assert "Be careful." in work.instructions
    agents.write_text("x" * 50_000)
    work = Work(tmp_path / "in", Settings())
    assert work.line.endswith("reads the first 16 KiB of AGENTS.md")
    assert len(work.instructions) < 18_000
    agents.unlink()
    (tmp_path / "secret").write_text("s3cret")
    agents.symlink_to(tmp_path / "secret")
    assert "s3cret" not in Work(tmp_path / "in", Settings()).instructions
    assert sys.platform in work.instructions


async def test_a_folder_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is switched on by a name in a list with commas, and wrong folders harm no chat."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a,b").mkdir()
    for folder, problem in (
        (tmp_path / "a,b", ""),
        (tmp_path, "the home folder is too much to work in"),
        (tmp_path / "none", "there is no folder"),
    ):
        work = Work(folder, Settings(), is_on=False)
        toolbox = ToolSources(Settings(), tmp_path).toolbox(work)
        choice = ToolChoice(toolbox)
        choice.take({})
        await toolbox.prepare()
        assert (toolbox.tools, toolbox.instructions) == ({}, "")
        choice.take({"tools": f"python,{work.name}"})
        assert work.name in toolbox.on
        [said] = await toolbox.prepare() or [""]
        assert problem in said
        assert bool(toolbox.instructions) == ("apply_patch" in toolbox.tools) == (not problem)
