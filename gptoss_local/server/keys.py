"""The file of API keys: names, hashes and limits.

People may edit it, and their comments stay. The keys themselves are stored nowhere.
"""

import secrets
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import HOSTED_TOOL
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import change_toml, read_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_HEADER = "API keys of gptoss: `gptoss keys add NAME` prints a new key and writes its hash here."

_Limit = Annotated[int, msgspec.Meta(ge=1)] | None
_Tool = Annotated[str, msgspec.Meta(pattern=f"^{HOSTED_TOOL}$")]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's key, its limits (None: unlimited) and rights.

    Attributes:
        sha256: Of the key, in hexadecimal.
        priority: The highest is answered first.
        chats: Whether it opens the owner's chats in the page, as a phone's key does.
        tools: `web_search`, `code_interpreter`, `mcp:SERVER:TOOL`, `mcp:SERVER:*`.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w.@-]{1,40}$")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    requests_per_minute: _Limit = None
    tokens_per_minute: _Limit = None
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0
    chats: bool = False
    tools: tuple[_Tool, ...] = ()


class _KeysFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[ApiKey] = []


def hash_key(key: bytes) -> str:
    return sha256(key).hexdigest()


def read_keys(path: Path) -> list[ApiKey]:
    """Return the keys of a file, in order."""
    text = read_text(path, hint="`gptoss keys add NAME` makes it.")
    try:
        keys = msgspec.convert(tomllib.loads(text), _KeysFile).keys
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        # Not quoted, as it may be the key itself.
        raise UsageError(f"{path}: {in_words(error)}") from error
    for what in ("name", "sha256"):
        values = [getattr(key, what) for key in keys]
        for value in values:
            if values.count(value) > 1:
                raise UsageError(f"{path}: two keys have the {what} '{value}'")
    return keys


def add_phone(path: Path) -> str:
    """Make a key that opens the owner's chats, named `phone`, `phone-2`, and so on."""
    taken = {key.name for key in read_keys(path)} if path.exists() else set()
    names = ("phone", *(f"phone-{n}" for n in range(2, len(taken) + 3)))
    return add_key(path, next(name for name in names if name not in taken), chats=True)


def add_key(path: Path, name: str, **fields: int | Sequence[str] | None) -> str:
    """Make a key with fields of `ApiKey`, and return it; only its hash is written."""
    if path.exists() and name in (key.name for key in read_keys(path)):
        raise UsageError(f"there is a key '{name}' already", hint=f"gptoss keys rm {name}")
    key = f"gptoss-{secrets.token_urlsafe(32)}"
    row: dict[str, Any] = {"name": name, "sha256": hash_key(key.encode())}
    row |= {field: value for field, value in fields.items() if value not in (None, ())}

    def put(document: "TOMLDocument") -> None:
        import tomlkit

        table = tomlkit.table()
        table.update(row)
        rows: Any = document.setdefault("keys", tomlkit.aot())
        rows.append(table)

    change_toml(path, put, read_keys, header=_HEADER)
    return key


def remove_key(path: Path, name: str) -> None:
    names = [key.name for key in read_keys(path)]
    if name not in names:
        hint = f"Keys: {', '.join(names)}." if names else ""
        raise UsageError(f"there is no key '{name}'", hint=hint)

    def remove(document: "TOMLDocument") -> None:
        rows: Any = document["keys"]
        del rows[names.index(name)]

    change_toml(path, remove, read_keys)
