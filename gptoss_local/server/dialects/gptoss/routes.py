"""Serves our own programs beyond Ollama's API; docs/api.md documents it for others, too."""

import asyncio
import os
import time
from typing import Any, ClassVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local import __version__
from gptoss_local.api.gptoss import (
    AttachedFile,
    GpuMemory,
    Inspection,
    ModelFits,
    NamedPreset,
    NamedPresets,
    ServerStatus,
    TokenCount,
)
from gptoss_local.api.models import JobStatus, LoadStatus
from gptoss_local.base.errors import AnsweringError, UsageError
from gptoss_local.base.off_loop import Check, run_off_loop
from gptoss_local.base.quantities import counted, parse_option
from gptoss_local.base.types import Effort
from gptoss_local.harmony import ChatRequest, Message, inspect_tokens, load_vocabulary, text_size
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.machine.hardware import read_cuda_gpus
from gptoss_local.runner.fits import all_fits
from gptoss_local.server.access import owner_of
from gptoss_local.server.body import read_bytes
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.history import SentMessage
from gptoss_local.server.dialects.named_model import NamedModel, manager_of, read_named
from gptoss_local.server.dialects.ollama.management import StatusWriter
from gptoss_local.server.dialects.ollama.request import ChatBody, GenerateBody
from gptoss_local.server.dialects.options import NUMBER, TokenId, number_in
from gptoss_local.server.metrics import Health, health, metrics
from gptoss_local.server.streaming import NDJSON, AnswerResponse, json_response, while_connected
from gptoss_local.talk.documents import UnreadableFile, fenced, read_document
from gptoss_local.talk.presets import Preset, read_presets, remove_preset, save_preset

endpoints = Endpoints()
endpoints.for_all("GET", "/health", "Whether the server lives", Health)(health)
endpoints.for_keys("GET", "/metrics", "Counters for Prometheus")(metrics)
_changing = asyncio.Lock()  # the file is read, and then written
_reading = asyncio.Semaphore(2)  # a large document takes seconds of a core, and gigabytes


class TextBody(msgspec.Struct):
    text: str = ""


@endpoints.for_chat(
    "POST", "/api/gptoss/tokens", "How many tokens a text takes", TokenCount, TextBody
)
async def count_tokens(request: Request) -> Response:
    """Count by the vocabulary of gpt-oss; loads no model."""
    body = await read_named(request, TextBody)
    return json_response(TokenCount(await while_connected(request, _n_tokens(body.text))))


@endpoints.for_chat(
    "POST",
    "/api/gptoss/files",
    "A text file, a PDF or a Word document as text",
    AttachedFile,
    bytes,
    queries={"name": {"type": "string"}},
)
async def read_file(request: Request) -> Response:
    name, data = request.query_params.get("name", ""), await read_bytes(request)
    return json_response(await while_connected(request, _attached(name, data)))


async def _attached(name: str, data: bytes) -> AttachedFile:
    name = " ".join(name.split())
    if not name:
        raise UsageError("a file needs a name", hint="Send it as ?name=notes.md.")
    try:
        async with _reading:
            found = await read_document(name, data)
    except UnreadableFile as error:
        raise UsageError(f"{name} {error.why}", hint=error.hint) from error
    text = fenced(name, found.text)
    tokens = counted(await _n_tokens(text), "token")
    label = f"{found.kind}: {name}, {found.length}, {tokens}".replace("]", ")")
    return AttachedFile(label, text)


async def _n_tokens(text: str) -> int:
    def count(check: Check) -> int:
        return len(load_vocabulary().encode(text, TokenBudget(check=check)))

    return await run_off_loop(count, len(text))


class PresetBody(msgspec.Struct, kw_only=True):
    """A preset as it is to be; `name` is a new name."""

    name: str = ""
    system: str = ""
    effort: Effort | None = None
    options: dict[str, Any] = {}


@endpoints.for_chat("GET", "/api/gptoss/presets", "What chats begin with", NamedPresets)
async def presets(_request: Request) -> Response:
    found = await asyncio.to_thread(read_presets)
    named = [NamedPreset(name, p.system, p.effort, p.options) for name, p in found.items()]
    return json_response(NamedPresets(named))


@endpoints.for_page(
    "PUT", "/api/gptoss/presets/{name:path}", "Write a preset", JobStatus, PresetBody
)
async def put_preset(request: Request) -> Response:
    name, body = request.path_params["name"], await read_named(request, PresetBody)
    options = {key: parse_option(key, str(value)) for key, value in body.options.items()}
    preset = Preset(system=body.system, effort=body.effort, options=options)

    def write() -> None:
        old = name if name in read_presets() else ""
        save_preset(body.name or name, preset, instead_of=old)

    async with _changing:
        await asyncio.to_thread(write)
    return json_response(JobStatus("success"))


