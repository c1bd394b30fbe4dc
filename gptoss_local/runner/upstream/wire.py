"""Requests to an upstream and the events it streams: JSON, by the table of kinds."""

from collections.abc import Callable
from typing import Any

import msgspec

from gptoss_local.base.errors import UpstreamError
from gptoss_local.base.formats.o200k import VOCAB_SIZE
from gptoss_local.base.types import FinishReason
from gptoss_local.engine.protocol import Generate, Logprob
from gptoss_local.models.catalog import UpstreamKind

N_CTX = 131_072  # tokens of context that gpt-oss was trained for

Place = tuple[str | int, ...]  # keys of objects and indices of arrays that lead to a value


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The names that one kind of engine gives to things.

    Sources: `protocol.py` in vLLM's entrypoints/openai/completion, SGLang's entrypoints/openai,
    TensorRT-LLM's serve (`openai_protocol.py`), Dynamo's `nvext.rs`; NIM for LLMs 2 is vLLM.
    """

    asks: dict[str, Any]  # fields of a request that make ids, or the stop token, arrive
    ids: Place = ("choices", 0, "token_ids")  # where a chunk has its new token ids
    stop: Place = ("choices", 0, "stop_reason")  # and the last one the token that ended the answer
    path: str = "/v1/completions"
    health: str = "/health"
    about: str = "/v1/models"  # has the context
    has_logprobs: bool = False  # with token ids
    closes: bool = False  # it closes a connection after a stream, though it says that it stays open
    has_salt: bool = False  # it keeps prefixes apart by a `cache_salt`
    priority: Callable[[int], dict[str, Any]] | None = None  # the fields for one of ours
    since: str  # what to say where text arrives without ids


_NVEXT = {"extra_fields": ["completion_token_ids", "stop_reason"]}
_VLLM = Kind(
    asks={"return_token_ids": True, "skip_special_tokens": False},
    has_logprobs=True,
    has_salt=True,
    priority=lambda n: {"priority": -n},  # the lowest is first
    since="vLLM sends ids since 0.10.2.",
)

KINDS: dict[UpstreamKind, Kind] = {
    "gptoss": Kind(
        asks={"return_token_ids": True},
        about="/api/tags",
        has_salt=True,
        since="Install the gptoss there again; it is older than this one.",
    ),
    "vllm": _VLLM,
    "nim": msgspec.structs.replace(
        _VLLM, health="/v1/health/ready", since="NIM for LLMs sends ids since 2.0."
    ),
    "sglang": Kind(
        asks={"return_token_ids": True, "skip_special_tokens": False, "no_stop_trim": True},
        stop=("choices", 0, "matched_stop"),
        has_salt=True,
        priority=lambda n: {"priority": n},
        since="SGLang's /v1/completions sends ids since the middle of 2026.",
    ),
    "tensorrt-llm": Kind(  # refuses fields that it does not know
        asks={"detokenize": False, "include_stop_str_in_output": True},
        priority=lambda n: {"priority": max(0.0, 0.5 + n / 200)},  # 1 is first
        since="trtllm-serve sends ids where it does not detokenize.",
    ),
    "dynamo": Kind(  # refuses fields that it does not know
        asks={"nvext": _NVEXT},
        ids=("nvext", "completion_token_ids"),
        stop=("nvext", "stop_reason"),
        priority=lambda n: {"nvext": _NVEXT | {"agent_hints": {"priority": n}}},
        since="Dynamo sends ids since 1.6.",
    ),
    "llama-server": Kind(
        asks={"return_tokens": True, "cache_prompt": True},
        ids=("tokens",),
        stop=(),
        path="/completion",
        about="/props",
        has_logprobs=True,
        closes=True,
        since="Use a llama-server of 2025 or later.",
    ),
}

_TOKEN_ID = "token_id:"  # vLLM's spelling of a token in log-probabilities
_ENDS: dict[str, FinishReason] = {"stop": "stop", "eos": "stop", "length": "length"}
_N_SEEDS = 2**31  # all kinds take these


class AnswerChunk(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one event of the stream."""

    tokens: list[int] = []
    logprobs: list[Logprob] = []
    end: FinishReason | None = None
    stop_token: int | None = None  # the last token, if the upstream says it
    n_cached: int | None = None  # tokens of the prompt without prefill, if the upstream says so
    n_total: int | None = None  # tokens of the answer by then, if some may be missing; see `Gaps`
    text: str = ""  # of these tokens and of the missing ones


