"""Manage a folder on the PATH of a Windows user, in the registry, without an administrator."""

import ctypes
import sys
from pathlib import Path

assert sys.platform == "win32"  # also for mypy, which then knows the names

import winreg

_BROADCAST, _SETTING_CHANGE, _ABORT_IF_HUNG = 0xFFFF, 0x001A, 0x0002  # winuser.h


def add(folder: Path) -> bool:
    entries = _read()
    if str(folder) in entries:
        return False
    _write([*entries, str(folder)])
    return True


def remove(folder: Path) -> None:
    entries = _read()
    if str(folder) in entries:
        _write([entry for entry in entries if entry != str(folder)])


def _read() -> list[str]:
    with winreg.OpenKey(winreg.HKEY_CURRENT_USER, "Environment") as key:
        try:
            text, _ = winreg.QueryValueEx(key, "Path")
        except FileNotFoundError:
            return []
    return [entry for entry in str(text).split(";") if entry]


def _write(entries: list[str]) -> None:
    access = winreg.KEY_SET_VALUE
    with winreg.OpenKey(winreg.HKEY_CURRENT_USER, "Environment", 0, access) as key:
        winreg.SetValueEx(key, "Path", 0, winreg.REG_EXPAND_SZ, ";".join(entries))
    # Open windows read it again; otherwise even new ones would, only after the next login.
    ctypes.windll.user32.SendMessageTimeoutW(
        _BROADCAST, _SETTING_CHANGE, 0, "Environment", _ABORT_IF_HUNG, 5000, None
    )
