"""Finds faults of gptoss's own files, of the command and its service, with the repairs.

No repair deletes a model, a chat or a file of the user; `doctor` asks before it calls one.
"""

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote

from gptoss_local.api_keys import read_keys
from gptoss_local.cli.completion import script_of
from gptoss_local.cli.doctor.diagnosis import Verdict
from gptoss_local.errors import GptOssError, HistoryError, UsageError
from gptoss_local.models.catalog import check_models_file
from gptoss_local.models.store import Leftover, find_garbage, unusable_models
from gptoss_local.settings import Settings, check_config, config_path, user_models_file
from gptoss_local.talk import history
from gptoss_local.talk.presets import presets_path, read_presets
from gptoss_local.talk.tools.mcp.config import check_file, mcp_path

_GROUP_AND_OTHERS = 0o077
_UNIT = "gptoss.service"
_SYSTEMCTL_S = 20


def find_faults(settings: Settings) -> Iterator[Verdict]:
    """Yield faults in the order of repairs; later ones are found after earlier repairs."""
    yield from _settings_files(settings)
    yield from folder_faults(settings)
    yield from _store(settings)
    yield from _command()
    yield from _completion()
    yield from _service()


def _settings_files(settings: Settings) -> Iterator[Verdict]:
    checks: list[tuple[Path, Callable[[], object]]] = [
        (config_path(), check_config),
        (user_models_file(), partial(check_models_file, user_models_file())),
        (presets_path(), read_presets),
        (mcp_path(), partial(check_file, mcp_path())),
    ]
    for path, check in checks:
        if path.is_file() and (text := _problem(check)):
            fix = f"{text[1]} Correct it, or let it be moved aside.".strip()
            question = f"Move {path} aside, and go without it?"
            move = partial(_move_aside, path)
            yield Verdict(path.name, "problem", text[0], fix, question, move)
    keys = settings.api_keys_file
    if keys is not None and (text := _problem(partial(read_keys, keys))):
        # Without it the server would refuse all keys, or need none.
        fix = f"{text[1]} Correct it; a file of keys is never moved.".strip()
        yield Verdict(keys.name, "problem", text[0], fix)


def _problem(check: Callable[[], object]) -> tuple[str, str] | None:
    try:
        check()
    except UsageError as error:
        return f"{error.message.removesuffix('.')}.", error.hint
    return None


def _move_aside(path: Path) -> str:
    n = 1
    while (aside := path.with_name(f"{path.name}.broken-{n}")).exists():
        n += 1
    path.rename(aside)
    return f"It is {aside} now."


def folder_faults(settings: Settings) -> Iterator[Verdict]:
    """Yield a fault for each unusable folder, and for files that others could read."""
    for folder in _folders(settings):
        if os.path.lexists(folder):
            yield from _folder_fault(folder)
    if os.name != "posix":
        return  # Windows keeps a user's folders from others by itself
    open_to_others = [path for path in _private(settings) if _mode(path) & _GROUP_AND_OTHERS]
    if open_to_others:
        names = ", ".join(path.name for path in open_to_others)
        yield Verdict(
            "privacy",
            "note",
            f"Other users of this machine may read what you wrote: {names}.",
            "Only you need to.",
            "Make this readable for you alone?",
            partial(_close_to_others, open_to_others),
        )


def _folders(settings: Settings) -> list[Path]:
    folders = [
        *([settings.home] if settings.home else []),
        *(settings.models_dir, settings.cache_dir, settings.log_dir),
        *(settings.history_path.parent, config_path().parent),
    ]
    return list(dict.fromkeys(folder.absolute() for folder in folders))


def _private(settings: Settings) -> list[Path]:
    chats = settings.history_path
    files = [chats, *(chats.with_name(f"{chats.name}-{end}") for end in ("wal", "shm"))]
    return [*files, settings.input_history, settings.server_log, settings.prefix_dir]


