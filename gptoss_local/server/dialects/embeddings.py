"""Embeddings in Ollama's and OpenAI's APIs, which another server's `/v1/embeddings` computes."""

import time
from typing import Any

import httpx2
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.base.bounded_answers import UNCOMPRESSED, bound
from gptoss_local.base.errors import UpstreamError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.server.body import read_body
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.named_model import read_named, settings_of
from gptoss_local.server.streaming import json_response, while_connected

ollama_endpoints, openai_endpoints = Endpoints(), Endpoints()
_WAIT_S = 600.0  # a model may have to be loaded there
_N_BYTES = 256 * 2**20


class EmbedBody(msgspec.Struct):
    model: str = ""
    input: str | list[str] = ""
    dimensions: int | None = None


class PromptBody(msgspec.Struct):
    """A request of Ollama's older API."""

    model: str = ""
    prompt: str = ""


class OpenAIEmbedBody(msgspec.Struct, omit_defaults=True):
    """A request of OpenAI's API, which is passed on with all of its fields."""

    model: str = ""
    input: str | list[str | int | list[int]] = ""
    dimensions: int | None = None
    encoding_format: str = "float"


class Embeddings(msgspec.Struct):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    prompt_eval_count: int


class Embedding(msgspec.Struct):
    embedding: list[float]


class EmbeddingItem(msgspec.Struct):
    embedding: list[float] | str  # base64, where that was asked for
    index: int = 0
    object: str = "embedding"


class EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int = 0
    total_tokens: int = 0


class OpenAIEmbeddings(msgspec.Struct):
    data: list[EmbeddingItem]
    model: str = ""
    object: str = "list"
    usage: EmbeddingUsage = msgspec.field(default_factory=EmbeddingUsage)


@ollama_endpoints.metered("/api/embed", "Embeddings of another server", Embeddings, EmbedBody)
async def embed(request: Request) -> Response:
    body, begun_ns = await read_named(request, EmbedBody), time.monotonic_ns()
    size = {} if body.dimensions is None else {"dimensions": body.dimensions}
    asked = {"model": body.model, "input": body.input, "encoding_format": "float"} | size
    found = await _ask(request, asked)
    total_ns, n_tokens = time.monotonic_ns() - begun_ns, found.usage.prompt_tokens
    return json_response(Embeddings(body.model, _vectors(found), total_ns, n_tokens))


@ollama_endpoints.metered(
    "/api/embeddings", "An embedding of another server", Embedding, PromptBody
)
async def embed_prompt(request: Request) -> Response:
    body = await read_named(request, PromptBody)
    asked = {"model": body.model, "input": body.prompt, "encoding_format": "float"}
    return json_response(Embedding(_vectors(await _ask(request, asked))[0]))


@openai_endpoints.metered(
    "/v1/embeddings", "Embeddings of another server", OpenAIEmbeddings, OpenAIEmbedBody
)
async def openai_embeddings(request: Request) -> Response:
    sent = dict[str, Any]()

    def keep(body: dict[str, Any]) -> dict[str, Any]:
        sent.update(body)
        return body

    await read_body(request, OpenAIEmbedBody, keep)
    return json_response(await _ask(request, sent))


def _vectors(found: OpenAIEmbeddings) -> list[list[float]]:
    vectors = [item.embedding for item in found.data if not isinstance(item.embedding, str)]
    if not vectors:
        raise UpstreamError("the server of embeddings sent no embeddings")
    return vectors


async def _ask(request: Request, body: dict[str, Any]) -> OpenAIEmbeddings:
    """Return the other server's answer, in the order of the texts.

    Raises UsageError if no server is set or it refuses, UpstreamError if it is silent.
    """
    if not body.get("model"):
        raise UsageError("model is required")
    settings = settings_of(request)
    if not settings.embeddings_url:
        raise UsageError(
            f'"{body["model"]}" does not support embeddings: gpt-oss has none',
            hint="Set embeddings_url to a server that has them, such as another Ollama.",
        )
    content = await while_connected(request, _post(settings, body))
    try:
        found = msgspec.json.decode(content, type=OpenAIEmbeddings)
    except msgspec.DecodeError as error:
        raise UpstreamError(f"the server of embeddings sent no embeddings: {error}") from error
    found.data.sort(key=lambda item: item.index)
    return found


async def _post(settings: Settings, body: dict[str, Any]) -> bytes:
    url = settings.embeddings_url.rstrip("/").removesuffix("/v1") + "/v1/embeddings"
    key = settings.embeddings_key
    headers = UNCOMPRESSED | ({"Authorization": f"Bearer {key}"} if key else {})

    async def bounded(response: httpx2.Response) -> None:
        bound(response, _N_BYTES)

    try:
        async with httpx2.AsyncClient(
            headers=headers, timeout=_WAIT_S, event_hooks={"response": [bounded]}
        ) as http:
            response = await http.post(url, json=body)
    except httpx2.HTTPError as error:
        raise UpstreamError(
            f"the server of embeddings does not answer: {error or type(error).__name__}",
            hint="Is embeddings_url right, and does it run?",
        ) from error
    if response.is_success:
        return response.content
    told = response.text[:300].replace(key, "***") if key else response.text[:300]
    refusal = f"the server of embeddings refuses the request ({response.status_code}): {told}"
    raise UsageError(refusal) if response.is_client_error else UpstreamError(refusal)
