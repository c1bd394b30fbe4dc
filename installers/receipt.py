"""Record the files of an installation, so that they can be removed."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from steps import SetupError


@dataclass(frozen=True)
class Places:
    """Folders of this user; the program puts nothing anywhere else."""

    app: Path  # an environment per installed version, and the record
    bin: Path  # where the command is found
    log: Path


@dataclass
class Receipt:
    """The record of one installation."""

    version: str
    environment: str  # the name of its folder in `Places.app`
    llama: str = ""  # how it was got: a release's name, or compiled
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of the release's files
    files: list[str] = field(default_factory=list)  # made by us alone, besides the app folder
    edited: dict[str, bool] = field(default_factory=dict)  # the user's; True: not there before
    has_service: bool = False  # a server starts at login


def places() -> Places:
    """Return the platform's folders for programs of one user; `XDG_*` move them."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        root = (Path(local) if local else Path.home() / "AppData" / "Local") / "gptoss"
        return Places(root / "app", root / "bin", root / "install.log")
    if sys.platform != "linux":
        raise SetupError("gptoss runs on Linux and Windows.", "It has not been tried on a Mac.")
    data = _folder("XDG_DATA_HOME", ".local/share")
    state = _folder("XDG_STATE_HOME", ".local/state")
    log = state / "gptoss" / "log" / "install.log"
    return Places(data / "gptoss" / "app", Path.home() / ".local" / "bin", log)


def read(app: Path) -> Receipt | None:
    path = app / "install.json"
    if not path.is_file():
        return None
    try:
        return Receipt(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        hint = f"Remove the folder {app} and install again; models and chats are kept elsewhere."
        raise SetupError(f"{path} is not a record of an installation: {error}", hint) from error


def write(app: Path, receipt: Receipt) -> None:
    partial = app / "install.json.partial"
    partial.write_text(json.dumps(asdict(receipt), indent=2), encoding="utf-8")
    partial.replace(app / "install.json")


def _folder(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default
