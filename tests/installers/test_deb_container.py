"""The whole Debian package in a fresh Debian, with a systemd of its own: `pytest -m deb`.

It takes root, a mirror of Debian, and minutes.
"""

import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from deb.facts import PYTHON

from tests.installers.conftest import INSTALLERS

TOOLS = ("debootstrap", "dpkg-deb", "dpkg-shlibdeps", "lintian", "nsenter", "systemd-nspawn")
SYSTEM = "bash-completion,dbus,dbus-user-session,libpam-systemd,man-db,systemd,systemd-sysv"
NSPAWN = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit")
QUESTION = ("gptoss", "run", "nano", "What is the capital of France?")
START_S = 120

pytestmark = [pytest.mark.deb, pytest.mark.timeout(3600)]


class Container:
    """A Debian in a folder, which runs single commands until it is booted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._inside: tuple[str, ...] = ()
        self._leader = 0

    def ask(self, *command: str, user: str = "root", network: bool = False) -> str:
        """Run a command, without a network unless asked for, and return what it prints."""
        done = subprocess.run(
            self._command(command, user, network),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def succeeds(self, *command: str, user: str = "root") -> bool:
        done = subprocess.run(self._command(command, user, False), capture_output=True)
        return done.returncode == 0

    def _command(self, command: tuple[str, ...], user: str, network: bool) -> list[str]:
        if self._inside:
            number = "0" if user == "root" else self.ask("id", "-u", user).strip()
            variables = (f"XDG_RUNTIME_DIR=/run/user/{number}", f"HOME=/home/{user}")
            return [*self._inside, "runuser", "-u", user, "--", "env", *variables, *command]
        options = ["--pipe", "--as-pid2", f"--user={user}", "-D", str(self.root)]
        alone = [] if network else ["--private-network"]
        return [*NSPAWN, *alone, *options, *command]

    def boot(self) -> subprocess.Popen[bytes]:
        """Start its systemd, for `ask` from now on."""
        command = [*NSPAWN, "--private-network", "--console=pipe", "--boot", "-D", str(self.root)]
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        parent = psutil.Process(program.pid)
        wait_for(lambda: bool(parent.children()))
        (self._leader,) = [child.pid for child in parent.children()]
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        self._inside = ("nsenter", "-t", str(self._leader), "-a", "env", "-i", path)
        wait_for(lambda: self.succeeds("systemctl", "is-active", "multi-user.target"))
        return program

    def servers(self) -> list[str]:
        """Return the commands of running servers, as the host sees them."""
        programs = psutil.Process(self._leader).children(recursive=True)
        return [line for each in programs if "gptoss serve" in (line := " ".join(each.cmdline()))]

    def files(self, *places: str) -> set[str]:
        found = (path for place in places for path in (self.root / place).rglob("*"))
        return {str(path.relative_to(self.root)) for path in found}


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture(scope="module")
def deb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "deb" not in request.config.option.markexpr:
        pytest.skip("takes minutes: pytest -m deb")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        pytest.skip(f"no {', '.join(missing)}")
    if os.getuid():
        pytest.skip("only root can make a container")
    folder = tmp_path_factory.mktemp("deb")
    release: Path = request.getfixturevalue("release")
    wheel = next(release.glob("llama_cpp_python-*.whl"))
    command = [PYTHON, INSTALLERS / "deb" / "build.py", "--llama-wheel", wheel, "--out", folder]
    quick = os.environ | {"DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    done = subprocess.run(command, env=quick, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def debian(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    root = tmp_path_factory.mktemp("debian")
    root.chmod(0o755)  # it becomes / for all users
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    options = ("--variant=minbase", f"--include={SYSTEM}")
    subprocess.run(["debootstrap", *options, codename, root], check=True, capture_output=True)
    shutil.copy(deb, root / "srv" / "gptoss.deb")
    container = Container(root)
    container.ask("useradd", "--create-home", "--shell", "/bin/bash", "ann")
    yield container
    shutil.rmtree(root)


def test_lintian_finds_nothing(deb: Path) -> None:
    options = ("--fail-on", "error,warning", "--allow-root", "--tag-display-limit", "0")
    done = subprocess.run(["lintian", *options, deb], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_install_use_upgrade_and_remove(debian: Container) -> None:
    places = ("etc", "usr", "var/lib/systemd")
    before = debian.files(*places)
    install = ("apt-get", "install", "--yes", "--no-install-recommends", "/srv/gptoss.deb")
    debian.ask("apt-get", "update", network=True)
    debian.ask("env", "DEBIAN_FRONTEND=noninteractive", *install, network=True)

    # all that it brings is found
    assert "Paris" in debian.ask(*QUESTION, user="ann")
    assert debian.ask("man", "-w", "gptoss-run").strip() == "/usr/share/man/man1/gptoss-run.1.gz"
    assert "Ask MODEL" in debian.ask("whatis", "gptoss-run")
    load = "source /usr/share/bash-completion/bash_completion; _completion_loader gptoss"
    assert "-F _gptoss gptoss" in debian.ask("bash", "-c", f"{load}; complete -p gptoss")
    bytecode = "gptoss_local/cli/__pycache__/main.cpython-"
    assert any(bytecode in name for name in debian.files("usr/lib/gptoss"))

    booted = debian.boot()
    try:
        use_service(debian)
        home = debian.files("home/ann")
        assert "home/ann/.local/share/gptoss" in home
        debian.ask("apt-get", "purge", "--yes", "gptoss")
        wait_for(lambda: debian.servers() == [])
    finally:
        shut_down(booted)
    left = {name for name in debian.files(*places) - before if "gptoss" in name}
    assert left == set()
    assert debian.files("home/ann") >= home


def use_service(debian: Container) -> None:
    """Start a server as a user does, and upgrade the package, which restarts it."""
    debian.ask("loginctl", "enable-linger", "ann")
    wait_for(lambda: debian.succeeds("systemctl", "--user", "is-system-running", user="ann"))
    unit = "/usr/lib/systemd/user/gptoss.service"
    assert debian.ask("systemd-analyze", "verify", "--user", "--man=no", unit, user="ann") == ""
    debian.ask("systemctl", "--user", "enable", "--now", "gptoss", user="ann")
    wait_for(lambda: debian.succeeds("gptoss", "status", user="ann"))
    assert "Paris" in debian.ask(*QUESTION, user="ann")
    debian.ask("gptoss", "cp", "nano", "mine", user="ann")
    show = ("systemctl", "--user", "show", "--property=MainPID", "gptoss")
    first = debian.ask(*show, user="ann")
    debian.ask("dpkg", "--install", "/srv/gptoss.deb")
    assert len(debian.servers()) == 1
    assert debian.ask(*show, user="ann") not in (first, "MainPID=0\n")
    wait_for(lambda: debian.succeeds("gptoss", "status", user="ann"))


def shut_down(booted: subprocess.Popen[bytes]) -> None:
    booted.send_signal(signal.SIGTERM)  # systemd-nspawn powers it off
    try:
        booted.wait(START_S)
    except subprocess.TimeoutExpired:
        booted.kill()
