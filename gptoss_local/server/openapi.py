"""The OpenAPI 3.1 document at `/openapi.json`, made of the structs that decode and encode.

It has all paths of Ollama's docs/openapi.yaml, and says of errors what that one does not.
"""

import functools
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local import __version__
from gptoss_local.server import openapi_answers as answers
from gptoss_local.server.anthropic_request import MessagesBody
from gptoss_local.server.insight import Fits, InspectBody, Inspection
from gptoss_local.server.loads import LoadStatus
from gptoss_local.server.management import CopyBody, CreateBody, PullBody
from gptoss_local.server.ollama_frames import ChatFrame, ErrorFrame, GenerateFrame
from gptoss_local.server.ollama_request import ChatBody, GenerateBody, ModelBody
from gptoss_local.server.openai_chat_request import ChatCompletionBody, CompletionBody
from gptoss_local.server.openai_responses_request import ResponsesBody
from gptoss_local.server.pulls import Status
from gptoss_local.server.streaming import json_response

_NDJSON, _SSE, _TEXT = "application/x-ndjson", "text/event-stream", "text/plain"
_JSON = "application/json"


class Operation(NamedTuple):
    """One method of one path.

    Attributes:
        answer: Struct of the body of a 200; None: text, or nothing.
        body: Struct of the request's body.
        stream: Media type of the answer when it is streamed.
        is_refused: It is there to say clearly that we have no such thing.
    """

    method: str
    path: str
    summary: str
    answer: type | None = None
    body: type | None = None
    stream: str = ""
    is_refused: bool = False


OPERATIONS = (
    Operation("get", "/", "Says that a server is there"),
    Operation("get", "/health", "Whether the server lives", answers.Health),
    Operation("get", "/metrics", "Counters for Prometheus"),
    Operation("get", "/openapi.json", "This document", dict),
    Operation("get", "/api/gptoss/status", "Of the server's process", answers.ServerStatus),
    Operation(
        *("post", "/api/gptoss/inspect", "A conversation in harmony, with token ids"),
        *(Inspection, InspectBody),
    ),
    Operation("get", "/api/gptoss/fits", "Where each model would go", Fits),
    Operation("post", "/api/gptoss/shutdown", "End the server", Status),
    Operation("post", "/api/gptoss/load", "Load a model", LoadStatus, GenerateBody, _NDJSON),
    Operation("get", "/api/version", "Version of Ollama's API", answers.Version),
    Operation("get", "/api/status", "Whether models of a cloud are offered", answers.CloudStatus),
    Operation("get", "/api/tags", "Models on disk", answers.Tags),
    Operation("get", "/api/ps", "Models in memory", answers.Ps),
    Operation("post", "/api/show", "Details of a model", answers.Show, ModelBody),
    Operation("post", "/api/chat", "Answer a conversation", ChatFrame, ChatBody, _NDJSON),
    Operation("post", "/api/generate", "Answer a prompt", GenerateFrame, GenerateBody, _NDJSON),
    Operation("post", "/api/pull", "Fetch a model of the catalogue", Status, PullBody, _NDJSON),
    Operation("post", "/api/create", "Make a model of a file", Status, CreateBody, _NDJSON),
    Operation("post", "/api/copy", "Give a model another name", None, CopyBody),
    Operation("delete", "/api/delete", "Remove a model", None, ModelBody),
    Operation("head", "/api/blobs/{digest}", "Whether a file was uploaded"),
    Operation("post", "/api/blobs/{digest}", "Upload a file"),
    Operation("post", "/api/push", "Refused", None, ModelBody, is_refused=True),
    Operation("post", "/api/embed", "Refused", None, ModelBody, is_refused=True),
    Operation("post", "/api/embeddings", "Refused", None, ModelBody, is_refused=True),
    Operation(
        *("post", "/v1/chat/completions", "OpenAI's Chat Completions"),
        *(answers.ChatCompletion, ChatCompletionBody, _SSE),
    ),
    Operation(
        *("post", "/v1/completions", "OpenAI's Completions"),
        *(answers.TextCompletion, CompletionBody, _SSE),
    ),
    Operation(
        *("post", "/v1/responses", "OpenAI's Responses"),
        *(answers.ResponseObject, ResponsesBody, _SSE),
    ),
    Operation(
        *("get", "/v1/responses/{response}", "An answer that is remembered"),
        answers.ResponseObject,
    ),
    Operation(*("delete", "/v1/responses/{response}", "Forget an answer"), answers.DeletedResponse),
    Operation(
        *("get", "/v1/responses/{response}/input_items", "What an answer was given to"),
        answers.InputItems,
    ),
    Operation("get", "/v1/models", "Models on disk", answers.OpenAIModels),
    Operation("get", "/v1/models/{name}", "A model on disk", answers.OpenAIModel),
    Operation("post", "/v1/embeddings", "Refused", None, ModelBody, is_refused=True),
    Operation(
        *("post", "/v1/messages", "Anthropic's Messages"),
        *(answers.AnthropicMessage, MessagesBody, _SSE),
    ),
    Operation(
        *("post", "/v1/messages/count_tokens", "Length of a prompt"),
        *(answers.TokenCount, MessagesBody),
    ),
)

