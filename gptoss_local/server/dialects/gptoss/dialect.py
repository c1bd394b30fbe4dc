"""Our own endpoints, and the usual ones of any server."""

from typing import Any

from gptoss_local.api.answers import ErrorFrame
from gptoss_local.api.gptoss import (
    AttachedFile,
    Inspection,
    Lan,
    ModelFits,
    NamedPresets,
    PageLink,
    PageToken,
    ServerStatus,
    TestedServer,
    TokenCount,
    ToolGroups,
)
from gptoss_local.api.models import JobStatus, LoadStatus
from gptoss_local.server.chats.changes import ChangeEvent
from gptoss_local.server.dialect import Dialect, Endpoint, for_all, for_chat, for_keys, for_page
from gptoss_local.server.dialects.gptoss import attached, chats, page, presets, tools
from gptoss_local.server.dialects.gptoss.routes import (
    AnswerNowBody,
    InspectBody,
    answer_now,
    fits,
    inspect,
    load,
    shut_down,
    status,
)
from gptoss_local.server.dialects.ollama.frames import error_frame
from gptoss_local.server.dialects.ollama.request import GenerateBody
from gptoss_local.server.metrics import Health, health, metrics
from gptoss_local.server.streaming import NDJSON
from gptoss_local.talk.history import ChatSummary

_N_CTX = {"n_ctx": {"type": "integer", "minimum": 1, "maximum": 2147483647}}

_CHAT = "/api/gptoss/chats/{chat_id:int}"
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 2147483647}
_LISTED = {"q": {"type": "string"}, "limit": _WHOLE}
_FORM = {"format": {"enum": ["json", "markdown"]}}

_CHATS = (
    for_chat(
        "GET", "/api/gptoss/chats", chats.chats, "List or search", chats.Chats, queries=_LISTED
    ),
    for_chat(
        "POST", "/api/gptoss/chats", chats.new_chat, "Begin a chat", ChatSummary, chats.NewChatBody
    ),
    for_chat(
        "GET",
        "/api/gptoss/chats/changes",
        chats.changes,
        "What changes in the chats, as it does",
        ChangeEvent,
        stream=NDJSON,
        queries={"chat": _WHOLE},
    ),
    for_chat(
        "POST",
        "/api/gptoss/chats/unlock",
        chats.unlock,
        "Unlock chats that have a passphrase",
        JobStatus,
        chats.UnlockBody,
    ),
    for_chat(
        "POST",
        "/api/gptoss/chats/import",
        chats.import_chat,
        "Add an exported chat",
        ChatSummary,
        dict,
    ),
    for_chat("GET", _CHAT, chats.chat, "A chat with all its turns", chats.Tree),
    for_chat(
        "PATCH", _CHAT, chats.change_chat, "Rename or change", ChatSummary, chats.ChatChangesBody
    ),
    for_chat("DELETE", _CHAT, chats.delete_chat, "Delete a chat", JobStatus),
    for_chat(
        "POST",
        f"{_CHAT}/ask",
        chats.ask,
        "Ask, and begin the answer",
        chats.Begun,
        chats.AskBody,
        required=("content",),
    ),
    for_chat(
        "POST",
        f"{_CHAT}/answer",
        chats.answer,
        "Begin another answer",
        chats.Begun,
        chats.AnswerBody,
    ),
    for_chat(
        "POST",
        f"{_CHAT}/continue",
        chats.continue_answer,
        "Continue an answer that was cut",
        chats.Begun,
        chats.TurnBody,
    ),
    for_chat("POST", f"{_CHAT}/stop", chats.stop, "Stop an answer", JobStatus, chats.TurnBody),
    for_chat(
        "POST",
        f"{_CHAT}/answer-now",
        chats.answer_now,
        "End the reasoning of an answer",
        JobStatus,
        chats.TurnBody,
    ),
    for_chat(
        "POST",
        f"{_CHAT}/allow",
        chats.allow,
        "Answer whether a call may run",
        JobStatus,
        chats.AllowBody,
    ),
    for_chat(
        "GET",
        "/api/gptoss/chats/tools",
        tools.tools,
        "What a chat may call",
        ToolGroups,
        queries={"chat": _WHOLE, "start": {"enum": ["yes", "no"]}},
    ),
    for_page(
        "POST",
        "/api/gptoss/mcp",
        tools.post_server,
        "Add an MCP server",
        JobStatus,
        tools.ServerBody,
    ),
    for_page(
        "POST",
        "/api/gptoss/mcp/test",
        tools.test_server,
        "Start an MCP server, list its tools, and end it",
        TestedServer,
        tools.ServerBody,
    ),
    for_page(
        "DELETE",
        "/api/gptoss/mcp/{name:path}",
        tools.delete_server,
        "Remove an MCP server",
        JobStatus,
    ),
    for_chat(
        "PUT",
        f"{_CHAT}/system",
        chats.set_system,
        "Continue with other instructions",
        chats.Branch,
        chats.SystemBody,
    ),
    for_chat(
        "POST", f"{_CHAT}/fork", chats.fork, "A chat of a branch", ChatSummary, chats.TurnBody
    ),
    for_chat("GET", f"{_CHAT}/export", chats.export, "A chat as text", queries=_FORM),
    for_chat("GET", "/api/gptoss/presets", presets.presets, "What chats begin with", NamedPresets),
    for_page(
        "PUT",
        "/api/gptoss/presets/{name:path}",
        presets.put_preset,
        "Write a preset",
        JobStatus,
        presets.PresetBody,
    ),
    for_page(
        "DELETE",
        "/api/gptoss/presets/{name:path}",
        presets.delete_preset,
        "Remove a preset",
        JobStatus,
    ),
)