def request_body(kind: UpstreamKind, model: str, asked: Generate) -> dict[str, Any]:
    """Return the body of a request; fields at their default are not sent."""
    sampling, penalties = asked.sampling, asked.sampling.penalties
    is_llama = kind == "llama-server"
    body: dict[str, Any] = {"prompt": asked.prompt, "stream": True} | KINDS[kind].asks
    body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if is_llama:  # its own defaults are others
        body |= {"n_predict": asked.max_tokens, "top_k": sampling.top_k, "min_p": sampling.min_p}
        body["stream"] = asked.max_tokens not in (0, 1)  # a part of a character is in no stream
    else:
        body |= {"model": model, "max_tokens": asked.max_tokens}
        body |= {"stop_token_ids": asked.stop_tokens, "stream_options": {"include_usage": True}}
        is_told = kind == "gptoss"  # whose model may have others of its own
        body |= {"top_k": sampling.top_k} if sampling.top_k or is_told else {}
        body |= {"min_p": sampling.min_p} if sampling.min_p or is_told else {}
    if asked.priority and (priority := KINDS[kind].priority):
        body |= priority(asked.priority)
    if asked.salt and KINDS[kind].has_salt:
        body["cache_salt"] = asked.salt.hex()
    if sampling.seed is not None:
        body["seed"] = sampling.seed % _N_SEEDS
    if sampling.logit_bias:
        bias = sampling.logit_bias
        body["logit_bias"] = list(map(list, bias)) if is_llama else {str(t): b for t, b in bias}
    if penalties is not None:
        body |= {
            "repeat_penalty" if is_llama else "repetition_penalty": penalties.repeat,
            "presence_penalty": penalties.presence,
            "frequency_penalty": penalties.frequency,
        }
        if is_llama:
            body["repeat_last_n"] = N_CTX if penalties.last_n is None else penalties.last_n
    if asked.n_logprobs is not None:
        if is_llama:
            body["n_probs"] = max(1, asked.n_logprobs)  # 0 means none
        else:
            body |= {"logprobs": asked.n_logprobs, "return_tokens_as_token_ids": True}
    return body


def read_chunk(kind: UpstreamKind, data: bytes, n_logprobs: int | None) -> AnswerChunk:
    try:
        event = msgspec.json.decode(data, type=dict[str, Any])
        if error := event.get("error"):
            raise UpstreamError(f"the upstream failed: {error_text(error)}")
        chunk = (_read_llama if kind == "llama-server" else _read)(kind, event, n_logprobs)
    except (msgspec.DecodeError, msgspec.ValidationError, LookupError, TypeError, ValueError) as e:
        raise UpstreamError(
            f"the upstream sent what is not an event of {kind}: {data[:80]!r}",
            hint="`gptoss upstream test` says more.",
        ) from e
    if n_logprobs is not None and len(chunk.logprobs) != len(chunk.tokens):
        raise UpstreamError("the upstream does not send the log-probability of every token")
    if wrong := next((token for token in chunk.tokens if not 0 <= token < VOCAB_SIZE), None):
        raise UpstreamError(f"the upstream sent the token {wrong}, which gpt-oss does not have")
    return chunk


def error_text(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("error") or error.get("detail") or error
    if isinstance(error, dict):
        error = error.get("message") or error
    return str(error)[:500]


def _read(kind: UpstreamKind, event: dict[str, Any], n_logprobs: int | None) -> AnswerChunk:
    table = KINDS[kind]
    usage = event.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    n_cached = details.get("cached_tokens")
    if not event["choices"]:  # the last one, with the usage alone
        return AnswerChunk(n_cached=n_cached)
    choice = event["choices"][0]
    found = _at(event, table.ids)
    if choice.get("text") and found is None:
        raise UpstreamError("the upstream sends text, and no token ids", hint=table.since)
    tokens = msgspec.convert(found or [], list[int])
    end = choice.get("finish_reason")
    if end and end not in _ENDS:
        raise UpstreamError(f"the upstream ended the answer: {end}")
    stop = _at(event, table.stop)
    return AnswerChunk(
        tokens=tokens,
        logprobs=_logprobs(choice.get("logprobs"), n_logprobs, tokens),
        end=_ENDS.get(end),
        stop_token=stop if type(stop) is int else None,
        n_cached=n_cached,
    )


def _read_llama(kind: UpstreamKind, event: dict[str, Any], n_logprobs: int | None) -> AnswerChunk:
    tokens = msgspec.convert(_at(event, KINDS[kind].ids) or [], list[int])
    if event["content"] and not tokens:
        raise UpstreamError("the upstream sends text, and no token ids", hint=KINDS[kind].since)
    logprobs = []
    if n_logprobs is not None and tokens:
        for each in event["completion_probabilities"]:
            top = [(int(t["id"]), float(t["logprob"])) for t in each["top_logprobs"]]
            logprobs.append(Logprob(float(each["logprob"]), top[:n_logprobs]))
    end: FinishReason | None = None
    if event["stop"]:
        end = "length" if event["stop_type"] == "limit" else "stop"
    n_cached = (event.get("timings") or {}).get("cache_n")
    return AnswerChunk(
        tokens=tokens,
        logprobs=logprobs,
        end=end,
        n_cached=n_cached,
        n_total=event.get("tokens_predicted"),
        text=event["content"],
    )


def _at(event: dict[str, Any], place: Place) -> Any:
    found: Any = event
    for step in place:
        if isinstance(step, str):
            found = found.get(step) if isinstance(found, dict) else None
        elif isinstance(found, list) and len(found) > step:
            found = found[step]
        else:
            return None
    return found if place else None


def _logprobs(found: dict[str, Any] | None, n_top: int | None, tokens: list[int]) -> list[Logprob]:
    if n_top is None or not tokens:
        return []
    if found is None:
        raise UpstreamError("the upstream sends no log-probabilities")
    logprobs = []
    for i, value in enumerate(found["token_logprobs"]):
        top = (found.get("top_logprobs") or [{}] * (i + 1))[i] or {}
        pairs = [
            (int(name.removeprefix(_TOKEN_ID)), float(logprob)) for name, logprob in top.items()
        ]
        pairs.sort(key=lambda pair: -pair[1])
        logprobs.append(Logprob(float(value), pairs[:n_top]))
    return logprobs
