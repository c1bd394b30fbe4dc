"""Frozen values that more than one layer speaks of. They hold data and no behaviour."""

from collections.abc import Callable
from typing import Literal

import msgspec

Effort = Literal["low", "medium", "high"]
"""The amount of reasoning; written into harmony's system message."""

FinishReason = Literal["stop", "length", "cancelled"]
"""Why a sequence ended: a stop token, the token limit or a full context, or the caller."""

Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done, total)` during long work; `what` names the current step."""


class Penalties(msgspec.Struct, frozen=True, kw_only=True):
    """Penalties that make tokens of the answer less likely again; special tokens do not count.

    Of the last `last_n` tokens of the answer (None: of all of it): a logit above 0 is divided by
    `repeat`, one below is multiplied by it, and then `presence`, and `frequency` times the number
    of occurrences, are subtracted.

    Source: `llama_sampler_penalties_apply` in llama-sampler.cpp.
    """

    repeat: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    last_n: int | None = None


class SamplingParams(msgspec.Struct, frozen=True):
    """The way to draw the next token. The defaults are those that OpenAI recommends for gpt-oss.

    `temperature` 0 means greedy; `top_k` 0, `top_p` 1 and `min_p` 0 switch that filter off.
    The same `seed` on the same build gives the same tokens; None draws a fresh one. Before all
    filters, `logit_bias` is added to the logits of the tokens that it names.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    penalties: Penalties | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def has_filters(self) -> bool:
        """Return whether some tokens cannot be drawn however likely the others are."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class Usage(msgspec.Struct, frozen=True):
    """The cost of one sequence. Times are wall clock of the engine, one after the other.

    `queue_ns` lasts until the sequence is admitted, `prefill_ns` until its first token, `decode_ns`
    until its last, with the time it waited if it was preempted. `n_cached` of the prompt's tokens
    needed no prefill. Of `n_drafted` tokens that were guessed, `n_accepted` were right.
    """

    n_prompt: int
    n_generated: int
    prefill_ns: int
    decode_ns: int
    queue_ns: int = 0
    n_cached: int = 0
    n_drafted: int = 0
    n_accepted: int = 0


OffloadTimes = tuple[tuple[int, float | None, float], ...]
"""Seconds of a batch by its tokens: experts computed on the host (None: it was not tried, as fewer
tokens took far longer there), and brought to the GPU."""
