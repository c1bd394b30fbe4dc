"""Ollama's management of models, with refusals; docs/api.md has deliberate differences.

Source: Ollama's server/routes.go and server/create.go.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from typing import Any, ClassVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gptoss_local.api.answers import ErrorFrame
from gptoss_local.api.models import JobStatus, LoadStatus
from gptoss_local.base.errors import (
    GptOssError,
    ModelLoadError,
    ModelNotFoundError,
    RequestTimeoutError,
    UsageError,
)
from gptoss_local.base.settings import Settings
from gptoss_local.models.pulling.jobs import Pulls
from gptoss_local.models.store import (
    BlobWriter,
    ModelDefaults,
    add_model,
    check_deletable,
    delete_model,
    file_for,
    find_blob,
    find_model,
)
from gptoss_local.server.body import convert, translate
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.history import SentMessage
from gptoss_local.server.dialects.named_model import manager_of, read_named, settings_of, warn
from gptoss_local.server.dialects.ollama.frames import error_frame
from gptoss_local.server.dialects.ollama.request import TEMPLATE, ModelBody
from gptoss_local.server.dialects.options import ModelOptions
from gptoss_local.server.streaming import NDJSON, AnswerResponse, json_response

endpoints = Endpoints()
_PIECE_TIMEOUT_S = 60.0
_PIECE_BYTES = 1 << 20
_ROLES = ("system", "developer", "user", "assistant", "tool")


class PullBody(ModelBody):
    """`gguf` is ours: take the published GGUF and not the checkpoint."""

    stream: bool = True
    gguf: bool = False


_REFUSED = {
    "template": "gpt-oss has one prompt format, harmony, which gptoss renders itself",
    "quantize": "gptoss convert decides how weights are stored",
}


class CreateBody(msgspec.Struct, kw_only=True):
    """The parts of a model; `template` and `quantize` are refused when set."""

    model: str = ""
    name: str = ""
    stream: bool = True
    from_: str = msgspec.field(name="from", default="")
    files: dict[str, str] = {}
    system: str = ""
    parameters: dict[str, Any] = {}
    messages: list[dict[str, Any]] = []
    license: str | list[str] = ""
    template: str = ""
    adapters: dict[str, str] = {}
    quantize: str = ""

    def defaults(self, inherited: ModelDefaults, parent: str) -> ModelDefaults:
        texts = (self.license,) if isinstance(self.license, str) else tuple(self.license)
        return ModelDefaults(
            parent=parent,
            system=self.system or inherited.system,
            parameters=inherited.parameters | self.parameters,
            messages=tuple(self.messages) or inherited.messages,
            license=tuple(filter(None, texts)) or inherited.license,
        )

    def check(self) -> None:
        if not (self.model or self.name):
            raise UsageError("invalid model name")
        for field, why in _REFUSED.items():
            if getattr(self, field) not in ("", TEMPLATE):
                raise UsageError(f"'{field}' is not supported: {why}")
        convert(self.parameters, ModelOptions)
        for message in convert(self.messages, list[SentMessage]):
            if message.role.lower() not in _ROLES:
                raise UsageError(f"unknown role '{message.role}'")
            message.to_message()
        if not (self.from_ or self.files):
            raise UsageError("neither 'from' or 'files' was specified")
        if len(self.files) > 1 or (self.from_ and self.files):
            raise UsageError("a model is made of one GGUF file, or of one other model")
        if len(self.adapters) > 1:
            raise UsageError("a model has one adapter", hint="Merge several into one with peft.")


class CopyBody(msgspec.Struct):
    REQUIRED: ClassVar[tuple[str, ...]] = ("source", "destination")

    source: str = ""
    destination: str = ""


class StatusWriter:
    """The lines of a long job; as a whole, only the last one."""

    framing = NDJSON

    def __init__(self) -> None:
        self._last: JobStatus | LoadStatus | None = None

    def feed(self, event: JobStatus | LoadStatus) -> Iterable[JobStatus | LoadStatus]:
        self._last = event
        return [event]

    def keepalive(self) -> Iterable[JobStatus | LoadStatus]:
        return [self._last] if self._last else []

    def whole(self) -> JobStatus | LoadStatus:
        return self._last or JobStatus("success")

    def failed(self, error: GptOssError) -> Iterable[ErrorFrame]:
        return [error_frame(error)]


class Cloud(msgspec.Struct):
    """Says that models of Ollama's cloud are not offered."""

    disabled: bool
    source: str


class CloudStatus(msgspec.Struct):
    cloud: Cloud


@endpoints.for_keys("GET", "/api/status", "Whether a cloud is offered", CloudStatus)
async def status(_request: Request) -> Response:
    return json_response(CloudStatus(Cloud(disabled=True, source="config")))