GPTOSS = Dialect(
    name="gptoss",
    is_spoken=lambda path, _headers: path.startswith("/api/gptoss/"),
    endpoints=(
        for_all("GET", "/", page.root, "Says that a server is there, or is the page"),
        Endpoint("POST", "/api/gptoss/links", page.new_link, "Make a link to the page", PageLink),
        Endpoint(
            "POST", "/api/gptoss/lan", page.open_lan, "Let the local network in", Lan, page.LanBody
        ),
        Endpoint("DELETE", "/api/gptoss/lan", page.close_lan, "Let it in no longer", JobStatus),
        for_all(
            "POST",
            "/api/gptoss/open",
            page.open_link,
            "Get the page's token, or a phone's key, for a link, once",
            PageToken,
            page.LinkBody,
        ),
        for_all("GET", "/web/{path:path}", page.file, "A file of the page"),
        for_all("GET", "/health", health, "Whether the server lives", Health),
        for_keys("GET", "/metrics", metrics, "Counters for Prometheus"),
        for_page("GET", "/api/gptoss/status", status, "Of the server's process", ServerStatus),
        for_page(
            "POST",
            "/api/gptoss/inspect",
            inspect,
            "A conversation in harmony, with token ids",
            Inspection,
            InspectBody,
            required=("model",),
        ),
        for_chat(
            "POST",
            "/api/gptoss/tokens",
            attached.count_tokens,
            "How many tokens a text takes",
            TokenCount,
            attached.TextBody,
        ),
        for_chat(
            "POST",
            "/api/gptoss/files",
            attached.read_file,
            "A text file, a PDF or a Word document as text",
            AttachedFile,
            bytes,
            queries={"name": {"type": "string"}},
        ),
        for_chat(
            "GET", "/api/gptoss/fits", fits, "Where each model would go", ModelFits, queries=_N_CTX
        ),
        Endpoint(
            "POST", "/api/gptoss/shutdown", shut_down, "End the server", JobStatus, access="owner"
        ),
        for_keys(
            "POST",
            "/api/gptoss/answer-now",
            answer_now,
            "End the reasoning of an answer under way",
            JobStatus,
            AnswerNowBody,
            required=("id",),
        ),
        for_page(
            "POST", "/api/gptoss/load", load, "Load a model", LoadStatus, GenerateBody, NDJSON
        ),
        *_CHATS,
    ),
    error_body=lambda error, _request: error_frame(error),
    error=ErrorFrame,
)