@endpoints.for_page("DELETE", "/api/gptoss/presets/{name:path}", "Remove a preset", JobStatus)
async def delete_preset(request: Request) -> Response:
    async with _changing:
        await asyncio.to_thread(remove_preset, request.path_params["name"])
    return json_response(JobStatus("success"))


class AnswerNowBody(msgspec.Struct):
    """The answer's `x-request-id`."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("id",)

    id: str = ""


@endpoints.for_keys(
    "POST",
    "/api/gptoss/answer-now",
    "End the reasoning of an answer under way",
    JobStatus,
    AnswerNowBody,
)
async def answer_now(request: Request) -> Response:
    body = await read_named(request, AnswerNowBody)
    wish = request.app.state.wishes.get((owner_of(request), body.id))
    if wish is None:
        raise AnsweringError(
            f"no answer of yours has the id '{body.id}' now",
            hint="Send the x-request-id of an answer while it comes.",
        )
    wish.is_wished = True
    return json_response(JobStatus("success"))


class InspectBody(ChatBody, msgspec.Struct, kw_only=True):
    """A request of `/api/chat`, and its answer.

    Attributes:
        answer: The answer as a message of the next request.
        tokens: The answer's ids, as `return_tokens` has them.
    """

    answer: SentMessage | None = None
    tokens: list[TokenId] = []


@endpoints.for_page(
    "POST",
    "/api/gptoss/inspect",
    "A conversation in harmony, with token ids",
    Inspection,
    InspectBody,
)
async def inspect(request: Request) -> Response:
    """Return a conversation as harmony has it, with token ids; loads no model."""
    model = NamedModel(request)
    body = await model.read(InspectBody)
    vocabulary, render = await model.vocabulary(), await model.renderer()
    asked = await model.asked(body.to_request)

    def look(check: Check) -> Inspection:
        prompt = render(asked, check)
        following = [] if body.answer is None else render(_next(asked, body), check)
        pieces = inspect_tokens(prompt, body.tokens, following, vocabulary)
        return Inspection(len(prompt), len(body.tokens), pieces)

    work = run_off_loop(look, text_size(asked))
    return json_response(await while_connected(request, work))


@endpoints.for_page("GET", "/api/gptoss/status", "Of the server's process", ServerStatus)
async def status(request: Request) -> Response:
    manager = manager_of(request)
    gpus = await asyncio.to_thread(read_cuda_gpus)
    return json_response(
        ServerStatus(
            server_version=__version__,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - request.app.state.start_s, 3),
            loading=manager.loading,
            models_dir=str(manager.settings.models_dir.absolute()),
            gpus=[GpuMemory(gpu.name, gpu.total_bytes, gpu.free_bytes) for gpu in gpus],
            clients=request.app.state.access.clients,
            lan=request.app.state.lan.urls,
        )
    )


@endpoints.for_owner("POST", "/api/gptoss/shutdown", "End the server", JobStatus)
async def shut_down(request: Request) -> Response:
    request.app.state.shut_down()
    return json_response(JobStatus("success"))


@endpoints.for_page(
    "POST", "/api/gptoss/load", "Load a model", LoadStatus, GenerateBody, stream=NDJSON
)
async def load(request: Request) -> Response:
    """Load a model and report progress; loading continues if the client leaves."""
    model = NamedModel(request)
    body = await model.read(GenerateBody)
    events = model.manager.load(
        model.entry, n_ctx=body.options.n_ctx, keep_alive_s=body.keep_alive_s
    )
    return AnswerResponse(events, StatusWriter(), stream=body.stream)


@endpoints.for_chat(
    "GET", "/api/gptoss/fits", "Where each model would go", ModelFits, queries={"n_ctx": NUMBER}
)
async def fits(request: Request) -> Response:
    """Send where each model here or in the catalogue would go; slow."""
    manager = manager_of(request)
    n_ctx = number_in(request.query_params, "n_ctx")
    freed = [model.engine for model in manager.loaded]
    found = await asyncio.to_thread(all_fits, manager.settings, n_ctx, freed=freed)
    return json_response(found)


def _next(asked: ChatRequest, body: InspectBody) -> ChatRequest:
    assert body.answer is not None
    answer = body.answer.to_message()
    following = Message(role="tool" if answer.tool_calls else "user")
    return msgspec.structs.replace(asked, messages=(*asked.messages, answer, following))
