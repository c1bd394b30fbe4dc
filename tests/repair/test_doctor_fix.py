"""`gptoss doctor --fix` on a machine where something is wrong, as its user runs it."""

import json
import os
import stat
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.cli.doctor.diagnosis import Verdict
from gptoss_local.cli.doctor.repair import find_faults
from gptoss_local.talk.history import History
from tests.cli.conftest import Terminal, run_cli
from tests.conftest import free_port

OLD_S = time.time() - 3600


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a home of their own, and no systemd."""
    home = tmp_path / "user"
    (home / ".config" / "gptoss").mkdir(parents=True)
    (home / "data" / "models").mkdir(parents=True)
    (home / "bin").mkdir()
    return os.environ | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / "share"),
        "GPTOSS_HOME": str(home / "data"),
        "GPTOSS_PORT": str(free_port()),
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SHELL": "/bin/bash",
    }


def config(user: dict[str, str], name: str) -> Path:
    return Path(user["XDG_CONFIG_HOME"], "gptoss", name)


def data(user: dict[str, str]) -> Path:
    return Path(user["GPTOSS_HOME"])


def run(user: dict[str, str], *options: str) -> dict[str, Any]:
    """Return doctor's JSON; `repairs` and `findings` by name."""
    done = run_cli(user, "doctor", "--json", *options)
    assert "Traceback" not in done.stderr, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    printed["repairs"] = {each["name"]: each for each in printed.get("repairs", [])}
    printed["findings"] = {each["name"]: each for each in printed["findings"]}
    return printed | {"code": done.returncode}


def put_all_wrong(user: dict[str, str]) -> dict[str, bytes]:
    """Break everything that doctor repairs; returns the files that must stay, by path."""
    broken = {
        config(user, "config.toml"): "port = [",
        config(user, "models.toml"): "[[model]]\nno_name = 1\n",
        config(user, "presets.toml"): "[a]\neffort = 'none at all'\n",
        config(user, "mcp.json"): "{",
    }
    for path, text in broken.items():
        path.write_text(text)
    models = data(user) / "models"
    (models / "weights").mkdir()
    garbage = [models / "weights" / f"1-{'0' * 16}.gguf", models / "x.part"]
    garbage.append(data(user) / "cache" / "measured" / "y.part")
    for path in garbage:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (OLD_S, OLD_S))
    (models / "mine.gguf").write_bytes(b"no model")
    (models / "gpt-oss-20b.gguf.partial").write_bytes(bytes(2000))
    os.utime(models / "gpt-oss-20b.gguf.partial", (OLD_S, OLD_S))
    history = History(data(user) / "chats.sqlite3")
    history.new_chat("nano", "low")
    history.close()
    (data(user) / "chats.sqlite3").chmod(0o644)
    (data(user) / "log").mkdir(mode=0o500)
    kept = [models / "mine.gguf", models / "gpt-oss-20b.gguf.partial"]
    return {str(path): path.read_bytes() for path in kept}


def test_all_at_once(user: dict[str, str]) -> None:
    kept = put_all_wrong(user)
    before = run(user)
    assert before["code"] == 1
    can_fix = {name for name, each in before["findings"].items() if each["can_fix"]}
    settings = {"config.toml", "models.toml", "presets.toml", "mcp.json"}
    assert can_fix == settings | {"leftovers", "folder", "privacy"}
    assert not before["repairs"]

    fixed = run(user, "--fix", "--yes")
    assert fixed["code"] == 1, "a model that cannot be loaded stays"
    results = {name: each["result"] for name, each in fixed["repairs"].items()}
    assert {name for name, result in results.items() if result == "repaired"} == can_fix
    for name, each in fixed["repairs"].items():
        assert each["text"].rstrip().endswith((".", "gptoss")), (name, each)
        if each["result"] != "repaired":
            assert each["text"].startswith("For you to do: ")
    for path, content in kept.items():
        assert Path(path).read_bytes() == content
    for name in settings:
        assert not config(user, name).exists()
        assert config(user, f"{name}.broken-1").is_file()
    assert "port = [" in config(user, "config.toml.broken-1").read_text()
    assert not (data(user) / "models" / "x.part").exists()
    assert not (data(user) / "cache" / "measured" / "y.part").exists()
    assert stat.S_IMODE((data(user) / "chats.sqlite3").stat().st_mode) == 0o600
    assert stat.S_IMODE((data(user) / "log").stat().st_mode) == 0o700
    history = History(data(user) / "chats.sqlite3")
    assert len(history.chats()) == 1
    history.close()

    (data(user) / "models" / "mine.gguf").unlink()
    again = run(user, "--fix", "--yes")
    assert "repaired" not in {each["result"] for each in again["repairs"].values()}
    assert again["code"] == 0


def test_each_repair_is_asked_for(user: dict[str, str]) -> None:
    path = config(user, "config.toml")
    path.write_text("nonsense")
    for key, code in (("n\r", 1), ("\x1b", 130), ("y\r", 0)):
        with Terminal(user, "--fix", command="doctor", TERM="xterm") as terminal:
            terminal.read_until("aside, and go without it? [Y/n]")
            assert path.is_file()
            terminal.type(key)
            assert terminal.process.wait() == code
    assert not path.exists()


def faults(monkeypatch: pytest.MonkeyPatch, user: dict[str, str]) -> dict[str, Verdict]:
    """Look from this process."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "PATH", "SHELL"):
        monkeypatch.setenv(name, user[name])
    found = find_faults(Settings(home=data(user)))
    return {fault.name: fault for fault in found}


def test_the_command(monkeypatch: pytest.MonkeyPatch, user: dict[str, str]) -> None:
    program = Path(sysconfig.get_path("scripts")) / "gptoss"
    assert program.is_file(), "install the package"
    local = Path(user["HOME"]) / ".local" / "bin"
    user["PATH"] = f"{local}:/usr/bin"
    assert f"add {program.parent} to PATH" in faults(monkeypatch, user)["command"].fix
    local.mkdir(parents=True)
    (local / "gptoss").symlink_to(program)
    assert "command" not in faults(monkeypatch, user)
    (local / "gptoss").unlink()
    (local / "gptoss").write_text("#!/bin/sh\n")
    (local / "gptoss").chmod(0o755)
    assert "not the one that is running" in faults(monkeypatch, user)["command"].text


SYSTEMCTL = """#!/bin/sh
case "$2" in
    is-enabled) cat {folder}/enabled ;;
    is-active) cat {folder}/active ;;
esac
"""


def test_the_service(monkeypatch: pytest.MonkeyPatch, user: dict[str, str], tmp_path: Path) -> None:
    """systemd has no session for a test, so a program answers as it does."""
    program = Path(user["HOME"], "bin", "systemctl")
    program.write_text(SYSTEMCTL.format(folder=tmp_path))
    program.chmod(0o755)

    def says(enabled: str, active: str) -> Verdict | None:
        for name, word in {"enabled": enabled, "active": active}.items():
            (tmp_path / name).write_text(f"{word}\n")
        return faults(monkeypatch, user).get("service")

    assert says("disabled", "inactive") is None
    assert says("enabled", "active") is None
    failed, ended = says("enabled", "failed"), says("enabled", "inactive")
    assert failed is not None
    assert ended is not None
    assert (failed.level, ended.level) == ("problem", "note")
    assert "systemctl --user restart gptoss" in failed.fix
