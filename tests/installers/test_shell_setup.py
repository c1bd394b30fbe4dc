"""The command on PATH and its lines in the user's files."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import shell_setup
from receipt import Places, Receipt
from steps import SetupError

MADE = Receipt("1", "env-1", "")
PROGRAM = "#!/bin/sh\necho complete -F x gptoss\n"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    app = tmp_path / ".local/share/gptoss/app"
    return Places(app, tmp_path / ".local/bin", tmp_path / "install.log")


def environment(places: Places, name: str = "env-1") -> Path:
    folder = places.app / name
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "gptoss").write_text(PROGRAM)
    (folder / "bin" / "gptoss").chmod(0o755)
    return folder


@pytest.mark.quick
@pytest.mark.parametrize(
    ("shell", "file", "line"),
    [
        ("/bin/bash", ".bashrc", 'export PATH="{}:$PATH"'),
        ("/usr/bin/zsh", ".zshrc", 'export PATH="{}:$PATH"'),
        ("/usr/bin/fish", ".config/fish/config.fish", 'set -gx PATH "{}" $PATH'),
        ("/bin/dash", ".profile", 'export PATH="{}:$PATH"'),
    ],
)
@pytest.mark.parametrize("before", [None, b"", b"# mine\n", b"# m\xefne\r\n", b"# no end of line"])
def test_start_up_file_gets_a_line_and_loses_it(
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
    file: str,
    line: str,
    before: bytes | None,
) -> None:
    monkeypatch.setenv("SHELL", shell)
    path = Path.home() / file
    if before is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before)
    made = Receipt("1", "env-1", "")
    for _ in range(2):  # an upgrade adds no second one
        shell_setup.put_on_path(places, environment(places), made, edit=True)
        wanted = line.format(places.bin) + "  " + shell_setup.MARK
        assert path.read_bytes().splitlines().count(wanted.encode()) == 1
        monkeypatch.setenv("PATH", f"{places.bin}:/usr/bin:/bin")  # as in a new terminal
    shell_setup.undo(places, made)
    if before is None:
        assert not path.exists()
    else:
        assert path.read_bytes() == before + (b"\n" if before.endswith(b"line") else b"")
    assert not (places.bin / "gptoss").exists()
    assert not [
        p for p in Path.home().rglob("*gptoss*") if p.is_file() and places.app not in p.parents
    ]


@pytest.mark.parametrize("shell", ["bash", "dash", "fish"])
def test_any_home_gets_on_path(places: Places, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    program = shutil.which(shell) or pytest.skip(f"needs {shell}")
    places = replace(places, bin=Path.home() / 'a "$HOME" `b` \\ c' / "bin")
    monkeypatch.setenv("SHELL", program)
    shell_setup.put_on_path(places, environment(places), MADE, edit=True)
    files = (".bashrc", ".zshrc", ".config/fish/config.fish", ".profile")
    (file,) = (path for name in files if (path := Path.home() / name).exists())
    run = subprocess.run([program, "-c", f". {file}; gptoss x"], capture_output=True, check=True)
    assert run.stdout == b"complete -F x gptoss\n"


def test_nothing_is_edited_unless_wanted_and_needed(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    notes = shell_setup.put_on_path(places, environment(places), MADE, edit=False)
    assert any("export PATH" in note for note in notes)
    monkeypatch.setenv("PATH", f"{places.bin}:/usr/bin")
    assert shell_setup.put_on_path(places, environment(places), MADE, edit=True) == []
    assert not (Path.home() / ".bashrc").exists()


def test_command_changes_over_at_once(places: Places) -> None:
    shell_setup.put_on_path(places, environment(places), MADE, edit=False)
    shell_setup.check_command(places)  # ours
    shell_setup.put_on_path(places, environment(places, "env-2"), MADE, edit=False)
    assert (places.bin / "gptoss").resolve() == places.app / "env-2/bin/gptoss"


@pytest.mark.quick
def test_a_link_of_somebody_else_is_refused(places: Places) -> None:
    places.bin.mkdir(parents=True)
    (places.bin / "gptoss").symlink_to("/opt/other/gptoss")
    with pytest.raises(SetupError, match="not from this installer") as caught:
        shell_setup.check_command(places)
    assert "mv " in caught.value.hint
