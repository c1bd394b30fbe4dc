"""Holds what the user wants of a plan, and reads it from the settings."""

import msgspec

from gptoss_local.machine.plan.objective import BALANCED, OBJECTIVES, Objective, most_answers
from gptoss_local.settings import Settings
from gptoss_local.types import CacheType


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for a plan; None leaves a choice to the planner.

    Attributes:
        n_ctx: Tokens of context, exactly (rounded up to 256, at most what the model knows).
        min_ctx: At least so many; a request's `num_ctx`.
        vram_bytes: Use no more than this of each GPU.
        n_gpu_layers: Layers on GPUs, with the head as one; 0 for none.
        n_cpu_moe: Layers, from the first, whose experts stay on the host.
        objective: What is to be fast.
        n_seq: Answers at the same time.
        n_draft: Most tokens of a draft.
        cache_type: Of cached keys and values.
        checkpoint_bytes: Host memory for checkpoints of conversations; None: 512 MiB, or what
            there is if that is less.
        extra_margin_bytes: More to leave free on each GPU, after a load that failed.
        maps_host: Map what is on the host, also where memory of our own would be faster.
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
    extra_margin_bytes: int = 0
    maps_host: bool = False


def plan_options(
    settings: Settings, n_draft_max: int, *, min_ctx: int | None = None
) -> PlanOptions:
    """Return the user's options from the settings.

    Args:
        settings: The user's.
        n_draft_max: Most tokens of a draft, if there are any.
        min_ctx: The context that a request asks for.
    """
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
    )
