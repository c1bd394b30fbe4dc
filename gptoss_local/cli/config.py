"""`gptoss config`: which settings hold, and where each comes from."""

import sys
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
import typer

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.errors import UsageError
from gptoss_local.settings import Settings, config_path, explain_settings, unknown_variables


def config(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Print the value of this one alone.")
    ] = "",
    json: Json = False,
) -> None:
    """Show the settings that hold, and where each comes from."""
    settings, sources = explain_settings()
    if name and name not in Settings.__struct_fields__:
        near = get_close_matches(name, Settings.__struct_fields__, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`gptoss config` lists them."
        raise UsageError(f"There is no setting {name!r}.", hint=hint)
    names = [name] if name else Settings.__struct_fields__
    values = msgspec.to_builtins(settings, enc_hook=str)
    values["api_key"] = values["api_key"] and "(set)"  # for nobody to read over a shoulder
    rows = [(n, values[n], sources.get(n, "default")) for n in names]
    if json:
        listed = [{"name": n, "value": value, "source": source} for n, value, source in rows]
        print_json(config=str(config_path()), settings=listed)
    elif name:
        print(_shown(values[name]))
    else:
        print_table(("NAME", "VALUE", "SOURCE"), [(n, _shown(v), s) for n, v, s in rows])
        _print_notes()


def _shown(value: Any) -> str:
    """A value as config.toml would have it, but without quotes."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _print_notes() -> None:
    path = config_path()
    print(f"config file: {path}{'' if path.is_file() else ' (not there)'}", file=sys.stderr)
    for variable in unknown_variables():
        print(f"{variable} is set, but is no setting here.", file=sys.stderr)
