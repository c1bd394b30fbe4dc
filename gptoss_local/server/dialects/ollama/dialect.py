"""Ollama's API: `/api/*`, and every path that is of no other dialect."""

from gptoss_local.api.answers import ChatFrame, ErrorFrame, GenerateFrame
from gptoss_local.api.models import (
    InstalledModels,
    JobStatus,
    RunningModels,
    ServerVersion,
    ShownModel,
)
from gptoss_local.server.dialect import Dialect, for_keys, for_owner_or_all
from gptoss_local.server.dialects import embeddings
from gptoss_local.server.dialects.ollama import management, routes
from gptoss_local.server.dialects.ollama.frames import error_frame
from gptoss_local.server.dialects.ollama.management import (
    CloudStatus,
    CopyBody,
    CreateBody,
    PullBody,
)
from gptoss_local.server.dialects.ollama.request import ChatBody, GenerateBody, ModelBody
from gptoss_local.server.streaming import NDJSON

_MODEL = ("model",)

OLLAMA = Dialect(
    name="ollama",
    is_spoken=lambda _path, _headers: True,
    endpoints=(
        for_keys("GET", "/api/version", routes.version, "Ollama's version", ServerVersion),
        for_keys("GET", "/api/tags", routes.tags, "Models on disk", InstalledModels),
        for_keys("GET", "/api/ps", routes.ps, "Models in memory", RunningModels),
        for_keys("POST", "/api/show", routes.show, "Details of a model", ShownModel, ModelBody),
        for_keys(
            "POST",
            "/api/chat",
            routes.chat,
            "Answer a conversation",
            ChatFrame,
            ChatBody,
            NDJSON,
            _MODEL,
            is_metered=True,
        ),
        for_keys(
            "POST",
            "/api/generate",
            routes.generate,
            "Answer a prompt",
            GenerateFrame,
            GenerateBody,
            NDJSON,
            _MODEL,
            is_metered=True,
        ),
        for_keys(
            "GET", "/api/status", management.status, "Whether a cloud is offered", CloudStatus
        ),
        for_owner_or_all(
            "POST",
            "/api/create",
            management.create,
            "Make a model of a file",
            JobStatus,
            CreateBody,
            NDJSON,
        ),
        for_owner_or_all(
            "POST",
            "/api/copy",
            management.copy,
            "Give a model another name",
            None,
            CopyBody,
            required=("source", "destination"),
        ),
        for_owner_or_all(
            "DELETE", "/api/delete", management.delete, "Remove a model", None, ModelBody
        ),
        for_owner_or_all(
            "HEAD", "/api/blobs/{digest}", management.has_blob, "Whether a file is here"
        ),
        for_owner_or_all(
            "POST", "/api/blobs/{digest}", management.put_blob, "Upload a file", None, bytes
        ),
        for_owner_or_all(
            "POST", "/api/pull", management.pull, "Download a model", JobStatus, PullBody, NDJSON
        ),
        for_keys("POST", "/api/push", management.push, "Refused", None, ModelBody, is_refused=True),
        for_keys(
            "POST",
            "/api/embed",
            embeddings.embed,
            "Embeddings of another server",
            embeddings.Embeddings,
            embeddings.EmbedBody,
            is_metered=True,
        ),
        for_keys(
            "POST",
            "/api/embeddings",
            embeddings.embed_prompt,
            "An embedding of another server",
            embeddings.Embedding,
            embeddings.PromptBody,
            is_metered=True,
        ),
    ),
    error_body=lambda error, _request: error_frame(error),
    error=ErrorFrame,
)
