"""Settings of a chat, a model or a request, by their names in Ollama's api/types.go (Options)."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.formats.o200k import MAX_VOCAB_SIZE
from gptoss_local.base.types import Penalties, SamplingParams

MAX_INT = 2**31 - 1  # the limit of llama.cpp and our frames

NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_INT}
"""The JSON schema of what `number_in` reads."""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VOCAB_SIZE)]
"""An id of any fine-tune; the model's own `Vocabulary` checks that it has it."""

Temperature = Annotated[float, msgspec.Meta(le=100)]
"""Excludes infinity, and the "nan" that a text would become."""

ThinkBudget = Annotated[int, msgspec.Meta(ge=-1)]
"""Tokens of reasoning, after which the model answers; -1: any number."""

RepeatPenalty = Annotated[float, msgspec.Meta(ge=0.1, le=10)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
"""Source: OpenAI's API reference."""

MAX_TOP_LOGPROBS = 20
TopCount = Annotated[
    int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_TOP_LOGPROBS})
]
"""The number of alternatives to a token; each dialect refuses others in its own words."""


def first_limit(*limits: int | None) -> int | None:
    """Return the first limit of tokens that is set, as the engine has it; negative means none."""
    n_tokens = next((each for each in limits if each is not None), None)
    return None if n_tokens is None or n_tokens < 0 else min(n_tokens, MAX_INT)


def number_in(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not (text.isdecimal() and 0 < int(text) <= MAX_INT):
        raise UsageError(f"{name} must be a positive number")
    return int(text) if text else None


class Sampling(msgspec.Struct, kw_only=True):
    temperature: Temperature = 1.0
    top_k: int = 0
    top_p: float = 1.0
    think_budget: ThinkBudget | None = None
    repeat_guard: bool = True

    def sampling(self, **more: Any) -> SamplingParams:
        top_k = max(0, min(self.top_k, MAX_INT))
        return SamplingParams(temperature=self.temperature, top_p=self.top_p, top_k=top_k, **more)


class Options(Sampling):
    num_ctx: int | None = None
    num_predict: int = -1
    seed: int = -1
    min_p: float = 0.0
    repeat_penalty: RepeatPenalty = 1.0
    repeat_last_n: Annotated[int, msgspec.Meta(ge=-1)] = 64
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    stop: str | list[str] = []

    @property
    def n_ctx(self) -> int | None:
        """Return the context asked for, in tokens; None leaves it to the settings."""
        return self.num_ctx if self.num_ctx and self.num_ctx > 0 else None

    @property
    def penalties(self) -> Penalties | None:
        values = (self.repeat_penalty, self.presence_penalty, self.frequency_penalty)
        if values == (1, 0, 0) or self.repeat_last_n == 0:
            return None
        return Penalties(
            repeat=self.repeat_penalty,
            presence=self.presence_penalty,
            frequency=self.frequency_penalty,
            last_n=None if self.repeat_last_n == -1 else min(self.repeat_last_n, MAX_INT),
        )

    def request_fields(self) -> dict[str, Any]:
        seed = self.seed & MAX_INT if self.seed >= 0 else None
        return {
            "sampling": self.sampling(min_p=self.min_p, seed=seed, penalties=self.penalties),
            "max_tokens": first_limit(self.num_predict),
            "stop": (self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            "think_budget": first_limit(self.think_budget),
            "ends_repetition": self.repeat_guard,
        }


_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Stop = Annotated[str, msgspec.Meta(min_length=1)]


class ModelOptions(Options):
    """Defaults of a model: a request may overshoot, as Ollama's do, but a recipe is corrected."""

    num_ctx: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None  # gpt-oss has 131,072
    num_predict: Annotated[int, msgspec.Meta(ge=-2, le=MAX_INT)] = -1
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] = 0
    top_p: _Share = 1.0
    min_p: _Share = 0.0
    stop: _Stop | list[_Stop] = []
