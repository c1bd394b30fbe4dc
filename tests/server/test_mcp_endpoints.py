"""MCP servers are tested, added and removed by the page; their programs really run."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gptoss_local.server.keys import add_key
from tests.cli.conftest import run_cli
from tests.conftest import free_port, run_server, wait_until
from tests.server.page_client import Json, Page
from tests.tools.mcp.conftest import GOOD

COMMAND = shlex.join([GOOD["command"], *GOOD["args"]])


@pytest.fixture
def page(home: Path) -> Iterator[Page]:
    (home / "gptoss").mkdir()
    with run_server(home, variables={"XDG_CONFIG_HOME": str(home)}) as server, Page(server) as page:
        yield page


def groups(page: Page, chat_id: int) -> dict[str, Json]:
    found = page.call("GET", f"chats/tools?chat={chat_id}")["groups"]
    return {group["name"]: group for group in found}


def programs() -> list[psutil.Process]:
    """The processes of the MCP server that children of this process run."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if GOOD["args"][0] in each.cmdline()]


def test_a_server_is_tested_added_and_removed(page: Page, home: Path) -> None:
    file = home / "gptoss" / "mcp.json"
    file.write_text('{\n  // mine\n  "mcpServers": {}\n}\n')
    chat = page.new()
    assert "good" not in groups(page, chat)
    body = {"name": "good", "reached": COMMAND, "values": ["MY_KEY=k3y", ""]}
    tested = page.call("POST", "mcp/test", body)
    assert tested["about"] == "good 1.5"
    assert "add" in tested["tools"]
    wait_until(lambda: not programs())
    assert "good" not in file.read_text()
    page.call("POST", "mcp", body)
    assert "// mine" in file.read_text()
    assert json.loads(file.read_text().replace("// mine", ""))["mcpServers"] == {
        "good": {**GOOD, "env": {"MY_KEY": "k3y"}}
    }
    page.call("PATCH", f"chats/{chat}", {"options": {"tools": "good"}})
    group = groups(page, chat)["good"]  # the chat was there before
    assert (group["is_on"], group["is_mcp"], group["problem"]) == (True, True, "")
    assert "add" in {tool["name"] for tool in group["tools"]}
    assert {tool["trust"] for tool in group["tools"]} == {""}  # each call is asked about
    assert programs()
    again = page.call("POST", "mcp", body, status=400)
    assert "already has a server 'good'" in again["error"]
    page.call("DELETE", "mcp/good")
    assert "good" not in file.read_text()
    assert "good" not in groups(page, chat)
    wait_until(lambda: not programs())


def test_a_server_that_does_not_answer_says_what_to_do(page: Page) -> None:
    for reached, values, status, why, hint in (
        ("no-such-program-here --x", [], 502, "does not start", "Is it installed there?"),
        (shlex.join([sys.executable, "-c", "pass"]), [], 502, "ended", "in a terminal"),
        ("http://127.0.0.1:9/mcp", ["A: B"], 502, "cannot be reached", "Is the address right"),
        ("http://127.0.0.1:9/mcp", ["no header"], 400, "a header is written as NAME:VALUE", ""),
        ("uvx x", ["no variable"], 400, "a variable is written as NAME=VALUE", ""),
        ("'open", [], 400, "the command cannot be read", ""),
        (" ", [], 400, "needs a command or an address", ""),
    ):
        body = {"name": "x", "reached": reached, "values": values}
        said = page.call("POST", "mcp/test", body, status=status)
        assert why in said["error"], reached
        assert hint in said.get("hint", ""), reached
    for name in ("../x", "a/..", ".", "a//b", "a\\b"):
        said = page.call("POST", "mcp", {"name": name, "reached": "uvx x"}, status=400)
        assert "cannot be the name of a server" in said["error"]
    page.call("POST", "mcp", {"name": "io.github.me/x", "reached": "uvx x"})
    page.call("DELETE", "mcp/io.github.me/x")
    assert "another tool" in page.call(
        "POST", "mcp", {"name": "python", "reached": "uvx x"}, status=400
    )["error"]  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_other_accounts_read_nothing_that_is_kept(home: Path) -> None:
    """With any umask; weights are for all, and need not be secret."""
    (home / "log").mkdir()
    logs = [home / "log" / name for name in ("mcp-good.log", "server.log")]
    for log in logs:
        log.touch(mode=0o644)  # of an older version
    modelfile = home / "models" / "Modelfile"
    modelfile.parent.mkdir()
    modelfile.write_text("FROM nano\nSYSTEM My name is Ada.\n", encoding="utf-8")
    variables = {"XDG_CONFIG_HOME": str(home), "GPTOSS_HOME": str(home)}
    own = os.environ | variables | {"GPTOSS_PORT": str(free_port())}
    usual = os.umask(0)
    try:
        add = ("upstream", "add", "far", "--kind", "llama-server", "--url", "http://127.0.0.1:9")
        for arguments in (add, ("create", "ada", "-f", str(modelfile)), ("stop",)):
            done = run_cli(own, *arguments)
            assert done.returncode == 0, done.stderr
        add_key(home / "keys.toml", "guest")
        with run_server(home, variables=variables) as server, Page(server) as page:
            page.call("POST", "mcp", {"name": "good", "reached": COMMAND})
            chat = page.new()
            assert "good" in groups(page, chat)
            page.answered(page.ask(chat, "What is the capital of France?"))
            page.call("PUT", "presets/critic", {"system": "Be strict."})
    finally:
        os.umask(usual)
    modelfile.unlink()
    kept = [each for each in home.rglob("*") if each.is_file() and each.suffix != ".gguf"]
    kept = [each for each in kept if not {"cache", "weights"} & {*each.relative_to(home).parts}]
    names = {each.name for each in kept}
    assert {"mcp-good.log", "server.log", "presets.toml", "mcp.json", "models.toml"} < names
    assert {"ada.json", "keys.toml", "chats.sqlite3"} < names
    assert [each for each in kept if each.stat().st_mode & 0o077] == []
