"""Report that the server lives (`/health`), and its counters (`/metrics`, for Prometheus)."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.base.errors import GptOssError
from gptoss_local.engine.interface import AnyEngine
from gptoss_local.engine.protocol import Stats
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.streaming import json_response

if TYPE_CHECKING:
    from gptoss_local.server.prometheus import Metrics

_STATS_TIMEOUT_S = 2.0


class Health(msgspec.Struct):
    """The answer of `GET /health`."""

    status: Literal["ok"] = "ok"


async def health(_request: Request) -> Response:
    return json_response(Health())


async def metrics(request: Request) -> Response:
    manager: ModelManager = request.app.state.manager
    models: list[LoadedModel | RemoteModel] = [*manager.loaded, *manager.remote]
    stats = await asyncio.gather(*(_stats(model.engine) for model in models))
    loaded = dict(zip((model.entry.name for model in models), stats, strict=True))
    keys = request.app.state.access.use_of_keys()
    known = metrics_of(request.app)
    text = known.render(loaded, keys, manager.energy.answers)
    return Response(text, media_type=known.media_type)


def metrics_of(app: Starlette) -> "Metrics":
    """PERF: Prometheus's library takes 60 ms, which the server's start would otherwise pay."""
    if not hasattr(app.state, "metrics"):
        from gptoss_local.server.prometheus import Metrics

        app.state.metrics = Metrics(app.state.manager.counters)
    metrics: Metrics = app.state.metrics
    return metrics


async def _stats(engine: AnyEngine) -> Stats | None:
    with suppress(GptOssError, TimeoutError):  # the engine answers between two steps
        return await asyncio.wait_for(engine.stats(), _STATS_TIMEOUT_S)
    return None
