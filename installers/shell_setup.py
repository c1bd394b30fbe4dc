"""Put the command on PATH, with completion. The receipt records every change, to undo it."""

import os
import re
import shutil
import sys
from pathlib import Path

from environments import program_of
from receipt import Places, Receipt
from steps import SetupError, answer_of

MARK = "# gptoss: added by its installer"


def check_command(places: Places) -> None:
    command = command_of(places)
    if sys.platform == "win32" or not os.path.lexists(command):
        return
    if not command.is_symlink() or places.app not in Path(os.readlink(command)).parents:
        hint = f"Move it away: mv {command} {command}.old"
        raise SetupError(f"{command} is there already, and not from this installer.", hint)


def put_on_path(places: Places, environment: Path, receipt: Receipt, edit: bool) -> list[str]:
    """Make `gptoss` a command with completion; return notes for the user.

    With `edit` the start-up file of the user's shell gets a line, where one is needed.
    """
    program, command = program_of(environment, "gptoss"), command_of(places)
    places.bin.mkdir(parents=True, exist_ok=True)
    receipt.files.append(str(command))
    if sys.platform == "win32":
        import windows_path

        shutil.copy(program, command)
        if edit and windows_path.add(places.bin):
            return [f"{places.bin} is on PATH in every new window.", _POWERSHELL]
        return [_POWERSHELL]
    partial = command.with_name(".gptoss.partial")
    partial.unlink(missing_ok=True)
    partial.symlink_to(program)
    partial.replace(command)
    shell = Path(os.environ.get("SHELL", "sh")).name
    _write_completion(places, program, receipt)
    lines = _lines(places, shell)
    if not lines:
        return []
    if not edit:
        return ["Add to the start-up file of your shell:", *(f"  {line}" for line in lines)]
    file = _startup_file(shell)
    _add_lines(file, lines, receipt)
    return [f"{file} has a line for gptoss now; it counts in every new terminal."]


def undo(places: Places, receipt: Receipt) -> None:
    for name in receipt.files:
        Path(name).unlink(missing_ok=True)
    for name, is_ours in receipt.edited.items():
        _remove_lines(Path(name), is_ours)
    if sys.platform == "win32":
        import windows_path

        windows_path.remove(places.bin)


_POWERSHELL = (
    "Completion in PowerShell, for $PROFILE: "
    "gptoss completion powershell | Out-String | Invoke-Expression"
)


def command_of(places: Places) -> Path:
    return places.bin / ("gptoss.exe" if sys.platform == "win32" else "gptoss")


def _write_completion(places: Places, program: Path, receipt: Receipt) -> None:
    """Put scripts where bash and fish look for them; zsh's stays with the app."""
    data = places.app.parents[1]
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    files = {"bash": data / "bash-completion" / "completions" / "gptoss"}
    if shutil.which("fish"):
        files["fish"] = config / "fish" / "completions" / "gptoss.fish"
    if shutil.which("zsh"):
        files["zsh"] = places.app / "completion.zsh"
    for shell, file in files.items():
        if script := answer_of([program, "completion", shell]):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(script, encoding="utf-8")
            receipt.files.append(str(file))


def _lines(places: Places, shell: str) -> list[str]:
    form = 'set -gx PATH "{}" $PATH' if shell == "fish" else 'export PATH="{}:$PATH"'
    line = form.format(_inside_quotes(places.bin, shell))
    is_on_path = str(places.bin) in os.environ.get("PATH", "").split(os.pathsep)
    file = _startup_file(shell)
    has_line = file.is_file() and _marked(line) in file.read_bytes()
    lines = [line] if has_line or not is_on_path else []
    if shell == "zsh" and (places.app / "completion.zsh").is_file():
        lines.append(f'source "{_inside_quotes(places.app / "completion.zsh", shell)}"')
    return lines


def _inside_quotes(path: Path, shell: str) -> str:
    return re.sub(r'[\\"$]' if shell == "fish" else r'[\\"$`]', r"\\\g<0>", str(path))


def _startup_file(shell: str) -> Path:
    home = Path.home()
    files = {
        "bash": home / ".bashrc",
        "zsh": Path(os.environ.get("ZDOTDIR") or home) / ".zshrc",
        "fish": Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/config.fish",
    }
    return files.get(shell, home / ".profile")


def _add_lines(file: Path, lines: list[str], receipt: Receipt) -> None:
    """Append lines that end in `MARK`, in place of an earlier installation's."""
    is_ours = receipt.edited.get(str(file), not file.exists())
    data = _without_ours(file.read_bytes()) if file.exists() else b""
    data += b"\n" if data and not data.endswith(b"\n") else b""
    file.parent.mkdir(parents=True, exist_ok=True)
    _replace(file, data + b"".join(map(_marked, lines)))
    receipt.edited[str(file)] = is_ours


def _remove_lines(file: Path, is_ours: bool) -> None:
    if not file.is_file():
        return
    data = file.read_bytes()  # bytes: the user's file may have any encoding
    kept = _without_ours(data)
    if is_ours and not kept:
        file.unlink()
    elif kept != data:
        _replace(file, kept)


def _without_ours(data: bytes) -> bytes:
    mark = f"{MARK}\n".encode()
    return b"".join(line for line in data.splitlines(keepends=True) if not line.endswith(mark))


def _replace(file: Path, data: bytes) -> None:
    """Give a file of the user new content, or leave it as it is if the disk is full."""
    file = file.resolve()  # a link, as in a repository of such files, stays one
    partial = file.with_name(f"{file.name}.gptoss.partial")
    try:
        partial.write_bytes(data)
        if file.exists():
            shutil.copymode(file, partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _marked(line: str) -> bytes:
    return f"{line}  {MARK}\n".encode()
