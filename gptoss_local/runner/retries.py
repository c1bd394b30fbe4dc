"""Plans the next try after a load that failed: smaller, step by step."""

import msgspec

from gptoss_local.errors import EngineCrashedError, EngineError
from gptoss_local.machine.plan.measured import Measured
from gptoss_local.machine.plan.result import Plan

MAX_TRIES = 6
STEP_BYTES = 512 * 2**20
_TAKEN_BYTES = 128 * 2**20  # less than this comes and goes with every window


class Attempt(msgspec.Struct, frozen=True):
    """The memory that one try to load a model leaves free, beyond a plan's usual margins.

    Attributes:
        extra_margin_bytes: More to leave free on each GPU. The planner pays for it with whatever
            costs least: experts in VRAM, the size of batches, context; at last the GPU itself.
        maps_host: Weights on the host stay in the page cache, rather than in memory of our own.
    """

    extra_margin_bytes: int = 0
    maps_host: bool = False

    @classmethod
    def after(cls, known: Measured) -> "Attempt":
        """Return the first try, where an earlier load has shown what it takes."""
        return cls(known.extra_margin_bytes, known.maps_host)


def next_attempt(
    last: Attempt, plan: Plan, error: EngineError, *, free_before: list[int], free_now: list[int]
) -> Attempt | None:
    """Return the attempt after one that failed; None if no smaller plan would help.

    Args:
        last: The one that failed.
        plan: What it tried.
        error: How it failed.
        free_before: Bytes free on each GPU when it was planned.
        free_now: The same after it.
    """
    was_killed = isinstance(error, EngineCrashedError) and error.was_killed
    if plan.host.weights and (was_killed or "allocate CPU" in error.message):
        return msgspec.structs.replace(last, maps_host=True)
    if was_killed:
        return None  # RAM ran out all the same, and less in VRAM would take more of it
    is_memory = "alloc" in error.message or "out of memory" in error.message
    if not plan.uses_gpu or not is_memory:
        return None
    pairs = zip(free_before, free_now, strict=False)
    if any(now < before - _TAKEN_BYTES for before, now in pairs):
        return last  # another program has taken it; the next plan sees what is left
    margin_bytes = max(STEP_BYTES, 2 * last.extra_margin_bytes)
    return msgspec.structs.replace(last, extra_margin_bytes=margin_bytes)
