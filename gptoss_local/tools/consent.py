"""Remember what the user has allowed for good, in `allowed-tools.json`."""

import hashlib
from pathlib import Path

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.tools.tool import Tool


class _Allowed(msgspec.Struct, forbid_unknown_fields=True):
    """The file: by source and tool a digest of what was allowed."""

    version: int = 1
    allowed: dict[str, dict[str, str]] = {}


class Consents:
    """Permissions that hold until the tool is another one.

    Args:
        path: The file, there or not; None keeps them in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._allowed: dict[str, dict[str, str]] | None = None if path else {}

    def has(self, tool: Tool) -> bool:
        """Return whether the tool, as it is now, was allowed for good; not if that is unreadable."""
        try:
            allowed = self._read()
        except UsageError:
            return False
        return allowed.get(tool.source, {}).get(tool.name) == _digest(tool)

    def add(self, tool: Tool) -> None:
        """Allow a tool for good. Raises UsageError: the file cannot be read or written."""
        allowed = self._read(again=True)
        allowed.setdefault(tool.source, {})[tool.name] = _digest(tool)
        self._write(allowed)

    def forget(self, source: str) -> None:
        """Ask again for all tools of a source."""
        allowed = self._read(again=True)
        if allowed.pop(source, None) is not None:
            self._write(allowed)

    def _read(self, *, again: bool = False) -> dict[str, dict[str, str]]:
        if self._allowed is not None and (self._path is None or not again):
            return self._allowed
        assert self._path is not None
        try:
            self._allowed = msgspec.json.decode(self._path.read_bytes(), type=_Allowed).allowed
        except FileNotFoundError:
            self._allowed = {}
        except (OSError, msgspec.DecodeError) as error:
            hint = "Remove it; you are asked again then."
            raise UsageError(f"{self._path} cannot be read: {error}", hint=hint) from error
        return self._allowed

    def _write(self, allowed: dict[str, dict[str, str]]) -> None:
        self._allowed = allowed
        if self._path is None:
            return
        text = msgspec.json.format(msgspec.json.encode(_Allowed(allowed=allowed)), indent=2)
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(text + b"\n")
            beside.replace(self._path)
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}") from error


def _digest(tool: Tool) -> str:
    """Return what changes with anything that the user has agreed to."""
    what = (tool.identity, tool.description, tool.parameters)
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:32]
