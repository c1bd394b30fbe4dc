"""Reads the banks of phrases that `banks.toml` names."""

import functools
import re
import tomllib
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_HERE = Path(__file__).parent
_ESCAPED = {"n": "\n", "s": " ", "e": ""}


@functools.cache
def banks(group: str) -> SimpleNamespace:
    """What banks.toml has in the table `group`, with phrases in place of how they are written."""
    head, *parts = re.split(r"^\[\[(.+)\]\]\n", _read(group), flags=re.MULTILINE)
    shared = dict(line.split(" = ", 1) for line in head.splitlines() if line)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    forms: dict[str, Callable[[str], Iterable[Any]]] = {
        "<words>": str.split,
        "<lines>": lambda text: map(_unescaped, filter(None, text.splitlines())),
        "<rows>": lambda text: (
            tuple(map(_unescaped, row.split(" | "))) for row in filter(None, text.splitlines())
        ),
        "<products>": functools.partial(_products, shared),
    }

    def filled(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: filled(inner, f"{path}.{key}") for key, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner, f"{path}.{i}") for i, inner in enumerate(value)]
        read = forms.get(value) if isinstance(value, str) else None
        return tuple(read(sections[path])) if read else value

    table = tomllib.loads((_HERE / "banks.toml").read_text())[group]
    return SimpleNamespace(**{name: filled(value, name) for name, value in table.items()})


def _read(group: str) -> str:
    path = _HERE / "phrases" / f"{group}.txt"
    return path.read_text() if path.exists() else ""


def _products(shared: dict[str, str], text: str) -> list[str]:
    """All choices of each line's parts.

    `~` joins two parts by a space, but before a sign, and `~~` by nothing; `|` parts variants, and
    `<NAME>` stands for those of the line `NAME = ` at the top of the file.
    """
    found: list[str] = []
    for line in filter(None, text.splitlines()):
        while (named := re.sub(r"<([A-Z_]+)>", lambda name: shared[name[1]], line)) != line:
            line = named
        parts = re.split(r"(?:^| )(~~?) ", f"~~ {line}")[1:]
        choices = [re.split(r"(?<!\\)\|", part) for part in parts[1::2]]
        for choice in product(*choices):
            joined = zip(parts[::2], choice, strict=True)
            spaced = (
                f" {p}" if by == "~" and p[0] not in ".,:!?\\" else p for by, p in joined if p
            )
            found.append(_unescaped("".join(spaced).removeprefix(" ")))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), text)
