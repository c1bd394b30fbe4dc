"""Presets of the chat: named instructions, effort and options, in `presets.toml`.

People may edit the file: their text and comments stay.
"""

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import OptionValue, parse_option
from gptoss_local.base.settings import config_path
from gptoss_local.base.types import Effort
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import change_toml, read_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_HEADER = "Presets of `gptoss chat`: instructions, effort and options, as docs/chat.md has them."
_MAX_NAME = 40
_KEYS = ("system", "effort", "options")


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a chat begins with; no `effort` leaves it as it is."""

    system: str = ""
    effort: Effort | None = None
    options: dict[str, OptionValue] = {}


class _Table(Preset, frozen=True, forbid_unknown_fields=True):
    options: dict[str, Any] = {}


POLICY = Preset(effort="medium", options={"temperature": 0.0})
"""For gpt-oss-safeguard, which judges each message by the policy in its system message."""
BUILT_IN = {"policy": POLICY}


def presets_path() -> Path:
    return config_path().with_name("presets.toml")


def read_presets() -> dict[str, Preset]:
    return _read(presets_path())


def known_presets() -> dict[str, Preset]:
    """Return the built-in presets that the file does not replace, then its own."""
    own = read_presets()
    taken = {name.casefold() for name in own}
    return {name: preset for name, preset in BUILT_IN.items() if name not in taken} | own


def find_preset(name: str) -> tuple[str, Preset]:
    presets = known_presets()
    for known, preset in presets.items():
        if known.casefold() == name.strip().casefold():
            return known, preset
    near = get_close_matches(name, presets, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Presets: {', '.join(presets)}."
    raise UsageError(f"there is no preset '{name}'", hint=hint)


def save_preset(name: str, preset: Preset, *, instead_of: str = "") -> None:
    name = name.strip()
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise UsageError(f"the name of a preset has 1 to {_MAX_NAME} characters")
    others = {known.casefold() for known in read_presets() if known != instead_of}
    if name.casefold() in others:
        raise UsageError(f"there is a preset '{name}' already", hint="Choose another name.")

    def put(document: "TOMLDocument") -> None:
        import tomlkit

        table: Any = document.get(instead_of)
        table = tomlkit.table() if table is None else table
        if instead_of != name:
            document.pop(instead_of, None)
            document[name] = table
        values = msgspec.to_builtins(preset)
        for key in _KEYS:
            if not values[key]:
                table.pop(key, None)
            elif table.get(key) != values[key]:
                table[key] = _as_toml(values[key])

    change_toml(presets_path(), put, _read, header=_HEADER)


def remove_preset(name: str) -> None:
    """Remove a preset; chats that began with it keep its settings."""

    def remove(document: "TOMLDocument") -> None:
        document.pop(name, None)

    change_toml(presets_path(), remove, _read)


def parse_options(text: str) -> dict[str, OptionValue]:
    """Return options as people write them: `temperature 0.7, seed 7`."""
    options = {}
    for part in filter(None, (part.strip() for part in text.replace("\n", ",").split(","))):
        name, _, value = part.replace("=", " ", 1).partition(" ")
        options[name] = parse_option(name, value.strip())
    return options


def options_text(options: dict[str, OptionValue]) -> str:
    words = {True: "on", False: "off"}
    return ", ".join(
        f"{name} {words[value] if isinstance(value, bool) else value}"
        for name, value in options.items()
    )


def _read(path: Path) -> dict[str, Preset]:
    try:
        found = tomllib.loads(read_text(path) if path.exists() else "")
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", hint="Correct it there.") from error
    return {name: _checked(name, table, path) for name, table in found.items()}


def _checked(name: str, table: Any, path: Path) -> Preset:
    where = f"{path}: the preset '{name}'"
    try:
        preset = msgspec.convert(table, _Table)
        values = {key: parse_option(key, str(value)) for key, value in preset.options.items()}
    except msgspec.ValidationError as error:
        hint = "A preset has system, effort (low, medium or high) and options."
        raise UsageError(f"{where}: {in_words(error, table)}", hint=hint) from error
    except UsageError as error:
        raise UsageError(f"{where} has a wrong option: {error.message}", hint=error.hint) from error
    return Preset(system=preset.system, effort=preset.effort, options=values)


def _as_toml(value: Any) -> Any:
    import tomlkit

    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return table
    is_long = "\n" in value and "\r" not in value
    return tomlkit.string(value, multiline=is_long)
