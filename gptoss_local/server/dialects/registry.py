"""All dialects, in the order in which they are asked whether a path is theirs."""

from gptoss_local.api.answers import ErrorFrame
from gptoss_local.server.dialect import Dialect
from gptoss_local.server.dialects import embeddings
from gptoss_local.server.dialects.anthropic import routes as messages
from gptoss_local.server.dialects.anthropic.routes import AnthropicError
from gptoss_local.server.dialects.anthropic.routes import error_body as anthropic_error
from gptoss_local.server.dialects.gptoss import chats, page, routes, tools
from gptoss_local.server.dialects.ollama import management
from gptoss_local.server.dialects.ollama import routes as ollama
from gptoss_local.server.dialects.ollama.frames import error_frame
from gptoss_local.server.dialects.openai import chat, llama_server, responses
from gptoss_local.server.dialects.openai.parts import OpenAIError
from gptoss_local.server.dialects.openai.parts import error_body as openai_error
from gptoss_local.server.request_id import request_id_of

_OF_LLAMA_SERVER = tuple(endpoint.path for endpoint in llama_server.endpoints)

GPTOSS = Dialect(
    name="gptoss",
    is_spoken=lambda path, _headers: path.startswith("/api/gptoss/"),
    endpoints=(*page.endpoints, *routes.endpoints, *chats.endpoints, *tools.endpoints),
    error_body=lambda error, _request: error_frame(error),
    error=ErrorFrame,
)
ANTHROPIC = Dialect(
    name="anthropic",
    is_spoken=lambda path, headers: path.startswith(
        "/v1/" if "anthropic-version" in headers else "/v1/messages"
    ),
    endpoints=messages.endpoints,
    error_body=lambda error, request: anthropic_error(error, request_id_of(request)),
    error=AnthropicError,
)
OPENAI = Dialect(
    name="openai",
    is_spoken=lambda path, _headers: path.startswith(("/v1/", *_OF_LLAMA_SERVER)),
    endpoints=(
        *chat.endpoints,
        *responses.endpoints,
        *llama_server.endpoints,
        *embeddings.openai_endpoints,
    ),
    error_body=lambda error, _request: openai_error(error),
    error=OpenAIError,
)
OLLAMA = Dialect(
    name="ollama",
    is_spoken=lambda _path, _headers: True,
    endpoints=(*ollama.endpoints, *management.endpoints, *embeddings.ollama_endpoints),
    error_body=lambda error, _request: error_frame(error),
    error=ErrorFrame,
)

DIALECTS = (GPTOSS, ANTHROPIC, OPENAI, OLLAMA)
