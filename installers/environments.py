"""Make Python environments for the installer, and find the C++ compiler for them."""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

from steps import Log, SetupError

_WINDOWS = os.name == "nt"
_LARGE_MB = 5
# "Downloading https://…/torch-2.13.0-cp311-….whl (80.1 MB)"; newer pips print the file's name only
_DOWNLOAD = re.compile(r"Downloading (?:\S*/)?([\w.]+-\d[\w.+]*)\S* \(([\d.]+) ([MG]B)\)")


def make_environment(log: Log, folder: Path) -> Path:
    """Make an environment with pip by this Python, or the uv in `GPTOSS_UV`; return its Python."""
    uv = os.environ.get("GPTOSS_UV", "")
    command = [sys.executable, "-m", "venv", "--clear", folder]
    if not importlib.util.find_spec("ensurepip"):
        command = [uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, folder]
    if not command[0]:
        hint = "Debian, Ubuntu: apt install python3-venv. Or install uv and run this again."
        raise SetupError("Python cannot make an environment with pip.", hint)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log.run(
        command,
        failed="Python could not make an environment",
        hint="Debian, Ubuntu: apt install python3-venv. Is the disk full?",
    )
    return python_of(folder)


def python_of(environment: Path) -> Path:
    return program_of(environment, "python")


def program_of(environment: Path, name: str) -> Path:
    return environment / ("Scripts" if _WINDOWS else "bin") / (name + (".exe" if _WINDOWS else ""))


def site_of(environment: Path) -> Path:
    if _WINDOWS:
        return environment / "Lib" / "site-packages"
    return next((environment / "lib").glob("python3*")) / "site-packages"


def pip(
    log: Log, python: Path, *arguments: str | Path, doing: str, env: dict[str, str] | None = None
) -> None:
    """Run pip in an environment; `doing` completes "pip failed to".

    Since version 25.1 pip resumes a file after a broken connection; older ones ignore the variable.
    """
    log.run(
        [python, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments],
        failed=f"pip failed to {doing}",
        hint="Without a network, or behind a proxy? pip follows HTTPS_PROXY and --index. "
        "Run the same command again to resume.",
        doing=f"pip, to {doing}",
        env={"PIP_RESUME_RETRIES": os.environ.get("PIP_RESUME_RETRIES", "5")} | (env or {}),
        on_line=lambda line: _say_what_pip_does(log, line),
    )


def install_dependencies(log: Log, python: Path, *options: str, is_cuda: bool = False) -> None:
    """Install the dependencies of gptoss: these files, by their hashes, or nothing."""
    names = ("requirements.txt", "requirements-cuda.txt")[: 1 + is_cuda]
    files = [f"--requirement={Path(__file__).with_name(name)}" for name in names]
    fixed = ("install", "--require-hashes", "--only-binary=:all:")
    pip(log, python, *fixed, *options, *files, doing="install what gptoss needs")


def _say_what_pip_does(log: Log, line: str) -> None:
    if file := _DOWNLOAD.match(line.strip()):
        name, size, unit = file.groups()
        if unit == "GB" or float(size) >= _LARGE_MB:
            log.say(f"  fetching {name} ({size} {unit})")
    elif line.startswith("Installing collected packages: "):
        log.say(f"  unpacking {line.count(',') + 1} packages")


def find_compiler() -> str | None:
    """Return the C++ compiler; Windows needs none, as llama.cpp's releases fit all of it."""
    if _WINDOWS:
        return None
    names = (os.environ.get("CXX") or "c++", "g++", "clang++")
    return next(filter(None, map(shutil.which, names)), None)
