"""Tools on Windows' own Python: the sandbox, and an MCP server over stdio."""

from pathlib import Path

from tests.windows.conftest import ON_WINDOWS, PYTHON, Pc, windows_path

pytestmark = ON_WINDOWS

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "good_server.py"


def test_an_mcp_server_over_stdio(pc: Pc) -> None:
    pc.gptoss("tools", "add", "good", "--", windows_path(PYTHON), windows_path(SERVER))
    assert "3" in pc.gptoss("tools", "test", "good", "add", "--args", '{"a": 1, "b": 2}')
    pc.gptoss("tools", "rm", "good")


SANDBOX = """
import asyncio
import sys
from pathlib import Path
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.python import Python

async def main():
    python = Python(Settings(), Path(sys.argv[1]))
    for code in ("x = 6\\nprint(x * 7)", "open('C:/windows/win.ini')", "while True: pass"):
        result = await python.run({"code": code})
        print(result.is_error, result.text.strip().splitlines()[-1])
    await python.close()

asyncio.run(main())
"""


def test_the_sandbox_computes_and_reads_no_file(pc: Pc) -> None:
    running = pc.start("-c", SANDBOX, windows_path(pc.home))
    assert running.wait() == 0, running.printed
    computed, read, ran = running.printed.splitlines()
    assert computed == "False 42"
    assert read.startswith("True")
    assert ran.startswith("True")
