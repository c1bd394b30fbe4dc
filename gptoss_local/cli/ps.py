"""`gptoss ps`: the models in memory."""

from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.filesize import decimal

from gptoss_local.cli._loading import load_text
from gptoss_local.cli._options import Json, NamesOnly
from gptoss_local.cli._output import (
    human_age,
    print_json,
    print_names,
    print_table,
    seconds_until,
)
from gptoss_local.errors import UnauthorizedError
from gptoss_local.quantities import per_token
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.api.models import LoadStatus, ModelEnergy, RunningModel

_FOREVER_S = 50 * 365 * 86_400


def ps(quiet: NamesOnly = False, json: Json = False) -> None:
    """List the models in memory and those that are loading."""
    from gptoss_local.api.client import Client

    client = Client(load_settings())
    is_running = client.is_running()
    models = client.running_models() if is_running else []
    if quiet:
        print_names(model.name for model in models)
        return
    loading: list[LoadStatus] = []
    with suppress(UnauthorizedError):  # a user's key sees the models alone
        loading = client.status().loading if is_running else []
    if json:
        print_json(models=models, loading=loading)
        return
    rows = [
        (
            model.name,
            model.digest[:12],
            decimal(model.size) if model.size else "-",
            processor(model),
            _context(model),
            _until(model),
        )
        for model in models
    ]
    rows += [(load.model, "", "", load_text(load), "", "") for load in loading]
    header: tuple[str, ...] = ("NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL")
    energy = [energy_text(model.energy) for model in models]
    if any(energy):
        rows = [(*row, text) for row, text in zip_longest(rows, energy, fillvalue="")]
        header = (*header, "ENERGY")
    print_table(header, rows)


def processor(model: "RunningModel") -> str:
    """Return where the weights are, in Ollama's words."""
    if model.remote_host:
        return model.remote_host
    if (share := model.vram_share) in (0, 1):
        return "100% GPU" if share else "100% CPU"
    cpu = round(100 * (1 - share))
    return f"{cpu}%/{100 - cpu}% CPU/GPU"


def energy_text(energy: "ModelEnergy | None") -> str:
    """Return `0.42 J/token, 31 W`, as far as it is known."""
    parts = []
    if energy is not None and energy.joules_per_token is not None:
        parts.append(per_token(energy.joules_per_token))
    if energy is not None and energy.watts is not None:
        parts.append(f"{energy.watts:.0f} W")
    return ", ".join(parts)


def _context(model: "RunningModel") -> str:
    """Return the tokens of context, with the type of their keys and values unless it is f16."""
    kind = model.kv_type
    return f"{model.context_length}{'' if kind in ('', 'f16') else f' {kind}'}"


def _until(model: "RunningModel") -> str:
    left_s = seconds_until(model.expires_at)
    return "Forever" if left_s > _FOREVER_S else f"{human_age(left_s)} from now"
