"""Defaults that a model carries -> what a request lacks: options and a beginning.

What a request says itself wins. Options are filled in where its body is still a dictionary, as the
structs do not tell what was sent; messages are put before its own.

Source: Ollama's server/routes.go (ChatHandler, GenerateHandler).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gptoss_local.chat import ChatRequest, Message, RawRequest
from gptoss_local.errors import GptOssError
from gptoss_local.server.body import convert
from gptoss_local.server.ollama_options import Options
from gptoss_local.server.ollama_request import WireMessage, to_message
from gptoss_local.settings import Settings
from gptoss_local.store import ModelDefaults, find_model

RequestT = TypeVar("RequestT", ChatRequest, RawRequest, ChatRequest | RawRequest)
FillIn = Callable[[dict[str, Any]], dict[str, Any]]

# What else a dialect calls an option, and fields that take its place.
CHAT_NAMES = {"num_predict": "max_tokens"}
RESPONSES_NAMES = {"num_predict": "max_output_tokens"}
ANTHROPIC_NAMES = {"stop": "stop_sequences"}
_INSTEAD = {"max_tokens": "max_completion_tokens"}


def fill_in_options(settings: Settings) -> FillIn:
    """For bodies that hold them under `options`, as Ollama's do."""

    def fill_in(body: dict[str, Any]) -> dict[str, Any]:
        defaults = _options(body, settings)
        sent = body.get("options", {})
        if not defaults or not isinstance(sent, dict):
            return body
        return body | {"options": defaults | sent}

    return fill_in


def fill_in_fields(settings: Settings, names: dict[str, str]) -> FillIn:
    """For bodies that hold them beside their other fields, as all of `/v1` do.

    Args:
        settings: Where the models are.
        names: What the dialect calls an option where it is not the option's own name.
    """

    def fill_in(body: dict[str, Any]) -> dict[str, Any]:
        defaults = {names.get(key, key): value for key, value in _options(body, settings).items()}
        if defaults.get("seed", 0) < 0:  # Ollama's way to say that there is none
            del defaults["seed"]
        if isinstance(stop := defaults.get("stop_sequences"), str):
            defaults["stop_sequences"] = [stop]
        missing = {k: v for k, v in defaults.items() if _INSTEAD.get(k) not in body}
        return missing | body

    return fill_in


def begin(request: RequestT, defaults: ModelDefaults) -> RequestT:
    """Put the messages of a model before those of a request, and its system message first.

    A request that has a system message first keeps that alone; one that goes on with the tokens
    of an earlier answer has had all of it.
    """
    if isinstance(request, RawRequest) or request.earlier_tokens:
        return request
    messages = list(request.messages)
    n_system = 1 if messages and messages[0].role == "system" else 0
    messages[n_system:n_system] = [to_message(convert(m, WireMessage)) for m in defaults.messages]
    if defaults.system and not n_system:
        messages.insert(0, Message(role="system", content=defaults.system))
    return msgspec.structs.replace(request, messages=tuple(messages))


def default_n_ctx(defaults: ModelDefaults) -> int | None:
    return convert(defaults.parameters, Options).n_ctx if defaults.parameters else None


def _options(body: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The options of a body's model that we know; none if there is no such model."""
    name = body.get("model")
    if not isinstance(name, str):
        return {}
    try:
        parameters = find_model(name, settings).defaults.parameters
    except GptOssError:  # told later, as an error of the answer
        return {}
    return {key: value for key, value in parameters.items() if key in Options.__struct_fields__}