@endpoints.for_owner_or_all(
    "POST", "/api/create", "Make a model of a file", JobStatus, CreateBody, stream=NDJSON
)
async def create(request: Request) -> Response:
    body = await read_named(request, CreateBody)
    unknown = body.parameters.keys() - set(ModelOptions.__struct_fields__)
    warn(request, "ignored", (f"parameters.{name}" for name in unknown))
    await translate(request, body.check)
    events = _create(body, settings_of(request))
    return AnswerResponse(events, StatusWriter(), stream=body.stream)


async def _create(body: CreateBody, settings: Settings) -> AsyncGenerator[JobStatus, None]:
    if body.from_:
        entry = find_model(body.from_, settings)
        source = await asyncio.to_thread(entry.ensure_file, settings)
        parent = entry.defaults.parent if entry.adapter else entry.name
        defaults, in_place = body.defaults(entry.defaults, parent), entry.is_in_place
        adapter = entry.adapter
    else:
        (digest,) = body.files.values()
        source = find_blob(digest, settings)
        defaults, in_place, adapter = body.defaults(ModelDefaults(), ""), False, None
        yield JobStatus("parsing GGUF")
    for digest in body.adapters.values():
        if adapter:
            raise UsageError(
                f"{body.from_} has an adapter already", hint=f"Begin with {parent or 'its base'}."
            )
        adapter = find_blob(digest, settings)
    add = partial(add_model, in_place=in_place, adapter=adapter)
    await asyncio.to_thread(add, body.model or body.name, source, settings, defaults)
    yield JobStatus("writing manifest")
    yield JobStatus("success")


@endpoints.for_owner_or_all("POST", "/api/copy", "Give a model another name", None, CopyBody)
async def copy(request: Request) -> Response:
    body = await read_named(request, CopyBody)
    settings = settings_of(request)
    try:
        file_for(body.destination, settings)
    except UsageError as error:
        raise UsageError(
            f'destination "{body.destination}" is invalid: {error.message}', hint=error.hint
        ) from error
    try:
        entry = find_model(body.source, settings)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f'model "{body.source}" not found', hint=error.hint) from error
    path = await asyncio.to_thread(entry.ensure_file, settings)
    add = partial(add_model, in_place=entry.is_in_place, adapter=entry.adapter)
    try:
        await asyncio.to_thread(add, body.destination, path, settings, entry.defaults)
    except GptOssError:
        if not path.exists():  # another request has deleted it meanwhile
            raise ModelNotFoundError(f'model "{body.source}" not found') from None
        raise
    return Response()


@endpoints.for_owner_or_all("DELETE", "/api/delete", "Remove a model", None, ModelBody)
async def delete(request: Request) -> Response:
    body = await read_named(request, ModelBody)
    name, manager = body.model or body.name, manager_of(request)
    check_deletable(name, manager.settings)
    with contextlib.suppress(ModelNotFoundError, ModelLoadError):  # a name may outlive its file
        await manager.unload(find_model(name, manager.settings))
    await asyncio.to_thread(delete_model, name, manager.settings)
    return Response()


@endpoints.for_owner_or_all("HEAD", "/api/blobs/{digest}", "Whether a file is here")
async def has_blob(request: Request) -> Response:
    find_blob(request.path_params["digest"], settings_of(request))
    return Response()


@endpoints.for_owner_or_all("POST", "/api/blobs/{digest}", "Upload a file", None, bytes)
async def put_blob(request: Request) -> Response:
    """Take a file of any size; 201 when it is new, 200 when it was there."""
    digest, settings = request.path_params["digest"], settings_of(request)
    try:
        find_blob(digest, settings)
        return Response()
    except ModelNotFoundError:
        pass
    with BlobWriter(digest, settings) as blob:
        async for piece in _pieces(request):
            await asyncio.to_thread(blob.write, piece)
        await asyncio.to_thread(blob.finish)
    return Response(status_code=201)


async def _pieces(request: Request) -> AsyncGenerator[bytes, None]:
    pieces, buffer = request.stream(), bytearray()
    while True:
        try:
            async with asyncio.timeout(_PIECE_TIMEOUT_S):
                buffer += await anext(pieces)
        except StopAsyncIteration:
            break
        except TimeoutError as error:
            raise RequestTimeoutError("the upload stalled") from error
        except ClientDisconnect as error:  # no client reads this
            raise UsageError("the client left before its upload was complete") from error
        if len(buffer) >= _PIECE_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


@endpoints.for_owner_or_all(
    "POST", "/api/pull", "Download a model", JobStatus, PullBody, stream=NDJSON
)
async def pull(request: Request) -> Response:
    body = await read_named(request, PullBody)
    pulls: Pulls = request.app.state.pulls
    events = pulls.pull(body.model or body.name, gguf=body.gguf)
    return AnswerResponse(events, StatusWriter(), stream=body.stream)


@endpoints.for_keys("POST", "/api/push", "Refused", None, ModelBody, is_refused=True)
async def push(request: Request) -> Response:
    await read_named(request, ModelBody)
    raise UsageError("gptoss publishes no models", hint="Upload the GGUF to the Hugging Face hub.")
