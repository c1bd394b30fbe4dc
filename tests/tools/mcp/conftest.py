"""Toolboxes of real MCP servers, each with a configuration of its own."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools import Toolbox, ToolSources
from gptoss_local.talk.tools.mcp import stdio

HERE = Path(__file__).parent
GOOD = {"command": sys.executable, "args": [str(HERE / "good_server.py")]}


def bad(fault: str, folder: Path) -> dict[str, Any]:
    """An entry of a server with a fault."""
    args = [str(HERE / "bad_server.py"), fault, str(folder)]
    return {"command": sys.executable, "args": args, "env": {"MY_SECRET": "MY_SECRET_VALUE"}}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for servers to end by themselves."""
    monkeypatch.setattr(stdio, "END_S", 0.5)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where mcp.json is; it is not there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "gptoss").mkdir(parents=True)
    return tmp_path / "config" / "gptoss" / "mcp.json"


MakeSources = Callable[..., ToolSources]


@pytest.fixture
async def sources(config: Path, tmp_path: Path) -> AsyncIterator[MakeSources]:
    """Make the tools of a process with these servers; they are ended with the test."""
    made = []

    def make(**servers: Any) -> ToolSources:
        config.write_bytes(msgspec.json.encode({"mcpServers": servers}))
        made.append(ToolSources(Settings(home=tmp_path), tmp_path))
        return made[-1]

    yield make
    for each in made:
        await each.close()


Prepare = Callable[..., Any]


@pytest.fixture
def prepared(sources: MakeSources) -> Prepare:
    """Make a toolbox, and start its servers."""

    async def prepare(**servers: Any) -> tuple[Toolbox, list[str]]:
        toolbox = sources(**servers).toolbox()
        return toolbox, await toolbox.prepare()

    return prepare
