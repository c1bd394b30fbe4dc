"""`gptoss config`: the settings in effect, and where each comes from."""

import sys
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
import typer

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import as_written
from gptoss_local.base.settings import Settings, config_path, explain_settings, unknown_variables
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_table, say

_MEANINGS = {
    **dict.fromkeys(("api_key", "api_keys_file", "api_tools", "enabled_tools", "keys"), "none"),
    **dict.fromkeys(("embeddings_key", "embeddings_url", "mcp_config", "search_key"), "none"),
    **dict.fromkeys(("searxng_url", "tools", "work_folder"), "none"),
    **dict.fromkeys(("allowed_hosts", "origins"), "none besides this machine's"),
    "context_length": "what fits",
    "num_parallel": "4, or as the preset has it",
    "threads": "one per physical core, fewer with a GPU",
    "gpu_layers": "as many as fit",
    "cpu_moe": "as few as possible",
    "checkpoint_bytes": "512 MiB, or less where RAM is short",
    "vram": "what is free",
    "read_folder": "where a chat was started, but not the home folder",
    "search": "off",
    "home": "the platform's folders",
}
"""The meanings of defaults that leave a choice to gptoss."""


def config(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Print the value of this one alone.")
    ] = "",
    json: Json = False,
) -> None:
    settings, sources = explain_settings()
    if name and name not in Settings.__struct_fields__:
        near = get_close_matches(name, Settings.__struct_fields__, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`gptoss config` lists them."
        raise UsageError(f"There is no setting {name!r}.", hint=hint)
    names = [name] if name else Settings.__struct_fields__
    values = msgspec.to_builtins(settings, enc_hook=str)
    for secret in ("api_key", "search_key", "embeddings_key"):  # not for a screen that others see
        values[secret] = values[secret] and "(set)"
    rows = [(n, values[n], sources.get(n, "default")) for n in names]
    if json:
        listed = [
            {"name": n, "value": value, "meaning": _meaning(n, value), "source": source}
            for n, value, source in rows
        ]
        print_json(config=str(config_path()), settings=listed)
    elif name:
        print(as_written(values[name]))
    else:
        path = config_path()
        here = path.name if sys.stdout.isatty() else str(path)
        shown = [
            (n, _with_meaning(n, value), here if source == str(path) else source)
            for n, value, source in rows
        ]
        print_table(("NAME", "VALUE", "SOURCE"), shown)
        say(f"config file: {path}{'' if path.is_file() else ' (does not exist)'}")
        for variable in unknown_variables():
            say(f"{variable} is set, but is not a setting here.")


def _meaning(name: str, value: Any) -> str:
    is_default = value == msgspec.to_builtins(getattr(Settings(), name), enc_hook=str)
    return _MEANINGS.get(name, "") if is_default else ""


def _with_meaning(name: str, value: Any) -> str:
    meaning = _meaning(name, value)
    if not meaning:
        is_size = name.endswith("_bytes") and value >= 2**20
        if isinstance(value, dict) and sys.stdout.isatty():
            return msgspec.json.format(as_written(value), indent=0)  # with places to break it
        return f"{value / 2**20:,.0f} MiB" if is_size else as_written(value)
    return f"{as_written(value)} ({meaning})" if isinstance(value, int) else f"({meaning})"
