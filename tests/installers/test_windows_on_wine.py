"""The environment of Windows' Python, refused before its first step; tests/windows uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from steps import Log

from tests.installers.conftest import INSTALLERS


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH on which the programs are found, without running any."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("wine", "x86_64-w64-mingw32-g++-posix"):
        (folder / name).write_text("#!/bin/false\n")
        (folder / name).chmod(0o755)
    return folder


def set_up(home: Path, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INSTALLERS / "windows_on_wine.py"), "--version"]
    own = {"WINE_HOME": str(home), "PATH": str(path)}
    return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)


def test_one_set_up_at_a_time(tmp_path: Path, programs: Path) -> None:
    home = tmp_path / "home"
    with Log(home / "setup.log").alone():
        done = set_up(home, programs)
    assert done.returncode == 1
    assert "Another gptoss installer is running." in done.stderr
    assert [path.name for path in home.iterdir()] == ["setup.log"]
