"""The installer's modules, which lie outside of the packages, and a home of a fresh user."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALLERS = Path(__file__).parents[2] / "installers"
sys.path.insert(0, str(INSTALLERS))


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
        """Run install.sh; nobody can answer."""
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
        """All files of the home by their paths, but for what is inside of an environment."""
        found = {}
        for path in self.home.rglob("*"):
            name = str(path.relative_to(self.home))
            if "/env-" not in name and (path.is_file() or path.is_symlink()):
                found[name] = b"" if path.is_symlink() else path.read_bytes()
        return found


@pytest.fixture
def user(tmp_path: Path) -> FreshUser:
    return FreshUser(tmp_path)
