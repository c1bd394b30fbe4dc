"""Options for a prompt that does not fit, and by how much it is too long."""

from typing import Any, NamedTuple

from gptoss_local.api.gptoss import ModelFit
from gptoss_local.errors import ContextOverflowError
from tui.screens.models import place_text

_FOR_ANSWER = 1.25  # how much more than the prompt a larger context holds, at least
_STEP = 8192


class Way(NamedTuple):
    """An option of the chat that makes the prompt fit; `SUMMARISE` is not one of them."""

    option: str
    value: Any


SUMMARISE = Way("summary", None)


def ways_for(
    n_ctx: int, fit: ModelFit | None, *, can_drop: bool, can_summarise: bool
) -> dict[str, Way | None]:
    """Return the ways by their labels; None does not send the message.

    `n_ctx` holds the prompt (0: no such context); `fit` is where the model would go with it.
    """
    ways: dict[str, Way | None] = {}
    if can_drop:
        ways["Leave out the oldest turns, in this chat"] = Way("truncate", True)
    if can_summarise:
        ways["Continue with a summary, which the model makes now"] = SUMMARISE
    if n_ctx and (fit is None or fit.fits != "no"):
        place = f": {place_text(fit)}" if fit else ""
        text = f"Load the model again with {n_ctx:,} tokens of context{place}"
        ways[text] = Way("num_ctx", n_ctx)
    ways["Do not send it; I shorten it"] = None
    return ways


def overflow_text(error: ContextOverflowError) -> str:
    n_prompt = error.n_prompt or 0
    if n_prompt >= error.n_ctx_max:  # the server counts no further
        n_over = n_prompt - error.n_ctx_max + 1
        limit = f"the model reads {error.n_ctx_max:,} at most"
        return f"It has at least {n_prompt:,} tokens and {limit}: {n_over:,} or more too many."
    n_over = n_prompt - error.n_ctx + 1
    return f"It has {n_prompt:,} tokens and the context holds {error.n_ctx:,}: {n_over:,} too many."


def larger_context(error: ContextOverflowError) -> int:
    """Return a context with room for the prompt and an answer; 0 if the model has none."""
    n_prompt = error.n_prompt or 0
    wanted = -(-int(n_prompt * _FOR_ANSWER) // _STEP) * _STEP
    n_ctx = min(wanted, error.n_ctx_max)
    return n_ctx if n_ctx > max(n_prompt, error.n_ctx) else 0
