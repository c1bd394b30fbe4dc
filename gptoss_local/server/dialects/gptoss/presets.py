"""Presets for the web page, in the file that `gptoss chat` uses."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.gptoss import NamedPreset, NamedPresets
from gptoss_local.api.models import JobStatus
from gptoss_local.base.quantities import parse_option
from gptoss_local.base.types import Effort
from gptoss_local.server.body import read_body
from gptoss_local.server.streaming import json_response
from gptoss_local.talk.presets import Preset, read_presets, remove_preset, save_preset

_changing = asyncio.Lock()  # the file is read, and then written


class PresetBody(msgspec.Struct, kw_only=True):
    """A preset as it is to be; `name` is a new name."""

    name: str = ""
    system: str = ""
    effort: Effort | None = None
    options: dict[str, Any] = {}


async def presets(_request: Request) -> Response:
    found = await asyncio.to_thread(read_presets)
    named = [NamedPreset(name, p.system, p.effort, p.options) for name, p in found.items()]
    return json_response(NamedPresets(named))


async def put_preset(request: Request) -> Response:
    name, body = request.path_params["name"], await read_body(request, PresetBody)
    options = {key: parse_option(key, str(value)) for key, value in body.options.items()}
    preset = Preset(system=body.system, effort=body.effort, options=options)

    def write() -> None:
        old = name if name in read_presets() else ""
        save_preset(body.name or name, preset, instead_of=old)

    async with _changing:
        await asyncio.to_thread(write)
    return json_response(JobStatus("success"))


async def delete_preset(request: Request) -> Response:
    async with _changing:
        await asyncio.to_thread(remove_preset, request.path_params["name"])
    return json_response(JobStatus("success"))
