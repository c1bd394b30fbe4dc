"""Each place where the code asks for its system, reached as on Windows.

Nothing here shows that it works there: it shows that the branch runs, and what it asks of Windows.
The platform is faked where the module asks: its own `sys` or `os`, and the modules Windows has.
"""

import ctypes
import fcntl
import gc
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from gptoss_local.api import client
from gptoss_local.cli import _tools, launch, web
from gptoss_local.cli.doctor import diagnosis, repair
from gptoss_local.cli.launch.agents import AGENTS, Setup
from gptoss_local.engine.llama import pinning
from gptoss_local.engine.worker.loading import read_ahead
from gptoss_local.machine import hardware
from gptoss_local.machine.plan import planner
from gptoss_local.machine.plan.hypothetical import imagine
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.models.pulling import process as pulling_process
from gptoss_local.server import app as server_app
from gptoss_local.settings import Settings
from gptoss_local.talk.tools.browser import reading
from gptoss_local.talk.tools.python import driver
from tests.installers.conftest import INSTALLERS  # makes the installer's modules importable
from tests.plan.machines import GIB, SMALL, gpu, machine
from tests.windows_branches import ROOT, branches
from tui import app as tui_app
from tui import attachments, clipboard, documents, paste, terminal_input

import cuda_toolkit  # isort: skip
import environments  # isort: skip
import llama_wheel  # isort: skip
import receipt  # isort: skip
import setup_app  # isort: skip
import shell_setup  # isort: skip
import steps  # isort: skip
import verification  # isort: skip

from convert import journal, writer  # isort: skip
from convert.journal import Journal  # isort: skip
from gptoss_local.errors import ConvertError  # isort: skip

PAGE = ROOT / "docs" / "windows.md"
_reached: set[str] = set()


def reaches(module: str, *functions: str) -> Callable[[Any], Any]:
    """Note which branches a test is for, by `tests.windows_branches`."""
    _reached.update(f"{module}:{name}" if name else module for name in functions)
    return lambda test: test


class Faked:
    """A module in which something is otherwise, or missing."""

    def __init__(self, module: ModuleType, *missing: str, **changes: object) -> None:
        self._module, self._missing = module, missing
        self.__dict__.update(changes)

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(name)
        return getattr(self._module, name)


WINDOWS = Faked(sys, platform="win32")
NT = Faked(os, "fchmod", "geteuid", "killpg", "sysconf", "RWF_NOWAIT", "pwrite", "fdatasync",
           name="nt", O_BINARY=0)  # fmt: skip


