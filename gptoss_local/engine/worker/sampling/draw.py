"""Draw the next tokens of a sequence: sampled, checked against its mask, or forced by it."""

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt

from gptoss_local.base.errors import EngineError
from gptoss_local.base.formats.o200k import NAMED_SPECIALS
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Context, Sampler
from gptoss_local.engine.protocol import Logprob
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.sampling.mask import Mask
from gptoss_local.engine.worker.sequence import Sequence


def prepare_samplers(context: Context) -> None:
    """Give the device's graph its lasting form before the first request."""
    for seq_id in range(context.n_seq_max):
        sampler = Sampler(SamplingParams())
        sampler.bind(context, seq_id)
        sampler.close()


def place_sampler(sequence: Sequence, context: Context) -> None:
    """Sample on the device, unless tokens are drawn from logits or the mask was violated there."""
    is_violated = sequence.mask is not None and sequence.mask.n_rejected > 0
    if sequence.request.needs_logits or is_violated:
        context.chains.detach(sequence.own_slot.index)
    else:
        sequence.sampler.bind(context, sequence.own_slot.index)


def draw(sequence: Sequence, context: Context, row: int, draft: Seq[int] = ()) -> list[int]:
    """Return a token sampled from row `row` of the last batch, and those that certainly follow it.

    These are the next ones of `draft`, which the next rows confirm, or forced by the mask. Returns
    nothing if the device drew a token that is not allowed: the row is computed again for the CPU.
    A token that is not allowed is drawn again among allowed ones, which is exact:

        p(allowed) * p(x | allowed) + (1 - p(allowed)) * p(x | allowed) = p(x | allowed)
    """
    tokens = _draw(sequence, context, row, draft)
    sequence.sampler.accept([token for token in tokens if token not in NAMED_SPECIALS])
    return tokens


def _draw(sequence: Sequence, context: Context, row: int, draft: Seq[int]) -> list[int]:
    mask, sampler = sequence.mask, sequence.sampler
    if mask is None:
        tokens = [sampler.sample(context, row)]
        for guess in draft:
            if tokens[-1] != guess or guess in sequence.request.stop_tokens:
                break
            tokens.append(sampler.sample(context, row + len(tokens)))
        return tokens
    if not mask.is_rejected:
        token = sampler.sample(context, row)
        if mask.accept(token):
            return [token, *_forced(sequence, mask)]
        if sampler.is_bound:
            return []
    token = sampler.sample_allowed(context, row, mask.allowed())
    if not mask.accept(token):
        raise EngineError(f"the answer's format allows token {token} and refuses it")
    return [token, *_forced(sequence, mask)]


def _forced(sequence: Sequence, mask: Mask) -> list[int]:
    return [] if sequence.request.n_logprobs is not None else mask.accept_forced()


def move_to_cpu(sequence: Sequence, context: Context, cache: PrefixCache) -> None:
    """Sample on the CPU from now on, and take back the last token, as its logits are not here.

    The answer stays there: a move costs as much as a hundred tokens on the CPU.
    """
    slot = sequence.own_slot
    sequence.sampler.unbind()
    context.chains.detach(slot.index)
    cache.rewind(slot, len(slot.tokens) - 1)


def logprob(logits: npt.NDArray[np.float32], token: int, n_top: int) -> Logprob:
    """Return the log-softmax of `logits` at `token`, and its `n_top` largest values.

    `logits` is (n_vocab,), without temperature, bias or penalties. PERF: top 20 takes 0.35 ms.
    """
    peak = logits.max()
    total = float(peak) + float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
    ranked = sorted((-float(logits[i]), i) for i in _largest(logits, n_top))[:n_top]
    top = [(i, min(0.0, -negative - total)) for negative, i in ranked]
    return Logprob(min(0.0, float(logits[token]) - total), top)


def _largest(logits: npt.NDArray[np.float32], n: int) -> list[int]:
    """Return ids of the `n` largest and maybe some more.

    No value below the `n` largest maxima of blocks counts. PERF: 0.15 ms, `np.argpartition` 2.8.
    """
    if n == 0:
        return []
    n_block = max(1, len(logits) // 1000)
    maxima = np.maximum.reduceat(logits, np.arange(0, len(logits), n_block))
    found: list[int] = np.flatnonzero(logits >= np.partition(maxima, -n)[-n]).tolist()
    return found
