"""Questions of the installer and the planner to Windows."""

import os
import subprocess
import winreg
from pathlib import Path

import environments
import llama_wheel
import pytest
import receipt
import service
import setup_app
import shell_setup
import steps

from gptoss_local.cli.web import firewall_command
from gptoss_local.engine.llama.model import can_pin
from gptoss_local.engine.worker.process import read_ahead
from gptoss_local.machine.hardware import read_machine

TASK_FILE = Path(os.environ["WINDIR"], "system32", "tasks", service.TASK)


def test_the_machine(tmp_path: Path) -> None:
    there = read_machine(tmp_path)
    assert there.platform == "windows"
    assert there.pinnable_bytes is not None
    assert there.pinnable_bytes <= there.total_bytes // 2
    assert there.n_performance_cores is None
    assert there.disk is None
    assert not can_pin()
    (tmp_path / "weights").write_bytes(b"x" * 100)
    assert read_ahead(tmp_path / "weights", lambda _: None) == 0.0


def test_the_firewall_for_a_phone() -> None:
    command = firewall_command("192.168.1.5", 11434)
    assert command.startswith("netsh advfirewall firewall add rule ")
    assert "localport=11434" in command


@pytest.fixture
def places(tmp_path: Path) -> receipt.Places:
    return receipt.Places(tmp_path / "app", tmp_path / "R&D bin", tmp_path / "install.log")


def test_the_task_at_logon(places: receipt.Places) -> None:
    # Under Wine, the first call starts the scheduler, which keeps the pipes that it is given.
    subprocess.run(["schtasks", "/end", "/tn", "none"], stdout=subprocess.DEVNULL, check=False)
    made = receipt.Receipt("1", "env-1", "")
    assert "scheduled task" in service.install(steps.Log(places.log), places, made)
    assert made.has_service
    assert TASK_FILE.exists()  # Wine reads all of the XML, and keeps a part of it
    service.remove(steps.Log(places.log))
    assert not TASK_FILE.exists()
    assert "could not change" not in places.log.read_text()


def user_path() -> str | None:
    with winreg.OpenKey(winreg.HKEY_CURRENT_USER, "Environment") as key:
        try:
            return str(winreg.QueryValueEx(key, "Path")[0])
        except FileNotFoundError:
            return None


def test_path_in_the_registry(places: receipt.Places, tmp_path: Path) -> None:
    before = user_path()
    environment = tmp_path / "env"
    (environment / "Scripts").mkdir(parents=True)
    (environment / "Scripts" / "gptoss.exe").write_bytes(b"exe")
    made = receipt.Receipt("1", "env", "")
    shell_setup.check_command(places)
    said = shell_setup.put_on_path(places, environment, made, edit=True)
    assert "on PATH in every new window" in said[0]
    assert str(places.bin) in (user_path() or "").split(";")
    assert "on PATH" not in shell_setup.put_on_path(places, environment, made, edit=True)[0]
    assert (places.bin / "gptoss.exe").read_bytes() == b"exe"
    shell_setup.undo(places, made)
    assert (user_path() or "") == (before or "")
    assert not (places.bin / "gptoss.exe").exists()


def test_one_installer_at_a_time(places: receipt.Places) -> None:
    log = steps.Log(places.log)
    with log.alone():
        log.note("first")  # which the lock allows
        with pytest.raises(steps.SetupError, match="Another"), log.alone():
            pass
    with log.alone():
        pass


def test_the_installer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    root = tmp_path / "gptoss"
    assert receipt.places() == receipt.Places(root / "app", root / "bin", root / "install.log")
    assert environments.program_of(tmp_path, "gptoss") == tmp_path / "Scripts" / "gptoss.exe"
    assert environments.site_of(tmp_path) == tmp_path / "Lib" / "site-packages"
    assert environments.find_compiler() is None
    assert llama_wheel.wheel_folder(tmp_path, "1", "cpu").parent == tmp_path
    with pytest.raises(SystemExit):
        setup_app.parse(["--help"])
    assert "usage: install.ps1" in capsys.readouterr().out
