"""MCP servers that work, started and ended by us."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools import ToolSources
from tests.conftest import free_port
from tests.tools.mcp.conftest import GOOD, MakeSources, Prepare, bad
from tests.tools.mcp.test_http import running

NPM = Path(__file__).parents[2] / "npm" / "node_modules" / ".bin" / "mcp-server-filesystem"


async def test_its_tools_and_results(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(good=GOOD)
    assert news == []
    tool = toolbox.tools["add"]
    assert tool.description == "Add two numbers."
    assert tool.parameters["required"] == ["a", "b"]
    assert tool.about.startswith("is a tool of the MCP server good (")
    assert "good_server.py)" in tool.about
    assert tool.identity.endswith("good_server.py")
    assert (await toolbox.run("add", {"a": 1, "b": 2})).text == "3"
    assert (await toolbox.run("get_weather_today", {"city": "Rome"})).text == "sunny in Rome"
    assert (await toolbox.run("folder", {})).text == str(tmp_path)
    wrong = await toolbox.run("add", {"a": "x"})
    assert wrong.is_error
    assert "valid integer" in wrong.text
    failed = await toolbox.run("fail", {})
    assert failed.is_error
    assert failed.text == "Error executing tool fail"
    asked = await toolbox.run("ask", {})  # declined, as nothing is offered for it
    assert asked.is_error
    assert asked.seconds < 20
    assert (await toolbox.run("media", {})).text.splitlines() == [
        "first",
        "[image, 34 kB, image/png]",
        "[audio, 3 bytes, audio/wav]",
        "in a file",
        "[file:///b, 34 kB, font/ttf]",
        "https://example.org/c",
    ]
    assert "grown" not in toolbox.tools  # by the protocol of 2026 we have to ask for such news
    await toolbox.run("grow", {})
    async with asyncio.timeout(60):
        while "grown" not in toolbox.tools:
            await toolbox.prepare()
    assert (await toolbox.run("grown", {})).text == "new"


async def test_its_environment(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_OTHERS", "not for it")
    monkeypatch.setenv("FROM_OUTSIDE", "f1lled")
    env = {"MY_TOKEN": "${FROM_OUTSIDE}", "N": 3, "D": "${NOT_SET:-default}"}
    toolbox, _ = await prepared(good=GOOD | {"env": env})
    text = (await toolbox.run("environment", {})).text
    assert '"MY_TOKEN": "f1lled"' in text
    assert '"N": "3"' in text
    assert '"D": "default"' in text
    assert "not for it" not in text
    log = (tmp_path / "log" / "mcp-good.log").read_text()
    assert "starting with ***" in log
    assert "f1lled" not in log


async def test_chats_share_it(sources: MakeSources) -> None:
    tools = sources(good=GOOD)
    first, second = tools.toolbox(), tools.toolbox()
    await asyncio.gather(first.prepare(), second.prepare())
    pids = [(await box.run("spawn", {})).text.split()[0] for box in (first, second)]
    assert pids[0] == pids[1]
    await first.close()
    assert (await second.run("add", {"a": 1, "b": 1})).text == "2"


async def test_one_that_is_off_is_not_started(
    sources: MakeSources, config: Path, tmp_path: Path
) -> None:
    """The file is read for each chat."""
    tools = sources()
    assert not any(group.is_mcp for group in tools.toolbox().groups())
    config.write_text(json.dumps({"mcpServers": {"good": GOOD | {"disabled": True}}}))
    toolbox = tools.toolbox()
    await toolbox.prepare()
    assert toolbox.groups()[-1].is_on is False
    assert not (tmp_path / "log").exists()
    toolbox.switch("good")
    await toolbox.prepare()
    assert "add" in toolbox.tools


async def test_names_that_collide(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(one=bad("", tmp_path), two=bad("", tmp_path))
    assert toolbox.tools["f"].source == "one"
    assert toolbox.tools["two_f"].source == "two"
    assert (await toolbox.run("two_f", {"a": "b"})).text == '{"a": "b"}'
    toolbox.allow(toolbox.tools["f"], "chat")
    assert not toolbox.needs_consent(toolbox.tools["f"])
    await toolbox.prepare()
    assert not toolbox.needs_consent(toolbox.tools["f"])
    toolbox.switch("one")
    await toolbox.prepare()
    assert toolbox.tools["f"].source == "two"
    assert toolbox.needs_consent(toolbox.tools["f"]), "another tool has the name now"


async def test_a_lasting_permission_is_for_what_was_started(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program and its arguments, folder, variables, and the values that are filled in."""
    first = bad("", tmp_path) | {"env": {"TOKEN": "${MY_VALUE}", "MODE": "read"}}
    folder, other = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    (folder / "in").mkdir()
    other.symlink_to(folder)  # the same folder
    monkeypatch.setenv("MY_VALUE", "s3cret-of-mine")

    async def asks(entry: dict[str, Any], folder: Path, *, allow: bool = False) -> bool:
        config.write_text(json.dumps({"mcpServers": {"s": entry}}))
        sources = ToolSources(Settings(home=tmp_path), folder)
        toolbox = sources.toolbox()
        try:
            assert await toolbox.prepare() == []
            if allow:
                toolbox.allow(toolbox.tools["f"], "always")
            toolbox.trusted.clear()
            return toolbox.needs_consent(toolbox.tools["f"])
        finally:
            await sources.close()

    assert not await asks(first, folder, allow=True)
    kept = (config.parent / "allowed-tools.json").read_text()
    assert not any(each in kept for each in ("s3cret", "MODE", "bad_server", str(tmp_path)))
    assert not await asks(first | {"env": {"MODE": "read", "TOKEN": "${MY_VALUE}"}}, other)
    assert not await asks(first | {"cwd": str(folder)}, tmp_path)
    assert await asks(first, folder / "in")
    assert await asks(first | {"cwd": "in"}, folder)
    assert await asks(first | {"env": first["env"] | {"MODE": "write"}}, folder)
    assert await asks(first | {"args": [*first["args"], "-v"]}, folder)
    assert await asks({"command": "env", "args": [first["command"], *first["args"]]}, folder)
    monkeypatch.setenv("MY_VALUE", "another")
    assert await asks(first, folder)


