"""Report that the server lives (`/health`), and its counters (`/metrics`, for Prometheus)."""

import asyncio
from contextlib import suppress
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.base.errors import GptOssError
from gptoss_local.engine.interface import AnyEngine
from gptoss_local.engine.protocol import Stats
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.streaming import json_response

_STATS_TIMEOUT_S = 2.0


class Health(msgspec.Struct):
    """The answer of `GET /health`."""

    status: Literal["ok"] = "ok"


async def health(_request: Request) -> Response:
    return json_response(Health())


async def metrics(request: Request) -> Response:
    from gptoss_local.server.prometheus import (  # PERF: 25 ms of the server's start
        MEDIA_TYPE,
        render,
    )

    manager: ModelManager = request.app.state.manager
    models: list[LoadedModel | RemoteModel] = [*manager.loaded, *manager.remote]
    stats = await asyncio.gather(*(_stats(model.engine) for model in models))
    names = (model.entry.name for model in models)
    state = request.app.state
    loaded, keys = dict(zip(names, stats, strict=True)), state.access.use_of_keys()
    text = render(manager.counters, loaded, state.histograms, keys, manager.energy.answers)
    return Response(text, media_type=MEDIA_TYPE)


async def _stats(engine: AnyEngine) -> Stats | None:
    with suppress(GptOssError, TimeoutError):  # the engine answers between two steps
        return await asyncio.wait_for(engine.stats(), _STATS_TIMEOUT_S)
    return None
