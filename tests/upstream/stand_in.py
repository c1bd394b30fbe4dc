"""Servers that speak the wire format of each kind, over a real engine with nano.

Each refuses the same requests as the real one, and sends ids only when asked in its own way. A
fault replaces or spoils one answer. llama-server's was recorded from the real one; see
`llama_server`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Finished, Generate, Tokens
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from tests.conftest import free_port

_OPENAI = {
    "model", "prompt", "stream", "stream_options", "max_tokens", "temperature", "top_p", "seed",
    "presence_penalty", "frequency_penalty", "logit_bias", "logprobs",
    "stop_token_ids", "top_k", "min_p", "repetition_penalty",
}  # fmt: skip
STRICT = {
    "tensorrt-llm": _OPENAI | {"detokenize", "include_stop_str_in_output", "priority"},
    "dynamo": _OPENAI - {"logprobs"} | {"nvext"},
}
PATHS = {"llama-server": "/completion"}
HEALTH = {"nim": "/v1/health/ready"}

Fault = Callable[[], Response]


@dataclass
class StandIn:
    """One server. `faults` are used up one by one, each by a request."""

    kind: str
    engine: EngineClient | None
    vocabulary: Vocabulary
    key: str = ""
    model: str = "served"
    url: str = ""
    hides_stop: bool = False
    says_stop: bool = True
    n_ctx: int = 4096
    is_ill: bool = False
    faults: list[Fault] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    n_left: int = 0
    n_running: int = 0

    async def complete(self, request: Request) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            sent = request.headers.get("authorization", "")
            return JSONResponse({"error": {"message": f"bad key: {sent}"}}, 401)
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        if self.faults:
            return self.faults.pop(0)()
        if refused := self._refuse(body):
            return JSONResponse({"error": {"message": refused, "code": 400}}, 400)
        if not body["stream"]:
            *_, whole = [json.loads(event[6:]) async for event in self._events(body)]
            return JSONResponse(whole)
        return StreamingResponse(self._events(body), media_type="text/event-stream")

    def _refuse(self, body: dict[str, Any]) -> str:
        if unknown := set(body) - STRICT.get(self.kind, set(body)):
            return f"Extra inputs are not permitted: {sorted(unknown)}"
        if self.kind != "llama-server" and body["model"] != self.model:
            return f"The model `{body['model']}` does not exist."
        n = len(body["prompt"])
        if n >= self.n_ctx and self.kind == "llama-server":
            return f"request ({n} tokens) exceeds the available context size ({self.n_ctx} tokens)"
        if n >= self.n_ctx:
            return f"This model's maximum context length is {self.n_ctx} tokens, and you sent {n}."
        if self.kind == "llama-server" and body.get("repeat_last_n", 0) < 0:
            return "Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647"
        return ""

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[str]:
        assert self.engine is not None
        llama = self.kind == "llama-server"
        sampling = SamplingParams(
            temperature=body["temperature"],
            top_p=body["top_p"],
            seed=body.get("seed"),
            logit_bias=tuple((int(t), b) for t, b in _pairs(body.get("logit_bias") or {})),
        )
        asked = Generate(
            prompt=body["prompt"],
            sampling=sampling,
            stop_tokens=STOP_TOKENS if llama else body["stop_token_ids"],
            max_tokens=body["n_predict" if llama else "max_tokens"],
            n_logprobs=body.get("n_probs" if llama else "logprobs"),
        )
        last, answer, part = 0, list[int](), b""
        self.n_running += 1
        try:
            async with aclosing(self.engine.generate(asked)) as stream:
                async for frame in stream:
                    if isinstance(frame, Tokens):
                        last = frame.tokens[-1]
                        hides = self.hides_stop and last in STOP_TOKENS
                        tokens = frame.tokens[:-1] if hides else frame.tokens
                        if tokens and not llama:
                            yield self._event(body, tokens, frame)
                        for i, token in enumerate(tokens if llama else []):
                            answer.append(token)
                            part += self.vocabulary.bytes_of(token)
                            if not _is_cut(part):  # it sends this token, and the text of all
                                one = Tokens(0, [token], frame.logprobs[i : i + 1])
                                if body["stream"]:
                                    yield self._llama_event(body, one, part, len(answer))
                                part = b""
                    elif isinstance(frame, Finished):
                        for event in self._end(frame, last, [] if body["stream"] else answer):
                            yield event
        except (GeneratorExit, asyncio.CancelledError):
            self.n_left += 1
            raise
        finally:
            self.n_running -= 1

    def _llama_event(self, body: dict[str, Any], frame: Tokens, text: bytes, n_total: int) -> str:
        event: dict[str, Any] = {
            "index": 0,
            "content": "" if frame.tokens[0] in STOP_TOKENS else text.decode(errors="replace"),
            "tokens": frame.tokens if body.get("return_tokens") else [],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": n_total,
            "tokens_evaluated": len(body["prompt"]),
        }
        if frame.logprobs:
            event["completion_probabilities"] = [
                {
                    "id": token,
                    "logprob": each.logprob,
                    "top_logprobs": [{"id": t, "logprob": p} for t, p in each.top],
                }
                for token, each in zip(frame.tokens, frame.logprobs, strict=True)
            ]
        return _sse(event)

    def _event(self, body: dict[str, Any], tokens: list[int], frame: Tokens) -> str:
        text = b"".join(map(self.vocabulary.bytes_of, tokens)).decode(errors="replace")
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": None, "logprobs": None}
        event: dict[str, Any] = {
            "object": "text_completion",
            "model": self.model,
            "choices": [choice],
        }
        if self.kind == "dynamo":
            fields = (body.get("nvext") or {}).get("extra_fields", [])
            if "completion_token_ids" in fields:
                event["nvext"] = {"completion_token_ids": tokens}
        elif self.kind == "tensorrt-llm":
            if body.get("detokenize") is False:
                choice |= {"text": "", "token_ids": tokens}
        else:
            choice["token_ids"] = tokens if body.get("return_token_ids") else None
        if frame.logprobs:
            assert body["return_tokens_as_token_ids"]
            choice["logprobs"] = {
                "tokens": [f"token_id:{t}" for t in tokens],
                "token_logprobs": [each.logprob for each in frame.logprobs],
                "top_logprobs": [
                    {f"token_id:{t}": p for t, p in each.top} for each in frame.logprobs
                ],
            }
        return _sse(event)

    def _end(self, frame: Finished, last: int, answer: list[int]) -> list[str]:
        usage = frame.usage
        if self.kind == "llama-server":
            text = b"".join(self.vocabulary.bytes_of(t) for t in answer if t not in STOP_TOKENS)
            end = {
                "index": 0,
                "content": text.decode(errors="replace"),
                "tokens": answer,
                "stop": True,
                "tokens_predicted": usage.n_generated,
                "timings": {"cache_n": usage.n_cached},
            }
            return [_sse(end | {"stop_type": "limit" if frame.reason == "length" else "eos"})]
        choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": frame.reason}
        event: dict[str, Any] = {"choices": [choice]}
        if frame.reason == "stop" and self.says_stop:
            if self.kind == "dynamo":
                event["nvext"] = {"stop_reason": last}
            else:
                choice["matched_stop" if self.kind == "sglang" else "stop_reason"] = last
        counts = {
            "prompt_tokens": usage.n_prompt,
            "completion_tokens": usage.n_generated,
            "prompt_tokens_details": {"cached_tokens": usage.n_cached},
        }
        return [_sse(event), _sse({"choices": [], "usage": counts}), "data: [DONE]\n\n"]

    async def health(self, _request: Request) -> Response:
        return Response(status_code=503 if self.is_ill else 200)

    async def models(self, _request: Request) -> Response:
        told = {"id": self.model, "object": "model"}
        if self.kind in ("vllm", "nim", "sglang"):
            told["max_model_len"] = self.n_ctx
        return JSONResponse({"object": "list", "data": [told]})

    async def props(self, _request: Request) -> Response:
        return JSONResponse({"default_generation_settings": {"n_ctx": self.n_ctx}})


def _is_cut(text: bytes) -> bool:
    """Whether a text ends within a character."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


