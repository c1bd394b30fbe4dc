"""The models we know by name: `models.toml`. Knows nothing of what is on disk."""

import functools
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec


class CatalogModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry.

    `file` is a name inside the models folder, `repo` holds its checkpoint on the hub; both are
    empty when `embedded`.
    """

    name: str
    aliases: tuple[str, ...]
    file: str
    title: str
    repo: str = ""
    embedded: bool = False


class _Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[CatalogModel, ...]


@functools.cache
def catalog() -> tuple[CatalogModel, ...]:
    """All entries, the embedded one first."""
    text = (Path(__file__).parents[1] / "models.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Catalog).model


def canonical_name(name: str) -> str:
    """Bring a name as people type it to the form we list: lower case, aliases, no `:latest`.

    Nor the host and the namespace that Ollama puts before a name that has none.
    """
    wanted = name.strip().lower().removesuffix(":latest")
    wanted = wanted.removeprefix("registry.ollama.ai/").removeprefix("library/")
    for model in catalog():
        if wanted in (model.name, *model.aliases):
            return model.name
    return wanted


def known_names() -> list[str]:
    """All names and aliases of the catalogue."""
    return [name for model in catalog() for name in (model.name, *model.aliases)]


def closest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that somebody may have meant."""
    import difflib  # PERF: 2 ms, for a mistake only

    found = difflib.get_close_matches(name.lower(), list(names), n=1)
    return found[0] if found else None
