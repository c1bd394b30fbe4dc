"""Log-probabilities in the dialects. Source: Ollama's api/types.go; OpenAI's API reference."""

from collections.abc import Iterable

import msgspec

from gptoss_local.api.answers import OllamaLogprob, TopLogprob
from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import TokenLogprob
from gptoss_local.server.dialects.bounds import MAX_TOP_LOGPROBS


class OpenAILogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class CompletionLogprobs(msgspec.Struct):
    """Columns with a row per token; `top_logprobs` has the token itself and the likeliest."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def spell(data: bytes) -> str:
    r"""Return a token's text; a part of a character as OpenAI shows it, e.g. `\xf0\x9f`."""
    return data.decode("utf-8", "backslashreplace")


def ollama_logprobs(tokens: Iterable[TokenLogprob]) -> list[OllamaLogprob]:
    return [OllamaLogprob(spell(t.data), t.logprob, list(t.data), _top(t)) for t in tokens]


def openai_logprobs(tokens: Iterable[TokenLogprob]) -> list[OpenAILogprob]:
    return [OpenAILogprob(spell(t.data), t.logprob, list(t.data), _top(t)) for t in tokens]


def completion_logprobs(tokens: Iterable[TokenLogprob]) -> CompletionLogprobs:
    columns = CompletionLogprobs([], [], [], [])
    for t in tokens:
        text = spell(t.data)
        columns.tokens.append(text)
        columns.token_logprobs.append(t.logprob)
        columns.top_logprobs.append({spell(d): value for d, value in t.top} | {text: t.logprob})
        columns.text_offset.append(t.offset)
    return columns


def openai_count(name: str, n_top: int, *, is_on: bool, needs: str) -> int | None:
    """Return how many alternatives an OpenAI body asks for; None: no log-probabilities at all."""
    if not 0 <= n_top <= MAX_TOP_LOGPROBS:
        which, bound = "above maximum", f"<= {MAX_TOP_LOGPROBS}"
        if n_top < 0:
            which, bound = "below minimum", ">= 0"
        wanted = f"Expected a value {bound}, but got {n_top} instead"
        raise UsageError(f"Invalid '{name}': integer {which} value. {wanted}")
    if n_top and not is_on:
        raise UsageError(f"The '{name}' parameter is only allowed when {needs}")
    return n_top if is_on else None


def _top(token: TokenLogprob) -> list[TopLogprob]:
    return [TopLogprob(spell(data), value, list(data)) for data, value in token.top]
