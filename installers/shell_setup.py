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
    receipt.edited[str(file)] = receipt.edited.get(str(file), not file.exists())
    _write_lines(file, lines)
    return [f"{file} has a line for gptoss now; it counts in every new terminal."]


def undo(places: Places, receipt: Receipt) -> None:
    for name in receipt.files:
        Path(name).unlink(missing_ok=True)
    for file, is_ours in ((Path(name), is_ours) for name, is_ours in receipt.edited.items()):
        if file.is_file():
            _write_lines(file, [])
            if is_ours and not file.stat().st_size:
                file.unlink()
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


def _write_lines(file: Path, lines: list[str]) -> None:
    """Give a file of the user these lines, which end in `MARK`, in place of earlier ones.

    If the disk is full, it stays as it is.
    """
    file = file.resolve()  # a link, as in a repository of such files, stays one
    data = file.read_bytes() if file.exists() else b""  # bytes: it may have any encoding
    mark = f"{MARK}\n".encode()
    kept = [line for line in data.splitlines(keepends=True) if not line.endswith(mark)]
    if lines and kept and not kept[-1].endswith(b"\n"):
        kept.append(b"\n")
    wanted = b"".join([*kept, *map(_marked, lines)])
    if wanted == data:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.gptoss.partial")
    try:
        partial.write_bytes(wanted)
        if file.exists():
            shutil.copymode(file, partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _marked(line: str) -> bytes:
    return f"{line}  {MARK}\n".encode()
