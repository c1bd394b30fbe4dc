"""What the terminal chat asks beyond Ollama's API: what a model saw, and which models fit.

Documented in docs/api.md, for other programs, too.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.catalog import CatalogModel, catalog
from gptoss_local.chat import ChatRequest, HarmonyPiece, Message, dissect, prompt_tokens
from gptoss_local.errors import GptOssError, UsageError
from gptoss_local.hardware import read_usable_gpus
from gptoss_local.plan.facts import published_facts
from gptoss_local.plan.measured import read_measured
from gptoss_local.plan.outcome import Plan
from gptoss_local.server.body import read_body
from gptoss_local.server.bounds import MAX_INT, TokenId
from gptoss_local.server.loading import LoadedModel
from gptoss_local.server.manager import ModelManager
from gptoss_local.server.model_defaults import fill_in_options
from gptoss_local.server.ollama_request import ChatBody, WireMessage, to_message
from gptoss_local.server.placing import measured_file, plan_load
from gptoss_local.server.streaming import json_response
from gptoss_local.store import ModelEntry, find_model, list_models


class InspectBody(ChatBody, msgspec.Struct, kw_only=True):
    """A request of `/api/chat`, and what came of it.

    Attributes:
        answer: The answer as a message of the next request.
        tokens: The answer's ids, as `return_tokens` has them.
    """

    answer: WireMessage | None = None
    tokens: list[TokenId] = []


class Inspection(msgspec.Struct):
    """`n_tokens` is the length of the prompt, `n_answer_tokens` that of the answer."""

    n_tokens: int
    n_answer_tokens: int
    messages: list[HarmonyPiece]


class Fit(msgspec.Struct):
    """Where a model would go if it were loaded now, the loaded ones making room.

    A model of the catalogue that is not here yet is planned as `gptoss convert` makes it.

    Attributes:
        fits: `vram`: all of it; `split`: experts or layers in RAM; `ram`: no GPU is used.
        vram_share: Of the weights.
        n_ctx: Tokens of context it would have.
    """

    name: str
    fits: Literal["vram", "split", "ram", "no"]
    vram_share: float = 0.0
    n_ctx: int = 0


class Fits(msgspec.Struct):
    models: list[Fit]


def routes() -> list[Route]:
    return [
        Route("/api/gptoss/inspect", inspect, methods=["POST"]),
        Route("/api/gptoss/fits", fits, methods=["GET"]),
    ]


async def inspect(request: Request) -> Response:
    """A conversation as harmony has it, with token ids; loads no model."""
    manager = _manager(request)
    body = await read_body(request, InspectBody, fill_in_options(manager.settings))
    if not body.model:
        raise UsageError("model is required")
    vocabulary = await manager.vocabulary(body.model)
    asked = manager.begun(body.model, body.to_request())
    n_ctx = next((m.engine.loaded.n_ctx for m in manager.loaded if _is(m, body.model)), None)

    def look() -> Inspection:
        prompt = prompt_tokens(asked, vocabulary, n_ctx)
        following = (
            [] if body.answer is None else prompt_tokens(_next(asked, body), vocabulary, n_ctx)
        )
        pieces = dissect(prompt, body.tokens, following, vocabulary)
        return Inspection(len(prompt), len(body.tokens), pieces)

    return json_response(await asyncio.to_thread(look))


async def fits(request: Request) -> Response:
    """For each model on this machine or in the catalogue, where it would go; takes some time."""
    manager = _manager(request)
    loaded, n_ctx = list(manager.loaded), _n_ctx(request.query_params.get("n_ctx", ""))
    settings, freed = manager.settings, [model.engine for model in loaded]

    def plan_here(entry: ModelEntry) -> Plan:
        path = entry.ensure_file(settings)
        known = read_measured(measured_file(find_model(entry.name, settings), settings))
        return plan_load(path, settings, n_ctx, freed=freed, tuning=known.tuning)

    def plan_published(model: CatalogModel) -> Plan:
        facts = published_facts(model.layers, model.experts)
        return plan_load(facts, settings, n_ctx, freed=freed)

    def plan_all() -> Fits:
        here = list_models(settings)
        names = {entry.name for entry in here}
        others = [m for m in catalog() if m.name not in names and m.layers and m.experts]
        found = [_fit(entry.name, partial(plan_here, entry)) for entry in here]
        return Fits(found + [_fit(model.name, partial(plan_published, model)) for model in others])

    return json_response(await asyncio.to_thread(plan_all))


async def gpu_memory() -> list[dict[str, Any]]:
    """Of each GPU that models can use, name and bytes: all, and those that are free now."""
    gpus = await asyncio.to_thread(read_usable_gpus)
    return [
        {"name": gpu.name, "total_bytes": gpu.total_bytes, "free_bytes": gpu.free_bytes}
        for gpu in gpus
    ]


def _manager(request: Request) -> ModelManager:
    manager: ModelManager = request.app.state.manager
    return manager


def _is(model: LoadedModel, name: str) -> bool:
    return model.entry.name == name


def _next(asked: ChatRequest, body: InspectBody) -> ChatRequest:
    """The request that follows: with the answer, and a message after it."""
    assert body.answer is not None
    answer = to_message(body.answer)
    following = Message(role="tool" if answer.tool_calls else "user")
    return msgspec.structs.replace(asked, messages=(*asked.messages, answer, following))


def _n_ctx(text: str) -> int | None:
    if text and not (text.isdecimal() and 0 < int(text) <= MAX_INT):
        raise UsageError("n_ctx must be a number of tokens")
    return int(text) if text else None


def _fit(name: str, plan: Callable[[], Plan]) -> Fit:
    try:
        return _as_fit(name, plan())
    except GptOssError:  # too large, or a file that is broken: either way it cannot be used
        return Fit(name, "no")


def _as_fit(name: str, plan: Plan) -> Fit:
    where: dict[str, Any] = {"vram_share": plan.vram_share, "n_ctx": plan.shape.n_ctx}
    if not plan.uses_gpu:
        return Fit(name, "ram", n_ctx=plan.shape.n_ctx)
    return Fit(name, "vram" if plan.vram_share > 0.999 else "split", **where)
