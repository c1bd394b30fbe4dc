"""Endpoints of our own, and those of every server."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gptoss_local.pulling.jobs import Status
from gptoss_local.runner.loads import LoadStatus
from gptoss_local.server.dialect import Dialect, Endpoint
from gptoss_local.server.dialects.gptoss.routes import (
    Fits,
    InspectBody,
    Inspection,
    ServerStatus,
    fits,
    inspect,
    load,
    shut_down,
    status,
)
from gptoss_local.server.dialects.ollama.frames import ErrorFrame, error_frame
from gptoss_local.server.dialects.ollama.request import GenerateBody
from gptoss_local.server.metrics import Health, health, metrics
from gptoss_local.server.streaming import NDJSON

_N_CTX = {"n_ctx": {"type": "integer", "minimum": 1, "maximum": 2147483647}}


async def root(_request: Request) -> Response:
    """Say what clients look for, word for word."""
    return PlainTextResponse("Ollama is running")


GPTOSS = Dialect(
    is_spoken=lambda path, _headers: path.startswith("/api/gptoss/"),
    endpoints=(
        Endpoint("GET", "/", root, "Says that a server is there"),
        Endpoint("GET", "/health", health, "Whether the server lives", Health),
        Endpoint("GET", "/metrics", metrics, "Counters for Prometheus"),
        Endpoint("GET", "/api/gptoss/status", status, "Of the server's process", ServerStatus),
        Endpoint(
            "POST",
            "/api/gptoss/inspect",
            inspect,
            "A conversation in harmony, with token ids",
            Inspection,
            InspectBody,
            required=("model",),
        ),
        Endpoint(
            "GET", "/api/gptoss/fits", fits, "Where each model would go", Fits, queries=_N_CTX
        ),
        Endpoint("POST", "/api/gptoss/shutdown", shut_down, "End the server", Status),
        Endpoint(
            "POST", "/api/gptoss/load", load, "Load a model", LoadStatus, GenerateBody, NDJSON
        ),
    ),
    error_body=lambda error, _request: error_frame(error),
    error=ErrorFrame,
)