def _pairs(bias: Any) -> Any:
    return bias.items() if isinstance(bias, dict) else bias


def _sse(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


@asynccontextmanager
async def serving(stand_in: StandIn) -> AsyncIterator[StandIn]:
    """Serve on a free port, in this event loop."""
    routes = [
        Route(PATHS.get(stand_in.kind, "/v1/completions"), stand_in.complete, methods=["POST"]),
        Route(HEALTH.get(stand_in.kind, "/health"), stand_in.health),
        Route("/v1/models", stand_in.models),
        Route("/props", stand_in.props),
    ]
    port = free_port()
    config = uvicorn.Config(
        Starlette(routes=routes), port=port, log_level="critical", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server._serve())
    while not server.started:
        assert not task.done(), "the port was taken"
        await asyncio.sleep(0.01)
    stand_in.url = f"http://127.0.0.1:{port}"
    try:
        yield stand_in
    finally:
        server.should_exit = server.force_exit = True
        await task


def status(code: int, **headers: str) -> Fault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: JSONResponse({"error": {"message": "overloaded"}}, code, named)


def stream(*parts: str, stalls: bool = False, breaks: bool = False) -> Fault:
    """Send these parts; then stall, break the connection, or end as if nothing were missing."""

    async def content() -> AsyncIterator[str]:
        for part in parts:
            yield part
        if stalls:
            await asyncio.sleep(3600)
        if breaks:
            raise ConnectionError("on purpose")

    return lambda: StreamingResponse(content(), media_type="text/event-stream")


def tokens_event(*tokens: int) -> str:
    """The event of vLLM."""
    choice = {"index": 0, "text": "?", "token_ids": list(tokens), "finish_reason": None}
    return _sse({"choices": [choice]})
