"""The main job and the commands around it, on Windows' own Python: also pulls and tools."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gptoss_local.talk.history import ChatSummary, Turn
from gptoss_local.talk.history.export import render_json
from tests.conftest import wait_until
from tests.hub.server import Fault, HubServer, run_hub
from tests.windows.conftest import ON_WINDOWS, PYTHON, Pc, windows_path

pytestmark = ON_WINDOWS

FRANCE = "What is the capital of France?"
TINY = "team/tiny-gpt-oss"
SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "good_server.py"


def test_before_the_first_server(pc: Pc) -> None:
    assert "python" in pc.gptoss("tools")
    assert "no log yet" in pc.gptoss("logs")
    assert "not running" in pc.gptoss("status", code=7)


def test_the_first_answer(pc: Pc) -> None:
    assert "Paris" in pc.gptoss("run", "nano", FRANCE)


def test_status_logs_and_stop(pc: Pc) -> None:
    pc.gptoss("load", "nano")
    assert "nano" in pc.gptoss("ps")
    assert "nano" in pc.gptoss("status")
    assert "nano" in pc.gptoss("logs")
    pc.gptoss("stop")
    pc.gptoss("stop", code=0)
    assert "Paris" in pc.gptoss("run", "nano", FRANCE)  # a server that was stopped starts again


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "unknown", "Hi"), "unknown"),
        (("run", "--no-such-option"), "no-such-option"),
        (("show", "unknown"), "unknown"),
        (("verify", "unknown.gguf"), "unknown"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_exit_codes(pc: Pc, words: tuple[str, ...], says: str) -> None:
    """Equal to those on Linux."""
    here = gptoss_on_linux(pc, *words)
    assert here.returncode != 0
    assert says in pc.gptoss(*words, code=here.returncode)


def test_a_conversion_writes_the_bytes_of_linux(pc: Pc, nano_checkpoint: Path) -> None:
    checkpoint, made, here = (pc.home / name for name in ("checkpoint", "made.gguf", "here.gguf"))
    shutil.copytree(nano_checkpoint, checkpoint)
    pc.gptoss("convert", windows_path(checkpoint), windows_path(made))
    assert gptoss_on_linux(pc, "convert", str(checkpoint), str(here)).returncode == 0
    assert _digest(made) == _digest(here)
    pc.gptoss("verify", windows_path(made), "--against", windows_path(checkpoint))


def test_import_copy_and_remove(pc: Pc) -> None:
    file = pc.home / "made.gguf"
    pc.gptoss("import", windows_path(file), "tuned:1")
    assert "tuned:1" in pc.gptoss("ls")
    pc.gptoss("cp", "tuned:1", "mine")
    assert "Paris" in pc.gptoss("run", "mine", FRANCE)
    pc.gptoss("verify", "mine")
    pc.gptoss("rm", "-y", "tuned:1")
    pc.gptoss("gc")
    assert "mine" in pc.gptoss("ls")
    pc.gptoss("rm", "-y", "mine")  # which is loaded
    assert "mine" not in pc.gptoss("ls")
    assert file.is_file()


def test_chats_are_kept(pc: Pc) -> None:
    chat = ChatSummary(
        id=1, title="France", model="nano", effort="low", n_turns=2, created_s=0, updated_s=0,
        leaf_id=2,
    )  # fmt: skip
    turns = [
        Turn(id=1, chat_id=1, parent_id=None, role="user", content=FRANCE, created_s=0),
        Turn(id=2, chat_id=1, parent_id=1, role="assistant", content="Paris \u2713", created_s=0),
    ]
    file = pc.home / "chat.json"
    file.write_text(render_json(chat, turns), encoding="utf-8")
    pc.gptoss("chats", "import", windows_path(file))
    assert "Paris \u2713" in pc.gptoss("chats", "-q", "Paris")


def test_doctor(pc: Pc) -> None:
    found = pc.gptoss("doctor")
    assert re.search(r"^ok +CPU: \d+ physical cores", found, re.M)
    assert re.search(r"^ok +llama.cpp: Built for the CPU", found, re.M)
    assert "completion" not in found  # bash's would not help in PowerShell
    report = json.loads(pc.gptoss("doctor", "--json"))
    assert {finding["level"] for finding in report["findings"]} <= {"ok", "note"}


def test_the_command_is_on_path(pc: Pc) -> None:
    found = pc.start("-c", "import shutil; print(shutil.which('gptoss'))")
    assert found.wait() == 0
    assert found.printed.strip().lower().endswith(r"\scripts\gptoss.exe")


def test_an_mcp_server_over_stdio(pc: Pc) -> None:
    pc.gptoss("tools", "add", "good", "--", windows_path(PYTHON), windows_path(SERVER))
    assert "3" in pc.gptoss("tools", "test", "good", "add", "--args", '{"a": 1, "b": 2}')
    pc.gptoss("tools", "rm", "good")


SANDBOX = """
import asyncio
import sys
from collections.abc import Iterator
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


@pytest.fixture
def hub(nano_checkpoint: Path, pc: Pc) -> Iterator[HubServer]:
    with run_hub() as running:
        running.add(TINY, {path.name: path.read_bytes() for path in nano_checkpoint.iterdir()})
        pc.variables["HF_ENDPOINT"] = running.endpoint
        yield running


def test_killed_and_continued(hub: HubServer, pc: Pc) -> None:
    hub.strike("model.safetensors", Fault(delay_s=0.05))
    running = pc.start("-m", "gptoss_local", "pull", TINY)
    folder = pc.home / "models"
    wait_until(lambda: sum(_sizes(folder)) > 10_000_000)
    for process in psutil.process_iter(["cmdline"]):  # the command and the process of its download
        words = " ".join(process.info["cmdline"] or [])
        if "python.exe" in words and "pull" in words:
            process.kill()
    running.wait()
    before = sum(_sizes(folder))
    assert before > 10_000_000
    hub.heal()
    pc.gptoss("pull", TINY)
    pc.gptoss("verify", TINY)
    assert "Paris" in pc.gptoss("run", TINY, FRANCE)


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


def gptoss_on_linux(pc: Pc, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {"GPTOSS_HOME": str(pc.home / "linux"), "GPTOSS_PORT": str(pc.port)}
    command = [sys.executable, "-m", "gptoss_local", *arguments]
    return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
