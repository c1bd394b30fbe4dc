"""Folders that must be writable for their user, and files that others must not read."""

import os
import shlex
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gptoss_local.cli.doctor.diagnosis import Finding
from gptoss_local.cli.doctor.repair.fault import Fault
from gptoss_local.settings import Settings, config_path

_GROUP_AND_OTHERS = 0o077


def folder_faults(settings: Settings) -> Iterator[Fault]:
    """Yield a fault for each folder that cannot be used, and for what others could read."""
    for folder in _folders(settings):
        if os.path.lexists(folder):
            yield from _folder_fault(folder)
    if os.name != "posix":
        return  # Windows keeps a user's folders from others by itself
    open_to_others = [path for path in _private(settings) if _mode(path) & _GROUP_AND_OTHERS]
    if open_to_others:
        names = ", ".join(path.name for path in open_to_others)
        yield Fault(
            Finding(
                "privacy",
                "note",
                f"Other users of this machine may read what you wrote: {names}.",
                "Only you need to.",
            ),
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


def _folder_fault(folder: Path) -> Iterator[Fault]:
    if not os.path.isdir(folder):
        text = f"{folder} is not a folder."
        yield Fault(Finding("folder", "problem", text, "Move it away, or set GPTOSS_HOME."))
        return
    is_ours = os.name != "posix" or os.stat(folder).st_uid == os.geteuid()
    if is_ours and _mode(folder) & stat.S_IRWXU != stat.S_IRWXU:
        text = f"{folder} is yours, but you may not read, write and enter it."
        yield Fault(
            Finding("folder", "problem", text, f"chmod u+rwx {shlex.quote(str(folder))}"),
            f"Let yourself use {folder}?",
            partial(_open_to_owner, folder),
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        text = f"{folder} belongs to another user, and you may not write into it."
        fix = f'sudo chown -R "$USER" {shlex.quote(str(folder))}, which needs an administrator.'
        yield Fault(Finding("folder", "problem", text, fix))


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