def _folder_fault(folder: Path) -> Iterator[Verdict]:
    if not os.path.isdir(folder):
        text = f"{folder} is not a folder."
        yield Verdict("folder", "problem", text, "Move it away, or set GPTOSS_HOME.")
        return
    is_ours = os.name != "posix" or os.stat(folder).st_uid == os.geteuid()
    if is_ours and _mode(folder) & stat.S_IRWXU != stat.S_IRWXU:
        text = f"{folder} is yours, but you may not read, write and enter it."
        yield Verdict(
            "folder",
            "problem",
            text,
            f"chmod u+rwx {quote(str(folder))}",
            f"Let yourself use {folder}?",
            partial(_open_to_owner, folder),
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        text = f"{folder} belongs to another user, and you may not write into it."
        fix = f'sudo chown -R "$USER" {quote(str(folder))}, which needs an administrator.'
        yield Verdict("folder", "problem", text, fix)


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:  # not there, or in a folder that may not be entered
        return 0


def _open_to_owner(folder: Path) -> str:
    folder.chmod(_mode(folder) | stat.S_IRWXU)
    return f"You may use {folder} now."


def _close_to_others(paths: list[Path]) -> str:
    for path in paths:
        path.chmod(_mode(path) & ~_GROUP_AND_OTHERS)
    return "Only you may read it now."


def _store(settings: Settings) -> Iterator[Verdict]:
    try:
        yield from _leftovers(find_garbage(settings))
        yield from _models(settings)
    except (GptOssError, OSError):
        pass  # the faults of a file or a folder say it
    if settings.history_path.is_file():
        try:
            history.check_file(settings.history_path)
        except HistoryError as error:
            fix = f"{error.hint} Chats are never changed by a repair."
            yield Verdict("chats", "problem", error.message, fix.strip())


def _leftovers(found: list[Leftover]) -> Iterator[Verdict]:
    interrupted = [each for each in found if each.kind == "interrupted"]
    unneeded = [each for each in found if each.kind != "interrupted"]
    if unneeded:
        text = f"{_n_files(unneeded)} that no model needs take {_size(unneeded)}."
        yield Verdict(
            "leftovers",
            "note",
            text,
            "`gptoss gc` removes that.",
            f"Remove what no model needs ({_size(unneeded)})?",
            partial(_remove, unneeded),
        )
    if interrupted:
        text = f"{_n_files(interrupted)} of interrupted pulls take {_size(interrupted)}."
        fix = "They stay, as a pull continues from there; `gptoss gc --interrupted` removes them."
        yield Verdict("interrupted pulls", "note", text, fix)


def _models(settings: Settings) -> Iterator[Verdict]:
    for name, error in unusable_models(settings):
        fix = f"{error.hint} Models are never deleted by a repair: `gptoss rm {name}` does it."
        text = f"It cannot be loaded: {error.message}."
        yield Verdict(f"model {name}", "problem", text, fix.strip())


def _remove(found: list[Leftover]) -> str:
    for each in found:
        each.remove()
    left = [each for each in found if each.path.exists()]
    if left:
        raise OSError(f"{_n_files(left)} could not be removed, as {left[0].path}")
    return f"{_size(found)} freed."


def _n_files(found: list[Leftover]) -> str:
    return f"{len(found)} file{'s' * (len(found) > 1)}"


def _size(found: list[Leftover]) -> str:
    from rich.filesize import decimal

    return decimal(sum(each.size_bytes for each in found))


def _command() -> Iterator[Verdict]:
    name = "gptoss.exe" if sys.platform == "win32" else "gptoss"
    program = Path(sysconfig.get_path("scripts")) / name
    found = shutil.which("gptoss")
    if not program.is_file():
        return  # run from source, where there is no command to find
    if found is not None:
        if not _is_same(Path(found), program):
            text = f"`gptoss` is {found}, and not the one that is running, {program}."
            yield Verdict("command", "note", text, "Remove the one that you do not want.")
        return
    link = Path.home() / ".local" / "bin" / "gptoss"
    if link.is_file() and _is_same(link, program):
        program = link  # the installer's, which stays where an upgrade replaces the program
    text = f"`gptoss` is not on PATH; it is {program}."
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if os.name == "posix" and str(link.parent) in folders and not os.path.lexists(link):
        yield Verdict(
            "command",
            "note",
            text,
            f"ln -s {quote(str(program))} {quote(str(link))}",
            f"Link it into {link.parent}?",
            partial(_link, link, program),
        )
        return
    fix = f"Add {program.parent} to PATH in your shell's start-up file, which is yours to edit."
    yield Verdict("command", "note", text, fix)


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


def _completion() -> Iterator[Verdict]:
    shell = Path(os.environ.get("SHELL", "")).name
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    zshrc = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
    places = {  # of the script, and the start-up file
        "bash": (data / "bash-completion/completions/gptoss", home / ".bashrc"),
        "fish": (config / "fish/completions/gptoss.fish", config / "fish/config.fish"),
        "zsh": (data / "gptoss/app/completion.zsh", zshrc),
    }
    if shell not in places:
        return
    target, startup = places[shell]
    if target.is_file() or _mentions(startup, b"gptoss completion"):
        return
    text = f"{shell} does not complete commands and models of gptoss at Tab."
    if shell == "zsh":  # it looks into no folder of the user by itself
        fix = "Add to your .zshrc, which is yours to edit: source <(gptoss completion zsh)"
        yield Verdict("completion", "note", text, fix)
        return
    yield Verdict(
        "completion",
        "note",
        text,
        f"gptoss completion {shell} > {quote(str(target))}",
        f"Write {target}?",
        partial(_write_completion, target, shell),
    )


def _mentions(file: Path, text: bytes) -> bool:
    try:
        return text in file.read_bytes()
    except OSError:
        return False


def _write_completion(target: Path, shell: str) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(script_of(shell), encoding="utf-8")
    return "It works in every new terminal."


def _service() -> Iterator[Verdict]:
    if sys.platform != "linux" or _systemctl("is-enabled") != "enabled":
        return
    state = _systemctl("is-active")
    if state in ("inactive", "failed"):
        yield Verdict(
            "service",
            "problem" if state == "failed" else "note",
            f"The service gptoss starts at login, but does not run now ({state}).",
            "systemctl --user status gptoss says why.",
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
