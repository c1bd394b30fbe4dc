"""Frozen values shared by several layers. They hold data and no behaviour."""

from collections.abc import Callable
from typing import Literal

import msgspec

Effort = Literal["low", "medium", "high"]

FinishReason = Literal["stop", "length", "cancelled", "repetition"]
"""A stop token, the token limit or a full context, the caller, or text that goes in circles."""

CacheType = Literal["f16", "bf16", "q8_0", "q4_0"]

KvType = Literal["f16", "q8_0", "q4_0"]
"""bf16 is left out: it is as large as f16, and slower on GPUs."""

Preset = Literal["balanced", "latency", "throughput", "quiet"]
"""Purpose that a model is loaded for; see `gptoss_local.machine.plan.options`."""

LoadMode = Literal["auto", "none", "mmap", "direct_io", "pinned"]
"""`none` reads the file into buffers, pinned ones on a host with a GPU; `mmap` maps it; `pinned`
maps and locks the CPU's part, or is `none`; `auto`: llama.cpp's choice."""

Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done, total)` during long work; `what` names the current step."""


class ModelParams(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a model's weights."""

    n_gpu_layers: int = -1  # in VRAM; negative: all. Without a GPU it has no effect
    devices: tuple[str, ...] | None = None  # None takes all
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    """Pairs of a regular expression, searched in tensor names, and the device whose memory takes
    those tensors; the first match counts."""
    load_mode: LoadMode = "auto"
    tensor_split: tuple[int, ...] | None = None  # layers of each device; None: llama.cpp's choice
    repack: bool = True  # copy the CPU's experts into a faster order, whatever the load mode
    no_alloc: bool = False  # contexts only report what they would take; needs the load mode `none`

    @property
    def shares_experts(self) -> bool:
        """Return whether GPUs use experts on the host; an override alone may be the head."""
        on_host = any(device == "CPU" for _, device in self.tensor_overrides)
        return on_host and self.n_gpu_layers != 0


class ContextParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a context, in tokens, and its CPU threads for prefill and for decode."""

    n_ctx: int
    n_threads_prefill: int
    n_threads_decode: int
    n_batch: int = 512  # most tokens of a step; llama.cpp's `n_ubatch`, too: see `llama.Context`
    n_seq_max: int = 1
    n_outputs_max: int = 0
    """Most rows of logits of a step; each costs 0.8 MB (n_vocab floats) on the device and on the
    host. Below `n_seq_max`, llama.cpp would abort the process."""
    n_outputs_max_per_seq: int = 1  # of a sequence that is sampled on the device
    cache_type: CacheType = "f16"
    op_offload: bool = True  # a GPU computes large batches with the host's weights, copied to it


class Penalties(msgspec.Struct, frozen=True, kw_only=True):
    """Penalties that make tokens of the answer less likely again; special tokens do not count.

    Over the last `last_n` tokens of the answer (None: all), a logit above 0 is divided by `repeat`,
    one below is multiplied by it; then `presence`, and `frequency` per occurrence, are subtracted.

    Source: `llama_sampler_penalties_apply` in llama-sampler.cpp.
    """

    repeat: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    last_n: int | None = None


class SamplingParams(msgspec.Struct, frozen=True):
    """The way to draw the next token; the defaults are OpenAI's for gpt-oss.

    `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 switch that filter off. A `seed`
    gives the same tokens on the same build; None draws a fresh one. `logit_bias` is added before
    all filters.
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
        """Return whether filters exclude some tokens, however likely the others are."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class Usage(msgspec.Struct, frozen=True):
    """The cost of one sequence, in the engine's wall time, one after the other.

    `queue_ns` lasts until it is admitted, `prefill_ns` until its first token, `decode_ns` until its
    last, pauses for preemption included. `n_cached` tokens of the prompt needed no prefill.
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
"""Tokens of a batch, and its seconds with experts computed on the host (None: not tried, as fewer
tokens took far longer) and brought to the GPU."""


class StepTimes(msgspec.Struct, frozen=True):
    """Seconds of a decode step by its number of rows; see `StepCosts` of the engine."""

    seconds: tuple[tuple[int, float], ...]  # with all rows of one sequence, as a draft has them
    switch_s: float  # cost of changing that number and back
    streams: tuple[tuple[int, float], ...] = ()  # one row of each of several; empty: not measured
    turn_s: float = 0.0  # extra cost of the first two steps with other sequences
