"""The main job and the commands around it, on Windows' own Python."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gptoss_local.talk.history import ChatSummary, Turn
from gptoss_local.talk.history.export import render_json
from tests.windows.conftest import ON_WINDOWS, Pc, windows_path

pytestmark = ON_WINDOWS

FRANCE = "What is the capital of France?"


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
    pc.gptoss("chats", "--import", windows_path(file))
    assert "Paris \u2713" in pc.gptoss("chats", "-q", "Paris")


def gptoss_on_linux(pc: Pc, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {"GPTOSS_HOME": str(pc.home / "linux"), "GPTOSS_PORT": str(pc.port)}
    command = [sys.executable, "-m", "gptoss_local", *arguments]
    return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
