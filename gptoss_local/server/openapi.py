"""The OpenAPI 3.1 document of our structs, with all paths of Ollama's docs/openapi.yaml."""

import functools
import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local import __version__
from gptoss_local.server.dialect import Endpoint
from gptoss_local.server.dialects.registry import DIALECTS
from gptoss_local.server.streaming import NDJSON, json_response

_TEXT, _JSON, _BYTES = "text/plain", "application/json", "application/octet-stream"
_TEXTS = {
    "/": (_TEXT, "text/html"),
    "/metrics": (_TEXT,),
    "/api/gptoss/chats/{chat_id:int}/export": (_JSON, "text/markdown"),
}
"""Media types of answers that are not JSON of a struct, by path."""

_ERRORS = {
    400: "The request is wrong, or asks for what gpt-oss cannot do",
    401: "The API key is missing or wrong",
    404: "No such model, or answer",
    405: "The path has no such method",
    408: "The body did not arrive in time",
    409: "The answer there is still being written",
    413: "The body is too large",
    415: "The body is compressed in a way that is not read",
    422: "The file or checkpoint cannot be used",
    500: "The model or the server failed",
    502: "The hub, the network or the disk failed",
    503: "Too many requests wait, or the server is shutting down",
    507: "Memory has no room for the model, or for the context that was asked for",
}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "chat_id": {"type": "integer", "minimum": 1, "maximum": 2147483647},
    "path": {"type": "string", "minLength": 1},
    "digest": {"type": "string", "pattern": "^sha256[:-][0-9a-fA-F]{64}$"},
    "name": {"type": "string", "minLength": 1},
    "response": {"type": "string", "minLength": 1},
}


async def openapi(_request: Request) -> Response:
    return json_response(document())


ENDPOINTS = (
    *(endpoint for dialect in DIALECTS for endpoint in dialect.endpoints),
    Endpoint("GET", "/openapi.json", openapi, "This document", dict, access="key"),
)


@functools.cache
def document() -> dict[str, Any]:
    structs = {each.answer for each in ENDPOINTS} | {each.body for each in ENDPOINTS}
    structs |= {dialect.error for dialect in DIALECTS}
    ordered = sorted((s for s in structs if s not in (None, dict, bytes)), key=str)
    references, schemas = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    reference = dict(zip(ordered, references, strict=True)) | {dict: {"type": "object"}}
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        if endpoint.body is not None and (required := getattr(endpoint.body, "REQUIRED", ())):
            schemas[endpoint.body.__name__]["required"] = list(required)
        described = _describe(endpoint, reference)
        paths.setdefault(_path(endpoint), {})[endpoint.method.lower()] = described
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


def _describe(endpoint: Endpoint, reference: dict[Any, Any]) -> dict[str, Any]:
    method, path = endpoint.method.lower(), _path(endpoint)
    described: dict[str, Any] = {
        "operationId": f"{method}{path}".replace("/", "_").strip("_"),
        "summary": endpoint.summary,
        "responses": {} if endpoint.is_refused else _success(endpoint, reference),
    }
    if endpoint.body is not None:
        is_file = endpoint.body is bytes
        content = {_BYTES: {}} if is_file else {_JSON: {"schema": reference[endpoint.body]}}
        described["requestBody"] = {"required": True, "content": content}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    for name in names:
        parameter = {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        described["parameters"] = [parameter]
    for name, schema in endpoint.queries.items():
        query = {"name": name, "in": "query", "schema": schema}
        described.setdefault("parameters", []).append(query)
    if "digest" in names and method == "post":
        described["responses"]["201"] = {"description": "It is here now"}
    dialect = next(each for each in DIALECTS if each.is_spoken(path, {}))
    error = reference[dialect.error]
    for status, text in _ERRORS.items():
        content = {_JSON: {"schema": error}}
        if status in (404, 405) and not path.startswith("/v1"):
            content[_TEXT] = {}  # of a path or method that is not there
        described["responses"][str(status)] = {"description": text} | (
            {} if method == "head" else {"content": content}
        )
    forbidden = "A Host that is not this machine, or a web page's Origin"
    refused: dict[str, Any] = {_TEXT: {}, _JSON: {"schema": error}}
    described["responses"]["403"] = {"description": forbidden, "content": refused}
    return described


def _success(endpoint: Endpoint, reference: dict[Any, Any]) -> dict[str, Any]:
    answered: dict[str, Any] = {"description": "Done"}
    if endpoint.answer is not None:
        answered["content"] = {_JSON: {"schema": reference[endpoint.answer]}}
    elif endpoint.path in _TEXTS:
        answered["content"] = {media_type: {} for media_type in _TEXTS[endpoint.path]}
    if endpoint.stream is not None:
        what = "a frame a line" if endpoint.stream is NDJSON else "server-sent events"
        answered["description"] = f"The answer; as {what} when it is streamed"
        answered["content"][endpoint.stream.media_type] = {}
    return {"200": answered}


def _path(endpoint: Endpoint) -> str:
    return re.sub(r":(path|int)}", "}", endpoint.path)
