"""Finds faults of gptoss's own files, of the command and its service, with repairs of the files.

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

from gptoss_local.base.errors import GptOssError, HistoryError, UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.base.settings import Settings, check_config, config_path, user_models_file
from gptoss_local.cli.doctor.diagnosis import Verdict
from gptoss_local.cli.models import size_of
from gptoss_local.models.catalog import check_models_file
from gptoss_local.models.store import Leftover, find_garbage, unusable_models
from gptoss_local.server.keys import read_keys
from gptoss_local.talk import history
from gptoss_local.talk.presets import presets_path, read_presets
from gptoss_local.talk.tools.mcp.config import check_file, mcp_path

_GROUP_AND_OTHERS = 0o077
_SYSTEMCTL_S = 20


def find_faults(settings: Settings) -> Iterator[Verdict]:
    """Yield faults in the order of repairs; later ones are found after earlier repairs."""
    yield from _settings_files(settings)
    yield from folder_faults(settings)
    yield from _store(settings)
    yield from _command()
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
    chats = settings.history_path
    files = [chats, *(chats.with_name(f"{chats.name}-{end}") for end in ("wal", "shm"))]
    files += [settings.input_history, settings.server_log, settings.prefix_dir]
    open_to_others = [path for path in files if _mode(path) & _GROUP_AND_OTHERS]
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
        for name, error in unusable_models(settings):
            fix = f"{error.hint} Models are never deleted by a repair: `gptoss rm {name}` does it."
            text = f"It cannot be loaded: {error.message}."
            yield Verdict(f"model {name}", "problem", text, fix.strip())
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
        text = f"No model needs {counted(len(unneeded), 'file')} ({size_of(unneeded)})."
        yield Verdict(
            "leftovers",
            "note",
            text,
            "`gptoss gc` removes that.",
            f"Remove what no model needs ({size_of(unneeded)})?",
            partial(_remove, unneeded),
        )
    if interrupted:
        text = (
            f"Interrupted pulls left {counted(len(interrupted), 'file')} ({size_of(interrupted)})."
        )
        fix = "They stay, as a pull continues from there; `gptoss gc --interrupted` removes them."
        yield Verdict("interrupted pulls", "note", text, fix)


def _remove(found: list[Leftover]) -> str:
    for each in found:
        each.remove()
    left = [each for each in found if each.path.exists()]
    if left:
        raise OSError(f"{counted(len(left), 'file')} could not be removed, as {left[0].path}")
    return f"{size_of(found)} freed."


def _command() -> Iterator[Verdict]:
    name = "gptoss.exe" if sys.platform == "win32" else "gptoss"
    program = Path(sysconfig.get_path("scripts")) / name
    if not program.is_file():
        return  # run from source, where there is no command to find
    if (found := shutil.which("gptoss")) is None:
        text = f"`gptoss` is not on PATH; it is {program}."
        fix = f"Run the installer again, or add {program.parent} to PATH."
        yield Verdict("command", "note", text, fix)
    elif not _is_same(Path(found), program):
        text = f"`gptoss` is {found}, and not the one that is running, {program}."
        yield Verdict("command", "note", text, "Remove the one that you do not want.")


def _is_same(found: Path, program: Path) -> bool:
    if found.resolve() == program.resolve():
        return True
    try:
        return sys.executable.encode() in found.read_bytes()[:4096]
    except OSError:
        return False


def _service() -> Iterator[Verdict]:
    if sys.platform != "linux" or _systemctl("is-enabled") != "enabled":
        return
    if (state := _systemctl("is-active")) in ("inactive", "failed"):
        yield Verdict(
            "service",
            "problem" if state == "failed" else "note",
            f"The service gptoss starts at login, but does not run now ({state}).",
            "systemctl --user status gptoss says why; systemctl --user restart gptoss starts it.",
        )


def _systemctl(command: str) -> str:
    try:
        done = subprocess.run(
            ["systemctl", "--user", command, "gptoss.service"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SYSTEMCTL_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
