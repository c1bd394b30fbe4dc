"""Adds upstream models to the user's models.toml, and removes them; keeps the rest as it is."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gptoss_local.base.errors import ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings, user_models_file
from gptoss_local.base.whole_file import change_toml
from gptoss_local.models.catalog import (
    UpstreamAddress,
    canonical_name,
    check_models_file,
    known_model,
)
from gptoss_local.models.store import find_model

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import AoT


def add_upstream(name: str, address: UpstreamAddress, settings: Settings) -> Path:
    import tomlkit  # PERF: 60 ms

    wanted = canonical_name(name)
    try:
        there = find_model(wanted, settings)
    except ModelNotFoundError:
        pass
    else:
        how = f"gptoss upstream rm {wanted}" if there.upstream else f"gptoss rm {wanted}"
        raise UsageError(
            f"there is a model '{wanted}' already", hint=f"Choose another name, or remove it: {how}"
        )
    fields = msgspec.to_builtins(address)
    defaults = msgspec.to_builtins(UpstreamAddress(kind=address.kind, urls=address.urls))
    told = {
        key: value
        for key, value in fields.items()
        if key in ("kind", "urls") or value != defaults[key]
    }

    def change(document: "TOMLDocument") -> None:
        table, inline = tomlkit.table(), tomlkit.inline_table()
        inline.update(told)
        table.update({"name": wanted, "upstream": inline})
        if "model" not in document:
            document.add("model", tomlkit.aot())
        _models(document).append(table)

    change_toml(user_models_file(), change, check_models_file)
    return user_models_file()


def remove_upstream(name: str) -> Path:
    wanted = canonical_name(name)
    known = known_model(wanted)
    if known is None or known.upstream is None:
        raise ModelNotFoundError(
            f"there is no model '{name}' that is computed elsewhere",
            hint="`gptoss upstream ls` lists them.",
        )

    def change(document: "TOMLDocument") -> None:
        models = _models(document)
        for i, table in enumerate(models):
            if canonical_name(str(table["name"])) == wanted:
                del models[i]
                break

    change_toml(user_models_file(), change, check_models_file)
    return user_models_file()


def _models(document: "TOMLDocument") -> "AoT":
    from tomlkit.items import AoT

    models = document["model"]
    if not isinstance(models, AoT):
        raise UsageError(
            f"{user_models_file()} has its models as an array in one line",
            hint="Write each as a table of its own, which begins with [[model]].",
        )
    return models