_ERRORS = {
    400: "The request is wrong, or asks for what gpt-oss cannot do",
    401: "The API key is missing or wrong",
    404: "No such model, or answer",
    405: "The path has no such method",
    408: "The body did not arrive in time",
    413: "The body is too large",
    415: "The body is compressed in a way that is not read",
    422: "The file or checkpoint cannot be used",
    500: "The model or the server failed",
    502: "The hub, the network or the disk failed",
    503: "Too many requests wait, or the server is shutting down",
    507: "Memory has no room for the model, or for the context that was asked for",
}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "digest": {"type": "string", "pattern": "^sha256[:-][0-9a-fA-F]{64}$"},
    "name": {"type": "string", "minLength": 1},
    "response": {"type": "string", "minLength": 1},
}
_QUERIES: dict[str, dict[str, dict[str, Any]]] = {
    "/v1/responses/{response}/input_items": {
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "order": {"enum": ["asc", "desc"], "default": "desc"},
        "after": {"type": "string"},
    },
    "/api/gptoss/fits": {"n_ctx": {"type": "integer", "minimum": 1, "maximum": 2147483647}},
}


def routes() -> list[Route]:
    return [Route("/openapi.json", openapi, methods=["GET"])]


async def openapi(_request: Request) -> Response:
    return json_response(document())


@functools.cache
def document() -> dict[str, Any]:
    """The whole document, as plain values."""
    structs = {op.answer for op in OPERATIONS} | {op.body for op in OPERATIONS}
    structs |= {ErrorFrame, answers.OpenAIError, answers.AnthropicError}
    ordered = sorted((s for s in structs if s not in (None, dict)), key=str)
    references, schemas = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    reference = dict(zip(ordered, references, strict=True)) | {dict: {"type": "object"}}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        described = _describe(operation, reference)
        paths.setdefault(operation.path, {})[operation.method] = described
    keys = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gptoss",
            "version": __version__,
            "description": "Ollama's, OpenAI's and Anthropic's dialects for gpt-oss. Requests are "
            "read leniently: unknown fields are ignored, null means unset.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:11434"}],
        "security": [{}, *({name: []} for name in keys)],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": keys},
    }


def _describe(operation: Operation, reference: dict[Any, Any]) -> dict[str, Any]:
    method = operation.method
    described: dict[str, Any] = {
        "operationId": f"{method}{operation.path}".replace("/", "_").strip("_"),
        "summary": operation.summary,
        "responses": {} if operation.is_refused else _success(operation, reference),
    }
    if operation.body is not None:
        content = {_JSON: {"schema": reference[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    for name in names:
        parameter = {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        described["parameters"] = [parameter]
    for name, schema in _QUERIES.get(operation.path, {}).items():
        query = {"name": name, "in": "query", "schema": schema}
        described.setdefault("parameters", []).append(query)
    if "digest" in names and method == "post":
        upload: dict[str, Any] = {"application/octet-stream": {}}
        described["requestBody"] = {"required": True, "content": upload}
        described["responses"]["201"] = {"description": "It is here now"}
    error = reference[_error_struct(operation.path)]
    for status, text in _ERRORS.items():
        content = {_JSON: {"schema": error}}
        if status in (404, 405) and not operation.path.startswith("/v1"):
            content[_TEXT] = {}  # of a path or method that is not there
        described["responses"][str(status)] = {"description": text} | (
            {} if method == "head" else {"content": content}
        )
    forbidden = "A Host that is not this machine, or a web page's Origin"
    described["responses"]["403"] = {"description": forbidden, "content": {_TEXT: {}}}
    return described


def _success(operation: Operation, reference: dict[Any, Any]) -> dict[str, Any]:
    answered: dict[str, Any] = {"description": "Done"}
    if operation.answer is not None:
        answered["content"] = {_JSON: {"schema": reference[operation.answer]}}
    elif operation.path in ("/", "/metrics"):
        answered["content"] = {_TEXT: {}}
    if operation.stream:
        what = "a frame a line" if operation.stream == _NDJSON else "server-sent events"
        answered["description"] = f"The answer; as {what} when it is streamed"
        answered["content"][operation.stream] = {}
    return {"200": answered}


def _error_struct(path: str) -> type:
    if path.startswith("/v1/messages"):
        return answers.AnthropicError
    return answers.OpenAIError if path.startswith("/v1") else ErrorFrame
