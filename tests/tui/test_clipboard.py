"""The desktop's own clipboard program, played by a script in its place."""

import sys
from pathlib import Path

import pytest

from tui.app import copy_natively, native_command


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An X11 desktop whose `xclip` writes to the file that is returned."""
    program = tmp_path / "xclip"
    program.write_text(f'#!/bin/sh\ncat > "{tmp_path}/clipboard"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("WAYLAND_DISPLAY", "SSH_CONNECTION", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "clipboard"


@pytest.mark.skipif(sys.platform != "linux", reason="xclip is X11's")
def test_a_text_reaches_the_program(desktop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over SSH, not without a desktop, and not if the program fails."""
    with monkeypatch.context() as patched:
        patched.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
        assert not copy_natively("x")
    with monkeypatch.context() as patched:
        patched.delenv("DISPLAY")
        assert not copy_natively("x")
    assert not desktop.exists()
    assert copy_natively("Grüße\n🙂")
    assert desktop.read_text(encoding="utf-8") == "Grüße\n🙂"
    (desktop.parent / "xclip").write_text("#!/bin/sh\nexit 1\n")
    assert not copy_natively("x")


def test_programs_of_other_systems() -> None:
    for platform, program in (("win32", "clip"), ("darwin", "pbcopy")):
        assert native_command({}, platform) in ([], [program])  # [] where it is not installed
        assert native_command({"SSH_CONNECTION": "x"}, platform) == []
