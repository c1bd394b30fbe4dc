"""Tokens, prompts and properties as llama-server has them. Source: its tools/server/README.md."""

from typing import Any, ClassVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.base.off_loop import Check, run_off_loop
from gptoss_local.harmony import text_size
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.machine.plan.options import most_answers
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.ollama.request import TEMPLATE
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody
from gptoss_local.server.dialects.options import TokenId
from gptoss_local.server.streaming import json_response, while_connected

endpoints = Endpoints()


class TokenizeBody(msgspec.Struct):
    """Without a `model`, the one that was used last is meant, as everywhere here."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("content",)

    content: str = ""
    add_special: bool = False  # no prompt of gpt-oss begins with a token of its own
    parse_special: bool = True
    with_pieces: bool = False
    model: str = ""


class DetokenizeBody(msgspec.Struct):
    REQUIRED: ClassVar[tuple[str, ...]] = ("tokens",)

    tokens: list[TokenId] = []
    model: str = ""


@endpoints.metered("/tokenize", "A text as token ids", dict, TokenizeBody)
async def tokenize(request: Request) -> Response:
    model = NamedModel(request)
    body = await model.read(TokenizeBody, model.meant)
    vocabulary = await model.vocabulary()

    def encode(check: Check) -> list[Any]:
        encode = vocabulary.encode_tagged if body.parse_special else vocabulary.encode
        tokens = encode(body.content, TokenBudget(check=check))
        if not body.with_pieces:
            return tokens
        return [{"id": token, "piece": _piece(vocabulary.bytes_of(token))} for token in tokens]

    work = run_off_loop(encode, len(body.content))
    return json_response({"tokens": await while_connected(request, work)})


def _piece(data: bytes) -> str | list[int]:
    """Return a token's text, or its bytes if they are a part of a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


@endpoints.metered("/detokenize", "Token ids as text", dict, DetokenizeBody)
async def detokenize(request: Request) -> Response:
    model = NamedModel(request)
    body = await model.read(DetokenizeBody, model.meant)
    vocabulary = await model.vocabulary()
    vocabulary.check(body.tokens, "tokens")
    return json_response({"content": vocabulary.text_of(body.tokens)})


@endpoints.metered("/apply-template", "A conversation as a prompt", dict, ChatCompletionBody)
async def apply_template(request: Request) -> Response:
    model = NamedModel(request, {})
    body = await model.read(ChatCompletionBody, model.meant)
    vocabulary, render = await model.vocabulary(), await model.renderer()
    asked = await model.asked(body.to_request)
    work = run_off_loop(lambda check: render(asked, check), text_size(asked))
    prompt = await while_connected(request, work)
    return json_response({"prompt": vocabulary.text_of(prompt)})


@endpoints.for_keys(
    *("GET", "/props", "A model's context and prompt format", dict),
    queries={"model": {"type": "string"}},
)
async def properties(request: Request) -> Response:
    model = NamedModel(request)
    model.find(model.meant(dict(request.query_params)))
    entry, manager = model.entry, model.manager
    n_ctx = model.n_ctx or await manager.n_ctx_train(entry)
    return json_response(
        {
            "default_generation_settings": {"n_ctx": n_ctx},
            "total_slots": most_answers(manager.settings),
            "model_alias": entry.name,
            "model_path": str(entry.path or ""),
            "chat_template": TEMPLATE,
            "modalities": {"vision": False, "audio": False},
        }
    )


for path, instead in {
    "/completion": "Send a text to /v1/completions, or a prompt to /api/generate with raw.",
    "/infill": "gpt-oss fills no gaps: ask for the change in a message.",
    "/rerank": "gpt-oss ranks no documents: another server can.",
    "/props": "`gptoss config` shows the settings and sets them.",
}.items():
    endpoints.refuse("POST", path, f"{path} is not served here", instead)
endpoints.refuse("GET", "/slots", "/slots is not served here", "/metrics counts what runs.")
