"""The command on PATH, its completion, and the service that an installer has set up."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote

from gptoss_local.cli.doctor.diagnosis import Finding
from gptoss_local.cli.doctor.repair.fault import Fault
from gptoss_local.errors import GptOssError

_UNIT = "gptoss.service"
_SYSTEMCTL_S = 20


def shell_faults(completion_script: Callable[[str], str]) -> Iterator[Fault]:
    """Yield what keeps `gptoss` from being a command, its completion, and its service."""
    yield from _command()
    yield from _completion(completion_script)
    yield from _service()


def _command() -> Iterator[Fault]:
    name = "gptoss.exe" if sys.platform == "win32" else "gptoss"
    program = Path(sysconfig.get_path("scripts")) / name
    found = shutil.which("gptoss")
    if not program.is_file():
        return  # run from source, where there is no command to find
    if found is not None:
        if not _is_same(Path(found), program):
            text = f"`gptoss` is {found}, and not the one that is running, {program}."
            yield Fault(Finding("command", "note", text, "Remove the one that you do not want."))
        return
    link = Path.home() / ".local" / "bin" / "gptoss"
    if link.is_file() and _is_same(link, program):
        program = link  # the installer's, which stays where an upgrade replaces the program
    text = f"`gptoss` is not on PATH; it is {program}."
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if os.name == "posix" and str(link.parent) in folders and not os.path.lexists(link):
        yield Fault(
            Finding("command", "note", text, f"ln -s {quote(str(program))} {quote(str(link))}"),
            f"Link it into {link.parent}?",
            partial(_link, link, program),
        )
        return
    fix = f"Add {program.parent} to PATH in your shell's start-up file, which is yours to edit."
    yield Fault(Finding("command", "note", text, fix))


def _is_same(found: Path, program: Path) -> bool:
    """Compare the files, or find the running Python in the command."""
    if found.resolve() == program.resolve():
        return True
    try:
        return sys.executable.encode() in found.read_bytes()[:4096]
    except OSError:
        return False


def _link(link: Path, program: Path) -> str:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(program)
    return f"{link} leads to it now."


def _completion(script: Callable[[str], str]) -> Iterator[Fault]:
    shell = Path(os.environ.get("SHELL", "")).name
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = {
        "bash": [
            data / "bash-completion/completions/gptoss",
            Path("/usr/share/bash-completion/completions/gptoss"),
        ],
        "fish": [
            config / "fish/completions/gptoss.fish",
            Path("/usr/share/fish/vendor_completions.d/gptoss.fish"),
        ],
        "zsh": [
            data / "gptoss/app/completion.zsh",
            Path("/usr/share/zsh/vendor-completions/_gptoss"),
        ],
    }
    startup = {
        "bash": home / ".bashrc",
        "fish": config / "fish/config.fish",
        "zsh": Path(os.environ.get("ZDOTDIR") or home) / ".zshrc",
    }
    if shell not in places or any(place.is_file() for place in places[shell]):
        return
    if _mentions(startup[shell], b"gptoss completion"):
        return
    text = f"{shell} does not complete commands and models of gptoss at Tab."
    if shell == "zsh":  # it looks into no folder of the user by itself
        fix = "Add to your .zshrc, which is yours to edit: source <(gptoss completion zsh)"
        yield Fault(Finding("completion", "note", text, fix))
        return
    target = places[shell][0]
    yield Fault(
        Finding("completion", "note", text, f"gptoss completion {shell} > {quote(str(target))}"),
        f"Write {target}?",
        partial(_write_completion, target, script, shell),
    )


def _mentions(file: Path, text: bytes) -> bool:
    try:
        return text in file.read_bytes()
    except OSError:
        return False


def _write_completion(target: Path, script: Callable[[str], str], shell: str) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(script(shell), encoding="utf-8")
    return "It works in every new terminal."


def _service() -> Iterator[Fault]:
    if sys.platform != "linux" or _systemctl("is-enabled") != "enabled":
        return
    state = _systemctl("is-active")
    if state in ("inactive", "failed"):
        yield Fault(
            Finding(
                "service",
                "problem" if state == "failed" else "note",
                f"The service gptoss starts at login, but does not run now ({state}).",
                "systemctl --user status gptoss says why.",
            ),
            "Start it?",
            _start_service,
        )


def _start_service() -> str:
    _systemctl("reset-failed")  # after several failures systemd starts it no more
    _systemctl("start")
    if (state := _systemctl("is-active")) not in ("active", "activating"):
        raise GptOssError(
            f"the service is {state}", hint="systemctl --user status gptoss says why."
        )
    return "It runs now."


def _systemctl(command: str) -> str:
    """Return systemd's answer about our unit; empty without one."""
    try:
        done = subprocess.run(
            ["systemctl", "--user", command, _UNIT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SYSTEMCTL_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
