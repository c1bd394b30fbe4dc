"""`gptoss tools`: lists, adds, removes and tests, without a server of ours."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, run_cli
from tests.tools.mcp.conftest import GOOD, bad

TOOLS = """
[tools.search_notes]
command = ["grep", "-r", "{words}"]
description = "Search my notes"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gptoss").mkdir()
    return tmp_path / "gptoss"


@pytest.fixture
def tools(folder: Path) -> Cli:
    home = str(folder.parent)
    user = {"GPTOSS_HOME": home, "XDG_CONFIG_HOME": home, "MY_KEY": "k3y-of-mine"}
    return lambda *arguments: run_cli(os.environ | user, "tools", *arguments)


def test_the_list(tools: Cli, folder: Path) -> None:
    (folder / "config.toml").write_text(TOOLS)
    servers = {"good": GOOD, "broken": bad("exit", folder), "unused": GOOD | {"disabled": True}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = tools("ls")
    assert done.returncode == 0
    sources, listed_tools = done.stdout.split("\n\n")
    states = {line.split()[0]: line for line in sources.splitlines()[1:]}
    assert states["good"].split()[-2:] == ["on", "11"]
    assert states["broken"].split()[-4:] == ["does", "not", "answer", "-"]
    assert states["unused"].split()[-2:] == ["off", "-"]
    assert states["search_notes"].split()[-2:] == ["on", "1"]
    rows = [line.split(maxsplit=2) for line in listed_tools.splitlines()]
    assert rows[0] == ["TOOL", "OF", "DESCRIPTION"]
    assert ["search_notes", "search_notes", "Search my notes"] in rows
    assert ["add", "good", "Add two numbers."] in rows
    assert "broken: the MCP server 'broken' ended" in done.stderr
    assert "MY_SECRET_VALUE" not in done.stdout + done.stderr

    data = json.loads(tools("--json").stdout)
    assert data["version"] == 1
    listed = {source["name"]: source for source in data["sources"]}
    assert listed["good"]["problem"] is None
    assert listed["good"]["tools"][0]["parameters"]["required"] == ["a", "b"]
    assert "ModuleNotFoundError" in listed["broken"]["problem"]
    assert listed["unused"]["is_on"] is False


def test_add_test_and_remove(tools: Cli, folder: Path) -> None:
    command = [GOOD["command"], *GOOD["args"]]
    added = tools("add", "good", "--env", "MY_TOKEN=${MY_KEY}", "--", *command)
    assert added.returncode == 0, added.stderr
    file = folder / "mcp.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    entry = {"command": command[0], "args": command[1:], "env": {"MY_TOKEN": "${MY_KEY}"}}
    assert json.loads(file.read_text()) == {"mcpServers": {"good": entry}}
    file.write_text(f"// mine\n{file.read_text()}")

    again = tools("add", "good", "--url", "http://localhost/mcp")
    assert again.returncode == 2
    assert "already has a server 'good'" in again.stderr
    remote = ["add", "remote", "--url", "https://localhost/mcp?k=s3cret", "--header", "A: s3cret"]
    done = tools(*remote)
    assert done.returncode == 0
    assert "s3cret" not in done.stderr + done.stdout

    tested = tools("test", "good")
    assert tested.returncode == 0, tested.stderr
    assert "good 1.5 answered after" in tested.stderr
    assert "get_weather_today" in tested.stdout
    called = tools("test", "good", "add", "--args", '{"a": 2, "b": 3}')
    assert (called.returncode, called.stdout) == (0, "5\n")
    data = json.loads(tools("test", "good", "--json").stdout)
    assert (data["version"], data["server"]) == (1, "good 1.5")

    assert tools("rm", "good").returncode == 0
    left = file.read_text()
    assert left.startswith("// mine\n")
    assert "good" not in left
    assert "remote" in left
    assert tools("rm", "good").returncode == 2


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python", "there is another tool 'python'"),
        ("search_notes", "there is another tool 'search_notes'"),
        ("of-project", "there is another tool 'of-project'"),
        ("a\nb", r"'a\nb' cannot be the name of a server"),
        ("a\u202eb", r"'a\u202eb' cannot be the name of a server"),
        ("../x", "'../x' cannot be the name of a server"),
        ("a" * 65, "cannot be the name of a server"),
    ],
)
def test_names_that_a_server_cannot_have(
    tools: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (folder / "config.toml").write_text(TOOLS)
    (folder / "project.json").write_text(json.dumps({"mcpServers": {"of-project": GOOD}}))
    monkeypatch.setenv("GPTOSS_MCP_CONFIG", str(folder / "project.json"))
    done = tools("add", name, "--", "x")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (folder / "mcp.json").exists()


def test_a_server_that_fails(tools: Cli, folder: Path) -> None:
    servers = {"good": GOOD, "broken": bad("exit", folder), "bad": bad("", folder)}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    broken = tools("test", "broken")
    assert broken.returncode == 1
    assert "ModuleNotFoundError: *** is missing" in broken.stderr
    assert f"Its log: {folder.parent / 'log' / 'mcp-broken.log'}" in broken.stderr
    failed = tools("test", "good", "fail")
    assert failed.returncode == 1
    assert "fail failed: Error executing tool fail" in failed.stderr
    died = tools("test", "bad", "die", "--json")
    assert died.returncode == 1
    assert json.loads(died.stdout)["is_error"] is True


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add"], "name a server"),
        (["add", "x"], "needs either a command or --url"),
        (["add", "x", "--url", "http://a", "--", "b"], "needs either a command or --url"),
        (["add", "x", "--url", "localhost"], "'localhost' is not an http://"),
        (["add", "x", "--env", "s3cret", "--", "b"], "a variable is written as NAME=VALUE"),
        (["add", "x", "--header", "A:B", "--", "b"], "--env goes with a command"),
        (["rm"], "name a server"),
        (["test", "x"], "there is no MCP server 'x'"),
        (["test", "x", "y", "z"], "and got 'z'"),
        (["test", "x", "--args", "[]"], "JSON object: it must be an object, not a list"),
        (["ls", "x"], "ls takes no name"),
        (["ls", "--url", "http://a"], "belong to `gptoss tools add`"),
        (["rm", "x", "--args", "{ }"], "belongs to `gptoss tools test`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense(tools: Cli, arguments: list[str], said: str) -> None:
    done = tools(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "s3cret" not in done.stderr