async def test_a_relative_program_is_that_of_its_folder(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a program in another folder of the PATH."""
    config.write_text(
        json.dumps({"mcpServers": {"s": {"command": "./run"}, "t": {"command": "run"}}})
    )
    boxes = []
    for name in "ab":
        program = tmp_path / name / "run"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {GOOD['args'][0]}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        sources = ToolSources(Settings(home=tmp_path), program.parent)
        boxes.append(sources.toolbox())
        assert await boxes[-1].prepare() == []
        await sources.close()
    first, second = boxes
    for tool in ("add", "t_add"):
        first.allow(first.tools[tool], "always")
        assert first.tools[tool].about == second.tools[tool].about
        assert second.needs_consent(second.tools[tool])


async def test_one_that_cannot_be_used_is_left_out_alone(prepared: Prepare, config: Path) -> None:
    names = {"read_file": GOOD, "py\nthon": GOOD, "a,b": GOOD, "\u202ex": GOOD, "broken": {}}
    toolbox, news = await prepared(good=GOOD, **names)
    assert [line.replace(str(config), "mcp.json") for line in news] == [
        "read_file (not used): mcp.json: there is another tool 'read_file'",
        r"py\nthon: mcp.json: 'py\nthon' cannot be the name of a server",
        "a;b: mcp.json: 'a,b' cannot be the name of a server",
        r"\u202ex: mcp.json: '\u202ex' cannot be the name of a server",
        "broken: mcp.json: broken must have either a command or a url",
    ]
    assert (await toolbox.run("add", {"a": 1, "b": 2})).text == "3"
    problems = {group.name: group.problem for group in toolbox.groups()}
    assert problems["good"] == ""
    assert "there is another tool" in problems["read_file (not used)"]
    toolbox.switch("read_file")
    await toolbox.prepare()
    assert toolbox.tools["read_file"].source == "read_file"  # the built-in tool


def test_without_servers_nothing_is_imported(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools import ToolSources
async def main():
    sources = ToolSources(Settings(), Path("."))
    toolbox = sources.toolbox()
    await toolbox.prepare()
    await toolbox.close()
    await sources.close()
asyncio.run(main())
sys.exit(str({"mcp", "mcp_types", "pydantic", "anyio", "json5", "psutil"} & set(sys.modules) or ""))
"""
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stderr.strip() == ""


@pytest.mark.skipif(find_spec("mcp_server_fetch") is None, reason="pip install mcp-server-fetch")
async def test_mcp_server_fetch(prepared: Prepare) -> None:
    entry = {"command": sys.executable, "args": ["-m", "mcp_server_fetch", "--allow-private-ips"]}
    toolbox, news = await prepared(fetch=entry)
    assert news == []
    with running("http", free_port()) as url:
        result = await toolbox.run("fetch", {"url": url.replace("/mcp", "/none"), "raw": True})
    assert result.is_error
    assert "404" in result.text


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.skipif(not NPM.exists(), reason="first: npm ci --prefix tests/npm")
async def test_the_filesystem_server(prepared: Prepare, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    toolbox, news = await prepared(files={"command": str(NPM), "args": [str(folder)]})
    assert news == []
    read = await toolbox.run("read_text_file", {"path": str(folder / "a.txt")})
    assert read.text == "hello"
    outside = await toolbox.run("read_text_file", {"path": "/etc/hostname"})
    assert outside.is_error
    wrong = await toolbox.run("read_text_file", {})
    assert wrong.is_error
