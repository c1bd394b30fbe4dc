"""Remembers lasting permissions, in `allowed-tools.json`."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import write_whole
from gptoss_local.talk.tools.tool import RunnableTool


class _Allowed(msgspec.Struct, forbid_unknown_fields=True):
    """The file: by source and tool a digest of the allowed tool."""

    version: Literal[1] = 1
    allowed: dict[str, dict[str, str]] = {}


class Consents:
    """Permissions that hold until the tool changes; no `path` keeps them in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._in_memory: dict[str, dict[str, str]] = {}

    def has(self, tool: RunnableTool) -> bool:
        """Return whether the tool as it is now was allowed; False for a broken file."""
        try:
            allowed = self._read()
        except UsageError:
            return False
        return allowed.get(tool.source, {}).get(tool.name) == _digest_of(tool)

    def add(self, tool: RunnableTool) -> None:
        allowed = self._read()
        allowed.setdefault(tool.source, {})[tool.name] = _digest_of(tool)
        self._write(allowed)

    def forget(self, source: str) -> None:
        allowed = self._read()
        if allowed.pop(source, None) is not None:
            self._write(allowed)

    def _read(self) -> dict[str, dict[str, str]]:
        if self._path is None:
            return self._in_memory
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Allowed).allowed
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            what = f"{self._path} cannot be read: {in_words(error)}"
            raise UsageError(what, hint="Remove it; you are asked again then.") from error

    def _write(self, allowed: dict[str, dict[str, str]]) -> None:
        if self._path is None:
            return
        text = msgspec.json.format(msgspec.json.encode(_Allowed(allowed=allowed)), indent=2)
        write_whole(self._path, f"{text.decode()}\n")


def digest(*facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()[:32]


def program_digest(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    name = str(folder / command[0]) if os.path.dirname(command[0]) else command[0]
    file = shutil.which(name, path=env.get("PATH"))
    return digest(command, file, str(folder.resolve()), env)


def _digest_of(tool: RunnableTool) -> str:
    return digest(tool.identity, tool.description, tool.parameters)
