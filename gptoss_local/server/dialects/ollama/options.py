"""`options` and `think` of Ollama's requests. Source: its api/types.go (Options, ThinkValue)."""

from typing import Annotated, Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.types import Effort, Penalties, SamplingParams
from gptoss_local.server.dialects.bounds import (
    MAX_INT,
    Penalty,
    Temperature,
    ThinkBudget,
    limit_tokens,
    think_budget,
)

_EFFORTS: dict[str, Effort] = {"low": "low", "medium": "medium", "high": "high", "max": "high"}


class Options(msgspec.Struct):
    num_ctx: int | None = None
    num_predict: int = -1
    seed: int = -1
    temperature: Temperature = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 1.0
    repeat_last_n: Annotated[int, msgspec.Meta(ge=-1)] = 64
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    stop: str | list[str] = []
    think_budget: ThinkBudget | None = None
    repeat_guard: bool = True

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
        sampling = SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(0, min(self.top_k, MAX_INT)),
            min_p=self.min_p,
            seed=self.seed & MAX_INT if self.seed >= 0 else None,
            penalties=self.penalties,
        )
        return {
            "sampling": sampling,
            "max_tokens": limit_tokens(self.num_predict),
            "stop": (self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            "think_budget": think_budget(self.think_budget),
            "ends_repetition": self.repeat_guard,
        }


def parse_think(think: object) -> tuple[Effort, bool]:
    """Return effort, and whether to reason. Absent and true mean medium; false means no."""
    match think:
        case None | True:
            return "medium", True
        case False:
            return "low", False
        case str() if think in _EFFORTS:
            return _EFFORTS[think], True
        case str():
            allowed = '"high", "medium", "low", "max", true, or false'
            raise UsageError(f'invalid think value: "{think}" (must be {allowed})')
        case _:
            raise UsageError(
                'think must be a boolean or string ("high", "medium", "low", "max", true, or false)'
            )