@dataclass
class Msvcrt:
    """Keys that are waiting, and the locks of bytes, which flock keeps here."""

    LK_NBLCK: int = 2
    keys: list[str] = field(default_factory=list)

    def kbhit(self) -> bool:
        return bool(self.keys)

    def getwch(self) -> str:
        return self.keys.pop()

    def locking(self, fd: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (self.LK_NBLCK, 1)
        assert os.lseek(fd, 0, os.SEEK_CUR) == 2**30, "what is locked cannot be read or written"
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def msvcrt(monkeypatch: pytest.MonkeyPatch) -> Msvcrt:
    fake = Msvcrt()
    monkeypatch.setitem(sys.modules, "msvcrt", fake)  # type: ignore[arg-type]
    for name in ("fcntl", "termios", "resource"):  # which must not be asked for
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    return fake


def imported(path: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a second copy of a module, as it is when Windows imports it."""
    spec = importlib.util.spec_from_file_location("on_windows", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        patch.setitem(sys.modules, "on_windows", module)
        spec.loader.exec_module(module)
    return module


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put programs of Windows on PATH: shell scripts that answer as they do."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@reaches("gptoss_local/cli/_tools.py", "_forget_typed")
def test_what_was_typed_before_a_question(msvcrt: Msvcrt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `y` from before would allow a call that its user has not seen."""
    monkeypatch.setattr(_tools, "sys", WINDOWS)
    msvcrt.keys = list("y\r")
    _tools._forget_typed()
    assert msvcrt.keys == []


@reaches("gptoss_local/cli/web.py", "firewall_command")
def test_the_firewall_for_a_phone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "sys", WINDOWS)
    command = web.firewall_command("192.168.1.5", 11434)
    assert command.startswith("netsh advfirewall firewall add rule ")
    assert "localport=11434" in command


@reaches("gptoss_local/cli/launch/__init__.py", "_print_settings", "_start", "_is_windows")
def test_launch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(launch, "sys", Faked(sys, platform="win32"))
    setup = Setup({"BASE": "it's", launch.KEY_VARIABLE: "x"}, ("--model", "a b"))
    agent = next(iter(AGENTS.values()))
    launch._print_settings(agent, setup, [], Settings(), json=False)
    assert capsys.readouterr().out.splitlines() == [
        "$env:BASE = 'it''s'",
        f'{agent.program} --model "a b"',
    ]
    with pytest.raises(typer.Exit) as ended:
        launch._start(Path(sys.executable), Setup(), ["-c", "exit(3)"], Settings())
    assert ended.value.exit_code == 3


@reaches("gptoss_local/api/client.py", "_open_log", "_spawn_server")
@reaches("gptoss_local/models/pulling/process.py", "start")
def test_processes_that_outlive_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They get no console that could be seen or closed, and no Ctrl-C."""
    started: list[int] = []
    fake = Faked(
        subprocess,
        CREATE_NO_WINDOW=0x08000000,
        CREATE_NEW_PROCESS_GROUP=0x00000200,
        Popen=lambda *_, **options: started.append(options["creationflags"]),
    )
    for module in (client, pulling_process):
        monkeypatch.setattr(module, "sys", WINDOWS)
        monkeypatch.setattr(module, "subprocess", fake)
    client._spawn_server(Settings(), 1)
    pulling_process.start("nano", Settings(), gguf=False)
    assert started == [0x08000200, 0x00000200]
    monkeypatch.setattr(client, "os", NT)
    with client._open_log(tmp_path / "log" / "server.log") as log:
        log.write(b"said")


@reaches("gptoss_local/engine/worker/loading/read_ahead.py", "read_ahead")
@reaches("gptoss_local/engine/llama/pinning.py", "can_pin")
@reaches("gptoss_local/machine/hardware.py", "pinnable_bytes", "_platform", "_n_cores")
@reaches("gptoss_local/machine/hardware.py", "_disk_kind")
def test_what_windows_does_not_say(
    monkeypatch: pytest.MonkeyPatch, nano_gguf: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(read_ahead, "os", NT)
    assert read_ahead.read_ahead(nano_gguf, lambda _: None) == 0.0
    monkeypatch.setattr(pinning, "sys", WINDOWS)
    monkeypatch.setattr(pinning, "gpu_function", lambda *_: object())
    assert not pinning.can_pin()
    assert hardware.pinnable_bytes("windows", 64 * GIB, 60 * GIB) == 32 * GIB
    monkeypatch.setattr(hardware, "sys", WINDOWS)
    assert hardware._platform() == "windows"
    assert hardware._n_cores(tmp_path, tmp_path)[1] is None
    monkeypatch.setattr(hardware, "os", NT)
    assert hardware._disk_kind(tmp_path, tmp_path) is None


@reaches("gptoss_local/cli/doctor/diagnosis.py", "_gpu")
@reaches("gptoss_local/machine/plan/hypothetical.py", "imagine", "_imagine_gpu")
@reaches("gptoss_local/machine/plan/planner.py", "gpu_budget", "_plan")
def test_a_card_under_wddm() -> None:
    card, plain = gpu(16, is_wddm=True), gpu(16)
    budgets = [planner.gpu_budget(each, PlanOptions()) for each in (plain, card)]
    assert budgets[0] - budgets[1] == 16 * GIB * 3 // 100 + 1
    there = machine(card, platform="windows")
    plan = planner.make_plan(SMALL, there)
    assert plan.uses_gpu
    imagined, _ = imagine(there, [8 * GIB])
    assert [each.is_wddm for each in imagined.gpus] == [True]
    found = diagnosis._gpu(card, diagnosis.Driver("580.1", (13, 0)), there)
    assert "pages VRAM to RAM" in found.fix


@reaches("gptoss_local/cli/doctor/repair.py", "folder_faults", "_folder_fault")
@reaches("gptoss_local/cli/doctor/repair.py", "_command", "_service")
def test_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    settings.history_path.touch(mode=0o644)
    monkeypatch.setattr(repair, "os", NT)
    assert list(repair.folder_faults(settings)) == []
    scripts = tmp_path / "Scripts"
    scripts.mkdir()
    (scripts / "gptoss.exe").touch()
    monkeypatch.setattr(repair, "sys", WINDOWS)
    monkeypatch.setattr(repair.sysconfig, "get_path", lambda _: str(scripts))
    monkeypatch.setenv("PATH", str(tmp_path))
    (fault,) = repair._command()
    assert fault.repair is None
    assert str(scripts) in fault.fix
    assert list(repair._service()) == []


@reaches("gptoss_local/server/app.py", "_bind")
@reaches("gptoss_local/server/connections.py", "")
def test_server(monkeypatch: pytest.MonkeyPatch, msvcrt: Msvcrt) -> None:
    monkeypatch.setattr(server_app, "os", NT)
    with server_app._bind(Settings(port=0)) as listener:
        assert not listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    module = imported("gptoss_local/server/connections.py", monkeypatch)
    assert module._raise_file_limit(10**6) is None


@reaches("gptoss_local/talk/tools/browser/reading.py", "_limit_memory")
@reaches("gptoss_local/talk/tools/python/driver.py", "_limit_this_process", "MontySandbox.kill")
def test_limits_of_a_process(monkeypatch: pytest.MonkeyPatch, msvcrt: Msvcrt) -> None:
    for module in (reading, driver):
        monkeypatch.setattr(module, "sys", WINDOWS)
    reading._limit_memory()
    driver._limit_this_process()
    monkeypatch.setattr(driver, "signal", Faked(signal, "SIGKILL"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        sandbox: Any = driver.MontySandbox.__new__(driver.MontySandbox)
        sandbox._pid = process.pid
        sandbox.kill()
        assert process.wait(30) == -signal.SIGTERM


@reaches("convert/journal.py", "", "_open_locked", "Journal.close")
def test_the_lock_of_a_conversion(
    monkeypatch: pytest.MonkeyPatch, msvcrt: Msvcrt, tmp_path: Path
) -> None:
    there = imported("convert/journal.py", monkeypatch)
    monkeypatch.setattr(journal, "_lock", there._lock)
    monkeypatch.setattr(journal, "sys", WINDOWS)
    monkeypatch.setattr(journal, "os", NT)
    first = Journal(tmp_path / "a.gguf")
    first.begin(tmp_path, "plan", [])
    with pytest.raises(ConvertError, match="Another gptoss"):
        Journal(tmp_path / "a.gguf")
    first.close(remove=True)
    assert not first.path.exists()


@reaches("convert/writer.py", "_PartialFile.__init__", "_PartialFile._write_once")
@reaches("convert/writer.py", "_PartialFile.sync")
def test_parts_of_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(writer, "sys", WINDOWS)
    monkeypatch.setattr(writer, "os", NT)
    file = writer._PartialFile(tmp_path / "part", keep=False)
    file.write(np.frombuffer(b"world", np.uint8), 6)
    file.write(np.frombuffer(b"hello\n", np.uint8), 0)
    file.sync()
    file.close()
    assert (tmp_path / "part").read_bytes() == b"hello\nworld"


@reaches("tui/app.py", "ChatApp.on_ready")
@reaches("tui/terminal_input.py", "guard_input")
@reaches("tui/clipboard.py", "copy_natively", "native_command")
def test_the_chat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (tui_app, terminal_input, clipboard):
        monkeypatch.setattr(module, "sys", WINDOWS)
    tui_app.ChatApp.on_ready(SimpleNamespace())  # type: ignore[arg-type]  # no loop is asked
    gc.unfreeze()
    monkeypatch.setitem(sys.modules, "textual.drivers.linux_driver", None)  # type: ignore[arg-type]
    terminal_input.guard_input()
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    programs(tmp_path, monkeypatch, clip=f'cat > "{tmp_path}/copied"')
    assert clipboard.copy_natively("für ☃")
    assert (tmp_path / "copied").read_bytes() == "für ☃".encode("utf-16-le")


@reaches("tui/attachments.py", "_split_pattern")
@reaches("tui/documents.py", "image_in")
@reaches("tui/paste.py", "dropped_paths")
def test_backslashes_in_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (attachments, documents, paste):
        monkeypatch.setattr(module, "os", NT)
    assert attachments._split_pattern(r"src\lib\*.py") == ("src/lib", "*.py")
    image = tmp_path / r"my\pictures.png"
    image.touch()
    assert documents.image_in(f"what is in {image}", tmp_path) == image
    for quote in ("", '"'):
        dropped = f"{quote}{image}{quote} {quote}{tmp_path}{quote}"
        assert paste.dropped_paths(dropped) == [str(image), str(tmp_path)]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "nvidia" / "cu13"
    (root / "bin" / "x86_64").mkdir(parents=True)
    (root / "bin" / "x86_64" / "cublas64_13.dll").write_bytes(b"dll")
    (tmp_path / "llama_cpp" / "lib").mkdir(parents=True)
    return tmp_path


@reaches("installers/cuda_toolkit.py", "build_environment")
def test_cuda(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    monkeypatch.setattr(cuda_toolkit, "os", NT)
    assert cuda_toolkit.build_environment(site)["CUDACXX"].endswith("nvcc.exe")


VSWHERE = Path("Microsoft Visual Studio", "Installer")


@reaches("installers/environments.py", "", "program_of", "site_of")
@reaches("installers/environments.py", "find_compiler", "compiler_environment")
def test_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        spec = importlib.util.spec_from_file_location("on_nt", INSTALLERS / "environments.py")
        assert spec is not None
        assert spec.loader is not None
        there: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(there)
    assert there._WINDOWS
    assert there.program_of(tmp_path, "gptoss") == tmp_path / "Scripts" / "gptoss.exe"
    assert there.site_of(tmp_path) == tmp_path / "Lib" / "site-packages"
    monkeypatch.setenv("PROGRAMFILES(X86)", str(tmp_path))
    assert there.find_compiler() is None
    assert there.compiler_environment() == {}
    (tmp_path / VSWHERE).mkdir(parents=True)
    programs(tmp_path / VSWHERE, monkeypatch, **{"vswhere.exe": "echo 'C:\\VS'"})
    programs(tmp_path, monkeypatch, cmd='case "$3" in *vcvars64.bat*) echo "Include=x=y";; esac')
    assert there.find_compiler() == r"C:\VS"
    assert there.compiler_environment() == {"INCLUDE": "x=y", "CMAKE_GENERATOR": "Ninja"}
    assert not environments._WINDOWS


@reaches("installers/llama_wheel.py", "wheel_folder", "n_jobs")
@reaches("installers/receipt.py", "places")
@reaches("installers/setup_app.py", "parse")
@reaches("installers/verification.py", "_cpuinfo")
def test_the_installer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = llama_wheel.wheel_folder(tmp_path, "1", "cpu")
    for module in (llama_wheel, receipt):
        monkeypatch.setattr(module, "sys", WINDOWS)
    for module in (llama_wheel, setup_app, verification):
        monkeypatch.setattr(module, "os", NT)
    assert llama_wheel.wheel_folder(tmp_path, "1", "cpu") != here
    assert llama_wheel.n_jobs() == (os.cpu_count() or 1)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    root = tmp_path / "gptoss"
    assert receipt.places() == receipt.Places(root / "app", root / "bin", root / "install.log")
    with pytest.raises(SystemExit):
        setup_app.parse(["--help"])
    assert "usage: install.ps1" in capsys.readouterr().out
    assert verification._cpuinfo() == ""


@pytest.fixture
def places(tmp_path: Path) -> receipt.Places:
    return receipt.Places(tmp_path / "app", tmp_path / "my bin", tmp_path / "install.log")


class Registry:
    """`winreg`, with the one value that is used."""

    HKEY_CURRENT_USER, KEY_SET_VALUE, REG_EXPAND_SZ = 1, 2, 2

    def __init__(self) -> None:
        self.path: str | None = r"%USERPROFILE%\bin"

    def OpenKey(self, *_: object) -> "Registry":
        return self

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def QueryValueEx(self, _key: object, name: str) -> tuple[str, int]:
        assert name == "Path"
        if self.path is None:
            raise FileNotFoundError
        return self.path, self.REG_EXPAND_SZ

    def SetValueEx(self, _key: object, name: str, _0: int, kind: int, text: str) -> None:
        assert (name, kind) == ("Path", self.REG_EXPAND_SZ)
        self.path = text


@reaches("installers/shell_setup.py", "check_command", "put_on_path", "undo", "command_of")
@reaches("installers/windows_path.py", "")
def test_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, places: receipt.Places) -> None:
    registry, told = Registry(), []
    monkeypatch.setitem(sys.modules, "winreg", registry)  # type: ignore[arg-type]
    windows_path = imported("installers/windows_path.py", monkeypatch)
    user32 = SimpleNamespace(SendMessageTimeoutW=lambda *words: told.append(words))
    fake = Faked(ctypes, windll=SimpleNamespace(user32=user32))
    monkeypatch.setattr(windows_path, "ctypes", fake)
    monkeypatch.setitem(sys.modules, "windows_path", windows_path)
    for module in (shell_setup, environments):
        monkeypatch.setattr(module, "sys", WINDOWS)
    monkeypatch.setattr(environments, "_WINDOWS", True)
    environment = tmp_path / "env"
    (environment / "Scripts").mkdir(parents=True)
    (environment / "Scripts" / "gptoss.exe").write_bytes(b"exe")
    made = receipt.Receipt("1", "env", "")
    shell_setup.check_command(places)
    said = shell_setup.put_on_path(places, environment, made, edit=True)
    assert "on PATH in every new window" in said[0]
    assert registry.path == rf"%USERPROFILE%\bin;{places.bin}"
    assert len(told) == 1
    assert "on PATH" not in shell_setup.put_on_path(places, environment, made, edit=True)[0]
    assert (places.bin / "gptoss.exe").read_bytes() == b"exe"
    shell_setup.undo(places, made)
    assert registry.path == r"%USERPROFILE%\bin"
    assert not (places.bin / "gptoss.exe").exists()
    registry.path = None
    assert windows_path.add(places.bin)
    assert registry.path == str(places.bin)


@reaches("installers/steps.py", "_lock")
def test_one_installer_at_a_time(
    monkeypatch: pytest.MonkeyPatch, msvcrt: Msvcrt, tmp_path: Path
) -> None:
    monkeypatch.setattr(steps, "sys", WINDOWS)
    with (tmp_path / "log").open("ab") as first, (tmp_path / "log").open("ab") as second:
        assert steps._lock(first.fileno())
        assert not steps._lock(second.fileno())


def test_the_page_names_all_modules() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:gptoss_local|convert|tui|installers)/[\w/]+\.py)`", text))
    assert named == {where.partition(":")[0] for where in branches()}
    assert len(text.split()) <= 900
