"""Log-probabilities of drawn tokens, from the logits they were drawn from."""

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt

from gptoss_local.engine.llama import Context
from gptoss_local.engine.protocol import Logprob


def score(n_top: int | None, context: Context, row: int, tokens: Seq[int]) -> list[Logprob]:
    """Look up what was drawn from row `row` of the last batch.

    Args:
        n_top: How many of the likeliest tokens to include; None: no log-probabilities at all.
        context: Where the batch was decoded; the CPU must have drawn from it.
        row: The row.
        tokens: What was drawn: one token, or nothing.
    """
    if n_top is None:
        return []
    return [logprob(context.logits(row), token, n_top) for token in tokens]


def logprob(logits: npt.NDArray[np.float32], token: int, n_top: int) -> Logprob:
    """Return the log-softmax of `logits` at `token`, and its `n_top` largest values.

    PERF: 201,088 logits, top 20: 0.35 ms on one CPU core.

    Shapes:
        logits: (n_vocab,), without temperature, bias or penalties.
    """
    peak = logits.max()
    total = float(peak) + float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
    ranked = sorted((-float(logits[i]), i) for i in _largest(logits, n_top))[:n_top]
    top = [(i, min(0.0, -negative - total)) for negative, i in ranked]
    return Logprob(min(0.0, float(logits[token]) - total), top)


def _largest(logits: npt.NDArray[np.float32], n: int) -> list[int]:
    """Return ids of the `n` largest and maybe some more.

    The `n` largest maxima of blocks are `n` values, so no other value below them is wanted.
    PERF: 0.15 ms, `np.argpartition` takes 2.8.
    """
    if n == 0:
        return []
    n_block = max(1, len(logits) // 1000)
    maxima = np.maximum.reduceat(logits, np.arange(0, len(logits), n_block))
    found: list[int] = np.flatnonzero(logits >= np.partition(maxima, -n)[-n]).tolist()
    return found
