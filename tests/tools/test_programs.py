"""The user's programs as tools: inputs and outcomes."""

import asyncio
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings, ToolCommand
from gptoss_local.talk.tools import Toolbox, ToolSources
from gptoss_local.talk.tools.processes import run_program
from gptoss_local.talk.tools.sources import Program, filled_in
from tests.conftest import wait_until


def program(code: str, timeout_s: float = 20, **parameters: object) -> dict[str, ToolCommand]:
    command = (sys.executable, "-c", code)
    return {"f": ToolCommand(command=command, parameters=parameters, timeout_s=timeout_s)}


async def toolbox_of(tools: dict[str, ToolCommand], folder: Path) -> Toolbox:
    toolbox = ToolSources(Settings(tools=tools), folder).toolbox()
    await toolbox.prepare()
    return toolbox


def test_arguments_fill_the_command() -> None:
    command = ToolCommand(
        command=("curl", "--data", "q={city}", "-n{n}", "{unknown}", "{{n}}"),
        parameters={"properties": {"city": {}, "n": {}}},
    )
    filled = filled_in(command, {"city": "Rome; rm -rf ~ $(x)", "n": 3, "unknown": 1})
    assert filled == ["curl", "--data", "q=Rome; rm -rf ~ $(x)", "-n3", "{unknown}", "{3}"]
    assert filled_in(command, {"city": "a\0b"}) == ["curl", "--data", "q=ab", "{unknown}"]


async def run(tmp_path: Path, tools: dict[str, ToolCommand], **arguments: object) -> str:
    result = await (await toolbox_of(tools, tmp_path)).run("f", arguments)
    return f"{'error' if result.is_error else 'ok'}: {result.text}"


async def test_results(tmp_path: Path) -> None:
    assert await run(tmp_path, program("print(input())"), a="é") == 'ok: {"a":"é"}\n'
    failed = "import sys; print('why', file=sys.stderr); sys.exit(3)"
    assert await run(tmp_path, program(failed)) == "error: Error: exit code 3\nwhy"
    gone = {"f": ToolCommand(command=("/nonexistent",))}
    assert "does not start" in await run(tmp_path, gone)
    large = await run(tmp_path, program("while True: print('x' * 1000)"))
    assert large.endswith("(cut after 32 KiB)")
    assert len(large) < 33_000
    unknown = await (await toolbox_of(program(failed), tmp_path)).run("g", {})
    assert unknown.text == 'Error: there is no tool "g"; there are f'


async def test_no_output_is_lost_while_the_app_is_busy(tmp_path: Path) -> None:
    async def be_busy() -> None:
        while True:
            time.sleep(0.15)  # longer than between two looks
            await asyncio.sleep(0)

    busy = asyncio.create_task(be_busy())
    ends = [f"2.{n}" for n in range(100, 900, 20)]
    commands = [["sh", "-c", f"sleep {end}; echo {end}"] for end in ends]
    found = await asyncio.gather(*(run_program(each, b"", 60, tmp_path) for each in commands))
    busy.cancel()
    assert found == [f"{end}\n" for end in ends]


async def test_output_that_nobody_reads_does_not_keep_a_killed_program(tmp_path: Path) -> None:
    """It fills the pipe while it should read what it was called with."""
    endless = program("while True: print('x' * 1000)", timeout_s=1)
    async with asyncio.timeout(20):
        assert "took longer than 1 s" in await run(tmp_path, endless, a="x" * 1_000_000)


async def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(60)']); open('pid', 'w').write(str(p.pid)); time.sleep(60)"
    )
    assert "took longer than 5 s" in await run(tmp_path, program(code, timeout_s=5))
    child = int((tmp_path / "pid").read_text())

    def has_ended() -> bool:
        return not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"

    await asyncio.to_thread(wait_until, has_ended)


async def test_a_lasting_permission_is_for_one_program_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        (folder / "run").write_text("#!/bin/sh\necho ran\n")
        (folder / "run").chmod(0o755)
    for name in ("./run", "run"):
        tools = {"f": ToolCommand(command=(name, "now"))}
        monkeypatch.setenv("PATH", str(folders[0]))
        toolbox = await toolbox_of(tools, folders[0])
        toolbox.allow(toolbox.tools["f"], "always")

        async def asks(tools: dict[str, ToolCommand], folder: Path) -> bool:
            toolbox = await toolbox_of(tools, folder)
            return toolbox.needs_consent(toolbox.tools["f"])

        assert not await asks(tools, folders[0])
        assert await asks(tools, folders[1])
        assert await asks({"f": ToolCommand(command=(name, "later"))}, folders[0])
        monkeypatch.setenv("PATH", str(folders[1]))
        assert await asks(tools, folders[0]) == (name == "run")


async def test_read_file_stays_in_its_folder(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    for name in ("one", "two"):
        (inside / name).write_text(name)
    (inside / "b.bin").write_bytes(b"\0\1")
    (tmp_path / "secret").write_text("no")
    (inside / "link").symlink_to(tmp_path / "secret")
    toolbox = await toolbox_of({}, inside)
    toolbox.switch("read_file")
    await toolbox.prepare()

    async def read(path: str) -> str:
        return (await toolbox.run("read_file", {"path": path})).text

    assert await read("one") == "one"
    assert "is not a text file" in await read("b.bin")
    for path in ("../secret", "link", str(tmp_path / "secret")):
        assert "is not below" in await read(path)
    assert "cannot be read" in await read("missing")
    assert "cannot be read" in await read("a\0b")

    def point_at(link: str, target: str) -> None:
        (inside / link).unlink()
        (inside / link).symlink_to(target)

    point_at("link", "one")
    call = toolbox.call("read_file", {"path": "link"})
    assert call.arguments == {"path": str(inside.resolve() / "one")}
    point_at("link", "two")
    assert (await toolbox.run_call(call)).text == "one"  # the file that was shown
    point_at("one", "two")
    assert "is another file now" in (await toolbox.run_call(call)).text


async def test_the_home_folder_is_not_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "me"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "a").write_text("words")
    (home / "key").write_text("k3y")
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))

    async def read(path: str, folder: Path, **settings: Any) -> str:
        on = Settings(enabled_tools="read_file", **settings)
        toolbox = ToolSources(on, folder).toolbox()
        problems = await toolbox.prepare()
        return (problems or [(await toolbox.run("read_file", {"path": path})).text])[0]

    for folder in (home, tmp_path, Path("/"), tmp_path / "link"):
        assert "is not read as a whole; name a folder" in await read("key", folder)
    assert await read("a", home / "notes") == "words"
    assert await read("a", home, read_folder=home / "notes") == "words"
    assert "is not below" in await read("../key", home, read_folder=home / "notes")
    assert await read("key", home, read_folder=home) == "k3y"  # as the user says


async def test_the_documented_example(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(\[tools.*?)```", page, re.S)
    toolbox = await toolbox_of(msgspec.convert(tomllib.loads(text), Settings).tools, tmp_path)
    assert toolbox.on == {"search_notes"}
    (declared,) = toolbox.declared()
    assert declared["function"]["parameters"]["required"] == ["words"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("milk\n-r and bread\n")
    result = await toolbox.run("search_notes", {"words": "-R AND"})
    assert result.text == "notes/a.md:2:-r and bread\n"


@pytest.mark.parametrize(
    ("name", "parameters"), [("a b", {}), ("f", {"type": "string"}), ("f", {"properties": 3})]
)
def test_tools_that_no_model_could_call(
    name: str, parameters: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        Program(name, ToolCommand(command=("x",), parameters=parameters), tmp_path)
