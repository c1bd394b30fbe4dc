"""The installer's modules, which lie outside of the packages, and a home of a fresh user."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALLERS = Path(__file__).parents[2] / "installers"
sys.path.insert(0, str(INSTALLERS))
LLAMA = "0.3.36"
"""The version of llama-cpp-python that is pinned."""


@dataclass
class FreshUser:
    """One who has just logged in: a home of their own, and no variables of the developer's."""

    home: Path
    path: str = "/usr/local/bin:/usr/bin:/bin"

    @property
    def app(self) -> Path:
        return self.home / ".local/share/gptoss/app"

    @property
    def command(self) -> Path:
        return self.home / ".local/bin/gptoss"

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        given = {"HOME": str(self.home), "PATH": self.path, "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        return kept | {"PIP_RETRIES": "0"} | given | variables

    def install(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run install.sh without a terminal."""
        return self.run("/bin/sh", INSTALLERS / "install.sh", *arguments, **variables)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            env=self.environment(**variables),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def files(self) -> dict[str, bytes]:
        """All files of the home by their paths, except those inside an environment."""
        found = {}
        for path in self.home.rglob("*"):
            name = str(path.relative_to(self.home))
            if "/env-" not in name and (path.is_file() or path.is_symlink()):
                found[name] = b"" if path.is_symlink() else path.read_bytes()
        return found


@pytest.fixture
def user(tmp_path: Path) -> FreshUser:
    return FreshUser(tmp_path)


def kept_llama() -> Path:
    """Return llama.cpp's wheel for this CPU, from the cache; skip the test if there is none."""
    import llama_wheel

    cache = llama_wheel.cache_folder()
    kept = llama_wheel.wheel_in(llama_wheel.wheel_folder(cache, LLAMA, llama_wheel.LAYOUT))
    if kept is None:
        pytest.skip(f"no wheel of llama.cpp in {cache}: installers/from_source.py makes it")
    return kept


def without_compiler(folder: Path) -> str:
    """Return a PATH with the programs that install.sh needs, and no others."""
    folder.mkdir()
    for name in ("dirname", "find", "gzip", "mkdir", "mktemp", "rm", "tar", "ldconfig"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(sys.base_exec_prefix + "/bin/python3")
    return str(folder)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release's folder."""
    import release
    from steps import Log

    folder = tmp_path_factory.mktemp("release")
    release.make_release(Log(folder.parent / "release.log"), folder)
    return folder
