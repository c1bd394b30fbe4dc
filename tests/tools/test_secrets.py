"""No child gets a secret of gptoss, by any way of starting."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import httpx
import psutil
import pytest

from gptoss_local.base.errors import ToolError
from gptoss_local.base.settings import HUB_TOKENS, SECRETS, Settings
from gptoss_local.models.pulling.process import command
from gptoss_local.talk.tools.mcp.config import entry_of
from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.sources import run_program
from tests.conftest import run_server
from tests.tools.mcp.conftest import GOOD

NAMED = "FAR_KEY"  # in models.toml, which names it
ALL = (*SECRETS, NAMED)
PRINT = [sys.executable, "-c", "import os; print(dict(os.environ))"]
UPSTREAM = f"""
[[model]]
name = "far"
upstream = {{ kind = "vllm", urls = ["http://127.0.0.1:9"], key_env = "{NAMED}" }}
"""


@pytest.fixture(autouse=True)
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "models.toml").write_text(UPSTREAM)
    for name in ALL:
        monkeypatch.setenv(name, f"value-of-{name}")
    monkeypatch.setenv("OF_OTHERS", "is theirs")


def environments(processes: Iterable[psutil.Process]) -> str:
    return "\n".join(str(each.environ()) for each in processes)


async def program(folder: Path, _nano_home: Path) -> str:
    return await run_program(PRINT, b"", 20, folder)


async def mcp_server(folder: Path, _nano_home: Path) -> str:
    server = Server(entry_of("good", GOOD, folder), folder, folder / "log")
    try:
        return (await server.call("environment", {})).text
    finally:
        await server.end()


async def sandbox(folder: Path, _nano_home: Path) -> str:
    before = set(psutil.Process().children(recursive=True))
    python = Python(Settings(), folder)
    try:
        (tool,) = await python.tools()
        await tool.run({"code": "1"})
        return environments(set(psutil.Process().children(recursive=True)) - before)
    finally:
        await python.close()


async def kernel(folder: Path, _nano_home: Path) -> str:
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    python = Python(Settings(python_tool="jupyter:python3"), folder)
    try:
        (tool,) = await python.tools()
        return str(await tool.run({"code": "import os; print(dict(os.environ))"}))
    finally:
        await python.close()


async def engine(folder: Path, nano_home: Path) -> str:
    (folder / "cache").symlink_to(nano_home / "cache")
    key = {"Authorization": f"Bearer {os.environ['GPTOSS_API_KEY']}"}
    body = {"model": "nano", "prompt": "Hi", "stream": False, "options": {"num_predict": 1}}
    with run_server(folder) as server:
        url = f"{server.url}/api/generate"
        asked = httpx.post(url, json=body, headers=key, timeout=60, trust_env=False)
        assert asked.status_code == 200, asked.text
        return environments(psutil.Process(server.process.pid).children(recursive=True))


async def pull(folder: Path, _nano_home: Path) -> str:
    _, environment = command("nano", Settings(home=folder), gguf=False)
    return subprocess.check_output(PRINT, env=environment, text=True)


@pytest.mark.parametrize("child", [program, mcp_server, sandbox, kernel, engine, pull])
async def test_no_child_gets_a_secret(tmp_path: Path, nano_home: Path, child: object) -> None:
    assert callable(child)
    text = await child(tmp_path, nano_home)
    assert "'PATH'" in text or '"PATH"' in text or child is sandbox
    assert "is theirs" in text or child is not program  # a program still gets its own variables
    needed = HUB_TOKENS if child is pull else ()
    assert [name for name in ALL if f"value-of-{name}" in text] == list(needed)


def test_each_key_of_the_settings_is_one() -> None:
    keys = {name for name in Settings.__struct_fields__ if name.endswith("_key")}
    assert {f"GPTOSS_{key.upper()}" for key in keys} < set(SECRETS)


@pytest.mark.parametrize("name", ALL)
async def test_none_is_filled_in(tmp_path: Path, name: str) -> None:
    entry = entry_of("good", GOOD | {"env": {"KEY": f"${{{name}}}"}}, tmp_path)
    server = Server(entry, tmp_path, tmp_path / "log")
    with pytest.raises(ToolError, match=f"{name}, which is for gptoss alone") as refused:
        await server.tools()
    assert refused.value.hint == "If the server may have it, write its value there."
    assert "value-of" not in refused.value.message
