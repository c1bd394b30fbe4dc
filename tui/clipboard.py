"""The system's own clipboard, for terminals that ignore OSC 52."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

_TIMEOUT_S = 2.0


def copy_natively(text: str) -> bool:
    """Hand a text to the desktop's clipboard program, never over SSH; return whether it took it."""
    command = native_command(os.environ, sys.platform)
    if not command:
        return False
    encoding = "utf-16-le" if command[0].startswith("clip") else "utf-8"
    try:
        subprocess.run(
            command,
            input=text.encode(encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def native_command(environment: Mapping[str, str], platform: str) -> list[str]:
    if environment.get("SSH_CONNECTION"):
        return []
    candidates: list[list[str]] = []
    if platform == "win32":
        candidates = [["clip"]]
    elif platform == "darwin":
        candidates = [["pbcopy"]]
    else:
        if environment.get("WAYLAND_DISPLAY"):
            candidates.append(["wl-copy"])
        if environment.get("DISPLAY"):
            candidates += [["xclip", "-selection", "clipboard"], ["xsel", "-ib"]]
        if environment.get("WSL_DISTRO_NAME"):
            candidates.append(["clip.exe"])
    return next((command for command in candidates if shutil.which(command[0])), [])
