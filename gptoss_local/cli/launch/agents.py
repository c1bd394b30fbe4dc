"""The programs of agents.toml that `gptoss launch` starts: how to find and to set up each."""

import json
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.settings_file import Default, ListEntry, SettingsFile

KEY_VARIABLE = "GPTOSS_API_KEY"  # the variable that files and arguments name instead of the key
_PLACE = re.compile(r"\{(\w+)\}")
_LISTED = re.compile(r"(\w*)\[(\^?)(\w+)\]")
_FOLDERS = (
    *(".local/bin", "bin", ".npm-global/bin", ".bun/bin", ".volta/bin", ".cargo/bin", "go/bin"),
    *(".claude/local", ".opencode/bin", ".continue/bin"),
)


class ServedModel(NamedTuple):
    """The server and model for a program; `url` has no path, and `api_key` may be empty."""

    url: str
    model: str
    n_ctx: int
    api_key: str = ""

    def values(self) -> dict[str, Any]:
        """Return the values of the places in agents.toml."""
        n_output = self.n_ctx // 4
        return {
            "url": self.url,
            "openai_url": f"{self.url}/v1",
            "model": self.model,
            "token": self.api_key or "gptoss",  # in place of the user's real keys
            "n_ctx": self.n_ctx,
            "n_output": n_output,
            "n_prompt": self.n_ctx - n_output,
        }


class Setup(NamedTuple):
    """The way to start a program."""

    environment: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()  # before the user's
    alone: tuple[str, ...] = ()  # only without any of the user's
    file: SettingsFile | None = None
    data: Mapping[str, Any] = {}  # JSON of a file of ours


class Agent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program, as agents.toml has it."""

    title: str
    program: str
    install: str
    n_ctx: int  # tokens of context that it should have; 0: as always
    environment: dict[str, Any] = {}  # besides the user's; a table becomes JSON
    arguments: tuple[str, ...] = ()
    options: dict[str, Any] = {}  # more arguments, `-c NAME=VALUE` with the value in TOML
    alone: tuple[str, ...] = ()  # of a start without any of the user's
    file: tuple[str, ...] = ()  # places where its settings file may be, with the `wanted` contents
    wanted: dict[str, Any] = {}
    data: dict[str, Any] = {}  # JSON of a file that it may be given, if `probe` shows so
    probe: tuple[str, ...] = ()
    is_tried: bool = True  # a test runs the program; else it is set up as its pages say
    sends_key: bool = True  # servers that ask for a key answer it

    def setup(self, server: ServedModel, data: Path | None = None) -> Setup:
        """Fill in the places; `data` is the file with its data, if the program takes it."""
        path = next(filter(None, map(_path, self.file)), None)
        if path is None and self.file:
            path = Path(self.file[-1]).expanduser()
        values = server.values() | {"file": str(path), "data": data and str(data)}

        def filled(part: Any) -> Any:
            if isinstance(part, dict):
                if "if_key" in part:
                    return filled(part["if_key"] if server.api_key else part.get("else"))
                pairs = [(filled(name), filled(value)) for name, value in part.items()]
                return dict(_marked(name, value) for name, value in pairs if value is not None)
            if isinstance(part, list):
                return [filled(each) for each in part]
            if not isinstance(part, str):
                return part
            whole = _PLACE.fullmatch(part)
            if whole and whole[1] in values:
                return values[whole[1]]
            return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), part)

        environment = {
            name: json.dumps(value) if isinstance(value, dict) else str(value)
            for name, value in filled(self.environment).items()
        }
        arguments = [str(filled(word)) for word in self.arguments]
        for name, value in filled(self.options).items():
            arguments += ["-c", f"{name}={json.dumps(value)}"]
        file = SettingsFile(path, filled(self.wanted)) if path else None
        return Setup(environment, tuple(arguments), self.alone, file, filled(self.data))

    def find(self) -> Path | None:
        home = Path.home()
        places = [home / place for place in _FOLDERS] + [Path("/opt/homebrew/bin")]
        places += [Path("/usr/local/bin"), Path(os.environ.get("APPDATA", home), "npm")]
        known = os.pathsep.join(map(str, places))
        found = shutil.which(self.program) or shutil.which(self.program, path=known)
        return Path(found).absolute() if found else None


def _path(place: str) -> Path | None:
    """Expand a leading `~` or variable; None without the folder or the variable."""
    start, _, rest = place.partition("/")
    if start == "~":
        path = Path.home() / rest
        return path if path.parent.is_dir() else None
    folder = os.environ.get(start)
    return Path(folder, rest) if folder else None


def _marked(name: str, value: Any) -> tuple[str, Any]:
    """Read the marks of a name: `name?` has a default, `name[key]` is a list with an entry."""
    if found := _LISTED.fullmatch(name):
        return found[1], ListEntry(found[3], value, is_first=bool(found[2]))
    return (name[:-1], Default(value)) if name.endswith("?") else (name, value)


def _read() -> dict[str, Agent]:
    text = Path(__file__).with_name("agents.toml").read_text(encoding="utf-8")
    rows = {name: {"program": name} | row for name, row in tomllib.loads(text).items()}
    return msgspec.convert(rows, dict[str, Agent])


AGENTS = _read()
