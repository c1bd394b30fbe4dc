"""Processes of tools, and the effect of Ctrl-C and Ctrl-Break."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import ToolCommand, load_settings
from gptoss_local.talk.tools.browser.reader import read_attached
from gptoss_local.talk.tools.processes import kill_tree, start
from gptoss_local.talk.tools.sources import Program

GPTOSS = (sys.executable, "-m", "gptoss_local")

LEAVES_A_CHILD = """
import subprocess, sys, time
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], **quiet)
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def wait_until(is_done: Callable[[], bool], timeout_s: float = 120) -> None:
    end_s = time.monotonic() + timeout_s
    while not is_done():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.parametrize("seconds", ["300", "0"], ids=["running", "ended"])
def test_a_tool_ends_with_what_it_started(seconds: str) -> None:
    async def run() -> int:
        process = await start(
            *(sys.executable, "-c", LEAVES_A_CHILD, seconds), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        if seconds == "0":
            assert await process.wait() == 0
        assert psutil.pid_exists(child)
        kill_tree(process)
        await process.wait()
        return child

    child = asyncio.run(run())
    wait_until(lambda: not psutil.pid_exists(child))


def test_a_tool_that_takes_too_long(tmp_path: Path) -> None:
    async def run() -> None:
        command = ToolCommand(command=(sys.executable, "-c", LEAVES_A_CHILD, "300"), timeout_s=1)
        (tool,) = await Program("slow", command, tmp_path).tools()
        await tool.run({})

    with pytest.raises(UsageError, match="took longer than 1 s"):
        asyncio.run(run())


def test_a_tool_ends_with_its_server(tmp_path: Path) -> None:
    """Also if Windows ends that at once, as Task Manager does."""
    program = f"""
import asyncio, sys
from gptoss_local.talk.tools.processes import start

async def main():
    process = await start(sys.executable, "-c", {LEAVES_A_CHILD!r}, "300")
    await process.wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        server.kill()
        wait_until(lambda: not psutil.pid_exists(child))


def test_a_document_is_read_in_a_process() -> None:
    answer = asyncio.run(read_attached(b"no document", "docx"))
    assert "damaged" in getattr(answer, "why", "")


def is_serving() -> bool:
    try:
        return httpx.get(f"{load_settings().url}/api/version", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def engines(server: psutil.Process) -> list[psutil.Process]:
    return [child for child in server.children(recursive=True) if "worker" in str(child.cmdline())]


@pytest.fixture
def console() -> Iterator[None]:
    """A console, of which this process alone ignores Ctrl-C."""
    ctypes.windll.kernel32.FreeConsole()
    assert ctypes.windll.kernel32.AllocConsole()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def server(console: None) -> Iterator[subprocess.Popen[bytes]]:
    """A server with a loaded model, as it runs in a console."""
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with subprocess.Popen([*GPTOSS, "serve"], **quiet) as running:
        try:
            wait_until(is_serving)
            subprocess.run([*GPTOSS, "load", "nano"], check=True, **quiet)
            yield running
        finally:
            running.kill()


def test_ctrl_c_ends_a_server(server: subprocess.Popen[bytes]) -> None:
    found = engines(psutil.Process(server.pid))
    assert found
    os.kill(0, signal.CTRL_C_EVENT)
    assert server.wait(120) == 130
    wait_until(lambda: not any(engine.is_running() for engine in found))
    assert not load_settings().owner_secret_path.exists()


BROKEN = """
import signal, sys, threading, time
from gptoss_local.__main__ import main
from gptoss_local.base.settings import load_settings

def press() -> None:
    while not load_settings().owner_secret_path.exists():
        time.sleep(0.1)
    time.sleep(2)
    signal.raise_signal(signal.SIGBREAK)

threading.Thread(target=press, daemon=True).start()
sys.argv = ["gptoss", "serve"]
main()
"""


def test_ctrl_break_ends_a_server() -> None:
    """Wine sends no event for it; its signal comes from inside."""
    assert subprocess.run([sys.executable, "-c", BROKEN], check=False).returncode == 0
    assert not load_settings().owner_secret_path.exists()


def test_a_killed_server_leaves_no_engine(server: subprocess.Popen[bytes]) -> None:
    found = engines(psutil.Process(server.pid))
    assert found
    os.kill(server.pid, signal.SIGTERM)  # which Windows does not announce
    wait_until(lambda: not any(engine.is_running() for engine in found))
    assert not is_serving()


def test_ctrl_c_ends_a_command_but_not_its_server(console: None) -> None:
    try:
        words = ("run", "nano", "Count to a thousand, one number a line.")
        with subprocess.Popen([*GPTOSS, *words], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stdout.read(1)
            os.kill(0, signal.CTRL_C_EVENT)
            assert running.wait(120) == 130
        assert is_serving()
    finally:
        subprocess.run([*GPTOSS, "stop"], check=True)


def test_a_reader_may_go_away() -> None:
    """`gptoss ... | more`, and its user has seen enough."""
    command = [*GPTOSS, "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 0


def test_text_in_files_is_utf8(tmp_path: Path) -> None:
    typed, printed = tmp_path / "typed.txt", tmp_path / "printed.txt"
    typed.write_bytes("Repeat after me: für 東京 😀\r\n".encode())
    try:
        with typed.open("rb") as stdin, printed.open("wb") as stdout:
            command = [*GPTOSS, "run", "nano", "--hidethinking"]
            subprocess.run(command, stdin=stdin, stdout=stdout, check=True)
    finally:
        subprocess.run([*GPTOSS, "stop"], check=True)
    assert printed.read_bytes().decode() == "für 東京 😀\n"
