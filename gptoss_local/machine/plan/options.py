"""The user's options for a plan, and its objectives."""

import msgspec

from gptoss_local.base.settings import Settings
from gptoss_local.base.types import CacheType, Preset

N_PROMPT, N_ANSWER = 4096, 512
"""The request that plans are compared by: an agent's turn, read and answered."""


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that are to be fast, and their price.

    Attributes:
        n_together: Requests at the same time, as far as the context has room for them.
        prefers_experts: With experts in RAM, the context is no larger than an agent's first prompt
            needs; longer prompts load the model again.
    """

    n_seq: int = 4
    n_together: int = 1
    prefers_experts: bool = False
    is_quiet: bool = False

    def n_rows(self, n_seq: int, n_ctx: int) -> int:
        n_fitting = n_ctx // (N_PROMPT + N_ANSWER)
        return max(1, min(self.n_together, n_seq, n_fitting))


BALANCED = Objective()

OBJECTIVES: dict[Preset, Objective] = {
    "balanced": BALANCED,
    # One person; the second answer is for programs' own requests, such as titles.
    "latency": Objective(n_seq=2, prefers_experts=True),
    "throughput": Objective(n_seq=16, n_together=16),
    "quiet": Objective(is_quiet=True),
}


def most_answers(settings: Settings) -> int:
    return settings.num_parallel or OBJECTIVES[settings.preset].n_seq


class Attempt(msgspec.Struct, frozen=True):
    """Memory to leave free on each GPU besides margins; whether host weights are mapped."""

    extra_margin_bytes: int = 0
    maps_host: bool = False


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for a plan; None leaves a choice to the planner.

    Attributes:
        n_ctx: Tokens of context, exactly (rounded up to 256, at most the model's own).
        min_ctx: At least; a request's `num_ctx`.
        n_gpu_layers: Layers on GPUs, with the head as one; 0 for none.
        n_cpu_moe: Layers, from the first, whose experts stay on the host.
        checkpoint_bytes: Host memory for conversations; None: 512 MiB, or less if RAM is short.
    """

    objective: Objective = BALANCED
    n_ctx: int | None = None
    min_ctx: int | None = None
    vram_bytes: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    n_seq: int = 4
    n_draft: int = 15
    cache_type: CacheType = "f16"
    n_threads: int | None = None
    checkpoint_bytes: int | None = None
    attempt: Attempt = Attempt()


def plan_options(
    settings: Settings,
    n_draft_max: int,
    *,
    min_ctx: int | None = None,
    attempt: Attempt = Attempt(),  # noqa: B008 (frozen)
) -> PlanOptions:
    return PlanOptions(
        objective=OBJECTIVES[settings.preset],
        n_ctx=settings.context_length if settings.context_length > 0 else None,
        min_ctx=min_ctx,
        vram_bytes=settings.vram_bytes,
        n_gpu_layers=settings.gpu_layers if settings.gpu_layers >= 0 else None,
        n_cpu_moe=settings.cpu_moe if settings.cpu_moe >= 0 else None,
        n_seq=most_answers(settings),
        n_draft=n_draft_max if settings.speculation else 0,
        cache_type=settings.kv_type,
        n_threads=settings.threads or None,
        checkpoint_bytes=settings.checkpoint_bytes,
        attempt=attempt,
    )
